"""Whether a new key and certificate may take the place of those in use, and files that have changed.

The rules are Kafka's: the certificate keeps its distinguished name and the names of hosts it had, unless
``ssl.allow.dn.changes`` or ``ssl.allow.san.changes`` say otherwise; a store is neither added nor taken away.
And ours: what has expired, or is not valid yet, is not taken.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tidelog.errors import ConfigError
from tidelog.security.tls.context import TlsContext
from tidelog.security.tls.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class RotationRules:
    """What may change."""

    allow_dn_changes: bool = False
    allow_san_changes: bool = False


def check_rotation(now: TlsContext, new: TlsContext, rules: RotationRules) -> None:
    """Raise ``ConfigError`` if ``new`` may not take the place of ``now``."""
    _check_stores(now.settings, new.settings)
    if now.key is None or new.key is None:
        return
    old, certificate = now.key.certificate, new.key.certificate
    for each in new.key.chain:
        problem = each.validity_problem()
        if problem is not None:
            raise ConfigError(f"{new.settings.key_store.where}: {problem}; put a valid one there")
    if old.subject != certificate.subject and not rules.allow_dn_changes:
        raise ConfigError(
            f"{new.settings.key_store.where}: Keystore DistinguishedName does not match: "
            f"existing={old.subject}, new={certificate.subject}; set ssl.allow.dn.changes=true where it is "
            "to change"
        )
    if not old.alternative_names <= certificate.alternative_names and not rules.allow_san_changes:
        raise ConfigError(
            f"{new.settings.key_store.where}: Keystore SubjectAltNames do not match: "
            f"existing={sorted(old.alternative_names)}, new={sorted(certificate.alternative_names)}; set "
            "ssl.allow.san.changes=true where some are to go"
        )


def _check_stores(now: TlsSettings, new: TlsSettings) -> None:
    if now.key_store.is_set != new.key_store.is_set:
        change = "remove the SSL keystore from" if now.key_store.is_set else "add an SSL keystore to"
        raise ConfigError(
            f"Cannot {change} an existing listener: change listeners and start the broker again"
        )
    if new.trust_store.is_set and not now.trust_store.is_set:
        raise ConfigError(
            "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        )


FileState = tuple[tuple[str, int, int, int] | None, ...]
"""What tells that a store's files are not those they were."""


def file_state(settings: TlsSettings) -> FileState:
    """The state of the files now: where symbolic links lead to (Kubernetes swaps those), and what is
    there."""
    return tuple(_state(each.location) for each in (settings.key_store, settings.trust_store))


def _state(location: str | None) -> tuple[str, int, int, int] | None:
    if location is None:
        return None
    path = os.path.realpath(location)
    try:
        found = os.stat(path)  # noqa: PTH116 - the path is one that realpath made
    except OSError:
        return (path, 0, 0, 0)
    return (path, found.st_ino, found.st_mtime_ns, found.st_size)
