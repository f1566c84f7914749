from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.certs.authority import Authority
from tidelog.security.tls.certificate import read_certificate

AUTHORITY = Authority.create("authority")

NAMES: dict[str, list[tuple[x509.ObjectIdentifier, str]]] = {
    "CN=client": [(NameOID.COMMON_NAME, "client")],
    "CN=kafka1.example.org,OU=Streams,O=Example,L=Bern,ST=BE,C=CH": [
        (NameOID.COUNTRY_NAME, "CH"),
        (NameOID.STATE_OR_PROVINCE_NAME, "BE"),
        (NameOID.LOCALITY_NAME, "Bern"),
        (NameOID.ORGANIZATION_NAME, "Example"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Streams"),
        (NameOID.COMMON_NAME, "kafka1.example.org"),
    ],
    r"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j": [(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')],
    r"CN=\ \ in the middle\ \ ": [(NameOID.COMMON_NAME, "  in the middle  ")],
    "CN=Zoë Ünal 東京": [(NameOID.COMMON_NAME, "Zoë Ünal 東京")],
    "UID=u1,DC=example,DC=org,STREET=Main Street 1": [
        (NameOID.STREET_ADDRESS, "Main Street 1"),
        (NameOID.DOMAIN_COMPONENT, "org"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.USER_ID, "u1"),
    ],
}


def encoded_with(name: x509.Name) -> bytes:
    return AUTHORITY.issue(name).certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize("expected", NAMES)
def test_names_are_printed_as_java_prints_them(expected: str) -> None:
    name = x509.Name([x509.NameAttribute(kind, value) for kind, value in NAMES[expected]])
    assert read_certificate(encoded_with(name)).subject == expected


def test_types_without_a_short_name_are_numbers_with_their_bytes() -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.SERIAL_NUMBER, "123", _ASN1Type.PrintableString),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.org", _ASN1Type.IA5String),
        ]
    )
    assert read_certificate(encoded_with(name)).subject == (
        "1.2.840.113549.1.9.1=#16076140622e6f7267,2.5.4.5=#1303313233"
    )


def test_parts_of_several_types_are_joined() -> None:
    together = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "b")]
    )
    assert set(read_certificate(encoded_with(x509.Name([together]))).subject.split("+")) == {"CN=a", "UID=b"}


JAVA = """
import java.security.cert.*; import java.io.*;
public class Names {
    public static void main(String[] paths) throws Exception {
        var out = new PrintStream(System.out, true, "UTF-8");
        for (String path : paths) try (var in = new FileInputStream(path)) {
            var found = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
            out.println(found.getSubjectX500Principal().getName());
        }
    }
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_java_itself_prints_the_same(tmp_path: Path) -> None:
    """A foreign witness: the class that Kafka calls."""
    attributes = [
        [x509.NameAttribute(kind, value) for kind, value in parts] for parts in NAMES.values() if parts
    ]
    attributes.append([x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.org"), attributes[0][0]])
    attributes.append([x509.NameAttribute(NameOID.COMMON_NAME, "#1 x # ")])
    paths, ours = [], []
    for number, parts in enumerate(attributes):
        encoded = encoded_with(x509.Name(parts))
        path = tmp_path / f"{number}.crt"
        path.write_bytes(encoded)
        paths.append(str(path))
        ours.append(read_certificate(encoded).subject)
    source = tmp_path / "Names.java"
    source.write_text(JAVA)
    told = subprocess.run(["java", str(source), *paths], capture_output=True, check=True, timeout=120)
    assert told.stdout.decode().splitlines() == ours


def test_validity_and_names_of_hosts_are_those_that_were_asked_for() -> None:
    hosts = ["broker1.example.org", "10.0.0.1", "::1"]
    issued = AUTHORITY.issue("x", hosts, days=10)
    read = read_certificate(issued.certificate.public_bytes(Encoding.DER))
    assert read.alternative_names == {"DNS:broker1.example.org", "IP:10.0.0.1", "IP:::1"}
    assert read.not_after == issued.certificate.not_valid_after_utc
    assert read.not_before == issued.certificate.not_valid_before_utc
    assert read.validity_problem() is None
    expired = read_certificate(AUTHORITY.issue("x", days=-1).certificate.public_bytes(Encoding.DER))
    assert "the certificate of CN=x expired on" in (expired.validity_problem() or "")
    assert "is not valid before" in (read.validity_problem(expired.not_before) or "")


ENCODED = AUTHORITY.issue("x", ["localhost"]).certificate.public_bytes(Encoding.DER)


@given(st.integers(0, len(ENCODED) - 1), st.integers(0, 255), st.integers(0, len(ENCODED)))
def test_damaged_certificates_are_refused_or_read_and_nothing_else(at: int, byte: int, length: int) -> None:
    damaged = bytearray(ENCODED)
    damaged[at] = byte
    with contextlib.suppress(ValueError):
        read_certificate(bytes(damaged[:length]))
