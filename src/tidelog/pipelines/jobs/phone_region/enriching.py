"""Records to enriched events and the users' numbers, in Spark's tasks: a record is parsed once, here.

Pure functions over Arrow batches. An enriched event is finished bytes, as the topic has them; what a batch
says about a user is one row, the newest that was shown to be theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidelog.pipelines.framework import events
from tidelog.pipelines.framework.dead_letter import letter_batch
from tidelog.pipelines.framework.event_parser import EventParser, ParsedRows, parser_of, reason_columns
from tidelog.pipelines.framework.phone_tokens import PhonesWritten
from tidelog.pipelines.framework.record_sink import RECORD_SCHEMA
from tidelog.pipelines.framework.task_quality import TaskQuality
from tidelog.pipelines.jobs.phone_region.schema import KINDS, TABLE, TOPIC

if TYPE_CHECKING:
    from tidelog.pipelines.jobs.phone_region.numbers import PhoneRegion

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What is needed of a record."""

UserRow = tuple[Any, ...]
"""A row of ``user_regions``; its time is in milliseconds."""

_PARSER: EventParser = parser_of(KINDS)
_AT = {name: index for index, name in enumerate(_PARSER.fields)}
_OTHERS = tuple(name for name in _PARSER.fields if name != "event_time")
_Enriched = msgspec.defstruct(
    "Enriched",
    [(name, Any, None) for name in ("kind", "event_time", *_OTHERS, "subject_id", "phone_region")],
    omit_defaults=True,
    gc=False,
)
_ENCODER = msgspec.json.Encoder()
_CACHED = 1 << 14
_VALID_ROW = tuple(name for name in TABLE.names if name not in ("user_id", "event_time", "event_id"))


@dataclass(frozen=True, slots=True)
class Reading:
    """How numbers are read, and what is written in their place; made on the driver, sent to tasks."""

    phones: PhonesWritten
    country: str
    language: str

    def row(self, phone: str, time_us: int) -> tuple[Any, ...]:
        """What the table says about a number."""
        told = _described(phone, self.country, self.language)._asdict()
        if (written := self.phones.of(phone, time_us)) != phone:
            told["e164"] = written
        return tuple(told[name] for name in _VALID_ROW)

    def region(self, phone: str, written: str) -> msgspec.Raw:
        """What the topic says about a number in whose place something else is ``written``."""
        return _region(phone, written, self.country, self.language)

    def is_valid(self, phone: str) -> bool:
        """Whether it can be somebody's mobile phone."""
        return _described(phone, self.country, self.language).valid


