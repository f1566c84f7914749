"""What goes to Cassandra with a row: the timestamp that settles which of two writes stays."""

from __future__ import annotations

from tidelog.spark.sinks.cassandra_writer import _bound
from tidelog.spark.sinks.table import ColumnSpec, TableSpec

NEWEST = TableSpec(
    "newest",
    (ColumnSpec("user_id", "string"), ColumnSpec("event_time", "time"), ColumnSpec("e164", "string")),
    ("user_id",),
    newest_by="event_time",
)
NOON_MS = 1_700_000_000_123


def timestamp(time_ms: int, number: str | None) -> int:
    *row, stamp = _bound(NEWEST, ("ann", time_ms, number))
    assert row == ["ann", time_ms, number]
    assert isinstance(stamp, int)
    return stamp


def test_two_rows_of_one_millisecond_have_timestamps_of_their_own_so_that_one_stays_whole() -> None:
    stamps = {timestamp(NOON_MS, number) for number in ("+8613812345678", "+5511987654321", None)}
    assert len(stamps) == 3
    assert {stamp // 1000 for stamp in stamps} == {NOON_MS}


def test_the_same_row_again_has_the_same_timestamp_and_a_later_one_a_greater() -> None:
    assert timestamp(NOON_MS, "+8613812345678") == timestamp(NOON_MS, "+8613812345678")
    assert all(timestamp(NOON_MS + 1, str(n)) > timestamp(NOON_MS, str(n + 1)) for n in range(1000))
