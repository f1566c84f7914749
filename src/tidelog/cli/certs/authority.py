"""A certificate authority for development: makes itself, and certificates for servers and clients.

Keys are on the curve P-256, which every client has and whose handshakes cost little. Nothing is written here;
``command`` does that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

LONGEST_NAME_BYTES = 64
"""Of a common name: ub-common-name in RFC 5280."""

# Clocks of two machines differ.
_EARLIER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key with its certificate."""

    key: PrivateKey = field(repr=False)
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        """The key, not encrypted, as PKCS#8, which is what Java reads."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def certificate_pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


class Authority:
    """Vouches for others."""

    def __init__(self, own: Issued) -> None:
        self.own = own

    @classmethod
    def create(cls, common_name: str, *, days: float = 3650, key: PrivateKey | None = None) -> Authority:
        """A new one, that vouches for itself."""
        key = key or new_key()
        name = subject(common_name)
        builder = (
            _builder(name, name, key, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(Issued(key, builder.sign(key, hashes.SHA256())))

    def issue(
        self,
        name: str | x509.Name,
        hosts: Sequence[str] = (),
        *,
        days: float = 825,
        key: PrivateKey | None = None,
    ) -> Issued:
        """A key and a certificate for ``name``, who answers to ``hosts`` (names and addresses)."""
        key = key or new_key()
        issuer = self.own.certificate
        builder = (
            _builder(subject(name) if isinstance(name, str) else name, issuer.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.own.key.public_key()), critical=False
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Issued(key, builder.sign(self.own.key, hashes.SHA256()))


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def subject(common_name: str) -> x509.Name:
    """A distinguished name that is just a common name, or as much of it as X.509 has room for.

    Whom a server's name is for is said by the alternative names, which have room for every host.
    """
    shown = common_name.encode()[:LONGEST_NAME_BYTES].decode(errors="ignore")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, shown)])


def _builder(name: x509.Name, issuer: x509.Name, key: PrivateKey, days: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    # One that has expired began, too.
    begins = min(now, now + timedelta(days=days)) - _EARLIER
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
