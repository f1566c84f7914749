"""Which records are events, and what the reason of each other one says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tidelog_rewards import events
from tidelog_rewards.events import EventKind
from tidelog_rewards.parsing import (
    MAX_STRING_CHARS,
    Parsed,
    event_schema,
    of_kind,
    parse,
    parse_all,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

RECORD = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary"
WRITTEN = datetime(2026, 11, 1, tzinfo=UTC)
CREDIT: dict[str, Any] = {
    "event_id": "e-1",
    "event_time": "2026-10-31T12:00:00.123Z",
    "user_id": "u-1",
    "device_id": "d-1",
    "ip": "10.0.0.1",
    "app_version": "1.2",
    "source": "task",
    "amount_cents": 250,
    "task_id": "t-1",
}
NOT_A_TIME = "is not a time (ISO 8601 with a zone, as 2026-01-31T12:00:00.000Z)"


def records(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    return records_of(spark, [(events.CREDIT.topic, value) for value in values])


def records_of(spark: SparkSession, values: Sequence[tuple[str, bytes | None]]) -> DataFrame:
    rows = [(topic, 3, offset, WRITTEN, b"u-1", value) for offset, (topic, value) in enumerate(values)]
    return spark.createDataFrame(rows, RECORD).coalesce(1)


def document(changes: Mapping[str, Any] | None = None, *, without: str = "") -> bytes:
    content = {**CREDIT, **(changes or {})}
    content.pop(without, None)
    return json.dumps(content).encode()


def reasons(parsed: Parsed) -> list[str | None]:
    return [row.reason for row in parsed.rows.orderBy("offset").select("reason").collect()]


def test_an_event_has_its_typed_fields_and_its_place_in_the_log(spark: SparkSession) -> None:
    parsed = parse(records(spark, [document()]), events.CREDIT)
    (row,) = parsed.events.collect()
    assert row.asDict() == {
        **CREDIT,
        "kind": "credit",
        "event_time": row.event_time,
        "topic": events.CREDIT.topic,
        "partition": 3,
        "offset": 0,
        "timestamp": row.timestamp,
    }
    first = parsed.events.selectExpr("unix_micros(event_time)").first()
    assert first is not None
    (seconds,) = first
    assert seconds == datetime(2026, 10, 31, 12, 0, 0, 123_000, UTC).timestamp() * 1_000_000
    assert parsed.malformed.isEmpty()
    assert set(event_schema(events.CREDIT).fieldNames()) <= set(row.asDict())


GOOD = {
    "a time with an offset": document({"event_time": "2026-10-31T12:00:00+09:00"}),
    "a time with microseconds": document({"event_time": "2026-10-31T12:00:00.123456Z"}),
    "an optional field that is absent": document(without="task_id"),
    "an optional field that is null": document({"task_id": None}),
    "an optional field that is empty": document({"task_id": ""}),
    "the greatest amount": document({"amount_cents": 2**63 - 1}),
    "an amount of zero": document({"amount_cents": 0}),
    "an unknown field, whatever is in it": document({"extra": {"a": [1, {"b": None}]}}),
    "a field of another kind": document({"dwell_ms": "soon"}),
    "blanks around the object": b" \n" + document() + b"\n ",
    "letters beyond ASCII": document({"device_id": "電話"}),
    "letters beyond ASCII, not escaped": json.dumps({**CREDIT, "user_id": "é"}, ensure_ascii=False).encode(),
    "a key twice, of which the last counts": document()[:-1] + b', "amount_cents": 7}',
    "the longest string": document({"task_id": "x" * MAX_STRING_CHARS}),
}


def test_what_is_allowed_is_no_reason(spark: SparkSession) -> None:
    found = reasons(parse(records(spark, list(GOOD.values())), events.CREDIT))
    assert dict(zip(GOOD, found, strict=True)) == dict.fromkeys(GOOD)


def test_of_a_key_that_occurs_twice_the_last_counts(spark: SparkSession) -> None:
    value = GOOD["a key twice, of which the last counts"]
    row = parse(records(spark, [value]), events.CREDIT).events.first()
    assert row is not None
    assert row.amount_cents == 7


BAD: dict[str, tuple[bytes | None, str]] = {
    "a tombstone": (None, "the value is null (a tombstone)"),
    "nothing": (b"", "the value is empty"),
    "blanks": (b"  ", "the value is empty"),
    "not JSON": (b"hello", "not a JSON object"),
    "an array": (b"[" + document() + b"]", "not a JSON object"),
    "a number": (b"5", "not a JSON object"),
    "JSON's null": (b"null", "not a JSON object"),
    "a cut object": (document()[:-1], "not a JSON object"),
    "a comma too many": (document()[:-1] + b",}", "not a JSON object"),
    "single quotes": (document().replace(b'"', b"'"), "not a JSON object"),
    "a comment": (b"/* */" + document(), "not a JSON object"),
    "a byte order mark": (b"\xef\xbb\xbf" + document(), "not a JSON object"),
    "something behind it": (document() + b" x", "not one JSON object: something follows it"),
    "two objects": (document() + document(), "not one JSON object: something follows it"),
    "an object that closes ours": (document() + b"}", "not one JSON object: something follows it"),
    "a bracket bomb": (b'{"extra": ' + b"[" * 5000 + b"]" * 5000 + b"}", "not a JSON object"),
    "invalid UTF-8": (document().replace(b"d-1", b"d-\xff"), "not UTF-8"),
    "a missing field": (document(without="user_id"), "field user_id: is missing"),
    "a null": (document({"user_id": None}), "field user_id: is null"),
    "an empty string": (document({"user_id": ""}), "field user_id: is empty"),
    "a number for a string": (document({"user_id": 5}), "field user_id: 5 is not a string"),
    "an object for a string": (document({"user_id": {"a": 1}}), 'field user_id: {"a":1} is not a string'),
    "a text for a number": (
        document({"amount_cents": "250"}),
        "field amount_cents: '250' is not a whole number of 64 bits",
    ),
    "a float": (document({"amount_cents": 2.5}), "field amount_cents: 2.5 is not a whole number of 64 bits"),
    "a whole float": (
        document().replace(b" 250,", b" 250.0,"),
        "field amount_cents: 250.0 is not a whole number of 64 bits",
    ),
    "an exponent": (
        document().replace(b" 250,", b" 25e1,"),
        "field amount_cents: 250.0 is not a whole number of 64 bits",
    ),
    "a wide number": (
        document({"amount_cents": 2**63}),
        "field amount_cents: 9223372036854775808 is not a whole number of 64 bits",
    ),
    "a very wide number": (
        document({"amount_cents": 10**60}),
        f"field amount_cents: 1{'0' * 59}… is not a whole number of 64 bits",
    ),
    "a leading zero": (document().replace(b" 250,", b" 0250,"), "not a JSON object"),
    "not a number": (document().replace(b" 250,", b" NaN,"), "not a JSON object"),
    "a boolean for a number": (
        document({"amount_cents": True}),
        "field amount_cents: true is not a whole number of 64 bits",
    ),
    "too little": (document({"amount_cents": -3}), "field amount_cents: -3 is less than 0"),
    "an unknown choice": (
        document({"source": "gift"}),
        "field source: 'gift' is not one of right_slide, left_slide, install, invite, task, signup",
    ),
    "no time": (document({"event_time": "yesterday"}), f"field event_time: 'yesterday' {NOT_A_TIME}"),
    "a day without a time": (
        document({"event_time": "2026-10-31"}),
        f"field event_time: '2026-10-31' {NOT_A_TIME}",
    ),
    "a time without a zone": (
        document({"event_time": "2026-10-31T12:00:00"}),
        f"field event_time: '2026-10-31T12:00:00' {NOT_A_TIME}",
    ),
    "a day that is none": (
        document({"event_time": "2026-02-30T12:00:00Z"}),
        f"field event_time: '2026-02-30T12:00:00Z' {NOT_A_TIME}",
    ),
    "seconds since 1970": (
        document({"event_time": 1793448000}),
        f"field event_time: 1793448000 {NOT_A_TIME}",
    ),
    "a time long ago": (
        document({"event_time": "1970-01-01T00:00:00Z"}),
        "field event_time: '1970-01-01T00:00:00Z' is before 2000",
    ),
    "a time to come": (
        document({"event_time": "2026-11-02T00:00:01Z"}),
        "field event_time: '2026-11-02T00:00:01Z' is more than a day after the record's timestamp",
    ),
    "a long string": (
        document({"task_id": "x" * (MAX_STRING_CHARS + 1)}),
        f"field task_id: {MAX_STRING_CHARS + 1} characters are more than {MAX_STRING_CHARS}",
    ),
    "a long value of a wrong type": (
        document({"user_id": list(range(100))}),
        "field user_id: [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,… is not a string",
    ),
    "several problems": (
        document({"user_id": 5, "amount_cents": -1}, without="ip"),
        "field user_id: 5 is not a string; field ip: is missing; field amount_cents: -1 is less than 0",
    ),
}


def test_the_reason_names_the_field_and_what_is_wrong(spark: SparkSession) -> None:
    found = reasons(parse(records(spark, [value for value, _ in BAD.values()]), events.CREDIT))
    assert dict(zip(BAD, found, strict=True)) == {name: reason for name, (_, reason) in BAD.items()}


def test_a_malformed_record_keeps_key_value_and_place(spark: SparkSession) -> None:
    raw = records(spark, [document(), b"\xff\x00"])
    (row,) = parse(raw, events.CREDIT).malformed.collect()
    assert (row.topic, row.partition, row.offset) == (events.CREDIT.topic, 3, 1)
    assert (bytes(row.key), bytes(row.value), row.reason) == (b"u-1", b"\xff\x00", "not UTF-8")


def sample(kind: EventKind) -> dict[str, Any]:
    values: dict[str, Any] = {"string": f"{kind.name}-value", "long": 3, "boolean": True}
    values["time"] = "2026-10-31T12:00:00.000Z"
    return {field.name: field.choices[0] if field.choices else values[field.type] for field in kind.fields}


def test_each_kind_is_parsed_by_its_topic_into_its_own_fields(spark: SparkSession) -> None:
    raw = records_of(spark, [(kind.topic, json.dumps(sample(kind)).encode()) for kind in events.KINDS])
    parsed = parse_all(raw, events.KINDS).events.persist()
    found = {row.kind: row.asDict() for row in parsed.collect()}
    assert found.keys() == events.BY_NAME.keys()
    for kind in events.KINDS:
        mine = {field.name for field in kind.fields}
        assert {name for name, value in found[kind.name].items() if value is None}.isdisjoint(mine)
        others = {field.name for other in events.KINDS for field in other.fields} - mine
        assert all(found[kind.name][name] is None for name in others)
        (row,) = of_kind(parsed, kind).collect()
        assert (
            row.asDict().items()
            >= {name: value for name, value in sample(kind).items() if name != "event_time"}.items()
        )


def test_a_field_that_two_kinds_define_is_held_to_the_rules_of_its_own(spark: SparkSession) -> None:
    install = {**sample(events.INSTALL), "channel": "shop"}
    invite = {**sample(events.INVITE), "channel": "shop"}
    texts = {
        events.INSTALL.topic: json.dumps(install).encode(),
        events.INVITE.topic: json.dumps(invite).encode(),
    }
    raw = records_of(spark, list(texts.items()))
    found = reasons(parse_all(raw, (events.INSTALL, events.INVITE)))
    assert found == [None, "field channel: 'shop' is not one of sms, link, qr, chat"]


def test_a_record_of_a_topic_without_events_is_malformed(spark: SparkSession) -> None:
    found = reasons(parse_all(records_of(spark, [("elsewhere", document())]), events.LOGS))
    assert found == ["topic elsewhere: it is no topic of events"]


def test_a_record_is_parsed_once_where_only_its_events_are_wanted(spark: SparkSession) -> None:
    parsed = parse_all(records(spark, [document()]), events.LOGS)
    plan = parsed.events._jdf.queryExecution().optimizedPlan().toString()
    filters = [line for line in plan.splitlines() if "Filter" in line]
    assert filters
    assert plan.count("ArrowEvalPython") == 1
    assert plan.index("Filter") < plan.index("ArrowEvalPython")
