"""Certificates for tests, by the openssl command: an authority, brokers that it vouches for, clients."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_TIMEOUT_S = 60


class Certificates:
    """PEM files in ``directory``; keys are not encrypted unless the name says so."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = self._authority("authority")
        self.other_authority = self._authority("other-authority")
        self.broker = self.issue("broker", "IP:127.0.0.1")
        self.foreign_broker = self.issue("foreign-broker", "DNS:elsewhere.test")
        self.client = self.issue("client", "DNS:client.test")

    def issue(self, name: str, subject_alternative_name: str) -> Path:
        """A key and its certificate, in one file."""
        key, certificate = self._file(f"{name}.key"), self._file(f"{name}.crt")
        request, extensions = self._file(f"{name}.csr"), self._file(f"{name}.ext")
        extensions.write_text(f"subjectAltName={subject_alternative_name}\n")
        self._openssl(*_new_key("req", key), *("-out", request, "-subj", f"/CN={name}"))
        self._openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-extfile", extensions, "-out", certificate),
            *("-CA", self.authority, "-CAkey", self._file("authority.key"), "-CAcreateserial"),
        )
        return self._joined(name, key, certificate)

    def encrypted_client(self, password: str) -> Path:
        """The client's key, encrypted, and its certificate."""
        key = self._file("encrypted.key")
        self._openssl(
            *("pkcs8", "-topk8", "-in", self._file("client.key"), "-out", key, "-passout", f"pass:{password}")
        )
        return self._joined("encrypted-client", key, self._file("client.crt"))

    def _authority(self, name: str) -> Path:
        certificate = self._file(f"{name}.pem")
        self._openssl(
            *_new_key("req", self._file(f"{name}.key")),
            *("-x509", "-days", "2", "-subj", f"/CN={name}", "-out", certificate),
        )
        return certificate

    def _joined(self, name: str, key: Path, certificate: Path) -> Path:
        path = self._file(f"{name}.pem")
        path.write_text(key.read_text() + certificate.read_text())
        return path

    def _file(self, name: str) -> Path:
        return self._directory / name

    def _openssl(self, *arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=_TIMEOUT_S)


def _new_key(command: str, key: Path) -> tuple[object, ...]:
    return (command, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key)
