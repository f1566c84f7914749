"""What a lake's directory says it is: it stays that, and what is no lake of Iceberg tables is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spark.lake.rig import catalog, collect, new_table

from tidelog.spark.lake.catalog import LakeCatalog
from tidelog.spark.lake.lake_note import LakeError, LakeNote, LakeSettings, lake_note, wanted_note
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks import open_lake


def test_a_new_lake_is_made_when_it_is_opened(tmp_path: Path) -> None:
    assert lake_note(LakeSettings(tmp_path / "a")) is None
    assert not (tmp_path / "a").exists()
    catalog(tmp_path / "a")
    assert lake_note(LakeSettings(tmp_path / "a")) == LakeNote("sqlite", str(tmp_path / "a"))


@pytest.mark.parametrize("left", ["login/date=2026-11-01", "_batches/login"])
def test_a_lake_of_plain_parquet_is_refused_and_stays_as_it_is(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir(parents=True)
    for warehouse in (None, "s3://bucket/events"):
        with pytest.raises(LakeError, match=r"is plain Parquet, .* delete it and backfill, or give another"):
            LakeCatalog(LakeSettings(tmp_path, warehouse=warehouse))
    assert [path.name for path in tmp_path.iterdir()] == [left.partition("/")[0]]


def test_a_lake_keeps_its_catalog(tmp_path: Path) -> None:
    new_table(tmp_path)
    with pytest.raises(LakeError, match="has its catalog in its own directory, not at http:"):
        wanted_note(LakeSettings(tmp_path, "http://127.0.0.1:8181"))


def test_properties_that_nobody_would_look_at_are_refused(tmp_path: Path) -> None:
    properties = {"s3.endpoint": "http://127.0.0.1:1"}
    sentence = "has neither a REST catalog nor an object store, which --lake-property is for: leave it out"
    with pytest.raises(LakeError, match=sentence):
        LakeCatalog(LakeSettings(tmp_path / "iceberg", properties=properties))
    settings = PipelineSettings("127.0.0.1:9092", tmp_path, lake_properties=properties)
    with pytest.raises(LakeError, match=sentence):
        open_lake(settings)
    assert "s3.endpoint" not in f"{settings} {settings.lake_settings}"  # there may be secrets beside it
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


@pytest.mark.parametrize(
    "note",
    [
        "{",
        "[]",
        '{"form":"iceberg"}',
        '{"form":"parquet","catalog":"","root":"","warehouse":"","id":""}',
    ],
)
def test_a_note_that_describes_no_iceberg_lake_is_refused(tmp_path: Path, note: str) -> None:
    (tmp_path / "lake.json").write_text(note)
    with pytest.raises(
        LakeError, match=r"lake.json does not describe a lake of Iceberg.* delete the lake and"
    ):
        LakeCatalog(LakeSettings(tmp_path))
    assert (tmp_path / "lake.json").read_text() == note


def test_a_catalog_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_text("this is no database, however long it is" * 100)
    with pytest.raises(
        LakeError, match=r"catalog.sqlite cannot be used: DatabaseError: file is not a database"
    ):
        catalog(tmp_path)
