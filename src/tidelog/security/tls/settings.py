"""The options of TLS that servers and clients have in common, read from whoever holds options."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidelog.errors import ConfigError
from tidelog.options import TypedValues
from tidelog.security.tls.cipher_suites import CipherChoice, choose
from tidelog.security.tls.stores import StoreOptions

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
BROKEN_VERSIONS = frozenset({"SSLv2", "SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
"""Versions that Kafka's older files name, and that nobody is offered any more."""
_ANY_VERSION = frozenset({"TLS", "SSL", "TLSv1.3"})


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What a context is made of."""

    key_store: StoreOptions
    trust_store: StoreOptions
    lowest: ssl.TLSVersion
    highest: ssl.TLSVersion
    ciphers: CipherChoice | None
    """``None``: OpenSSL's own choice."""
    name_of: Callable[[str], str] = field(default=str, repr=False, compare=False)


def read_settings(options: TypedValues, name_of: Callable[[str], str] = str) -> TlsSettings:
    """The settings in ``options``; ``ConfigError`` for those that contradict each other."""
    key_store = StoreOptions(
        "keystore",
        options.str("ssl.keystore.type"),
        _set(options, "ssl.keystore.location"),
        _set(options, "ssl.keystore.password"),
        _set(options, "ssl.key.password"),
        _set(options, "ssl.keystore.key"),
        _set(options, "ssl.keystore.certificate.chain"),
        name_of,
    )
    trust_store = StoreOptions(
        "truststore",
        options.str("ssl.truststore.type"),
        _set(options, "ssl.truststore.location"),
        _set(options, "ssl.truststore.password"),
        certificates=_set(options, "ssl.truststore.certificates"),
        name_of=name_of,
    )
    ciphers = choose(options.list("ssl.cipher.suites"), name_of("ssl.cipher.suites"))
    lowest, highest = _versions(options, name_of, ciphers)
    return TlsSettings(key_store, trust_store, lowest, highest, ciphers, name_of)


def _set(options: TypedValues, name: str) -> str | None:
    return options.optional_str(name) or None


def _versions(
    options: TypedValues, name_of: Callable[[str], str], ciphers: CipherChoice | None
) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    option = name_of("ssl.enabled.protocols")
    enabled: Sequence[str] = options.list("ssl.enabled.protocols") or tuple(VERSIONS)
    unknown = [name for name in enabled if name not in VERSIONS and name not in BROKEN_VERSIONS]
    if unknown:
        raise ConfigError(f"{option} names {', '.join(unknown)}: there are {' and '.join(VERSIONS)}")
    versions = [VERSIONS[name] for name in enabled if name in VERSIONS]
    if not versions:
        raise ConfigError(
            f"{option} is {','.join(enabled)}, of which all is broken: use {' and '.join(VERSIONS)}, or one "
            "of them"
        )
    versions = [each for each in versions if each in _by_protocol(options, name_of)]
    if not versions:
        raise ConfigError(
            f"{option} and {name_of('ssl.protocol')} have no version of TLS in common: set ssl.protocol to "
            "TLSv1.3"
        )
    if ciphers is not None:
        has_ciphers = {ssl.TLSVersion.TLSv1_2: ciphers.tls_1_2, ssl.TLSVersion.TLSv1_3: ciphers.tls_1_3}
        versions = [each for each in versions if has_ciphers[each]]
        if not versions:
            raise ConfigError(
                f"{name_of('ssl.cipher.suites')} names no suite of the versions in {option}: add some, or "
                "leave it empty"
            )
    return min(versions), max(versions)


def _by_protocol(options: TypedValues, name_of: Callable[[str], str]) -> set[ssl.TLSVersion]:
    """What ``ssl.protocol`` allows: in Java it is the newest version, or just the name of the family."""
    protocol = options.str("ssl.protocol")
    if protocol in _ANY_VERSION:
        return set(VERSIONS.values())
    if protocol in VERSIONS:
        return {VERSIONS[protocol]}
    raise ConfigError(f"{name_of('ssl.protocol')} is {protocol}: set it to TLSv1.3 or TLSv1.2")
