"""Values of records to columns of events: the rules, without Spark, whose face is ``pipelines.parsing``.

Almost every record is an event, so there are two ways. The quick one has msgspec decode a value into a struct
that carries the rules of its kind, and checks times a column at a time. Whatever it refuses is looked at once
more, field by field, by :meth:`EventParser.explain`, which says what is wrong or, where the quick way is too
strict (a key that occurs twice), gives the event after all. It must refuse everything that ``explain`` does.

A reason has a code for programs and a sentence for people. Codes are stable: ``not-json``, ``not-utf-8``,
``tombstone``, ``empty-value``, ``trailing-data``, ``unknown-topic``; and where single fields are wrong, one
for each of them in the order of the kind, with commas between: ``missing:user_id,type:amount_cents``. Their
words are those of :data:`FIELD_CODES`. A record that the rules themselves fail on is ``unreadable``: it must
not stop a pipeline, for it would stop every restart, too.

Runs in Spark's Python workers: some four microseconds for an event.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from traceback import format_tb
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Optional

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decode_errors import DECODE_ERRORS
from tidelog_rewards.events import MAX_AHEAD, EventKind, Field, FieldType

logger = logging.getLogger(__name__)

MAX_STRING_CHARS = 4096
SHOWN_CHARS = 60
"""So much of a bad value stands in a reason; the dead letter carries all of it."""

_MAX_LONG = 2**63 - 1
_TEXT_CHARS = len("2026-01-31T12:00:00.000Z")
_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.]\d{1,6})?(Z|[+-](0\d|1[0-8]):[0-5]\d)$"
_IS_TIME = re.compile(_TIME, re.ASCII)
_TIME_TYPE = pa.timestamp("us", "UTC")
_FIRST_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITTEN_US = tuple(
    (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for year in (1, 9000)
)
"""Timestamps of records are any 64 bits; what is beyond these counts as these, lest reckoning overflow."""
_BLANKS = " \t\r\n"
_PYTHON_TYPES: dict[FieldType, type] = {"string": str, "long": int, "boolean": bool, "time": str}
_CALLED: dict[FieldType, str] = {
    "string": "a string",
    "long": "a whole number of 64 bits",
    "boolean": "true or false",
    "time": "a time (ISO 8601 with a zone, as 2026-01-31T12:00:00.000Z)",
}
ARROW_TYPES: dict[FieldType, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "time": _TIME_TYPE,
}

Values = tuple[Any, ...]
"""The fields of an event in the order of the wide row, null where they belong to another kind."""

FIELD_CODES = ("missing", "type", "range", "choice", "empty")
"""What may be wrong with a field: it is absent or null, of another type, beyond its bounds (in time or
length, too), none of its choices, or an empty string."""


class Reason(NamedTuple):
    """Why a record is no event."""

    code: str
    """For programs."""
    text: str
    """For people."""


def reason_columns(reasons: Sequence[Reason | None]) -> tuple[pa.Array, pa.Array]:
    """The codes and the texts of some reasons, null where there is none."""
    if not any(reasons):  # as nearly always
        return pa.nulls(len(reasons), pa.string()), pa.nulls(len(reasons), pa.string())
    codes = [None if each is None else each.code for each in reasons]
    return pa.array(codes, pa.string()), pa.array([each and each.text for each in reasons], pa.string())


def wide_fields(kinds: Sequence[EventKind]) -> dict[str, FieldType]:
    """The fields of all kinds, each once, and their types."""
    wide: dict[str, FieldType] = {}
    for kind in kinds:
        for field in kind.fields:
            if wide.setdefault(field.name, field.type) != field.type:
                raise ValueError(f"the field {field.name} has two types: {wide[field.name]}, {field.type}")
    return wide


class ParsedRows(NamedTuple):
    """What records are, in their order."""

    kinds: list[EventKind | None]
    values: list[Values]
    """Wide rows, all null where there is a reason; times are the text as it came."""
    times: dict[str, pa.Array]
    """The fields that are times, as such."""
    reasons: list[Reason | None]

    def time_texts(self, name: str, index: int) -> list[str]:
        """The times of a field, the one at ``index`` of the values, as UTC with milliseconds.

        What is beyond milliseconds is cut off. Nearly all times are written so; the others are told anew.
        """
        texts = [values[index] or "" for values in self.values]
        for at, text in enumerate(texts):
            if text and not (len(text) == _TEXT_CHARS and text[10] == "T" and text[-1] == "Z"):
                moment = self.times[name][at].cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False)
                texts[at] = f"{pc.strftime(moment, '%Y-%m-%dT%H:%M:%S').as_py()}Z"
        return texts


@cache
def parser_of(kinds: tuple[EventKind, ...], only: EventKind | None = None) -> EventParser:
    """The parser of some kinds; one in the life of a worker."""
    return EventParser(kinds, only=only)


class EventParser:
    """Parses records of some kinds of event, told apart by topic, or all of ``only`` one kind."""

    def __init__(self, kinds: Sequence[EventKind], *, only: EventKind | None = None) -> None:
        self._wide = wide_fields(kinds)
        self._nothing: Values = (None,) * len(self._wide)
        self._only = only
        self._by_topic = {kind.topic: kind for kind in kinds}
        self.kinds = tuple(kinds)
        self.fields = tuple(self._wide)
        """The names of the fields of a wide row."""
        self._decode = {kind.name: _decoder(kind, self._wide) for kind in kinds}

    def columns(self, topics: pa.Array, values: pa.Array, timestamps: pa.Array) -> pa.StructArray:
        """``kind``, the wide row, and ``code`` and ``reason``, null for events, of each record."""
        parsed = self.rows(topics, values, timestamps)
        by_field = zip(*parsed.values, strict=True) if parsed.values else ((),) * len(self._wide)
        columns = [
            pa.array([None if kind is None else kind.name for kind in parsed.kinds], pa.string()),
            *(
                parsed.times[name] if name in parsed.times else pa.array(column, ARROW_TYPES[type_])
                for (name, type_), column in zip(self._wide.items(), by_field, strict=True)
            ),
            *reason_columns(parsed.reasons),
        ]
        return pa.StructArray.from_arrays(columns, names=["kind", *self._wide, "code", "reason"])

    def rows(self, topics: pa.Array, values: pa.Array, timestamps: pa.Array) -> ParsedRows:
        """The same, a row at a time: for who works on single events in Python."""
        kinds, encoded = self._kinds(topics), values.to_pylist()
        timestamps = _bounded(timestamps)
        is_text = _is_text(values)
        rows: list[Values] = []
        reasons: list[Reason | None] = [None] * len(encoded)

        def look_again(at: int) -> Values:
            topic, timestamp = topics[at].as_py(), timestamps[at].as_py()
            found, reasons[at] = self._explained(kinds[at], topic, encoded[at], timestamp)
            return found

        for at, (kind, value) in enumerate(zip(kinds, encoded, strict=True)):
            try:
                if kind is None or value is None or not is_text(value):
                    rows.append(look_again(at))
                else:
                    rows.append(self._decode[kind.name](value))
            except DECODE_ERRORS:
                rows.append(look_again(at))
        times = {
            name: self._times(index, rows, reasons, timestamps, look_again)
            for index, (name, type_) in enumerate(self._wide.items())
            if type_ == "time"
        }
        return ParsedRows(kinds, rows, times, reasons)

    def _kinds(self, topics: pa.Array) -> list[EventKind | None]:
        if self._only is not None:
            return [self._only] * len(topics)
        return [self._by_topic.get(topic) for topic in topics.to_pylist()]

    def _times(
        self,
        index: int,
        rows: list[Values],
        reasons: list[Reason | None],
        timestamps: pa.Array,
        look_again: Callable[[int], Values],
    ) -> pa.Array:
        """The column of a time; rows whose time is refused get their reason, and lose their values."""
        texts = pa.array([row[index] for row in rows], pa.string())
        times = _parsed_times(texts)
        latest = pc.add(timestamps, pa.scalar(MAX_AHEAD, pa.duration("us")))
        good = pc.and_(
            pc.greater_equal(times, pa.scalar(_FIRST_TIME, _TIME_TYPE)),
            pc.less_equal(times, latest).fill_null(True),
        ).fill_null(False)
        if good.false_count:
            for at in pc.indices_nonzero(pc.invert(good)).to_pylist():
                if rows[at][index] is not None and reasons[at] is None:
                    rows[at] = look_again(at)
            times = pc.if_else(good, times, pa.scalar(None, _TIME_TYPE))
        return times

    def _explained(
        self, kind: EventKind | None, topic: str, value: bytes | None, timestamp: datetime | None
    ) -> tuple[Values, Reason | None]:
        """The same as :meth:`explain`, which knows nothing but the record: what it raises is the record's."""
        try:
            return self.explain(kind, topic, value, timestamp)
        except MemoryError:
            raise
        except Exception as error:
            # Without what the error says, which may quote the record.
            trace = "".join(format_tb(error.__traceback__))
            logger.error("a record of %s becomes a dead letter: %s\n%s", topic, type(error).__name__, trace)
            return self._nothing, Reason("unreadable", f"it could not be read ({type(error).__name__})")

    def explain(
        self, kind: EventKind | None, topic: str, value: bytes | None, timestamp: datetime | None
    ) -> tuple[Values, Reason | None]:
        """The event that a record is, or the reason why it is none."""
        if kind is None:
            return self._nothing, Reason("unknown-topic", f"topic {topic}: it is no topic of events")
        document = _document(value)
        if isinstance(document, Reason):
            return self._nothing, document
        problems = [
            Reason(f"{problem.code}:{field.name}", f"field {field.name}: {problem.text}")
            for field in kind.fields
            if (problem := _problem(field, document, timestamp)) is not None
        ]
        if problems:
            codes, texts = zip(*problems, strict=True)
            return self._nothing, Reason(",".join(codes), "; ".join(texts))
        own = {field.name for field in kind.fields}
        return tuple(_stored(document.get(name)) if name in own else None for name in self._wide), None


