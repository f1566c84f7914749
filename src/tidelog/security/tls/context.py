"""``ssl.SSLContext`` of servers and of clients, from settings.

What both have: no renegotiation, no compression, nothing below TLS 1.2; trust as Java's clients know it,
where a certificate in the trust store is trusted whether or not it vouches for itself. A server's ciphers go
by its own order. Where there is no trust store the authorities of the operating system are trusted, as Java
trusts its own.

Making one reads files: a broker that is running does it in a thread. A context is good for any number of
connections, and goes on to be theirs when another has taken its place.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Literal

from tidelog.errors import ConfigError
from tidelog.security.tls.cipher_suites import PREFERRED_TLS_1_3, TLS_1_3
from tidelog.security.tls.kernel_tls import OP_ENABLE_KTLS
from tidelog.security.tls.private_file import load_pair
from tidelog.security.tls.settings import TlsSettings
from tidelog.security.tls.stores import KeyMaterial, TrustMaterial, load_key, load_trust

ClientAuth = Literal["none", "requested", "required"]

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsContext:
    """A context, and what it was made of."""

    context: ssl.SSLContext
    settings: TlsSettings
    key: KeyMaterial | None
    trust: TrustMaterial | None


def server_context(settings: TlsSettings, client_auth: ClientAuth, *, kernel_tls: bool = False) -> TlsContext:
    """The context of a listener; ``ConfigError`` if one cannot be made."""
    if not settings.key_store.is_set:
        raise ConfigError(
            "a listener with TLS needs a private key and a certificate: set "
            f"{settings.name_of('ssl.keystore.location')} to a file with both (`tidelog certs init` makes "
            "one to try things out)"
        )
    ciphers = settings.ciphers
    if ciphers is not None and ciphers.tls_1_3 and PREFERRED_TLS_1_3 not in ciphers.tls_1_3:
        raise ConfigError(
            f"{settings.name_of('ssl.cipher.suites')} names {', '.join(sorted(ciphers.tls_1_3))} without "
            f"{PREFERRED_TLS_1_3}, which cannot be switched off alone: add it, or leave TLS 1.3 out "
            "(ssl.enabled.protocols=TLSv1.2)"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY[client_auth]
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if kernel_tls:
        context.options |= OP_ENABLE_KTLS
    _set_versions_and_ciphers(context, settings)
    trust = None if client_auth == "none" else _trust(context, settings)
    return TlsContext(context, settings, _identify(context, settings), trust)


def client_context(settings: TlsSettings, *, check_hostname: bool) -> TlsContext:
    """The context of connections to servers; ``ConfigError`` if one cannot be made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _set_versions_and_ciphers(context, settings)
    trust = _trust(context, settings)
    return TlsContext(
        context, settings, _identify(context, settings) if settings.key_store.is_set else None, trust
    )


def refuses_cipher(settings: TlsSettings, suite: str) -> bool:
    """Whether a handshake ended with a suite that the options do not name."""
    return suite in TLS_1_3 and settings.ciphers is not None and settings.ciphers.refuses(suite)


def _set_versions_and_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.minimum_version, context.maximum_version = settings.lowest, settings.highest
    if settings.ciphers is not None and settings.ciphers.tls_1_2:
        try:
            context.set_ciphers(":".join(settings.ciphers.tls_1_2))
        except ssl.SSLError as error:
            raise ConfigError(
                f"{settings.name_of('ssl.cipher.suites')} names no suite that this machine's OpenSSL allows: "
                "use stronger ones"
            ) from error


def _identify(context: ssl.SSLContext, settings: TlsSettings) -> KeyMaterial:
    key = load_key(settings.key_store)
    load_pair(context, key.pem, key.password)
    return key


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> TrustMaterial | None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not settings.trust_store.is_set:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH
            if context.protocol is ssl.PROTOCOL_TLS_SERVER
            else ssl.Purpose.SERVER_AUTH
        )
        return None
    trust = load_trust(settings.trust_store)
    try:
        context.load_verify_locations(cadata=b"".join(trust.encoded))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{settings.trust_store.where}, whose certificates OpenSSL cannot read") from error
    return trust
