"""Secrets in the metadata store, encrypted with a secret that only the brokers' configuration files hold.

Kafka's form, so that brokers of both kinds read each other's: ``name:value`` pairs with commas in between,

    keyFactoryAlgorithm, keyLength, salt, iterations   how the key was made of ``password.encoder.secret``
    cipherAlgorithm, initializationVector              what it was encrypted with (GCM adds
                                                       authenticationTagLength)
    encryptedPassword, passwordLength                  the secret itself, and how long it was as Java counts

Binary values are in base64. Whoever changes ``password.encoder.secret`` leaves the old one in
``password.encoder.old.secret`` for one start: what cannot be read with the new one is read with that.
``metadata/dynamic_config`` is the caller.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import ClassVar

from tidelog.errors import ConfigError

_SALT_BYTES = 256
_BLOCK_BYTES = 16
_GCM_NONCE_BYTES = 12
_GCM_TAG_BITS = 128
_MAX_ITERATIONS = 10_000_000
_KEY_FACTORIES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
_CBC = "AES/CBC/PKCS5Padding"
_GCM = "AES/GCM/NoPadding"
KEY_FACTORIES = tuple(_KEY_FACTORIES)
CIPHERS = (_CBC, _GCM)
KEY_LENGTHS = (128, 192, 256)


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encrypts with the options' algorithms, and reads whatever algorithms an encrypted value names."""

    KEY_FACTORY: ClassVar[str] = "PBKDF2WithHmacSHA512"

    secret: str = field(repr=False)
    key_factory: str = KEY_FACTORY
    cipher: str = _CBC
    key_length_bits: int = 128
    iterations: int = 4096

    def encode(self, password: str) -> str:
        """``password``, encrypted; each time another text."""
        plain = password.encode()
        salt = secrets.token_bytes(_SALT_BYTES)
        key = _key(self.secret, self.key_factory, salt, self.iterations, self.key_length_bits)
        nonce = secrets.token_bytes(_GCM_NONCE_BYTES if self.cipher == _GCM else _BLOCK_BYTES)
        fields = {
            "cipherAlgorithm": self.cipher,
            "encryptedPassword": _text(_encrypt(self.cipher, key, nonce, plain)),
            "initializationVector": _text(nonce),
            "iterations": str(self.iterations),
            "keyFactoryAlgorithm": self.key_factory,
            "keyLength": str(self.key_length_bits),
            "passwordLength": str(_java_length(password)),
            "salt": _text(salt),
        }
        if self.cipher == _GCM:
            fields["authenticationTagLength"] = str(_GCM_TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, encoded: str) -> str:
        """What :meth:`encode` was given; ``ConfigError`` if the secret is another, or the text is none."""
        try:
            fields = dict(pair.split(":", 1) for pair in encoded.split(","))
            cipher, iterations = fields["cipherAlgorithm"], int(fields["iterations"])
            if cipher not in CIPHERS or not 0 < iterations <= _MAX_ITERATIONS:
                raise ValueError("an algorithm that is not known")
            key_length_bits = int(fields["keyLength"])
            if key_length_bits not in KEY_LENGTHS:
                raise ValueError("a length that no key has")
            salt = _bytes(fields["salt"])
            key = _key(self.secret, fields["keyFactoryAlgorithm"], salt, iterations, key_length_bits)
            nonce, encrypted = _bytes(fields["initializationVector"]), _bytes(fields["encryptedPassword"])
            password = _decrypt(cipher, key, nonce, encrypted).decode()
            if _java_length(password) != int(fields["passwordLength"]):
                raise ValueError("another length")
            return password
        except (ValueError, KeyError, binascii.Error, UnicodeDecodeError):
            # Nothing of it is repeated: parts of it may be secret.
            raise ConfigError(
                "an encrypted option cannot be read with password.encoder.secret; if that was changed, set "
                "password.encoder.old.secret to what it was before"
            ) from None


def _key(secret: str, factory: str, salt: bytes, iterations: int, length_bits: int) -> bytes:
    digest = _KEY_FACTORIES.get(factory)
    if digest is None:
        raise ValueError("an algorithm that is not known")
    return hashlib.pbkdf2_hmac(digest, secret.encode(), salt, iterations, length_bits // 8)


def _encrypt(cipher: str, key: bytes, nonce: bytes, plain: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    if cipher == _GCM:
        return AESGCM(key).encrypt(nonce, plain, None)
    padding = _BLOCK_BYTES - len(plain) % _BLOCK_BYTES
    encryptor = Cipher(AES(key), CBC(nonce)).encryptor()
    return encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()


def _decrypt(cipher: str, key: bytes, nonce: bytes, encrypted: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    if cipher == _GCM:
        try:
            return AESGCM(key).decrypt(nonce, encrypted, None)
        except InvalidTag:
            raise ValueError("another key") from None
    decryptor = Cipher(AES(key), CBC(nonce)).decryptor()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    padding = padded[-1] if padded else 0
    if not 0 < padding <= _BLOCK_BYTES or padded[-padding:] != bytes([padding]) * padding:
        raise ValueError("another key")
    return padded[:-padding]


def _java_length(text: str) -> int:
    """The number of UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
