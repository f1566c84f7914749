"""What a dead letter is: a record that somebody could not use, byte for byte, with who, why and where from.

A pipeline's letter has the record's value as its value, and headers, all text in UTF-8, in this order:

    pipeline    who refused it
    topic       of the record; then its ``partition``, ``offset`` and ``timestamp`` (ms since 1970, -1: none)
    code        why, for programs: ``event_parser`` lists them
    reason      why, as a sentence
    record      ``whole``; or ``left-out`` where it is too large to be carried (:data:`CARRIED_BYTES`): then
                key and value are null, its headers are not here, and it is only where it was; or ``sealed``
                where it may hold personal data (:class:`Redaction`): then this is redacted, and the last
                header, ``sealed``, has the record as it came, for those who have the keys, and for the
                place that the letter names
    key         the record's key; null where it has none
    …           the record's own headers, all of them, in their order

Its key is :func:`letter_key`: pipeline, place of the record and code. A pipeline writes a letter once,
whatever it repeats; who has its records worked off again from a fresh checkpoint gets a second letter with
the same key, so that readers, and a compacted copy of the topic, have one for each pipeline, record and
reason.

Streams of ``StreamConsumer`` write letters, too: key, value and headers of the record, and behind these what
``client/consumer/failure_policy`` adds; of a record that was too large that alone, and the header
``dead-letter.record`` (``left-out``). :func:`read_letter` knows both. Whoever may write to the topic may
write anything there: that is no letter, and None.

Written by ``dead_letter``, read by ``letter_reader``. Imports neither Spark nor Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from tidelog.errors import TidelogError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.record import RecordHeader

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord

DEAD_LETTERS = "ml_dead_letters"
"""The topic of the letters of pipelines."""

HEADERS = ("pipeline", "topic", "partition", "offset", "timestamp", "code", "reason", "record", "key")
_STREAM = tuple(
    f"dead-letter.{name}"
    for name in ("reason", "error", "attempts", "topic", "partition", "offset", "timestamp")
)
_STREAM_LEFT_OUT = (*_STREAM, "dead-letter.record")
WHOLE, LEFT_OUT, SEALED = b"whole", b"left-out", b"sealed"
SEAL = "sealed"
"""The header behind all others of a letter whose record is sealed."""
CARRIED_BYTES = 900_000
"""Key, value and headers of a record that a letter carries. Brokers take a megabyte unless they are told
otherwise: a record that just fits would be a letter that does not, and stop its pipeline for good. What is
left of it is for what the letter itself says, which is bounded: some kilobytes."""
_HEADER_BYTES = 10
"""What a header takes beside its name and its value, at most: their lengths."""
REDRIVEN = "tidelog-redriven"
"""The header of a record that was sent again: how often, as decimal digits."""
Content = tuple[bytes | None, bytes | None, Sequence[RecordHeader]]
"""Key, value and headers of a record."""
_MAX_INT64 = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_INT64))
_SEALED_RECORD = msgspec.msgpack.Decoder(tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]])


class SealError(TidelogError):
    """A sealed record cannot be opened."""


class Redaction(Protocol):
    """Takes from records what their letters must not show, and seals the record as it was."""

    def redacted(self, value: bytes, time_us: int) -> bytes:
        """The bytes that a letter shows instead of these, of a record of this time."""

    def sealed(self, value: bytes, place: bytes, time_us: int) -> bytes:
        """A whole record, sealed; it is opened as the record of this place alone."""


class Opener(Protocol):
    """Opens what a :class:`Redaction` has sealed."""

    def opened(self, seal: bytes, place: bytes) -> bytes:
        """The record as it came. Raises :class:`SealError`."""


class _Unchanged:
    """Letters show their records as they are."""

    def redacted(self, value: bytes, time_us: int) -> bytes:
        return value

    def sealed(self, value: bytes, place: bytes, time_us: int) -> bytes:
        raise AssertionError("a record that is shown as it is has no seal")


UNCHANGED: Redaction = _Unchanged()
"""For records without personal data."""


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it was read."""

    partition: int
    """Of the letter itself, as are the next two."""
    offset: int
    refused_at_ms: int
    pipeline: str | None
    """None: a stream of a consumer."""
    place: Place
    """Where the record is, or was."""
    timestamp_ms: int
    """The record's; -1: nobody knows."""
    code: str
    reason: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[RecordHeader] = field(default=())
    """The record's own."""
    left_out: bool = False
    """It was too large: there are neither key nor value nor headers."""
    seal: bytes | None = None
    """The record as it came, sealed, where key, value and headers have tokens in place of phone numbers."""
    origin: str | None = None
    """The topic that a letter of others names. Where in it, they do not tell: ``place`` is the letter's."""

    @property
    def home(self) -> str:
        """The topic that its record is from."""
        return self.origin or self.place.topic

    @property
    def without_record(self) -> Letter:
        """What it says about its record, which may be large."""
        return replace(self, key=None, value=None, headers=(), seal=None)

    @property
    def name(self) -> str:
        """How people name it: partition and offset in the topic of letters."""
        return f"{self.partition}:{self.offset}"

    @property
    def codes(self) -> frozenset[str]:
        """All that is wrong, each with and without its field: ``missing``, ``missing:user_id``."""
        parts = self.code.split(",")
        return frozenset([*parts, *(part.partition(":")[0] for part in parts)])

    @property
    def redrives(self) -> int:
        """How often the record had been sent again before this letter was written."""
        return max((number for each in self.headers if (number := redrives_of(each)) is not None), default=0)


