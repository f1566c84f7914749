"""``ssl.cipher.suites``: Kafka's files have the names of IANA, as Java does; OpenSSL has its own for TLS 1.2.

The table holds what is left after those that encrypt nothing, authenticate nobody or are broken: what it does
not hold is refused, and not left out, since a shorter list than was written could be a weaker one.

Which of the three suites of TLS 1.3 is used cannot be chosen through Python's ``ssl`` (before 3.15): all of
them are on, or, by way of the version, none. A listener that names only some of them refuses the others after
the handshake (``CipherChoice.refuses``); it prefers TLS_AES_256_GCM_SHA384, so that this must be among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.errors import ConfigError

TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
PREFERRED_TLS_1_3 = TLS_1_3[0]


def _table() -> dict[str, str]:
    names: dict[str, str] = {}
    exchanges = {"ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "DHE_RSA": "DHE-RSA-", "RSA": ""}
    for iana, openssl in exchanges.items():
        for bits in ("256", "128"):
            aes = f"TLS_{iana}_WITH_AES_{bits}"
            names[f"{aes}_GCM_SHA{'384' if bits == '256' else '256'}"] = (
                f"{openssl}AES{bits}-GCM-SHA{'384' if bits == '256' else '256'}"
            )
            if iana != "ECDHE_RSA":
                names[f"{aes}_CCM"] = f"{openssl}AES{bits}-CCM"
                names[f"{aes}_CCM_8"] = f"{openssl}AES{bits}-CCM8"
            digest = "384" if bits == "256" and iana.startswith("ECDHE") else "256"
            names[f"{aes}_CBC_SHA{digest}"] = f"{openssl}AES{bits}-SHA{digest}"
            names[f"{aes}_CBC_SHA"] = f"{openssl}AES{bits}-SHA"
        if iana != "RSA":
            names[f"TLS_{iana}_WITH_CHACHA20_POLY1305_SHA256"] = f"{openssl}CHACHA20-POLY1305"
    return names


OPENSSL_NAMES = _table()
"""IANA's name → OpenSSL's, of suites up to TLS 1.2."""

_KNOWN_TO_OPENSSL = frozenset(OPENSSL_NAMES.values())


@dataclass(frozen=True, slots=True)
class CipherChoice:
    """The suites that may be used, by version."""

    tls_1_2: tuple[str, ...]
    """OpenSSL's names."""
    tls_1_3: frozenset[str]

    def refuses(self, suite: str) -> bool:
        """Whether a connection that uses ``suite`` is not wanted."""
        return suite in TLS_1_3 and suite not in self.tls_1_3


def choose(names: Iterable[str], option: str) -> CipherChoice | None:
    """The suites that an option names, ``None`` if all that are good; ``ConfigError`` for an unknown one."""
    found: list[str] = []
    newest: set[str] = set()
    any_named = False
    for name in names:
        any_named = True
        # Java's names of the oldest ones begin with SSL.
        iana = "TLS_" + name.removeprefix("SSL_") if name.startswith("SSL_") else name
        if iana in TLS_1_3:
            newest.add(iana)
        elif iana in OPENSSL_NAMES:
            found.append(OPENSSL_NAMES[iana])
        elif name in _KNOWN_TO_OPENSSL:
            found.append(name)
        else:
            raise ConfigError(
                f"{option} names {name}, which OpenSSL does not have or which protects nothing: use names "
                "such as TLS_AES_256_GCM_SHA384 and TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
            )
    return CipherChoice(tuple(found), frozenset(newest)) if any_named else None
