"""Options of Kafka's brokers before 3.0 that are still accepted, and the current option for each.

A ``server.properties`` of that time works as it is: :func:`current_options` replaces the old names by current
ones, and one warning names these. The current option wins where both are set, as in Kafka.

Invariant: no name here is an option of ours or one without effect (``unsupported_options``), and every option
that an entry names exists; a test checks both. Called by ``tidelog start``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_MS_PER_MINUTE: Final = 60_000


class RenamedOption(NamedTuple):
    """An option that has another name now, and what its value is multiplied by."""

    name: str
    current: str
    factor: int = 1


RENAMED: tuple[RenamedOption, ...] = (
    RenamedOption("log.cleanup.interval.mins", "log.retention.check.interval.ms", _MS_PER_MINUTE),
    RenamedOption("log.delete.delay.ms", "log.segment.delete.delay.ms"),
    RenamedOption("offsets.topic.retention.minutes", "offsets.retention.minutes"),
)

ADDRESSES: dict[str, tuple[str, str]] = {
    "listeners": ("host.name", "port"),
    "advertised.listeners": ("advertised.host.name", "advertised.port"),
}
"""The options of addresses, and the old options for the host and the port of the one plain listener."""

_DEFAULT_PORT = "9092"


def current_options(raw: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """``raw`` with current options in place of old ones, and the warning about these."""
    found = dict(raw)
    notes: list[str] = []
    for entry in RENAMED:
        value = found.pop(entry.name, None)
        if value is not None:
            number = int(value) * entry.factor if value.strip().isdecimal() else value
            _set(found, entry.current, str(number), (entry.name,), notes)
    host, port = raw.get("host.name", "").strip(), raw.get("port", _DEFAULT_PORT).strip()
    defaults = {"listeners": ("", _DEFAULT_PORT), "advertised.listeners": (host, port)}
    for current, names in ADDRESSES.items():
        old = [name for name in names if name in found]
        if old:
            host_and_port = zip(names, defaults[current], strict=True)
            host, port = (found.pop(name, default).strip() for name, default in host_and_port)
            _set(found, current, f"PLAINTEXT://{_bracketed(host)}:{port}", old, notes)
    return found, f"Options of brokers before Kafka 3.0: {'; '.join(notes)}" if notes else None


def _set(
    found: dict[str, str], current: str, value: str, old: list[str] | tuple[str], notes: list[str]
) -> None:
    words = f"{' and '.join(old)} {'is' if len(old) == 1 else 'are'}"
    if current in found:
        notes.append(f"{words} ignored, as {current} is set")
    else:
        found[current] = value
        notes.append(f"{words} now {current}={value}")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
