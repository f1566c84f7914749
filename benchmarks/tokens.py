"""Tokens of OAUTHBEARER and the set of public keys of their issuer, for attacks on logins."""

from __future__ import annotations

import base64
import json
import os
import time

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256


class Issuer:
    """One key under many ids: to make as many keys would take hours."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self._key = rsa.generate_private_key(65537, 2048)

    def key_set(self) -> bytes:
        """A JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        modulus = _base64url(numbers.n.to_bytes(256, "big"))
        entries = [
            {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": f"key-{number}", "n": modulus, "e": "AQAB"}
            for number in range(self.keys)
        ]
        return json.dumps({"keys": entries}).encode()

    def token(self, number: int, *, is_genuine: bool = True) -> str:
        """A token that names one of the keys; the signature of a forged one is random."""
        now_s = int(time.time())
        parts = (
            {"alg": "RS256", "kid": f"key-{number}"},
            {"sub": "alice", "iat": now_s, "exp": now_s + 3600},
        )
        signed = ".".join(_base64url(json.dumps(each).encode()) for each in parts)
        if is_genuine:
            signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        else:
            signature = os.urandom(256)
        return f"{signed}.{_base64url(signature)}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
