"""Keys and certificates for tests, in every form: what ``tidelog certs`` makes, written as Java and others
do."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tidelog.cli.certs.authority import Authority, Issued

HOSTS = ("localhost", "127.0.0.1")


class TlsFiles:
    """An authority, a server and a client, in PEM files of a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.authority = Authority.create("test authority")
        self.trust = self.write("authority.pem", self.authority.own.certificate_pem)
        self.server = self.pair("server.pem", self.authority.issue("server", HOSTS))
        self.client = self.pair("client.pem", self.authority.issue("client"))
        stranger = Authority.create("another authority")
        self.stranger = self.pair("stranger.pem", stranger.issue("stranger", HOSTS))

    def pair(self, name: str, issued: Issued) -> Path:
        """A key and its certificate in one file."""
        return self.write(name, issued.key_pem + issued.certificate_pem)

    def write(self, name: str, content: str | bytes) -> Path:
        """Put a file there in one step."""
        path = self.directory / name
        beside = path.with_name(path.name + ".new")
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        beside.replace(path)
        return path


def encrypted_pkcs8(issued: Issued, password: str) -> str:
    """The key as PKCS#8, encrypted."""
    return issued.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    ).decode()


def traditional(issued: Issued, password: str | None = None) -> str:
    """The key as PKCS#1 or SEC1."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return issued.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, encryption
    ).decode()


def pkcs12_store(issued: Issued, password: str, authority: Authority | None = None) -> bytes:
    """A PKCS12 file with a key."""
    chain = None if authority is None else [authority.own.certificate]
    return pkcs12.serialize_key_and_certificates(
        b"own",
        issued.key,
        issued.certificate,
        chain,
        serialization.BestAvailableEncryption(password.encode()),
    )


def pkcs12_trust(authority: Authority, password: str) -> bytes:
    """A PKCS12 file with a certificate to trust."""
    return pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(authority.own.certificate, b"ca")],
        serialization.BestAvailableEncryption(password.encode()),
    )


def jks_store(
    password: str,
    *,
    key: Issued | None = None,
    key_password: str | None = None,
    trusted: Sequence[Issued] = (),
) -> bytes:
    """A JKS file, as keytools of old wrote it."""
    entries = []
    if key is not None:
        hidden = _hidden(key, key_password or password)
        entries.append(
            struct.pack(">I", 1)
            + _text("own")
            + struct.pack(">QI", 0, len(hidden))
            + hidden
            + struct.pack(">I", 1)
            + _certificate(key)
        )
    entries += [
        struct.pack(">I", 2) + _text("ca") + struct.pack(">Q", 0) + _certificate(each) for each in trusted
    ]
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _certificate(issued: Issued) -> bytes:
    encoded = issued.certificate.public_bytes(serialization.Encoding.DER)
    return _text("X.509") + struct.pack(">I", len(encoded)) + encoded


def _hidden(issued: Issued, password: str) -> bytes:
    key = issued.key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    secret = password.encode("utf-16-be")
    block = salt = os.urandom(20)
    stream = b""
    while len(stream) < len(key):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    covered = bytes(one ^ other for one, other in zip(key, stream, strict=False))
    data = salt + covered + hashlib.sha1(secret + key).digest()
    algorithm = bytes.fromhex("300e060a2b060104012a02110101") + b"\x05\x00"
    return _der(0x30, algorithm + _der(0x04, data))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content
