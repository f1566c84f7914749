"""Stores that Java's keytool writes: JKS as of old, PKCS12 under any name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tidelog.security.tls.stores import StoreOptions, load_key, load_trust

PASSWORD = "changeit"

pytestmark = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is not installed")


def keytool(*arguments: object) -> None:
    subprocess.run(
        ["keytool", *map(str, arguments), "-storepass", PASSWORD],
        check=True,
        capture_output=True,
        timeout=60,
    )


@pytest.mark.parametrize("algorithm", ["RSA", "EC"])
@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
def test_stores_of_keytool_are_read(tmp_path: Path, store_type: str, algorithm: str) -> None:
    keys, trust, certificate = tmp_path / "keys.jks", tmp_path / "trust.jks", tmp_path / "own.crt"
    name = "CN=broker, OU=Streams, O=Example, C=CH"
    of_type = ("-storetype", store_type)
    keytool("-genkeypair", "-keystore", keys, *of_type, "-alias", "own", "-keyalg", algorithm, "-dname", name,
            "-ext", "san=dns:localhost,ip:127.0.0.1", "-keypass", PASSWORD)  # fmt: skip
    keytool("-exportcert", "-keystore", keys, "-alias", "own", "-file", certificate)
    keytool("-importcert", "-noprompt", "-keystore", trust, *of_type, "-alias", "ca", "-file", certificate)
    key = load_key(StoreOptions("keystore", "JKS", str(keys), PASSWORD))
    assert key.certificate.subject == "CN=broker,OU=Streams,O=Example,C=CH"
    assert key.certificate.alternative_names == {"DNS:localhost", "IP:127.0.0.1"}
    trusted = load_trust(StoreOptions("truststore", "JKS", str(trust), PASSWORD))
    assert [each.subject for each in trusted.certificates] == [key.certificate.subject]