def letter_key(pipeline: str, place: Sequence[object], code: str) -> bytes:
    """The key of a pipeline's letter about the record at ``place`` (topic, partition, offset)."""
    return "/".join(map(str, (pipeline, *place, code))).encode()


def carried_bytes(key: bytes | None, value: bytes | None, headers: Iterable[RecordHeader]) -> int:
    """How much of a batch a record takes, at most, beside the few bytes that every record takes."""
    own = sum(_HEADER_BYTES + len(name.encode()) + len(told or b"") for name, told in headers)
    return len(key or b"") + len(value or b"") + own


def seal_of(record: Content, place: Place, redaction: Redaction, time_us: int) -> bytes:
    """The record at a place, sealed; it is opened as the record of that place alone."""
    return redaction.sealed(msgspec.msgpack.encode(record), str(place).encode(), time_us)


def opened(letter: Letter, opener: Opener) -> Letter:
    """A letter with its record as it came.

    Raises :class:`SealError` where the opener's keys do not open it, or it is the record of another place.
    """
    if letter.seal is None:
        return letter
    content = opener.opened(letter.seal, str(letter.place).encode())
    key, value, headers = _SEALED_RECORD.decode(content)
    return replace(letter, key=key, value=value, headers=headers, seal=None)


def redrives_of(header: RecordHeader) -> int | None:
    """The number that a header of ours tells; None: it is not ours."""
    name, value = header
    return None if name != REDRIVEN else _number(value)


def read_letter(record: ConsumerRecord) -> Letter | None:
    """The letter that a record is; None where it is none."""
    names = tuple(name for name, _ in record.headers)
    if names[: len(HEADERS)] == HEADERS:
        return _pipelines(record)
    if names[-len(_STREAM) :] == _STREAM:
        return _streams(record)
    if names == _STREAM_LEFT_OUT and record.headers[-1][1] == LEFT_OUT:
        return _streams(record, left_out=True)
    return None


def _pipelines(record: ConsumerRecord) -> Letter | None:
    pipeline, topic, partition, offset, timestamp, code, reason, carried, key = (
        value for _, value in record.headers[: len(HEADERS)]
    )
    place = place_of(topic, partition, offset)
    if place is None or pipeline is None or code is None:
        return None
    own = record.headers[len(HEADERS) :]
    seal = None
    if carried == SEALED:
        if not own or own[-1][0] != SEAL or own[-1][1] is None:
            return None
        *own, (_, seal) = own
    return Letter(
        record.partition,
        record.offset,
        record.timestamp,
        _text(pipeline),
        place,
        _timestamp(timestamp),
        _text(code),
        _text(reason),
        key,
        record.value,
        own,
        carried == LEFT_OUT,
        seal,
    )


def _streams(record: ConsumerRecord, *, left_out: bool = False) -> Letter | None:
    first = 0 if left_out else len(record.headers) - len(_STREAM)
    reason, error, _, topic, partition, offset, timestamp = (
        value for _, value in record.headers[first : first + len(_STREAM)]
    )
    place = place_of(topic, partition, offset)
    if place is None:
        return None
    return Letter(
        record.partition,
        record.offset,
        record.timestamp,
        None,
        place,
        _timestamp(timestamp),
        _text(error),
        _text(reason),
        record.key,
        record.value,
        record.headers[:first],
        left_out,
    )


def place_of(topic: bytes | None, partition: bytes | None, offset: bytes | None) -> Place | None:
    """The place that three texts tell; None where they tell none, since anybody may have written them."""
    index, at = _number(partition), _number(offset)
    # No topic has a slash in its name, and the key of a mark could not tell where such a name ends.
    if not topic or b"/" in topic or index is None or at is None:
        return None
    return Place(_text(topic), index, at)


def _number(value: bytes | None) -> int | None:
    """A number of 64 bits; Python itself refuses to read one of thousands of digits."""
    if value is None or not value.isdigit() or len(value) > _MAX_DIGITS:
        return None
    number = int(value)
    return number if number <= _MAX_INT64 else None


def _timestamp(value: bytes | None) -> int:
    number = _number(value)
    return NO_TIMESTAMP if number is None else number


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
