"""Options that protect, or would if their names were right: a broker that is given one does not start.

An unknown option is a warning elsewhere. Here that would leave a listener open while its operator believes
it to be closed: ``listener.name.clients.ssl.client.auht=required``, a listener that there is not, one or a
mechanism in capitals, which nobody looks for, ``authorizer.class`` in place of ``authorizer.class.name``.
Kafka starts with all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tidelog.config.options.broker_options import BROKER_OPTIONS
from tidelog.config.options.listener_options import PREFIX
from tidelog.config.options.unsupported_options import KNOWN_UNSUPPORTED, is_unsupported

MECHANISMS = ("gssapi", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer")

_PROTECTING = ("ssl.", "sasl.", "principal.", "connections.max.reauth.ms")
_OF_ALL_LISTENERS = ("authorizer.", "super.users", "allow.everyone.", "delegation.token.", "tidelog.audit.")
_OF_MECHANISMS = ("sasl.", "connections.max.reauth.ms")
_BEGINNINGS = ("ssl.", "sasl.", "authorizer.", "listener.", "listeners.")
# Clients have it, and files of brokers have it, too, though it means nothing there.
_CLIENTS_OWN = frozenset({"sasl.mechanism"})


def misspelt_protection(raw: Mapping[str, str], listeners: Collection[str]) -> Iterator[str]:
    """A sentence for each entry that looks like protection and is none; ``listeners`` are in capitals."""
    for name, value in sorted(raw.items()):
        if not value.strip():
            continue
        if name.startswith(PREFIX):
            problem = _of_listener(name, listeners)
        elif _is_known(name) or is_unsupported(name) or name in _CLIENTS_OWN:
            problem = None
        else:
            problem = _unknown(name, "") if name.startswith(_BEGINNINGS) else None
        if problem is not None:
            yield f"{name}: {problem}"


def _of_listener(name: str, listeners: Collection[str]) -> str | None:
    listener, _, option = name.removeprefix(PREFIX).partition(".")
    prefix = f"{PREFIX}{listener}."
    if listener != listener.lower():
        return f"names of listeners are in lower case here; write {prefix.lower()}{option}"
    mechanism = ""
    if not _is_known(option):
        mechanism, _, rest = option.partition(".")
        if not _is_known(rest):
            return _unknown(option, prefix)
        option = rest
        if mechanism not in MECHANISMS:
            return (
                f"{mechanism!r} is no SASL mechanism as it is written here; it is one of "
                f"{', '.join(MECHANISMS)}"
            )
    if mechanism and not option.startswith(_OF_MECHANISMS):
        return f"it is no option of a SASL mechanism; write {prefix}{option}"
    if option.startswith(_OF_ALL_LISTENERS):
        return f"it cannot be set for one listener; write {option}, which holds for all"
    if listener.upper() not in listeners and option in BROKER_OPTIONS and option.startswith(_PROTECTING):
        known = ", ".join(sorted(each.lower() for each in listeners))
        return f"there is no listener {listener}; name one of {known}, or remove the option"
    return None


def _is_known(name: str) -> bool:
    return name in BROKER_OPTIONS or name in KNOWN_UNSUPPORTED


def _unknown(name: str, prefix: str) -> str:
    near = BROKER_OPTIONS.suggest(name, KNOWN_UNSUPPORTED)
    meant = f"; did you mean {prefix}{near}?" if near else ""
    return f"there is no such option, and what may be meant to protect is not passed over{meant}"
