from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.rigs.tls_files import (
    TlsFiles,
    encrypted_pkcs8,
    jks_store,
    pkcs12_store,
    pkcs12_trust,
    traditional,
)

from tidelog.cli.certs.authority import Authority, Issued
from tidelog.errors import ConfigError
from tidelog.security.tls.stores import StoreOptions, load_key, load_trust

SECRET = "hush hush"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("authority")


@pytest.fixture(scope="module", params=["EC", "RSA"])
def issued(request: pytest.FixtureRequest, authority: Authority) -> Issued:
    key = rsa.generate_private_key(65537, 2048) if request.param == "RSA" else None
    return authority.issue("broker", ["localhost", "127.0.0.1"], key=key)


def key_store(location: Path | None = None, **fields: Any) -> StoreOptions:
    return replace(
        StoreOptions("keystore", "JKS", None if location is None else str(location), None), **fields
    )


def trust_store(location: Path | None = None, **fields: Any) -> StoreOptions:
    return replace(
        StoreOptions("truststore", "JKS", None if location is None else str(location), None), **fields
    )


def test_pem_keys_are_read_in_every_form(tmp_path: Path, issued: Issued) -> None:
    path = tmp_path / "store.pem"
    for key, password in (
        (issued.key_pem, None),
        (traditional(issued), None),
        (encrypted_pkcs8(issued, SECRET), SECRET),
        (traditional(issued, SECRET), SECRET),
        # A password that is not needed harms nobody.
        (issued.key_pem, SECRET),
    ):
        path.write_text(f"some words before\n{key}{issued.certificate_pem}")
        assert load_key(key_store(path, key_password=password)).certificate.subject == "CN=broker"
        path.write_text(f"{issued.certificate_pem}{key}")
        assert load_key(key_store(path, key_password=password)).certificate.common_name == "broker"
        inline = key_store(key=key, certificates=issued.certificate_pem, key_password=password)
        assert load_key(inline).certificate.alternative_names == {"DNS:localhost", "IP:127.0.0.1"}


@pytest.mark.parametrize("line_end", ["\\n", " ", ""])
def test_text_in_one_line_of_a_properties_file_is_read(issued: Issued, line_end: str) -> None:
    key, certificate = (text.replace("\n", line_end) for text in (issued.key_pem, issued.certificate_pem))
    assert load_key(key_store(key=key, certificates=certificate)).certificate.subject == "CN=broker"
    assert load_trust(trust_store(certificates=certificate)).certificates[0].subject == "CN=broker"


def test_pkcs12_and_jks_are_told_apart_by_how_they_begin(
    tmp_path: Path, issued: Issued, authority: Authority
) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(pkcs12_store(issued, SECRET, authority))
    assert [each.subject for each in load_key(key_store(path, password=SECRET)).chain] == [
        "CN=broker",
        "CN=authority",
    ]
    path.write_bytes(jks_store(SECRET, key=issued))
    assert load_key(key_store(path, password=SECRET, type="PKCS12")).certificate.subject == "CN=broker"
    path.write_bytes(jks_store(SECRET, key=issued, key_password="another"))
    assert (
        load_key(key_store(path, password=SECRET, key_password="another")).certificate.subject == "CN=broker"
    )


def test_trust_stores_of_every_form(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    path = tmp_path / "trust"
    for content, password in (
        (authority.own.certificate_pem.encode(), None),
        (pkcs12_trust(authority, SECRET), SECRET),
        (jks_store(SECRET, trusted=[authority.own]), SECRET),
        # Java, too, reads the certificates of a JKS without its password.
        (jks_store(SECRET, trusted=[authority.own]), None),
    ):
        path.write_bytes(content)
        trust = load_trust(trust_store(path, password=password))
        assert [each.subject for each in trust.certificates] == ["CN=authority"]
    inline = trust_store(certificates=authority.own.certificate_pem + issued.certificate_pem)
    assert [each.subject for each in load_trust(inline).certificates] == ["CN=authority", "CN=broker"]


def refusal_of_key(options: StoreOptions) -> str:
    with pytest.raises(ConfigError) as refusal:
        load_key(options)
    assert SECRET not in str(refusal.value)
    assert SECRET not in repr(options)
    return str(refusal.value)


def test_what_is_wrong_with_a_key_store_is_said_with_option_file_and_remedy(
    tmp_path: Path, issued: Issued, authority: Authority
) -> None:
    files = TlsFiles(tmp_path)

    def wrong(content: bytes | str, **fields: Any) -> str:
        sentence = refusal_of_key(key_store(files.write("store", content), **fields))
        assert sentence.startswith("ssl.")
        assert str(tmp_path / "store") in sentence
        return sentence

    other = authority.issue("other")
    certificate = issued.certificate_pem
    assert "there is no file" in refusal_of_key(key_store(tmp_path / "missing"))
    assert "is empty" in wrong("")
    assert "neither PEM nor PKCS12 nor JKS" in wrong(b"\xff\xfe\x00")
    assert "no private key" in wrong(certificate)
    assert "no certificate" in wrong(issued.key_pem)
    assert "does not belong to its first certificate, that of CN=other" in wrong(
        issued.key_pem + other.certificate_pem
    )
    encrypted = encrypted_pkcs8(issued, SECRET) + certificate
    assert "whose key is encrypted: set ssl.key.password" in wrong(encrypted)
    assert "cannot be decrypted: correct ssl.key.password" in wrong(encrypted, key_password=SECRET + "x")
    assert "set ssl.key.password to the password of the key" in wrong(encrypted, password=SECRET)
    assert "correct ssl.keystore.password" in wrong(pkcs12_store(issued, SECRET), password=SECRET + "x")
    assert "set ssl.keystore.password" in wrong(pkcs12_store(issued, SECRET))
    assert "correct ssl.keystore.password" in wrong(jks_store(SECRET, key=issued), password=SECRET + "x")
    assert "set ssl.keystore.password" in wrong(jks_store(SECRET, key=issued))
    assert "set ssl.key.password" in wrong(
        jks_store(SECRET, key=issued, key_password="another"), password=SECRET
    )
    assert "no private key" in wrong(jks_store(SECRET, trusted=[authority.own]), password=SECRET)
    assert "no private key" in wrong(pkcs12_trust(authority, SECRET), password=SECRET)
    assert "convert" in wrong(certificate, type="BCFKS")
    assert "must be set together" in refusal_of_key(key_store(key=issued.key_pem))
    assert "both set" in refusal_of_key(key_store(tmp_path / "store", key=issued.key_pem))


def test_a_jks_that_was_changed_is_refused(tmp_path: Path, issued: Issued) -> None:
    content = bytearray(jks_store(SECRET, key=issued))
    content[40] ^= 1
    path = tmp_path / "store.jks"
    path.write_bytes(content)
    assert "or the file is damaged" in refusal_of_key(key_store(path, password=SECRET))
    path.write_bytes(content[:100])
    with pytest.raises(ConfigError, match="damaged JKS"):
        load_trust(trust_store(path))


def test_names_of_single_listeners_stand_in_refusals(tmp_path: Path) -> None:
    options = key_store(tmp_path / "missing", name_of=lambda name: f"listener.name.x.{name}")
    assert refusal_of_key(options).startswith("listener.name.x.ssl.keystore.location: there is no file")


def test_an_empty_trust_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trust.jks"
    path.write_bytes(jks_store(SECRET))
    with pytest.raises(ConfigError, match="holds no certificate to trust"):
        load_trust(trust_store(path, password=SECRET))
