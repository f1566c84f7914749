"""Turns records into typed events, and what is no event into rows with a reason; pure DataFrame to DataFrame.

Everything is an expression that runs inside Spark's JVM, and a record is parsed once. The rules, beside those
that :mod:`tidelog.pipelines.events` gives for each field:

* The value is exactly one JSON object in UTF-8: nothing behind it, no comments, no byte order mark. Of a key
  that occurs twice the last counts, as JSON parsers have it. A tombstone (null) and an empty value are
  malformed.
* Unknown fields are ignored. A field of another kind of event is unknown.
* ``null`` is the same as absent. Required strings are not empty, and no string is longer than
  :data:`MAX_STRING_CHARS` (Cassandra's keys end at 64 KB).
* Types are strict: ``"5"`` is no number, ``5`` is no string, and ``5.0`` and ``5e0`` are not whole numbers.
* A time has a date, a time of day with at most microseconds, and a zone (``Z`` or ``+09:00``). It lies
  after 1999 and at most a day after the record's own timestamp: one event from the future would otherwise
  move a watermark past everybody else's.

Called by every pipeline: directly when its output is computed row by row, with ``events`` and ``malformed``
when it filters. ``reason`` is deliberately non-deterministic for Spark's optimizer, which otherwise pushes
the filter below the parser and parses every record twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidelog.pipelines.events import EventKind, Field, FieldType

MAX_STRING_CHARS = 4096
SHOWN_CHARS = 60
"""So much of a bad value stands in a reason; the dead letter carries all of it."""

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")

_SPARK_TYPES: dict[FieldType, T.DataType] = {
    "string": T.StringType(),
    "long": T.LongType(),
    "boolean": T.BooleanType(),
    "time": T.TimestampType(),
}
_VARIANT_TYPES: dict[FieldType, str] = {
    "string": "STRING",
    "long": "BIGINT",
    "boolean": "BOOLEAN",
    "time": "STRING",
}
_CALLED: dict[FieldType, str] = {
    "string": "a string",
    "long": "a whole number of 64 bits",
    "boolean": "true or false",
    "time": "a time (ISO 8601 with a zone, as 2026-01-31T12:00:00.000Z)",
}
_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.]\d{1,6})?(Z|[+-]\d\d:\d\d)$"
_FIRST_TIME = "2000-01-01T00:00:00Z"
_MAX_AHEAD = "INTERVAL 1 DAY"
_END = "\N{SYMBOL FOR END OF TRANSMISSION}"
"""Spark's JSON parser stops after the first document: with this mark behind the value, as its sibling in one
document, nothing can hide there."""
_STRICT_JSON = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a parsed frame: all of them, the good ones, the others.

    ``rows`` has the columns of the record (:data:`RECORD_COLUMNS`), ``kind``, the fields of all kinds asked
    for (null where they belong to another kind) and ``reason``, which is null for an event. Use it where one
    pass must give both results and dead letters.
    """

    rows: DataFrame
    kinds: tuple[EventKind, ...]

    @property
    def events(self) -> DataFrame:
        """``topic``, ``partition``, ``offset``, ``timestamp``, ``kind`` and the typed fields."""
        return self.rows.where(F.col("reason").isNull()).drop("key", "value", "reason")

    @property
    def malformed(self) -> DataFrame:
        """The record's columns and ``reason``."""
        return self.rows.where(F.col("reason").isNotNull()).select(*RECORD_COLUMNS, "reason")


def event_schema(kind: EventKind) -> T.StructType:
    """The fields of a kind of event as Spark types them."""
    return T.StructType(
        [T.StructField(field.name, _SPARK_TYPES[field.type], not field.required) for field in kind.fields]
    )


def parse(raw: DataFrame, kind: EventKind) -> Parsed:
    """Parse records of one kind, whatever their topic is called."""
    return _parse(raw.withColumn("kind", F.lit(kind.name)), (kind,))


def parse_all(raw: DataFrame, kinds: Iterable[EventKind]) -> Parsed:
    """Parse records of several kinds, told apart by their topic, into one wide row."""
    known = tuple(kinds)
    by_topic = F.create_map(*(F.lit(text) for kind in known for text in (kind.topic, kind.name)))
    return _parse(raw.withColumn("kind", by_topic[F.col("topic")]), known)


