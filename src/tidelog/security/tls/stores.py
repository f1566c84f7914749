"""Key stores and trust stores: whatever form they have, out of them come PEM text and certificates.

PEM (in files, or in options themselves) may hold keys as PKCS#8, PKCS#1 or SEC1, encrypted or not. What a
file is is told by how it begins and not by its name or by ``ssl.keystore.type``: modern keytools write PKCS12
into files called ``.jks``, and Java reads one as the other as well. PKCS12 is read by ``cryptography``, which
is imported only then.

Every refusal is a ``ConfigError`` that names the option, the file and what to do, and never a password.
Called by ``context``; reads files, so that a broker which is running calls it in a thread.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import ConfigError
from tidelog.security.tls import jks
from tidelog.security.tls.certificate import Certificate, read_certificate
from tidelog.security.tls.private_file import load_pair

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

STORE_TYPES = ("JKS", "PKCS12", "PEM")

_PKCS12_BEGINS = b"\x30"
_CERTIFICATE = re.compile(
    r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----.*?-----END (?:X509 |TRUSTED )?CERTIFICATE-----",
    re.DOTALL,
)
_KEY = re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
_BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL)
_ENCRYPTED_OLD_STYLE = "Proc-Type: 4,ENCRYPTED"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What the options say of one store; ``kind`` is ``keystore`` or ``truststore``."""

    kind: str
    type: str
    location: str | None
    password: str | None = field(repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    """The chain of a key store, or what a trust store trusts, as PEM text."""
    name_of: Callable[[str], str] = field(default=str, repr=False, compare=False)
    """By which name an option was set: for one listener, or for all."""

    @property
    def is_set(self) -> bool:
        """Whether there is such a store."""
        return any(each is not None for each in (self.location, self.key, self.certificates))

    def named(self, suffix: str) -> str:
        """The option ``ssl.<kind>.<suffix>`` by the name it was set by."""
        return self.name_of(f"ssl.{self.kind}.{suffix}")

    @property
    def where(self) -> str:
        """What a sentence about this store begins with."""
        if self.location is not None:
            return f"{self.named('location')} is {self.location}"
        return self.named("key" if self.kind == "keystore" else "certificates")


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and the certificates that go with it."""

    pem: str = field(repr=False)
    """Key and certificates, the key's own first, as OpenSSL reads them."""
    password: str | None = field(repr=False)
    chain: tuple[Certificate, ...]

    @property
    def certificate(self) -> Certificate:
        """The one that belongs to the key."""
        return self.chain[0]


@dataclass(frozen=True, slots=True)
class TrustMaterial:
    """The certificates of those who are trusted."""

    encoded: tuple[bytes, ...] = field(repr=False)
    certificates: tuple[Certificate, ...]


def load_key(options: StoreOptions) -> KeyMaterial:
    """The private key and its certificates; the store must be set."""
    if options.location is None:
        return _key_of_options(options)
    if options.key is not None or options.certificates is not None:
        raise ConfigError(
            f"{options.named('location')} and {options.named('key')} are both set: keep the file or the text"
        )
    data = _read(options)
    if data.startswith(jks.MAGIC):
        return _key_of_jks(options, data)
    if data.startswith(_PKCS12_BEGINS):
        return _key_of_pkcs12(options, data)
    _refuse_password_of_pem(options)
    return _key_of_pem(options, _text_of(options, data))


def load_trust(options: StoreOptions) -> TrustMaterial:
    """The certificates to trust; the store must be set."""
    if options.certificates is not None:
        if options.location is not None:
            raise ConfigError(
                f"{options.named('location')} and {options.named('certificates')} are both set: keep the "
                "file or the text"
            )
        return _trust(options, _pem_certificates(options, options.certificates))
    data = _read(options)
    if data.startswith(jks.MAGIC):
        store = _open_jks(options, data)
        return _trust(options, [*store.trusted, *(key.chain[0] for key in store.keys if key.chain)])
    if data.startswith(_PKCS12_BEGINS):
        found = _open_pkcs12(options, data)
        certificates = [each.certificate for each in found.additional_certs]
        if found.cert is not None:
            certificates.append(found.cert.certificate)
        from cryptography.hazmat.primitives.serialization import Encoding

        return _trust(options, [each.public_bytes(Encoding.DER) for each in certificates])
    return _trust(options, _pem_certificates(options, _text_of(options, data)))


# -- files -----------------------------------------------------------------------------------------------


def _read(options: StoreOptions) -> bytes:
    location, option = options.location, options.named("location")
    assert location is not None
    kind = options.type.upper()
    if kind not in STORE_TYPES:
        raise ConfigError(
            f"{options.named('type')} is {options.type}, and {', '.join(STORE_TYPES)} can be read: convert "
            f"{location} (keytool -importkeystore -deststoretype PKCS12)"
        )
    try:
        data = Path(location).read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{option}: there is no file {location}") from error
    except OSError as error:
        raise ConfigError(
            f"{option}: {location} cannot be read ({(error.strerror or str(error)).lower()}): give the user "
            "who runs this process the right to"
        ) from error
    if not data:
        raise ConfigError(f"{option}: the file {location} is empty")
    return data


def _text_of(options: StoreOptions, data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if "-----BEGIN " not in text:
        raise ConfigError(
            f"{options.where}, which is neither PEM nor PKCS12 nor JKS: name a file of one of these forms"
        )
    return text


def _refuse_password_of_pem(options: StoreOptions) -> None:
    if options.password is not None and options.key_password is None:
        raise ConfigError(
            f"{options.named('password')} is set, and {options.location} is PEM, which has no password of "
            f"its own: set {options.name_of('ssl.key.password')} to the password of the key in it, or to "
            "nothing if the key is not encrypted"
        )


# -- PEM -------------------------------------------------------------------------------------------------


def _key_of_options(options: StoreOptions) -> KeyMaterial:
    if options.key is None or options.certificates is None:
        raise ConfigError(
            f"{options.named('key')} and {options.named('certificate.chain')} must be set together: one "
            "holds the private key, the other its certificate"
        )
    return _key_of_pem(options, f"{options.key}\n{options.certificates}\n")


def _key_of_pem(options: StoreOptions, text: str) -> KeyMaterial:
    text = _with_line_ends(text)
    key = _KEY.search(text)
    if key is None:
        raise ConfigError(
            f"{options.where}, in which there is no private key: put key and certificates into the same PEM "
            "text"
        )
    is_encrypted = key[1].startswith("ENCRYPTED") or _ENCRYPTED_OLD_STYLE in key[0]
    if is_encrypted and not options.key_password:
        raise ConfigError(
            f"{options.where}, whose key is encrypted: set {options.name_of('ssl.key.password')} to its "
            "password"
        )
    certificates = _pem_certificates(options, text)
    pem = "\n".join([key[0], *_CERTIFICATE.findall(text), ""])
    return _checked(
        options, pem, options.key_password if is_encrypted else None, certificates, is_encrypted=is_encrypted
    )


def _with_line_ends(text: str) -> str:
    """PEM as it is in files: in a line of a properties file line ends are two characters, or blanks, or
    gone."""
    return _BLOCK.sub(_rewritten, text.replace("\\n", "\n"))


def _rewritten(block: re.Match[str]) -> str:
    if _ENCRYPTED_OLD_STYLE in block[0]:
        # Lines before the key say how; they cannot be told from it without line ends.
        return block[0]
    body = "".join(block["body"].split())
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {block['label']}-----", *lines, f"-----END {block['label']}-----"])


def _pem_certificates(options: StoreOptions, text: str) -> list[bytes]:
    text = _with_line_ends(text)
    encoded = []
    for block in _CERTIFICATE.findall(text):
        plain = block.replace("X509 CERTIFICATE", "CERTIFICATE").replace("TRUSTED CERTIFICATE", "CERTIFICATE")
        try:
            encoded.append(ssl.PEM_cert_to_DER_cert(plain))
        except ValueError as error:
            raise ConfigError(f"{options.where}, which holds a certificate that is not base64") from error
    if not encoded:
        raise ConfigError(
            f"{options.where}, in which there is no certificate: it has to hold one between the lines "
            "BEGIN CERTIFICATE and END CERTIFICATE"
        )
    return encoded


def _armoured(label: str, encoded: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(encoded).decode()}-----END {label}-----\n"


# -- JKS -------------------------------------------------------------------------------------------------


def _open_jks(options: StoreOptions, data: bytes) -> jks.JksStore:
    try:
        return jks.read_jks(data, options.password)
    except jks.WrongPasswordError as error:
        raise ConfigError(f"{options.where}: {error}; correct {options.named('password')}") from error
    except ValueError as error:
        raise ConfigError(f"{options.where}, a damaged JKS: {error}; export it again") from error


def _key_of_jks(options: StoreOptions, data: bytes) -> KeyMaterial:
    store = _open_jks(options, data)
    password = options.key_password or options.password
    if not store.keys:
        raise ConfigError(f"{options.where}, which holds no private key: name the store that does")
    if password is None:
        raise ConfigError(f"{options.where}, a JKS: set {options.named('password')} to its password")
    entry = store.keys[0]
    try:
        key = entry.reveal(password)
    except jks.WrongPasswordError as error:
        raise ConfigError(
            f"{options.where}: {error} than the store's; set {options.name_of('ssl.key.password')}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{options.where}, a damaged JKS: {error}; export it again") from error
    if not entry.chain:
        raise ConfigError(f"{options.where}, whose key {entry.alias} has no certificate: import it first")
    pem = _armoured("PRIVATE KEY", key) + "".join(_armoured("CERTIFICATE", each) for each in entry.chain)
    return _checked(options, pem, None, list(entry.chain))


# -- PKCS12 ----------------------------------------------------------------------------------------------


def _open_pkcs12(options: StoreOptions, data: bytes) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    password = None if options.password is None else options.password.encode()
    try:
        return pkcs12.load_pkcs12(data, password)
    except UnsupportedAlgorithm as error:
        raise ConfigError(
            f"{options.where}, a PKCS12 that is encrypted by a method too old for OpenSSL: write it again "
            "with a present keytool or openssl"
        ) from error
    except (ValueError, TypeError) as error:
        remedy = "set" if options.password is None else "correct"
        raise ConfigError(
            f"{options.where}, a PKCS12 that cannot be opened, because the password is another one or the "
            f"file is damaged: {remedy} {options.named('password')}"
        ) from error


def _key_of_pkcs12(options: StoreOptions, data: bytes) -> KeyMaterial:
    found = _open_pkcs12(options, data)
    from cryptography.hazmat.primitives import serialization as forms

    if found.key is None or found.cert is None:
        raise ConfigError(
            f"{options.where}, which holds no private key with its certificate: name the store that does"
        )
    key = found.key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
    ).decode()
    chain = [
        each.certificate.public_bytes(forms.Encoding.DER) for each in (found.cert, *found.additional_certs)
    ]
    pem = key + "".join(_armoured("CERTIFICATE", each) for each in chain)
    return _checked(options, pem, None, chain)


# -- what came out ---------------------------------------------------------------------------------------


def _checked(
    options: StoreOptions, pem: str, password: str | None, encoded: list[bytes], *, is_encrypted: bool = False
) -> KeyMaterial:
    """What was read, if OpenSSL takes it and the key is that of the first certificate."""
    material = KeyMaterial(pem, password, _certificates(options, encoded))
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pem, password)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "MISMATCH" in reason or reason == "NO_CERTIFICATE_ASSIGNED":
            raise ConfigError(
                f"{options.where}, whose private key does not belong to its first certificate, that of "
                f"{material.certificate.subject}: put the key's own certificate first"
            ) from error
        if "KEY_TOO_SMALL" in reason or "MD_TOO_WEAK" in reason:
            raise ConfigError(
                f"{options.where}, whose key or signature is too weak for OpenSSL ({reason.lower()}): make "
                "one with at least 2048 bits of RSA, and SHA-256"
            ) from error
        if is_encrypted:
            raise ConfigError(
                f"{options.where}, whose key cannot be decrypted: correct "
                f"{options.name_of('ssl.key.password')}"
            ) from error
        raise ConfigError(
            f"{options.where}, whose private key OpenSSL cannot read "
            f"({reason.lower() or 'no reason given'}): write it again, as PKCS#8 for example (openssl pkcs8 "
            "-topk8)"
        ) from error
    return material


def _trust(options: StoreOptions, encoded: list[bytes]) -> TrustMaterial:
    if not encoded:
        raise ConfigError(
            f"{options.where}, which holds no certificate to trust: import the authority's "
            "(keytool -importcert)"
        )
    return TrustMaterial(tuple(encoded), _certificates(options, encoded))


def _certificates(options: StoreOptions, encoded: list[bytes]) -> tuple[Certificate, ...]:
    try:
        return tuple(read_certificate(each) for each in encoded)
    except ValueError as error:
        raise ConfigError(f"{options.where}, which holds something that is {error}") from error
