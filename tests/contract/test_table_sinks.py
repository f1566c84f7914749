"""The embedded stores of tables, held to the contract, and what each has beside it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.table_sinks import (
    APPENDED,
    CHANGING,
    FALSE,
    FULL,
    SPARSE,
    AppendedTables,
    ChangingTables,
    frame,
    kept,
)
from tests.rigs.pipelines_session import pipelines_session

from tidelog.spark.lake import compaction
from tidelog.spark.lake.catalog import LakeCatalog
from tidelog.spark.lake.lake_note import LakeSettings
from tidelog.spark.lake.replacing import replace_files
from tidelog.spark.lake.snapshots import KEPT_SNAPSHOTS_PROPERTY, Change, commit
from tidelog.spark.sinks import lake as lakes
from tidelog.spark.sinks.lake import Lake, each_once, written
from tidelog.spark.sinks.sqlite import SqliteTables
from tidelog.spark.sinks.table import Batch, ColumnSpec, TableError, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return pipelines_session()


class TestSqlite(ChangingTables):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> SqliteTables:
        return SqliteTables(tmp_path / "deep" / "tables.sqlite")

    def test_a_reader_in_the_middle_of_a_batch_sees_the_one_before(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        sink = SqliteTables(tmp_path / "tables.sqlite")
        sink.upsert(CHANGING, frame(spark, [FULL]), Batch("app", 0))
        with sqlite3.connect(tmp_path / "tables.sqlite") as reader:
            reader.execute("BEGIN")
            before = reader.execute("SELECT count(*) FROM changing").fetchone()
            sink.upsert(CHANGING, frame(spark, [SPARSE, FALSE]), Batch("app", 1))
            assert reader.execute("SELECT count(*) FROM changing").fetchone() == before
        assert len(kept(sink, CHANGING)) == 3

    def test_a_batch_that_fails_in_the_middle_leaves_nothing(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        sink = SqliteTables(tmp_path / "tables.sqlite")
        rows = frame(spark, [FULL, SPARSE], 1).selectExpr(
            "user_id",
            "date",
            "if(user_id = 'u-2', null, event_id) event_id",
            "event_time",
            "cents",
            "rate",
            "paid",
        )
        with pytest.raises(TableError, match="changing"):
            sink.upsert(CHANGING, rows, Batch("app", 0))
        assert kept(sink, CHANGING) == []

    def test_times_are_text_that_sqlite_understands(self, spark: SparkSession, tmp_path: Path) -> None:
        SqliteTables(tmp_path / "t").upsert(CHANGING, frame(spark, [FULL]), Batch("app", 0))
        with sqlite3.connect(tmp_path / "t") as reader:
            (text, day) = reader.execute("SELECT event_time, date(event_time) FROM changing").fetchone()
        assert (text, day) == ("2026-10-31T12:00:00.123Z", "2026-10-31")

    def test_a_path_that_cannot_be_a_file_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(TableError, match="cannot be opened"):
            SqliteTables(tmp_path).ensure(CHANGING)


class TestLake(AppendedTables):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> Lake:
        return Lake(LakeSettings(tmp_path / "lake"))

    def test_spark_reads_what_a_scan_plans(self, spark: SparkSession, tmp_path: Path) -> None:
        lake = Lake(LakeSettings(tmp_path / "ä lake #1"))
        lake.upsert(APPENDED, frame(spark, [FULL, SPARSE]), Batch("app", 0))
        lake.upsert(APPENDED, frame(spark, [SPARSE, FALSE]), Batch("app", 1))
        grown = TableSpec(
            "appended",
            (*APPENDED.columns, ColumnSpec("channel", "string")),
            APPENDED.primary_key,
            append_only=True,
        )
        lake.ensure(grown)
        found = lake.read(spark, grown, once=False).where("channel is null").collect()
        assert sorted(row.event_id for row in found) == ["e-1", "e-2", "e-2", "e-3"]
        assert sorted(tuple(row) for row in lake.read(spark, APPENDED).select("event_id").collect()) == [
            ("e-1",),
            ("e-2",),
            ("e-3",),
        ]

    def test_a_merge_leaves_each_key_once_and_other_days_alone(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake = Lake(LakeSettings(tmp_path))
        lake.upsert(APPENDED, frame(spark, [FULL, SPARSE]), Batch("app", 0))
        lake.upsert(APPENDED, frame(spark, [SPARSE]), Batch("app", 1))
        other_day = set(tmp_path.glob("appended/data/event_time_day=2026-10-31/*"))
        calls: list[object] = []

        def compacted_meanwhile(*arguments: Any, **options: Any) -> None:
            calls.append(arguments)
            if len(calls) == 1:
                table = LakeCatalog(LakeSettings(tmp_path)).table("appended")
                compaction.compact(table, compaction.plan(table), lambda group: None)
            replace_files(*arguments, **options)

        monkeypatch.setattr(lakes, "replace_files", compacted_meanwhile)
        for attempt in range(2):
            assert lake.merge(APPENDED, frame(spark, [SPARSE, FALSE]), Batch(f"backfill-{attempt}", 0)) == 2
            assert lake.read(spark, APPENDED, once=False).count() == 3
        assert len(calls) == 3
        assert other_day == set(tmp_path.glob("appended/data/event_time_day=2026-10-31/*"))
        assert kept(lake, APPENDED) == sorted([FULL, SPARSE, FALSE])

    def test_a_merge_outlives_the_snapshot_that_it_was_planned_on(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake = Lake(LakeSettings(tmp_path))
        lake.upsert(APPENDED, frame(spark, [FULL, SPARSE]), Batch("app", 0))
        table = LakeCatalog(LakeSettings(tmp_path)).table("appended")
        with table.transaction() as transaction:
            transaction.set_properties({KEPT_SNAPSHOTS_PROPERTY: "3"})
        planned_on = table.current_snapshot()
        assert planned_on is not None

        def stream_goes_on(*arguments: Any) -> list[str]:
            answers = written(*arguments)
            for _ in range(9):
                commit(table, lambda table: Change("append"))
            return answers

        monkeypatch.setattr(lakes, "written", stream_goes_on)
        assert lake.merge(APPENDED, frame(spark, [SPARSE, FALSE]), Batch("backfill", 0)) == 2
        assert table.snapshot_by_id(planned_on.snapshot_id) is None
        assert kept(lake, APPENDED) == sorted([FULL, SPARSE, FALSE])

    def test_tables_that_it_cannot_keep_are_refused(self, tmp_path: Path) -> None:
        lake = Lake(LakeSettings(tmp_path))
        with pytest.raises(TableError, match="rows that change"):
            lake.ensure(CHANGING)
        timeless = TableSpec("timeless", (ColumnSpec("a", "string"),), ("a",), append_only=True)
        with pytest.raises(TableError, match="no time event_time"):
            lake.ensure(timeless)


def test_a_merge_has_what_the_log_says_in_place_of_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(LakeSettings(tmp_path))
    there = [("u", "2026-10-31", f"e-{number}", FULL[3], number, None, None) for number in range(200)]
    told = [(*row[:5], 0.5, True) for row in there[50:150]]
    lake.upsert(APPENDED, frame(spark, there, 4), Batch("app", 0))
    assert lake.merge(APPENDED, frame(spark, told, 4), Batch("backfill", 0)) == 200
    assert kept(lake, APPENDED) == sorted([*there[:50], *told, *there[150:]])


def test_a_large_range_is_sorted_in_bounded_parts(spark: SparkSession) -> None:
    """Ten million rows in two parts did not fit into Spark's default heap."""
    twice = frame(spark, [FULL, FULL, SPARSE])
    few, many = each_once(APPENDED, twice, 3), each_once(APPENDED, twice, 10_000_000)
    assert few.count() == many.count() == 2
    assert few.rdd.getNumPartitions() == int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    assert many.rdd.getNumPartitions() == 41