def of_kind(events: DataFrame, kind: EventKind) -> DataFrame:
    """The events of one kind out of a wide frame, with its own fields only."""
    position = [F.col(name) for name in ("topic", "partition", "offset", "timestamp")]
    fields = [F.col(field.name) for field in kind.fields]
    return events.where(F.col("kind") == kind.name).select(*fields, *position)


Lookup = Callable[[str], Column]
"""Gives a column by its name: from the frame, or from the struct that :func:`_explained` is handed."""


@dataclass(frozen=True, slots=True)
class _WideField:
    """A column of the wide row: its definitions, and the kinds of event that each holds for."""

    name: str
    type: FieldType
    definitions: tuple[tuple[Field, tuple[str, ...]], ...]
    everywhere: bool

    @property
    def json_type(self) -> str:
        """The column that one stage leaves to the next: the JSON type of what the document has."""
        return f"_type_{self.name}"

    def of_kinds(self, get: Lookup, kinds: tuple[str, ...]) -> Column:
        return F.lit(True) if self.everywhere else get("kind").isin(*kinds)


def _wide_fields(kinds: tuple[EventKind, ...]) -> list[_WideField]:
    definitions: dict[str, dict[Field, list[str]]] = {}
    for kind in kinds:
        for field in kind.fields:
            definitions.setdefault(field.name, {}).setdefault(field, []).append(kind.name)
    wide = []
    for name, fields in definitions.items():
        types = {field.type for field in fields}
        if len(types) > 1:
            raise ValueError(f"the field {name} has two types: {', '.join(sorted(types))}")
        everywhere = len(fields) == 1 and len(next(iter(fields.values()))) == len(kinds)
        held = tuple((field, tuple(names)) for field, names in fields.items())
        wide.append(_WideField(name, types.pop(), held, everywhere))
    return wide


def _parse(raw: DataFrame, kinds: tuple[EventKind, ...]) -> Parsed:
    """One stage types the fields, the next one judges them: Spark computes what a stage names once."""
    fields = _wide_fields(kinds)
    document = _document(F.col("value"), fields)
    typed = raw.select(
        *RECORD_COLUMNS,
        "kind",
        document["event"].isNotNull().alias("_is_object"),
        document[_END].isNotNull().alias("_is_alone"),
        *(column for field in fields for column in _type(field, document["event"][field.name])),
    )
    names = [field.name for field in fields]
    return Parsed(typed.select(*RECORD_COLUMNS, "kind", *names, _reason(fields).alias("reason")), kinds)


def _document(value: Column, fields: list[_WideField]) -> Column:
    # Options keep Spark from pruning the schema, a parser for each field, too.
    whole = F.concat(F.lit('{"event":'), value.cast("string"), F.lit(f',"{_END}":true}}'))
    return F.from_json(whole, _document_schema(fields), _STRICT_JSON)


def _document_schema(fields: list[_WideField]) -> T.StructType:
    """Variants keep what was written, so that a reason can show it."""
    event = T.StructType([T.StructField(field.name, T.VariantType()) for field in fields])
    return T.StructType([T.StructField("event", event), T.StructField(_END, T.BooleanType())])


def _type(field: _WideField, json: Column) -> tuple[Column, Column]:
    """The JSON type of a field, and its value when that is of the right type."""
    json_type = F.schema_of_variant(json)
    wanted = json_type == _VARIANT_TYPES[field.type]
    if not field.everywhere:
        wanted &= F.col("kind").isin(*(name for _, names in field.definitions for name in names))
    if field.type == "time":
        text = F.try_variant_get(json, "$", "string")
        value = F.when(wanted & text.rlike(_TIME), text.try_cast("timestamp"))
    else:
        value = F.when(wanted, F.try_variant_get(json, "$", _SPARK_TYPES[field.type].simpleString()))
    return json_type.alias(field.json_type), value.alias(field.name)


