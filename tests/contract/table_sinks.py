"""What every store of tables must do: the suite that SQLite, the lake and Cassandra are held to.

A module that runs it has a fixture ``sink`` (an empty store) and derives from :class:`AppendedTables`, or
from :class:`ChangingTables` where the store keeps tables whose rows change too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.spark.sinks.table import Batch, ColumnSpec, TableError, TableSink, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 10, 31, 12, 0, 0, 123_000, UTC)
LATER = datetime(2026, 11, 1, 0, 0, 0, 1000, UTC)
DDL = (
    "user_id string, date string, event_id string, event_time timestamp, "
    "cents long, rate double, paid boolean"
)


def columns() -> tuple[ColumnSpec, ...]:
    return (
        ColumnSpec("user_id", "string"),
        ColumnSpec("date", "string"),
        ColumnSpec("event_id", "string"),
        ColumnSpec("event_time", "time"),
        ColumnSpec("cents", "long"),
        ColumnSpec("rate", "double"),
        ColumnSpec("paid", "boolean"),
    )


APPENDED = TableSpec(
    "appended", columns(), ("user_id", "date", "event_id"), ("user_id", "date"), append_only=True
)
CHANGING = TableSpec("changing", columns(), ("user_id", "date", "event_id"), ("user_id", "date"))
NEWEST = TableSpec("newest", columns(), ("user_id",), newest_by="event_time", then_by="event_id")
KEYS_ONLY = TableSpec(
    "keys_only", (ColumnSpec("user_id", "string"), ColumnSpec("date", "string")), ("user_id", "date")
)

FULL = ("ü-1", "2026-10-31", "e-1", NOON, 2**62, 0.5, True)
SPARSE = ("u-2", "2026-11-01", "e-2", LATER, None, None, None)
FALSE = ("u-2", "2026-11-01", "e-3", LATER, -1, -0.25, False)


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], partitions: int = 2) -> DataFrame:
    return spark.createDataFrame(list(rows), DDL).repartition(partitions)


def kept(sink: TableSink, table: TableSpec) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in table.names) for row in sink.rows(table))


class AppendedTables:
    """Rows that never change."""

    def test_what_was_written_is_read_back(self, spark: SparkSession, sink: TableSink) -> None:
        assert sink.upsert(APPENDED, frame(spark, [FULL, SPARSE, FALSE]), Batch("app", 0)) == 3
        assert kept(sink, APPENDED) == sorted([FULL, SPARSE, FALSE])

    def test_a_replayed_batch_leaves_each_row_once(self, spark: SparkSession, sink: TableSink) -> None:
        for partitions in (3, 1):
            sink.upsert(APPENDED, frame(spark, [FULL, SPARSE, FALSE], partitions), Batch("app", 0))
        assert kept(sink, APPENDED) == sorted([FULL, SPARSE, FALSE])

    def test_a_row_that_comes_again_in_another_batch_stays_one(
        self, spark: SparkSession, sink: TableSink
    ) -> None:
        sink.upsert(APPENDED, frame(spark, [FULL, SPARSE]), Batch("app", 0))
        sink.upsert(APPENDED, frame(spark, [FULL, FALSE]), Batch("app", 1))
        assert kept(sink, APPENDED) == sorted([FULL, SPARSE, FALSE])

    def test_an_empty_batch_writes_nothing(self, spark: SparkSession, sink: TableSink) -> None:
        assert sink.upsert(APPENDED, frame(spark, []), Batch("app", 0)) == 0
        assert kept(sink, APPENDED) == []

    def test_a_wide_frame_goes_to_several_tables(self, spark: SparkSession, sink: TableSink) -> None:
        other = TableSpec(
            "other", APPENDED.columns, APPENDED.primary_key, APPENDED.partition_key, append_only=True
        )
        wide = spark.createDataFrame(
            [(*FULL, "appended"), (*SPARSE, "other"), (*FALSE, "nowhere")], f"{DDL}, kind string"
        )
        counts = sink.upsert_each([APPENDED, other], wide, "kind", Batch("app", 0))
        assert counts == {"appended": 1, "other": 1}
        assert (kept(sink, APPENDED), kept(sink, other)) == ([FULL], [SPARSE])

    def test_one_batch_may_write_several_tables_one_after_another(
        self, spark: SparkSession, sink: TableSink
    ) -> None:
        other = TableSpec(
            "other", APPENDED.columns, APPENDED.primary_key, APPENDED.partition_key, append_only=True
        )
        for _ in range(2):
            for table, rows in ((APPENDED, [FULL]), (other, [SPARSE])):
                sink.upsert(table, frame(spark, rows), Batch("app", 0))
        assert (kept(sink, APPENDED), kept(sink, other)) == ([FULL], [SPARSE])

    def test_making_sure_of_a_table_twice_is_the_same_as_once(self, sink: TableSink) -> None:
        sink.ensure(APPENDED)
        sink.ensure(APPENDED)
        assert kept(sink, APPENDED) == []


class ChangingTables(AppendedTables):
    """Rows that are replaced."""

    def test_a_later_row_replaces_the_whole_row(self, spark: SparkSession, sink: TableSink) -> None:
        changed = (*FULL[:3], LATER, None, 1.5, False)
        sink.upsert(CHANGING, frame(spark, [FULL, SPARSE]), Batch("app", 0))
        sink.upsert(CHANGING, frame(spark, [changed]), Batch("app", 1))
        assert kept(sink, CHANGING) == sorted([changed, SPARSE])

    def test_an_older_row_does_not_replace_a_newer_one(self, spark: SparkSession, sink: TableSink) -> None:
        newer = ("u-1", "2026-11-01", "e-2", LATER, 2, None, True)
        older = ("u-1", "2026-10-31", "e-1", NOON, 1, 0.5, False)
        sink.upsert(NEWEST, frame(spark, [newer]), Batch("app", 0))
        sink.upsert(NEWEST, frame(spark, [older]), Batch("app", 1))
        assert kept(sink, NEWEST) == [newer]
        sink.upsert(NEWEST, frame(spark, [older, ("u-2", *newer[1:])]), Batch("app", 2))
        assert kept(sink, NEWEST) == [newer, ("u-2", *newer[1:])]

    def test_of_two_rows_of_one_moment_the_same_stays_in_whatever_order_they_come(
        self, spark: SparkSession, sink: TableSink
    ) -> None:
        one = ("u-1", "2026-11-01", "e-1", NOON, 1, None, True)
        other = ("u-1", "2026-10-31", "e-2", NOON, 2, 0.5, False)
        sink.upsert(NEWEST, frame(spark, [one]), Batch("app", 0))
        sink.upsert(NEWEST, frame(spark, [other]), Batch("app", 1))
        [stays] = kept(sink, NEWEST)
        assert stays in (one, other)
        sink.upsert(NEWEST, frame(spark, [one]), Batch("app", 2))
        assert kept(sink, NEWEST) == [stays]

    def test_a_table_may_be_nothing_but_its_key(self, spark: SparkSession, sink: TableSink) -> None:
        for version in range(2):
            sink.upsert(KEYS_ONLY, frame(spark, [FULL, SPARSE]), Batch("app", version))
        assert kept(sink, KEYS_ONLY) == sorted([FULL[:2], SPARSE[:2]])

    def test_a_table_with_other_columns_is_refused_by_name(self, sink: TableSink) -> None:
        sink.ensure(CHANGING)
        retyped = (*columns()[:4], ColumnSpec("cents", "string"))
        other = TableSpec("changing", retyped, CHANGING.primary_key, CHANGING.partition_key)
        with pytest.raises(TableError, match="changing"):
            sink.ensure(other)
        other_key = TableSpec("changing", columns(), ("user_id", "event_id"))
        with pytest.raises(TableError, match="changing"):
            sink.ensure(other_key)

    def test_a_column_of_a_newer_release_is_added_and_empty_in_rows_that_were_there(
        self, spark: SparkSession, sink: TableSink
    ) -> None:
        # The key and no more, as an earlier release had it.
        keys = [column for column in columns() if column.name in CHANGING.primary_key]
        before = TableSpec("changing", tuple(keys), CHANGING.primary_key, CHANGING.partition_key)
        sink.upsert(before, frame(spark, [FULL]), Batch("app", 0))
        sink.ensure(CHANGING)
        sink.upsert(CHANGING, frame(spark, [SPARSE]), Batch("app", 1))
        rows = {str(row["event_id"]): row for row in sink.rows(CHANGING)}
        others = [name for name in CHANGING.names if name not in CHANGING.primary_key]
        names = [column.name for column in columns()]
        old, new = (str(row[names.index("event_id")]) for row in (FULL, SPARSE))
        assert [rows[old][name] for name in others] == [None] * len(others)
        assert tuple(rows[new][name] for name in names) == SPARSE
