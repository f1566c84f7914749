"""Tables and their files: what other readers find, columns that are new, and what is refused."""

from __future__ import annotations

import importlib.resources
import struct
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.spark.lake.rig import (
    COLUMNS,
    DAY,
    NOON,
    TABLE,
    catalog,
    collect,
    event,
    expected,
    ids,
    new_table,
    written,
)

from tidelog.spark.lake import compaction
from tidelog.spark.lake.batches import append_batch
from tidelog.spark.lake.data_files import TableFiles, TaskDataFiles, lower_bound, upper_bound
from tidelog.spark.lake.lake_note import LakeError

if TYPE_CHECKING:
    from pyiceberg.table import Table

WITH_CHANNEL = {**COLUMNS, "channel": "string"}


def test_duckdb_reads_a_scan_and_the_files_that_are_listed(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    collect(table, 0, 1, 2)
    collect(table, 1, 3, when=NOON + DAY)
    connection = table.scan().to_duckdb("credit")
    (found,) = connection.execute("SELECT count(*), sum(cents), min(event_time) FROM credit").fetchall()
    assert found == (3, 6, NOON)
    paths = [task.file.file_path for task in table.scan().plan_files()]
    assert duckdb.read_parquet(paths).aggregate("count(*), sum(cents)").fetchall() == [(3, 6)]


def test_duckdb_reads_the_metadata_by_itself(tmp_path: Path) -> None:
    """Iceberg as others understood it: merged manifests, a new column, files that were replaced."""
    table = new_table(tmp_path)
    for version in range(20):
        collect(table, version, version, 100 + version, when=NOON + (version % 2) * DAY)
    seen = [_duckdb(table)]
    table = new_table(tmp_path, WITH_CHANNEL)
    append_batch(table, written(table, [event(500, channel="tv")], WITH_CHANNEL), "query", 20)
    seen.append(_duckdb(table))
    compaction.compact(table, compaction.plan(table), lambda group: None)
    seen.append(_duckdb(table))
    assert seen == [(40, 40, 20, 2380), (41, 41, 21, 2880), (41, 41, 21, 2880)]


def _duckdb(table: Table) -> Any:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in ("avro", "iceberg"):
        package = importlib.resources.files(f"duckdb_extension_{extension}")
        path = package / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"
        connection.load_extension(str(path))
    day = f"event_time < '{(NOON + DAY / 2).isoformat()}'"
    counts = f"count(*), count(DISTINCT event_id), count(*) FILTER ({day}), sum(cents)::INT"
    return connection.execute(f"SELECT {counts} FROM iceberg_scan('{table.metadata_location}')").fetchone()


def test_a_question_about_a_day_opens_the_files_of_that_day(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    midnight = NOON.replace(hour=0)
    moments = [midnight - timedelta(microseconds=1), midnight, NOON, midnight + DAY]
    events = [event(number, when) for number, when in enumerate(moments)]
    append_batch(table, written(table, events), "query", 0)
    scan = table.scan(
        f"event_time >= '{midnight.isoformat()}' AND event_time < '{(midnight + DAY).isoformat()}'"
    )
    (task,) = scan.plan_files()
    assert "/event_time_day=2026-11-01/" in task.file.file_path
    assert sorted(scan.to_arrow()["event_id"].to_pylist()) == ["e-1", "e-2"]


def test_bounds_let_readers_skip_files(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for version in range(3):
        collect(table, version, 10 * version, 10 * version + 1)
    for condition, found in {
        "cents > 15": 1,
        "cents < 0": 0,
        "event_id = 'e-11'": 1,
        "rate <= 0.25": 1,
        "user_id is null": 0,
        "paid = true": 3,
    }.items():
        assert len(list(table.scan(condition).plan_files())) == found, condition


def test_a_column_that_is_new_is_null_in_older_files(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    collect(table, 0, 1)
    grown = new_table(tmp_path, WITH_CHANNEL)
    append_batch(grown, written(grown, [event(2, channel="tv")], WITH_CHANNEL), "query", 1)
    # A driver of before, which does not know the column, goes on.
    collect(grown, 2, 3)
    for _ in range(2):
        found = (
            catalog(tmp_path)
            .table(TABLE)
            .scan(selected_fields=("event_id", "channel"))
            .to_arrow()
            .to_pylist()
        )
        assert sorted((row["event_id"], row["channel"]) for row in found) == [
            ("e-1", None),
            ("e-2", "tv"),
            ("e-3", None),
        ]
        compaction.compact(grown, compaction.plan(grown), lambda group: None)
    assert len(new_table(tmp_path, WITH_CHANNEL).schemas()) == 2


def test_files_are_read_by_field_ids_when_a_column_is_renamed(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    collect(table, 0, 1)
    with table.update_schema() as update:
        update.rename_column("cents", "amount")
    assert table.scan().to_arrow()["amount"].to_pylist() == [1]


def test_a_column_of_another_type_and_other_partitions_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(LakeError, match="has column cents as long, not as string"):
        new_table(tmp_path, {**COLUMNS, "cents": "string"})
    with table.update_spec() as update:
        update.add_identity("user_id")
    with pytest.raises(LakeError, match=r"not partitioned by day\(event_time\)"):
        new_table(tmp_path)


def test_a_table_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    new_table(tmp_path)
    with pytest.raises(LakeError, match="has no table credits; its tables: credit"):
        catalog(tmp_path).table("credits")


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    root = tmp_path / "ä lake #1 100%?"
    table = new_table(root)
    collect(table, 0, 1)
    collect(table, 1, 2)
    assert compaction.compact(table, compaction.plan(table), lambda group: None).groups == 1
    assert ids(root) == expected(1, 2)


def test_rows_without_a_time_have_a_place(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    events = [event(1), {**event(2), "event_time": None}]
    append_batch(table, written(table, events), "query", 0)
    assert ids(tmp_path) == expected(1, 2)
    assert table.scan("event_time is null").to_arrow()["event_id"].to_pylist() == ["e-2"]


def test_files_are_written_through_pyiceberg_where_there_is_no_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.spark.lake import data_files

    monkeypatch.setattr(data_files, "local_path", lambda location: None)
    schema = pa.schema(
        [pa.field("event_time", pa.timestamp("us", "UTC"), metadata={"PARQUET:field_id": "1"})]
    )
    (tmp_path / "data" / "event_time_day=2026-11-01").mkdir(parents=True)
    task = TaskDataFiles([TableFiles("t", f"file://{tmp_path}/data", schema, {"py-io-impl": _PYARROW_IO})])
    task.add_to("t", pa.table({"event_time": pa.array([NOON], pa.timestamp("us", "UTC"))}))
    (file,) = task.finish()
    path = Path(file.path.removeprefix("file://"))
    assert pq.read_table(path)["event_time"].to_pylist() == [NOON]
    assert file.size_bytes == path.stat().st_size


_PYARROW_IO = "pyiceberg.io.pyarrow.PyArrowFileIO"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bounds_of_text_enclose_it_and_are_short(text: str) -> None:
    low, high = lower_bound(text.encode()), upper_bound(text.encode())
    assert low <= text.encode()
    assert high is None or text.encode() <= high
    assert high is not None or set(text[:16]) == {"\U0010ffff"}
    assert len(low.decode()) <= 16
    assert high is None or len(high.decode()) <= 16


@pytest.mark.parametrize(
    ("value", "bound"),
    [(True, b"\x01"), (False, b"\x00"), (-3, struct.pack("<q", -3)), (0.5, struct.pack("<d", 0.5))],
)
def test_bounds_of_numbers_are_as_iceberg_writes_them(value: Any, bound: bytes) -> None:
    assert lower_bound(value) == upper_bound(value) == bound
