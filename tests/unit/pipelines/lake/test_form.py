"""Which form a lake has: it keeps it, nothing is mixed, and one of plain Parquet can be converted exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.pipelines.lake.object_store import BUCKET, object_store
from tests.unit.pipelines.lake.rig import DAY, NOON, catalog, collect, new_table

from tidelog.pipelines.framework.sinks import open_lake
from tidelog.pipelines.framework.sinks.lake_files import LakeDirectory, TaskFiles, staged_files
from tidelog.pipelines.framework.sinks.parquet import ParquetLake
from tidelog.pipelines.framework.sinks.table import Batch, ColumnSpec, TableSpec
from tidelog.pipelines.lake.catalog import LakeCatalog
from tidelog.pipelines.lake.conversion import Converted, convert
from tidelog.pipelines.lake.figures import data_files, figures
from tidelog.pipelines.lake.form import LakeError, LakeNote, LakeSettings, lake_note, wanted_note
from tidelog.pipelines.pipeline import PipelineSettings

SPEC = TableSpec(
    "login",
    (
        ColumnSpec("event_id", "string"),
        ColumnSpec("event_time", "time"),
        ColumnSpec("date", "string"),
        ColumnSpec("success", "boolean"),
    ),
    ("event_id",),
    append_only=True,
)


def parquet_batch(
    root: Path, version: int, *numbers: int, application: str = "query", replaces: Iterable[Path] = ()
) -> None:
    """A batch in a lake of plain Parquet, as releases before Iceberg wrote it."""
    directory = LakeDirectory(root)
    task = TaskFiles(directory.staging(), [SPEC])
    moments = [NOON + (number % 2) * DAY for number in numbers]
    columns = {
        "event_id": pa.array([f"e-{number}" for number in numbers]),
        "event_time": pa.array(moments, pa.timestamp("ms", "UTC")),
        "date": pa.array([f"{moment:%Y-%m-%d}" for moment in moments]),
        "success": pa.array([True] * len(numbers)),
    }
    task.add_to("login", pa.table(columns))
    directory.commit("login", Batch(application, version), staged_files([task.finish()]), replaces)


def test_a_new_lake_is_iceberg_unless_parquet_is_asked_for(tmp_path: Path) -> None:
    assert lake_note(LakeSettings(tmp_path / "a")) is None
    assert not (tmp_path / "a").exists()
    assert wanted_note(LakeSettings(tmp_path / "a")).form == "iceberg"
    catalog(tmp_path / "a")
    assert lake_note(LakeSettings(tmp_path / "a")) == LakeNote("iceberg", "sqlite", str(tmp_path / "a"))
    settings = PipelineSettings("127.0.0.1:9092", tmp_path, lake_form="parquet")
    assert isinstance(open_lake(settings), ParquetLake)
    assert isinstance(open_lake(replace(settings, lake_form=None)), ParquetLake)


def test_a_lake_of_before_stays_parquet(tmp_path: Path) -> None:
    parquet_batch(tmp_path, 0, 1)
    assert wanted_note(LakeSettings(tmp_path)) == LakeNote("parquet")
    with pytest.raises(LakeError, match=r"is plain Parquet, not iceberg: .* `tidelog lake convert`"):
        wanted_note(LakeSettings(tmp_path, "iceberg"))
    with pytest.raises(LakeError, match="is plain Parquet, not iceberg"):
        wanted_note(LakeSettings(tmp_path, None, "http://127.0.0.1:8181"))
    with pytest.raises(LakeError, match="is plain Parquet, which has no catalog"):
        catalog(tmp_path)


def test_iceberg_tables_are_not_mixed_with_parquet_or_another_catalog(tmp_path: Path) -> None:
    new_table(tmp_path)
    with pytest.raises(LakeError, match="has Iceberg tables, not parquet: leave --lake out"):
        wanted_note(LakeSettings(tmp_path, "parquet"))
    with pytest.raises(LakeError, match="has its catalog in its own directory, not at http:"):
        wanted_note(LakeSettings(tmp_path, None, "http://127.0.0.1:8181"))
    with pytest.raises(LakeError, match="--lake-catalog is for Iceberg tables"):
        wanted_note(LakeSettings(tmp_path / "new", "parquet", "http://127.0.0.1:8181"))


def test_properties_that_nobody_would_look_at_are_refused(tmp_path: Path) -> None:
    properties = {"s3.endpoint": "http://127.0.0.1:1"}
    sentence = "has neither a REST catalog nor an object store, which --lake-property is for: leave it out"
    with pytest.raises(LakeError, match=sentence):
        LakeCatalog(LakeSettings(tmp_path / "iceberg", properties=properties))
    settings = PipelineSettings("127.0.0.1:9092", tmp_path, lake_form="parquet", lake_properties=properties)
    with pytest.raises(LakeError, match=sentence):
        open_lake(settings)
    assert "s3.endpoint" not in f"{settings} {settings.lake_settings}"  # there may be secrets beside it
    parquet_batch(tmp_path / "before", 0, 1)
    with pytest.raises(LakeError, match=sentence):
        convert(LakeSettings(tmp_path / "before", properties=properties))
    assert not list(tmp_path.rglob("lake.json*"))
    assert not list(tmp_path.rglob("catalog.sqlite"))


def test_a_lake_that_was_moved_is_told_where_it_belongs(tmp_path: Path) -> None:
    collect(new_table(tmp_path / "old"), 0, 1)
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(
        LakeError, match=r"was made as .*old, and Iceberg's tables name their files by whole paths"
    ):
        catalog(tmp_path / "new")
    (tmp_path / "old").symlink_to(tmp_path / "new")
    assert catalog(tmp_path / "new").table("credit").scan().count() == 1


def test_a_note_that_says_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "lake.json").write_text("{")
    with pytest.raises(LakeError, match=r"lake.json does not say what the lake is"):
        wanted_note(LakeSettings(tmp_path))


def test_a_catalog_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_text("this is no database, however long it is" * 100)
    with pytest.raises(
        LakeError, match=r"catalog.sqlite cannot be used: DatabaseError: file is not a database"
    ):
        catalog(tmp_path)


def converted_ids(root: Path) -> Counter[str]:
    return Counter(LakeCatalog(LakeSettings(root)).table("login").scan().to_arrow()["event_id"].to_pylist())


def test_a_converted_lake_has_all_rows_and_the_streams_go_on(tmp_path: Path) -> None:
    parquet_batch(tmp_path, 0, 1, 2, 3)
    parquet_batch(tmp_path, 1, 4)
    assert convert(LakeSettings(tmp_path)) == [Converted("login", 4, 3, 2)]
    assert converted_ids(tmp_path) == Counter(f"e-{number}" for number in (1, 2, 3, 4))
    table = LakeCatalog(LakeSettings(tmp_path)).table("login")
    assert figures(table).batches == {"query": 1}
    rows = table.scan().to_arrow().to_pylist()
    assert {(row["event_time"].date().isoformat(), row["date"]) for row in rows} == {
        ("2026-11-01", "2026-11-01"),
        ("2026-11-02", "2026-11-02"),
    }
    assert sorted(path.name for path in (tmp_path / "_parquet").iterdir()) == ["_batches", "login"]
    assert pq.read_table(tmp_path / "_parquet" / "login").num_rows == 4
    with pytest.raises(LakeError, match="has Iceberg tables already: nothing to convert"):
        convert(LakeSettings(tmp_path))


def test_a_lake_is_converted_into_an_object_store(tmp_path: Path) -> None:
    parquet_batch(tmp_path, 0, 1, 2, 3)
    with object_store() as store:
        settings = LakeSettings(
            tmp_path, properties=store.properties, warehouse=f"s3://{BUCKET}/events", form="iceberg"
        )
        with pytest.raises(LakeError, match="is no place in an object store"):
            convert(replace(settings, warehouse=str(tmp_path / "elsewhere")))
        assert convert(settings) == [Converted("login", 3, 2, 2)]
        table = LakeCatalog(replace(settings, warehouse=None)).table("login")
        assert {file.path for file in data_files(table)} == store.objects()
        assert Counter(table.scan().to_arrow()["event_id"].to_pylist()) == Counter(["e-1", "e-2", "e-3"])


def test_a_batch_that_was_cut_short_is_left_for_its_stream(tmp_path: Path) -> None:
    parquet_batch(tmp_path, 0, 1)
    parquet_batch(tmp_path, 1, 2, 3)
    (note,) = (tmp_path / "_batches" / "login").glob("*/0000000001.json")
    files = json.loads(note.read_text())["files"]
    assert len(files) == 2
    (tmp_path / files[0]).unlink()  # the kill came before it was moved into its place
    convert(LakeSettings(tmp_path))
    assert converted_ids(tmp_path) == Counter(["e-1"])
    assert figures(LakeCatalog(LakeSettings(tmp_path)).table("login")).batches == {"query": 0}


def test_a_batch_of_which_a_backfill_has_merged_a_day_is_not_cut_short(tmp_path: Path) -> None:
    parquet_batch(tmp_path, 0, 2)
    parquet_batch(tmp_path, 1, 4, 1, 3)
    merged = LakeDirectory(tmp_path).files("login", [f"{NOON:%Y-%m-%d}"])
    assert len(merged) == 2
    parquet_batch(tmp_path, 0, 2, 4, 6, application="backfill", replaces=merged)
    convert(LakeSettings(tmp_path))
    assert converted_ids(tmp_path) == Counter(f"e-{number}" for number in (1, 2, 3, 4, 6))
    batches = figures(LakeCatalog(LakeSettings(tmp_path)).table("login")).batches
    assert batches == {"query": 1, "backfill": 0}


def test_a_batch_that_was_cut_short_stays_so_when_a_backfill_has_merged_what_there_was(
    tmp_path: Path,
) -> None:
    parquet_batch(tmp_path, 0, 2)
    parquet_batch(tmp_path, 1, 4, 1)
    (unmoved,) = LakeDirectory(tmp_path).files("login", [f"{NOON + DAY:%Y-%m-%d}"])
    unmoved.unlink()
    merged = LakeDirectory(tmp_path).files("login")
    parquet_batch(tmp_path, 0, 2, 4, application="backfill", replaces=merged)
    convert(LakeSettings(tmp_path))
    assert converted_ids(tmp_path) == Counter(["e-2", "e-4"])
    batches = figures(LakeCatalog(LakeSettings(tmp_path)).table("login")).batches
    assert batches == {"query": 0, "backfill": 0}


def test_a_conversion_that_was_interrupted_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.pipelines.lake import conversion

    parquet_batch(tmp_path, 0, 1, 2)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "write_note", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(LakeSettings(tmp_path))
    monkeypatch.undo()
    assert lake_note(LakeSettings(tmp_path)) == LakeNote("parquet")
    read: list[Path] = []
    assert convert(LakeSettings(tmp_path), read.append) == [Converted("login", 2, 2, 2)]
    assert read == []  # the table was done
    assert converted_ids(tmp_path) == Counter(["e-1", "e-2"])


def test_a_conversion_that_was_interrupted_goes_on_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.pipelines.lake import conversion

    parquet_batch(tmp_path, 0, 1, 2)
    (tmp_path / "other" / f"date={NOON:%Y-%m-%d}").mkdir(parents=True)
    done = conversion._table

    def interrupt(root: Path, name: str, *others: Any) -> Converted:
        if name == "other":
            raise KeyboardInterrupt
        return done(root, name, *others)

    with object_store() as store:
        settings = LakeSettings(tmp_path, properties=store.properties, warehouse=f"s3://{BUCKET}/events")
        monkeypatch.setattr(conversion, "_table", interrupt)
        with pytest.raises(KeyboardInterrupt):
            convert(settings)
        monkeypatch.undo()
        before = store.objects("")
        there = f"has put tables under s3://{BUCKET}/events: repeat it with --lake-warehouse s3"
        for other in (f"s3://{BUCKET}/others", None):
            with pytest.raises(LakeError, match=there):
                convert(replace(settings, properties=store.properties if other else {}, warehouse=other))
        assert lake_note(LakeSettings(tmp_path)) == LakeNote("parquet")
        assert store.objects("") == before
        assert [each.files_after for each in convert(settings)] == [2, 0]
        assert not (tmp_path / "lake.json.converting").exists()
        table = LakeCatalog(replace(settings, warehouse=None)).table("login")
        assert {file.path for file in data_files(table)} == store.objects()


def test_a_conversion_that_was_interrupted_in_its_directory_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.pipelines.lake import conversion

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    parquet_batch(tmp_path, 0, 1, 2)
    monkeypatch.setattr(conversion, "_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(LakeSettings(tmp_path))
    monkeypatch.undo()
    with pytest.raises(LakeError, match="into its own directory: repeat it without --lake-warehouse"):
        convert(LakeSettings(tmp_path, warehouse=f"s3://{BUCKET}/events"))
    with pytest.raises(LakeError, match="into its own directory: repeat it without --lake-catalog"):
        convert(LakeSettings(tmp_path, catalog="http://127.0.0.1:1"))
    assert convert(LakeSettings(tmp_path)) == [Converted("login", 2, 2, 2)]


def test_batches_that_came_after_an_interrupted_conversion_are_converted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.pipelines.lake import conversion

    parquet_batch(tmp_path, 0, 1, 2)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "write_note", interrupt)
    with pytest.raises(KeyboardInterrupt):
        convert(LakeSettings(tmp_path))
    monkeypatch.undo()
    # It is a lake of Parquet still, and its stream goes on; a backfill replaces a file, too.
    parquet_batch(tmp_path, 1, 3, 4)
    merged = LakeDirectory(tmp_path).files("login", [f"{NOON:%Y-%m-%d}"])
    parquet_batch(tmp_path, 0, 2, 4, 6, application="backfill", replaces=merged)
    assert convert(LakeSettings(tmp_path)) == [Converted("login", 5, 3, 2)]
    assert converted_ids(tmp_path) == Counter(f"e-{number}" for number in (1, 2, 3, 4, 6))
    table = LakeCatalog(LakeSettings(tmp_path)).table("login")
    assert figures(table).batches == {"query": 1, "backfill": 0}
    assert (figures(table).rows, figures(table).files) == (5, 2)
