"""Records to enriched events and the users' numbers, in Spark's tasks: a record is parsed once, here.

Pure functions over Arrow batches. An enriched event is finished bytes, as the topic has them; what a batch
says about a user is one row, the newest that was shown to be theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from tidelog.spark.dead_letters.dead_letter import letter_batch
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA
from tidelog_rewards import events
from tidelog_rewards.event_parser import (
    EventParser,
    ParsedRows,
    Values,
    parser_of,
    reason_columns,
)
from tidelog_rewards.events import EventKind
from tidelog_rewards.jobs.phone_region.schema import KINDS, TABLE, TOPIC
from tidelog_rewards.phones.phone_tokens import PhonesWritten
from tidelog_rewards.task_quality import TaskQuality

if TYPE_CHECKING:
    from tidelog_rewards.jobs.phone_region.numbers import PhoneRegion

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What is needed of a record."""

UserRow = tuple[Any, ...]
"""A row of ``user_regions``; its time is in milliseconds."""

_PARSER: EventParser = parser_of(KINDS)
_AT = {name: index for index, name in enumerate(_PARSER.fields)}
_USER, _EVENT_ID, _SUCCESS, _RESULT, _PHONE = map(
    _AT.__getitem__, ("user_id", "event_id", "success", "result", "phone")
)
_ENCODER = msgspec.json.Encoder()
_CACHED = 1 << 14
_OF_EVENT = ("user_id", "e164", "event_time", "event_id")
_OF_NUMBER = tuple(name for name in TABLE.names if name not in _OF_EVENT)
_in_order = itemgetter(*((*_OF_EVENT, *_OF_NUMBER).index(name) for name in TABLE.names))
"""A row of ``user_regions`` from the values of both."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How numbers are read, and what is written in their place; made on the driver, sent to tasks."""

    phones: PhonesWritten
    country: str
    language: str

    def reader(self) -> Callable[[str, int], NumberRead]:
        """What reads a number in an event of a moment."""
        # The numbering plans are for the workers; a driver need not load them.
        from tidelog_rewards.jobs.phone_region.numbers import look_up

        country, language, written_of = self.country, self.language, self.phones.of

        def read(phone: str, time_us: int) -> NumberRead:
            e164, region = look_up(phone, country, language)
            written = written_of(phone, time_us)
            return NumberRead(written, e164 if written == phone else e164 and written, region)

        return read


class NumberRead(NamedTuple):
    """A number of an event."""

    written: str
    """What is written in its place."""
    e164: str | None
    """What is written for its international form; None where it has none."""
    region: PhoneRegion
    """What is known about it."""


class Shown(NamedTuple):
    """A number that was shown to be a user's."""

    time_ms: int
    event_id: str
    number: str
    """As the table has it."""
    told: tuple[str | None, ...]
    """The values of the columns :data:`_OF_NUMBER`; few are different."""


class UserRegions:
    """The newest number of each user among some events, by what the table tells the newest by."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._newest: dict[str, Shown] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, user_id: str, time_us: int, event_id: str, number: NumberRead) -> None:
        """Take a number that was shown to be a user's, if it can be somebody's mobile phone."""
        if number.region.valid and self.is_newer(user_id, time_us, event_id):
            assert number.e164 is not None, "it is valid"
            self._newest[user_id] = Shown(time_us // 1000, event_id, number.e164, _of_number(number.region))

    def is_newer(self, user_id: str, time_us: int, event_id: str) -> bool:
        """Whether an event is newer than what is known of its user."""
        known = self._newest.get(user_id)
        return known is None or (known.time_ms, known.event_id) < (time_us // 1000, event_id)

    @property
    def rows(self) -> Iterator[UserRow]:
        """Rows of ``user_regions``, in the order of their keys, in which a table takes them quickest."""
        for user_id in sorted(self._newest):
            time_ms, event_id, number, told = self._newest[user_id]
            yield _in_order((user_id, number, time_ms, event_id, *told))

    def clear(self) -> None:
        """Forget all of them."""
        self._newest.clear()


def enrich(
    batches: Iterable[pa.RecordBatch], users: UserRegions, pipeline: str, quality: TaskQuality
) -> Iterator[pa.RecordBatch]:
    """The records of the topic and the dead letters; ``users`` takes what is shown about them."""
    for batch in batches:
        parsed = parse(batch)
        quality.add_rows(_PARSER, parsed)
        yield _records(parsed, users)
        if any(parsed.reasons):
            yield letter_batch(batch, *reason_columns(parsed.reasons), pipeline, users.reading.phones)


def parse(batch: pa.RecordBatch) -> ParsedRows:
    """The events of a batch of records."""
    return _PARSER.rows(batch.column("topic"), batch.column("value"), batch.column("timestamp"))


def show(parsed: ParsedRows, users: UserRegions, first_us: int = 0, end_us: int | None = None) -> int:
    """Give ``users`` what events from ``first_us`` to before ``end_us`` show; returns how many there are."""
    counted = 0
    read = users.reading.reader()
    for time_us, values, reason in zip(_times_us(parsed), parsed.values, parsed.reasons, strict=True):
        if reason is not None or time_us < first_us or (end_us is not None and time_us >= end_us):
            continue
        counted += 1
        if _shows_number(values):
            user_id, event_id = values[_USER], values[_EVENT_ID]
            if users.is_newer(user_id, time_us, event_id):
                users.add(user_id, time_us, event_id, read(values[_PHONE], time_us))
    return counted


def _shows_number(values: Values) -> bool:
    """Whether an event shows that its number is the user's: a successful login, a code that came back."""
    return bool(values[_SUCCESS]) or values[_RESULT] == "verified"