def _reason(fields: list[_WideField]) -> Column:
    wrong = F.lit(False)
    for condition, _ in _problems_of_record(F.col):
        wrong |= condition
    for field in fields:
        for condition, _ in _problems_of_field(F.col, field, F.lit("")):
            wrong |= condition
    stages = [name for field in fields for name in (field.json_type, field.name)]
    known = F.struct("kind", "topic", "timestamp", "value", "_is_object", "_is_alone", *stages)
    # A function of an array is interpreted. Written out, the texts would make Spark generate more code than
    # a Java method may have, and it would interpret the checks of all rows instead of the few bad ones.
    explained = F.transform(F.array(known), lambda row: _explained(row.__getitem__, fields))[0]
    return F.when(F.spark_partition_id() >= 0, F.when(F.coalesce(wrong, F.lit(False)), explained))


def _explained(get: Lookup, fields: list[_WideField]) -> Column:
    event = _document(get("value"), fields)["event"]
    texts = []
    for field in fields:
        text = F.lit(None).cast("string")
        shown = _shown(event[field.name], get(field.json_type))
        for condition, parts in reversed(list(_problems_of_field(get, field, shown))):
            text = F.when(condition, F.concat(F.lit(f"field {field.name}: "), *parts)).otherwise(text)
        texts.append(text)
    reason = F.concat_ws("; ", *texts)
    for condition, parts in reversed(list(_problems_of_record(get))):
        reason = F.when(condition, F.concat(*parts)).otherwise(reason)
    return reason


Problems = Iterator[tuple[Column, tuple[Column, ...]]]
"""Conditions, and the text for each; the first that holds is told. Null is no problem."""


def _problems_of_record(get: Lookup) -> Problems:
    value = get("value")
    text = value.cast("string")
    yield get("kind").isNull(), (F.lit("topic "), get("topic"), F.lit(": it is no topic of events"))
    yield value.isNull(), (F.lit("the value is null (a tombstone)"),)
    yield F.trim(text) == "", (F.lit("the value is empty"),)
    yield ~F.is_valid_utf8(text), (F.lit("not UTF-8"),)
    yield ~get("_is_object"), (F.lit("not a JSON object"),)
    yield ~get("_is_alone"), (F.lit("not one JSON object: something follows it"),)


def _problems_of_field(get: Lookup, field: _WideField, shown: Column) -> Problems:
    json_type = get(field.json_type)
    for definition, kinds in field.definitions:
        concerned = field.of_kinds(get, kinds)
        if definition.required:
            yield concerned & json_type.isNull(), (F.lit("is missing"),)
            yield concerned & (json_type == "VOID"), (F.lit("is null"),)
        not_typed = get(field.name).isNull() & (json_type != "VOID")
        yield concerned & not_typed, (shown, F.lit(f" is not {_CALLED[field.type]}"))
        for condition, parts in _problems_of_value(get, definition, shown):
            yield concerned & condition, parts


def _problems_of_value(get: Lookup, field: Field, shown: Column) -> Problems:
    value = get(field.name)
    if field.type == "time":
        latest = get("timestamp") + F.expr(_MAX_AHEAD)
        yield value < F.lit(_FIRST_TIME).cast("timestamp"), (shown, F.lit(" is before 2000"))
        yield value > latest, (shown, F.lit(" is more than a day after the record's timestamp"))
    if field.choices:
        yield ~value.isin(*field.choices), (shown, F.lit(f" is not one of {', '.join(field.choices)}"))
    elif field.type == "string":
        if field.required:
            yield value == "", (F.lit("is empty"),)
        length = F.length(value)
        too_long = F.lit(f" characters are more than {MAX_STRING_CHARS}")
        yield length > MAX_STRING_CHARS, (length.cast("string"), too_long)
    if field.minimum is not None:
        yield value < field.minimum, (shown, F.lit(f" is less than {field.minimum}"))


def _shown(json: Column, json_type: Column) -> Column:
    """A value as it was written, cut short; strings in single quotes."""
    quoted = F.concat(F.lit("'"), F.try_variant_get(json, "$", "string"), F.lit("'"))
    text = F.when(json_type == "STRING", quoted).otherwise(F.to_json(json))
    cut = F.concat(F.substring(text, 1, SHOWN_CHARS), F.lit("…"))
    return F.when(F.length(text) > SHOWN_CHARS, cut).otherwise(text)