def _decoder(kind: EventKind, wide: dict[str, FieldType]) -> Callable[[bytes], Values]:
    """The quick way of one kind, from a value to a wide row."""
    own = {field.name: field for field in kind.fields}
    # A field of another kind is unknown. Should its stand-in come with a value, that is looked at again.
    foreign = {
        name: msgspec.field(default=None, name=f"{name} of another kind") for name in wide if name not in own
    }
    struct = msgspec.defstruct(
        kind.name,
        [
            (name, None, foreign[name])
            if name in foreign
            else (name, _rule(own[name]))
            if own[name].required
            else (name, Optional[_rule(own[name])], None)  # noqa: UP045 (the rule is not known statically)
            for name in wide
        ],
        kw_only=True,
        gc=False,
    )
    decode = msgspec.json.Decoder(struct).decode
    astuple = msgspec.structs.astuple
    return lambda value: astuple(decode(value))


def _rule(field: Field) -> Any:
    """A field's rules as msgspec has them."""
    if field.choices:
        return Literal[field.choices]
    if field.type == "boolean":
        return bool
    if field.type == "long":
        least = -(2**63) if field.minimum is None else field.minimum
        return Annotated[int, msgspec.Meta(ge=least, le=_MAX_LONG)]
    return Annotated[str, msgspec.Meta(min_length=1 if field.required else 0, max_length=MAX_STRING_CHARS)]