def _times_us(parsed: ParsedRows) -> list[int]:
    times: list[int] = parsed.times["event_time"].cast(pa.int64()).to_pylist()
    return times


def _records(parsed: ParsedRows, users: UserRegions) -> pa.RecordBatch:
    """Enriched events as records of the topic, key: whose number it is; ``users`` takes what they show."""
    keys: list[bytes] = []
    made: list[bytes] = []
    encode, read = _ENCODER.encode, users.reading.reader()
    texts = parsed.time_texts("event_time", _AT["event_time"])
    rows = zip(parsed.kinds, parsed.values, texts, _times_us(parsed), parsed.reasons, strict=True)
    for kind, values, time, time_us, reason in rows:
        if reason is not None or kind is None:
            continue
        form = _FORMS[kind.name]
        number = read(values[form.phone], time_us)
        subject = values[form.subject]
        keys.append(subject.encode())
        made.append(
            encode(
                form.struct(
                    kind.name,
                    time,
                    *form.before(values),
                    number.written,
                    *form.after(values),
                    subject,
                    _region(number.e164, number.region),
                )
            )
        )
        if _shows_number(values):
            users.add(values[_USER], time_us, values[_EVENT_ID], number)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(TOPIC), len(made)),
            pa.array(keys, pa.binary()),
            pa.array(made, pa.binary()),
            pa.nulls(len(made), RECORD_SCHEMA.field("headers").type),
        ],
        schema=RECORD_SCHEMA,
    )


class _Form(NamedTuple):
    """How an event of one kind is written."""

    struct: Callable[..., Any]
    """Its kind, time, the other fields, and what is added to them."""
    subject: int
    """Where in the wide row it says whose number it is."""
    phone: int
    """Where the number is."""
    before: Callable[[Values], Values]
    """Of the wide row the fields before the number, but for the time."""
    after: Callable[[Values], Values]


def _form(kind: EventKind) -> _Form:
    subject, phone = ("invitee_id", "invitee_phone") if kind is events.INVITE else ("user_id", "phone")
    own = {field.name for field in kind.fields} - {"event_time"}
    names = [name for name in _PARSER.fields if name in own]
    at = names.index(phone)
    struct = msgspec.defstruct(
        "Enriched",
        [(name, Any, None) for name in ("kind", "event_time", *names, "subject_id", "phone_region")],
        omit_defaults=True,
        gc=False,
    )
    return _Form(struct, _AT[subject], _AT[phone], _values_of(names[:at]), _values_of(names[at + 1 :]))


def _values_of(names: Sequence[str]) -> Callable[[Values], Values]:
    """What takes some fields, two at least, out of a wide row."""
    first, second, *others = map(_AT.__getitem__, names)
    return itemgetter(first, second, *others)


_FORMS = {kind.name: _form(kind) for kind in KINDS}


def _region(e164: str | None, region: PhoneRegion) -> msgspec.Raw:
    """What is known about a number, as JSON; fields without a value are left out."""
    if e164 is None:
        return msgspec.Raw(b"{" + _rest_of_json(region))
    return msgspec.Raw(b'{"e164":%b,%b' % (_ENCODER.encode(e164), _rest_of_json(region)))


@lru_cache(_CACHED)
def _rest_of_json(region: PhoneRegion) -> bytes:
    """The same of all numbers of a place and carrier; never empty, for a kind is always told."""
    told = {name: value for name, value in region._asdict().items() if value is not None}
    return _ENCODER.encode(told).removeprefix(b"{")


@lru_cache(_CACHED)
def _of_number(region: PhoneRegion) -> tuple[str | None, ...]:
    """What the table says about a number."""
    return tuple(getattr(region, name) for name in _OF_NUMBER)
