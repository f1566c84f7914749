"""Java's own key store format (JKS), read.

Layout, all numbers big-endian: magic FEEDFEED, version (1 or 2), number of entries; then each entry: tag,
alias, time of creation, and
    1, a private key: length, the key as an EncryptedPrivateKeyInfo whose algorithm is Sun's own, number of
       certificates, the certificates
    2, a trusted certificate: the certificate
a certificate being (from version 2 on) the name of its type, length, DER. At the end stand twenty bytes:
SHA-1 of the store's password in UTF-16, the text ``Mighty Aphrodite`` and all that is before.

A private key is hidden under a stream of SHA-1 digests: salt (20 bytes), key xor stream, SHA-1 of password
and key. The stream's blocks are SHA-1 of the password and the block before, the first being the salt.

This is old cryptography, and nobody should begin with it; those who have such files are to be read. Called by
``stores``.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from tidelog.security.tls import der

MAGIC = b"\xfe\xed\xfe\xed"
"""How a file of this kind begins; others with the name ``.jks`` are PKCS12, which modern keytools write."""

_PRIVATE_KEY, _TRUSTED = 1, 2
_SUN_KEY_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
_DIGEST_BYTES = 20
_HEADER = Struct(">4sII")
_U16, _U32, _U64 = Struct(">H"), Struct(">I"), Struct(">Q")


class WrongPasswordError(ValueError):
    """The store, or a key in it, was written with another password, or has been changed."""


@dataclass(frozen=True, slots=True)
class JksKey:
    """A private key, still hidden, with its certificates, its own first."""

    alias: str
    hidden: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)

    def reveal(self, password: str) -> bytes:
        """The key as PKCS#8 (DER); ``WrongPasswordError`` if this is not its password."""
        algorithm, content = der.elements(der.only(self.hidden).content)
        kind = der.dotted(der.only(algorithm.content).content)
        if kind != _SUN_KEY_PROTECTOR:
            raise ValueError(f"the key {self.alias} is encrypted by {kind}, which JKS does not have")
        secret = password.encode("utf-16-be")
        data = content.content
        salt, covered, digest = (
            data[:_DIGEST_BYTES],
            data[_DIGEST_BYTES:-_DIGEST_BYTES],
            data[-_DIGEST_BYTES:],
        )
        stream = bytearray()
        block = salt
        while len(stream) < len(covered):
            block = hashlib.sha1(secret + block).digest()
            stream += block
        key = bytes(one ^ other for one, other in zip(covered, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), digest):
            raise WrongPasswordError(f"the password of the key {self.alias} is another one")
        return key


@dataclass(frozen=True, slots=True)
class JksStore:
    """What a file holds."""

    keys: tuple[JksKey, ...]
    trusted: tuple[bytes, ...]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Read a store; without a password its digest is not checked, as Java does with trust stores.

    Raises ``WrongPasswordError``, or ``ValueError`` for a file that is not whole.
    """
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + data[:-_DIGEST_BYTES])
        if not hmac.compare_digest(expected.digest(), data[-_DIGEST_BYTES:]):
            raise WrongPasswordError("the store's password is another one, or the file is damaged")
    reader = _Reader(data[:-_DIGEST_BYTES])
    try:
        return _entries(reader)
    except StructError as error:
        raise ValueError("the file ends too early") from error


def _entries(reader: _Reader) -> JksStore:
    magic, version, count = reader.unpack(_HEADER)
    if magic != MAGIC or version not in (1, 2):
        raise ValueError("the file is no JKS of version 1 or 2")
    keys: list[JksKey] = []
    trusted: list[bytes] = []
    for _ in range(count):
        tag, alias = reader.number(_U32), reader.text()
        reader.number(_U64)
        if tag == _PRIVATE_KEY:
            hidden = reader.block()
            chain = tuple(reader.certificate(version) for _ in range(reader.number(_U32)))
            keys.append(JksKey(alias, hidden, chain))
        elif tag == _TRUSTED:
            trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"the entry {alias} is of an unknown kind, {tag}")
    return JksStore(tuple(keys), tuple(trusted))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def unpack(self, struct: Struct) -> tuple[bytes, int, int]:
        values = struct.unpack_from(self._data, self._pos)
        self._pos += struct.size
        return values[0], values[1], values[2]

    def number(self, struct: Struct) -> int:
        value = struct.unpack_from(self._data, self._pos)[0]
        self._pos += struct.size
        return int(value)

    def text(self) -> str:
        return self._take(self.number(_U16)).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self._take(self.number(_U32))

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()
        return self.block()

    def _take(self, size: int) -> bytes:
        end = self._pos + size
        if end > len(self._data):
            raise ValueError("the file ends too early")
        taken, self._pos = self._data[self._pos : end], end
        return taken
