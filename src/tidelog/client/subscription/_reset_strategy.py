"""Where to begin when a partition has no position: ``auto.offset.reset``.

``earliest``, ``latest``, ``none`` (raise) or ``by_duration:PT1H``, which means the first record that is at
most that old (KIP-1106). Read by ``SubscriptionState``; carried out by ``consumer._positions``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelog.client.resources import OffsetSpec
from tidelog.errors import ConfigError

_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?!$)(?:(?P<days>\d+)D)?(?:T(?!$)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True, slots=True)
class ResetStrategy:
    """One way to find a first position: a constant below, or read by :func:`parse_reset_strategy`."""

    name: str
    duration_ms: int | None = None

    def timestamp(self, now_ms: int) -> int:
        """What ListOffsets is to look for: one of the special timestamps or a time."""
        if self.duration_ms is not None:
            return now_ms - self.duration_ms
        return OffsetSpec.EARLIEST if self.name == "earliest" else OffsetSpec.LATEST

    def __str__(self) -> str:
        return self.name


EARLIEST = ResetStrategy("earliest")
LATEST = ResetStrategy("latest")
NONE = ResetStrategy("none")


def parse_reset_strategy(text: str) -> ResetStrategy:
    """The strategy that a value of ``auto.offset.reset`` names; raises ``ConfigError`` for any other."""
    lowered = text.strip().lower()
    for known in (EARLIEST, LATEST, NONE):
        if lowered == known.name:
            return known
    if lowered.startswith(_BY_DURATION) and (match := _DURATION.fullmatch(lowered[len(_BY_DURATION) :])):
        seconds = sum(float(match[unit] or 0) * size for unit, size in _SECONDS.items())
        return ResetStrategy(text.strip(), int(seconds * 1000))
    raise ConfigError(
        f"Invalid value {text} for configuration auto.offset.reset: it must be earliest, latest, none "
        "or by_duration:<ISO 8601 duration>, such as by_duration:PT1H30M"
    )
