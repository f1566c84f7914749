"""Times and choices as people write them on a command line."""

from __future__ import annotations

import enum
from datetime import UTC, datetime

from tidelog.cli.failure import WrongUsage
from tidelog.records.compression import Codec


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
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(
            f"{option} {text!r} is no time: write milliseconds since 1970, or 2024-05-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def unescape(text: str) -> str:
    r"""``\t``, ``\n``, ``\0`` and ``\\`` as the characters they stand for, so that shells need no tricks."""
    table = {r"\t": "\t", r"\n": "\n", r"\0": "\0", r"\\": "\\"}
    return table.get(text, text)