class UserRegions:
    """The newest number of each user among some events; of two at one moment the greater event id counts."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._newest: dict[str, tuple[tuple[int, str], UserRow]] = {}

    def add(self, user_id: str, time_us: int, event_id: str, phone: str) -> None:
        """Take a number that was shown to be a user's."""
        age = (time_us, event_id)
        known = self._newest.get(user_id)
        if known is None or known[0] < age:
            told = dict(zip(_VALID_ROW, self.reading.row(phone, time_us), strict=True))
            row = {**told, "user_id": user_id, "event_time": time_us // 1000, "event_id": event_id}
            self._newest[user_id] = age, tuple(row[name] for name in TABLE.names)

    def take(self, others: Iterable[tuple[tuple[int, str], UserRow]]) -> None:
        """Take what another task has found, as :meth:`found` gives it."""
        for (time_us, event_id), row in others:
            age = (time_us, event_id)
            known = self._newest.get(row[0])
            if known is None or known[0] < age:
                self._newest[row[0]] = age, tuple(row)

    @property
    def found(self) -> list[tuple[tuple[int, str], UserRow]]:
        """What each row goes by, and the rows."""
        return list(self._newest.values())

    @property
    def rows(self) -> Iterator[UserRow]:
        """Rows of ``user_regions``."""
        return (row for _, row in self._newest.values())


def enrich(
    batches: Iterable[pa.RecordBatch], users: UserRegions, pipeline: str, quality: TaskQuality
) -> Iterator[pa.RecordBatch]:
    """The records of the topic and the dead letters; ``users`` takes what is shown about them."""
    for batch in batches:
        parsed = parse(batch)
        quality.add_rows(_PARSER, parsed)
        yield _records(parsed, users.reading)
        show(parsed, users)
        if any(parsed.reasons):
            yield letter_batch(batch, *reason_columns(parsed.reasons), pipeline, users.reading.phones)


def parse(batch: pa.RecordBatch) -> ParsedRows:
    """The events of a batch of records."""
    return _PARSER.rows(batch.column("topic"), batch.column("value"), batch.column("timestamp"))


def show(parsed: ParsedRows, users: UserRegions, first_us: int = 0, end_us: int | None = None) -> int:
    """Give ``users`` what the events from ``first_us`` to before ``end_us`` show; returns how many these are.

    A successful login and a code that came back show that a number is a user's.
    """
    counted = 0
    times = parsed.times["event_time"].cast(pa.int64()).to_pylist()
    success, result, phone = _AT["success"], _AT["result"], _AT["phone"]
    for time_us, values, reason in zip(times, parsed.values, parsed.reasons, strict=True):
        if reason is not None or time_us < first_us or (end_us is not None and time_us >= end_us):
            continue
        counted += 1
        if (values[success] or values[result] == "verified") and users.reading.is_valid(values[phone]):
            users.add(values[_AT["user_id"]], time_us, values[_AT["event_id"]], values[phone])
    return counted


def _records(parsed: ParsedRows, reading: Reading) -> pa.RecordBatch:
    """Enriched events as records of the topic, key: whose number it is."""
    keys: list[bytes] = []
    made: list[bytes] = []
    encode = _ENCODER.encode
    at_time = _AT["event_time"]
    texts = parsed.time_texts("event_time", at_time)
    times_us = parsed.times["event_time"].cast(pa.int64()).to_pylist()
    places = (_AT["invitee_id"], _AT["invitee_phone"], _AT["user_id"], _AT["phone"])
    rows = zip(parsed.kinds, parsed.values, texts, times_us, parsed.reasons, strict=True)
    for kind, values, time, time_us, reason in rows:
        if reason is not None or kind is None:
            continue
        subject, phone = places[:2] if kind is events.INVITE else places[2:]
        number = values[phone]
        written = reading.phones.of(number, time_us)
        others = [*values[:at_time], *values[at_time + 1 :]]
        others[phone - (phone > at_time)] = written
        event = _Enriched(kind.name, time, *others, values[subject], reading.region(number, written))
        keys.append(values[subject].encode())
        made.append(encode(event))
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(TOPIC), len(made)),
            pa.array(keys, pa.binary()),
            pa.array(made, pa.binary()),
            pa.nulls(len(made), RECORD_SCHEMA.field("headers").type),
        ],
        schema=RECORD_SCHEMA,
    )


def _region(phone: str, written: str, country: str, language: str) -> msgspec.Raw:
    """What is known about a number, as JSON; fields without a value are left out."""
    told = _described(phone, country, language)
    rest = _without_number(told._replace(e164=None))
    if told.e164 is None:
        return msgspec.Raw(rest)
    number = _ENCODER.encode(told.e164 if written == phone else written)
    return msgspec.Raw(b'{"e164":%b,%b' % (number, rest[1:]))


@lru_cache(_CACHED)
def _without_number(told: PhoneRegion) -> bytes:
    """The same of all numbers of a place and carrier; never empty, for a kind is always told."""
    return _ENCODER.encode({name: value for name, value in told._asdict().items() if value is not None})


def _described(phone: str, country: str, language: str) -> PhoneRegion:
    # The numbering plans are for the workers; a driver need not load them.
    from tidelog.pipelines.jobs.phone_region.numbers import describe

    return describe(phone, country, language)
