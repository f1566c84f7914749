"""Windows as Spark hands them over, scored; dead letters written in Python are those written by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from tidelog.pipelines import events
from tidelog.pipelines.alert_evidence import Window, time_text
from tidelog.pipelines.alert_letters import letters, values_and_letters
from tidelog.pipelines.alert_windows import scored
from tidelog.pipelines.dead_letter import dead_letters
from tidelog.pipelines.parsing import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = pa.timestamp("us", "UTC")
EVENT = pa.struct([("event_time", TIME), ("event_id", pa.string())])
WINDOW = pa.struct([("start", TIME), ("end", TIME)])


class Event(NamedTuple):
    time_us: int
    event_id: str


class Alert(msgspec.Struct):
    alert_id: str
    window: tuple[int, int]
    events: list[tuple[int, str]]


def all_but_b(subject: str, window: Window, delivered: Iterable[Event]) -> Alert | None:
    return (
        None
        if subject == "b"
        else Alert(f"alert on {subject}", window, [(each.time_us, each.event_id) for each in delivered])
    )


def scored_of(windows: list[tuple[str, list[tuple[int, str]]]]) -> list[Any]:
    delivered = [
        [{"event_time": time_us, "event_id": event_id} for time_us, event_id in events]
        for _, events in windows
    ]
    # A slice: arrays that Spark's batches are cut from do not begin at the first value.
    cut = slice(1, None)
    found = scored(
        pa.array(["cut off", *(name for name, _ in windows)], pa.string())[cut],
        pa.array([{"start": 10, "end": 20}] * (len(windows) + 1), WINDOW)[cut],
        pa.array([[{"event_time": 0, "event_id": "cut off"}], *delivered], pa.list_(EVENT))[cut],
        Event,
        all_but_b,
    )
    rows: list[Any] = found.to_pylist()
    return rows


def test_each_window_is_scored_with_its_own_events() -> None:
    first, second, third = scored_of([("a", [(11, "x"), (12, "y")]), ("b", [(13, "z")]), ("c", [(14, "w")])])
    assert first == {
        "key": b"alert on a",
        "value": b'{"alert_id":"alert on a","window":[10,20],"events":[[11,"x"],[12,"y"]]}',
    }
    assert second == {"key": None, "value": None}
    assert third["value"] == b'{"alert_id":"alert on c","window":[10,20],"events":[[14,"w"]]}'


def test_no_windows_are_no_alerts() -> None:
    assert scored_of([]) == []


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_614_400_123_999, "2026-01-05T12:00:00.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_times_are_written_in_milliseconds(time_us: int, text: str) -> None:
    assert time_text(time_us) == text


@pytest.mark.slow
def test_letters_are_those_that_other_pipelines_write(spark: SparkSession) -> None:
    good = (
        b'{"event_id":"e","event_time":"2026-01-05T12:00:00Z","user_id":"u","device_id":"d","ip":"i",'
        b'"phone":"1","method":"sms","success":true}'
    )
    values = [good, b"", None, b"\xff", b"{}", '{"event_id": "é"}'.encode(), good.replace(b"sms", b"fax")]
    written = datetime(2026, 1, 5, 13, tzinfo=UTC)
    rows = [
        (events.LOGIN.topic, at % 3, 1 << (at * 8), written, None if at == 1 else bytearray(b"k"), value)
        for at, value in enumerate(values)
    ]
    schema = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary"
    raw = spark.createDataFrame(rows, schema)
    ours = letters(raw, events.LOGIN, "account-switch")
    expected = dead_letters(parse(raw, events.LOGIN).malformed, "account-switch")
    assert ours.dtypes == expected.dtypes
    assert ours.collect() == expected.collect()
    assert ours.count() == len(values) - 1
    # Spark's own connector is handed what the driver holds.
    again = spark.createDataFrame(ours.toArrow())
    assert (again.dtypes, again.collect()) == (ours.dtypes, ours.collect())

    def seen(parsed: pa.StructArray, *_: pa.Array) -> list[bytes | None]:
        return [None if name is None else b"seen" for name in parsed.field("event_id").to_pylist()]

    both = values_and_letters(raw, events.LOGIN, "account-switch", seen).collect()
    assert [row for row in both if row.topic is not None] == ours.collect()
    assert [(row.key, bytes(row.value), row.headers) for row in both if row.topic is None] == [
        (None, b"seen", None)
    ]
