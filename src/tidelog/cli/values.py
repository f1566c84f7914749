"""Times and choices as people write them on a command line."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

from tidelog.cli.failure import WrongUsage
from tidelog.records.compression import Codec

_PART = r"([-+]?\d+(?:[.,]\d{1,9})?)"
_DURATION = re.compile(
    rf"([-+])?P(?:{_PART}D)?(?:T(?=[-+\d])(?:{_PART}H)?(?:{_PART}M)?(?:{_PART}S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)

_LATEST_MS = 253_370_764_800_000
"""The beginning of the year 9999, the last one of Python's calendar."""

ChoiceT = TypeVar("ChoiceT", bound=enum.StrEnum)


class CodecName(enum.StrEnum):
    """The codecs by Kafka's names."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"

    @property
    def codec(self) -> Codec:
        return Codec[self.name]


def parse_time_ms(text: str, option: str) -> int:
    """Milliseconds since the epoch, given as such or as an ISO date and time (UTC if it has no zone)."""
    if text.isascii() and text.isdigit():
        return _in_bounds(int(text), text, option)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(
            f"invalid {option} {text!r}: write milliseconds since 1970, or a time such as "
            "2024-05-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _in_bounds(round(moment.timestamp() * 1000), text, option)


def _in_bounds(time_ms: int, text: str, option: str) -> int:
    if not 0 <= time_ms < _LATEST_MS:
        raise WrongUsage(f"invalid {option} {text!r}: a record time must be between 1970 and 9999")
    return time_ms


def parse_duration_ms(text: str, option: str) -> int:
    """Milliseconds, given as such or as an ISO 8601 duration of days, hours, minutes and seconds."""
    if text.isascii() and text.isdigit():
        return _no_longer(int(text), text, option)
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise WrongUsage(
            f"invalid {option} {text!r}: write a duration such as P1DT2H, PT30M, PT10S or milliseconds"
        )
    sign, *parts = found.groups()
    total = sum(
        float(part.replace(",", ".")) * unit for part, unit in zip(parts, _UNITS_MS, strict=True) if part
    )
    return _no_longer(-total if sign == "-" else total, text, option)


def _no_longer(duration_ms: float, text: str, option: str) -> int:
    if abs(duration_ms) > _LATEST_MS:
        raise WrongUsage(f"{option} {text!r} is too long: use at most a few thousand years")
    return round(duration_ms)


def duration_text(duration_ms: int) -> str:
    """``2 d 3 h``, ``4 min 5 s``, ``0.8 s``: the two largest units."""
    if duration_ms < 10_000:
        return f"{duration_ms / 1000:.1f} s"
    seconds = duration_ms // 1000
    sizes = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(at for at, (_, size) in enumerate(sizes) if seconds >= size)
    shown = [(seconds // sizes[first][1], sizes[first][0])]
    if first + 1 < len(sizes):
        shown.append((seconds % sizes[first][1] // sizes[first + 1][1], sizes[first + 1][0]))
    return " ".join(f"{number} {unit}" for number, unit in shown if number)


def parse_choices(texts: list[str] | None, choices: Iterable[ChoiceT], option: str) -> list[ChoiceT]:
    """Values of an option that may be repeated or hold several, separated by commas; case does not matter."""
    known = {choice.lower(): choice for choice in choices}
    chosen: list[ChoiceT] = []
    for text in (part.strip() for each in texts or [] for part in each.split(",")):
        if text.lower() not in known:
            raise WrongUsage(f"invalid {option} {text!r}: choose from {', '.join(known.values())}")
        chosen.append(known[text.lower()])
    return chosen


def parse_topic_partitions(text: str, option: str) -> tuple[str, list[int] | None]:
    """``orders`` or ``orders:0,3`` as a topic and its partitions (None: all)."""
    topic, colon, indexes = text.partition(":")
    if not topic or (colon and not all(part.isascii() and part.isdigit() for part in indexes.split(","))):
        raise WrongUsage(
            f"invalid {option} {text!r}: write a topic such as orders, or partitions such as orders:0,3"
        )
    return topic, [int(part) for part in indexes.split(",")] if colon else None


def unescape(text: str) -> str:
    r"""``\t``, ``\n``, ``\0`` and ``\\`` as the characters they stand for, so that shells need no tricks."""
    table = {r"\t": "\t", r"\n": "\n", r"\0": "\0", r"\\": "\\"}
    return table.get(text, text)