def _bounded(timestamps: pa.Array) -> pa.Array:
    """Timestamps of records as times that Python has, too."""
    first_us, last_us = _WRITTEN_US
    times_us = timestamps.cast(_TIME_TYPE).cast(pa.int64())
    times_us = pc.max_element_wise(times_us, first_us, skip_nulls=False)
    return pc.min_element_wise(times_us, last_us, skip_nulls=False).cast(_TIME_TYPE)


def _is_text(values: pa.Array) -> Callable[[bytes], bool]:
    """Tells which values are UTF-8, for msgspec does not look at what it skips."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return _decodes
    return lambda _: True


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parsed_times(texts: pa.Array) -> pa.Array:
    """Times; null where a text is none."""
    shaped = pc.if_else(pc.match_substring_regex(texts, _TIME), texts, pa.scalar(None, pa.string()))
    try:
        return shaped.cast(_TIME_TYPE)
    except pa.ArrowInvalid:
        # There is a 30th of February among them.
        moments = [None if text is None else _moment(text) for text in shaped.to_pylist()]
        micros = [None if each is None else (each - _EPOCH) // timedelta(microseconds=1) for each in moments]
        return pa.array(micros, pa.int64()).cast(_TIME_TYPE)


def _moment(text: str) -> datetime | None:
    if _IS_TIME.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


def _document(value: bytes | None) -> dict[str, Any] | Reason:
    """The object that a value is, or why it is none."""
    if value is None:
        return Reason("tombstone", "the value is null (a tombstone)")
    try:
        text = value.decode().strip(_BLANKS)
    except UnicodeDecodeError:
        return Reason("not-utf-8", "not UTF-8")
    if not text:
        return Reason("empty-value", "the value is empty")
    try:
        document, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return Reason("not-json", "not a JSON object")
    if not isinstance(document, dict):
        return Reason("not-json", "not a JSON object")
    if end < len(text):
        return Reason("trailing-data", "not one JSON object: something follows it")
    return document


def _problem(field: Field, document: dict[str, Any], timestamp: datetime | None) -> Reason | None:
    """What is wrong with a field; the code is one of :data:`FIELD_CODES`."""
    value: Any = document.get(field.name)
    if value is None:
        missing = "is null" if field.name in document else "is missing"
        return Reason("missing", missing) if field.required else None
    right_type = type(value) is _PYTHON_TYPES[field.type]
    if not right_type or (field.type == "time" and _moment(value) is None):
        return Reason("type", f"{_shown(value)} is not {_CALLED[field.type]}")
    if field.type == "time":
        return _problem_of_time(value, timestamp)
    if field.type == "long":
        return _problem_of_number(field, value)
    if field.choices:
        if value in field.choices:
            return None
        return Reason("choice", f"{_shown(value)} is not one of {', '.join(field.choices)}")
    if field.type == "string":
        return _problem_of_text(field, value)
    return None


def _problem_of_time(value: str, timestamp: datetime | None) -> Reason | None:
    moment = _moment(value)
    assert moment is not None
    if moment < _FIRST_TIME:
        return Reason("range", f"{_shown(value)} is before 2000")
    if timestamp is not None and moment > timestamp + MAX_AHEAD:
        return Reason("range", f"{_shown(value)} is more than a day after the record's timestamp")
    return None


def _problem_of_number(field: Field, value: int) -> Reason | None:
    if not -_MAX_LONG - 1 <= value <= _MAX_LONG:
        return Reason("type", f"{_shown(value)} is not {_CALLED['long']}")
    if field.minimum is not None and value < field.minimum:
        return Reason("range", f"{_shown(value)} is less than {field.minimum}")
    return None


def _problem_of_text(field: Field, value: str) -> Reason | None:
    if field.required and not value:
        return Reason("empty", "is empty")
    if len(value) > MAX_STRING_CHARS:
        return Reason("range", f"{len(value)} characters are more than {MAX_STRING_CHARS}")
    return None


def _shown(value: object) -> str:
    """A value as it was written, cut short; strings in single quotes."""
    if isinstance(value, str):
        text = f"'{_stored(value)}'"
    else:
        try:
            text = _stored(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        except RecursionError:
            text = "a value that is nested too deeply to be shown"
    return f"{text[:SHOWN_CHARS]}…" if len(text) > SHOWN_CHARS else text


def _stored(value: Any) -> Any:
    """Half a character, which JSON can write and UTF-8 cannot, becomes a question mark."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
