"""A lake whose tables are in an object store, with its catalog in its directory."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.utils.config import Config
from tests.unit.spark.lake.object_store import BUCKET, ObjectStore, object_store
from tests.unit.spark.lake.rig import COLUMNS, NOON, TABLE, collect, event, expected, written

from tidelog.spark.lake import compaction, expiry
from tidelog.spark.lake.batches import append_batch
from tidelog.spark.lake.catalog import CATALOG_FILE, LakeCatalog, table_files
from tidelog.spark.lake.expiry import Expired, ExpiryRule, expire
from tidelog.spark.lake.lake_note import STORES, LakeError, LakeSettings
from tidelog.spark.lake.object_reader import ObjectReader

EVERYTHING = ExpiryRule(older_than_s=0, keep=1, grace_s=0)
WAREHOUSE = f"s3://{BUCKET}/events"


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(running: ObjectStore) -> ObjectStore:
    for location in running.objects(""):
        running.client.delete_object(Bucket=BUCKET, Key=location.removeprefix(f"s3://{BUCKET}/"))
    return running


def settings_of(root: Path, store: ObjectStore) -> LakeSettings:
    return LakeSettings(root, properties=store.properties, warehouse=WAREHOUSE)


def read(root: Path, store: ObjectStore) -> Counter[str]:
    """What somebody reads who knows the catalog and the store, and nothing of Tidelog."""
    found = SqlCatalog("tidelog", uri=f"sqlite:///{root / CATALOG_FILE}", **store.properties)
    return Counter(found.load_table(("tidelog", TABLE)).scan().to_arrow()["event_id"].to_pylist())


def test_batches_are_once_in_the_store_and_nothing_but_the_catalog_on_disk(
    tmp_path: Path, store: ObjectStore
) -> None:
    settings = settings_of(tmp_path, store)
    table = LakeCatalog(settings).ensure(TABLE, COLUMNS)
    for version in range(3):
        assert collect(table, version, 2 * version, 2 * version + 1)
    # It knows where its tables are; who comes back need not say so again.
    again = LakeCatalog(replace(settings, warehouse=None))
    assert again.names() == [TABLE]
    assert not collect(again.table(TABLE), 2, 4, 5)
    assert read(tmp_path, store) == expected(*range(6))
    assert {each.rsplit("/", 2)[0] for each in store.objects()} == {f"{table.location()}/data"}
    assert table.location().startswith(f"{WAREHOUSE}/{TABLE}-")
    assert len(store.objects()) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [CATALOG_FILE, "lake.json"]
    assert "secret" not in (tmp_path / "lake.json").read_text()
    assert not any("secret" in str(each) for each in (settings, table_files(table)))


def test_compaction_leaves_one_file_of_many(tmp_path: Path, store: ObjectStore) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    for version in range(4):
        collect(table, version, version)
    done = compaction.compact(table, compaction.plan(table), lambda group: None)
    assert (done.files_before, done.files_after, done.skipped) == (4, 1, 0)
    assert read(tmp_path, store) == expected(*range(4))


def test_what_is_replaced_goes_when_it_was_unneeded_for_the_grace_time(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    for version in range(4):
        collect(table, version, version)
    before = store.objects()
    compaction.compact(table, compaction.plan(table), lambda group: None)
    clock = [time.time()]
    monkeypatch.setattr("tidelog.spark.lake.expiry.time.time", lambda: clock[0])
    rule = ExpiryRule(older_than_s=0, keep=1, grace_s=3600)
    clock[0] += 7200
    # Old as they are, somebody may have planned to read them a moment ago.
    assert expire(table, rule, tmp_path, dry_run=True).files == 0
    assert not (tmp_path / expiry.NOTES).exists()
    done = expire(table, rule, tmp_path, dry_run=False)
    assert (done.snapshots, done.files) == (4, 0)
    assert before < store.objects()
    clock[0] += 1800
    assert expire(table, rule, tmp_path, dry_run=False).files == 0
    clock[0] += 1801
    assert expire(table, rule, tmp_path, dry_run=True).files >= 4
    assert before < store.objects()
    assert expire(table, rule, tmp_path, dry_run=False).files >= 4
    assert not before & store.objects()
    assert read(tmp_path, store) == expected(*range(4))
    assert json.loads((tmp_path / expiry.NOTES / f"{TABLE}.json").read_text()) == {}


def test_expiry_removes_what_a_killed_batch_has_left_and_nothing_else(
    tmp_path: Path, store: ObjectStore
) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    collect(table, 0, 1)
    [orphan] = written(table, [event(99)])
    assert orphan.path in store.objects()
    assert expire(table, EVERYTHING, tmp_path, dry_run=False).files == 1
    assert orphan.path not in store.objects()
    assert expire(table, EVERYTHING, tmp_path, dry_run=False) == Expired(TABLE, 0, 0, 0)
    assert read(tmp_path, store) == expected(1)


def test_what_the_store_does_not_remove_is_told_and_stays_noted(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    orphans = [*written(table, [event(98)]), *written(table, [event(99)])]
    refused, gone = (each.path for each in orphans)
    note = tmp_path / expiry.NOTES / f"{TABLE}.json"
    note.parent.mkdir()
    note.write_text(json.dumps({refused: 7.0, gone: 8.0}))
    delete = PyArrowFileIO.delete

    def denied(io: PyArrowFileIO, location: str) -> None:
        if location == refused:
            raise PermissionError(f"Cannot delete file, access denied: {location}")
        delete(io, location)

    monkeypatch.setattr(PyArrowFileIO, "delete", denied)
    heard: list[str] = []
    with pytest.raises(
        LakeError, match=r"1 of 2 files of table credit could not be removed: .*denied.*right"
    ):
        expire(table, EVERYTHING, tmp_path, dry_run=False, on_file=heard.append)
    assert heard == [gone]
    assert store.objects() == {refused}
    assert json.loads(note.read_text()) == {refused: 7.0}
    monkeypatch.undo()
    assert expire(table, EVERYTHING, tmp_path, dry_run=False).files == 1
    assert store.objects() == set()


def test_a_store_that_gives_no_reason_is_told_of_all_the_same(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    written(table, [event(5)])

    def silent(io: PyArrowFileIO, location: str) -> None:
        raise TimeoutError

    monkeypatch.setattr(PyArrowFileIO, "delete", silent)
    with pytest.raises(LakeError, match=r"1 of 1 files .* could not be removed: TimeoutError; "):
        expire(table, EVERYTHING, tmp_path, dry_run=False)


def test_a_file_that_is_committed_after_it_was_noted_stays(tmp_path: Path, store: ObjectStore) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    under_way = written(table, [event(5)])
    note = tmp_path / expiry.NOTES / f"{TABLE}.json"
    note.parent.mkdir()
    note.write_text(json.dumps({under_way[0].path: 0.0}))
    assert append_batch(table, under_way, "query", 0)
    assert expire(table, EVERYTHING, tmp_path, dry_run=False).files == 0
    assert read(tmp_path, store) == expected(5)


def test_two_lakes_at_one_place_leave_each_other_alone(tmp_path: Path, store: ObjectStore) -> None:
    for name in ("one", "two"):
        collect(LakeCatalog(settings_of(tmp_path / name, store)).ensure(TABLE, COLUMNS), 0, 1)
    for name in ("one", "two"):
        table = LakeCatalog(settings_of(tmp_path / name, store)).table(TABLE)
        assert expire(table, EVERYTHING, tmp_path / name, dry_run=False) == Expired(TABLE, 0, 0, 0)
        assert read(tmp_path / name, store) == expected(1)


def test_files_that_another_engine_names_by_another_scheme_stay(tmp_path: Path, store: ObjectStore) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    [file] = written(table, [event(1)])
    other = msgspec.structs.replace(
        file, path=file.path.replace("s3://", "s3a://").replace("/data/", "//data/")
    )
    assert append_batch(table, [other], "query", 0)
    assert expire(table, EVERYTHING, tmp_path, dry_run=False).files == 0
    assert file.path in store.objects()


def test_a_note_that_cannot_be_read_is_told_with_the_mend(tmp_path: Path, store: ObjectStore) -> None:
    table = LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS)
    collect(table, 0, 1)
    note = tmp_path / expiry.NOTES / f"{TABLE}.json"
    note.parent.mkdir()
    note.write_text("[")
    with pytest.raises(LakeError, match=r"credit\.json cannot be read: .*; remove it"):
        expire(table, EVERYTHING, tmp_path, dry_run=False)


def test_a_reader_gives_columns_that_a_file_lacks_as_null(tmp_path: Path, store: ObjectStore) -> None:
    catalog = LakeCatalog(settings_of(tmp_path, store))
    table = catalog.ensure(TABLE, COLUMNS)
    [file] = written(table, [event(1), event(2)])
    [rows] = ObjectReader(store.properties).rows(file.path, {"new": "long", **COLUMNS})
    assert rows.to_pylist() == [{"new": None, **event(1)}, {"new": None, **event(2)}]
    assert rows.column("event_time").to_pylist() == [NOON] * 2


@pytest.mark.parametrize(
    ("warehouse", "sentence"),
    [
        ("ponds/events", r"--lake-warehouse 'ponds/events' is no place in an object store: write s3://"),
        ("file:///tmp/x", "a path of a file system is chosen by --directory"),
        ("s3://", "is no place in an object store"),
        ("s3://ponds/a?b", "is no place in an object store"),
        ("ftp://ponds/a", "schemes: s3, gs, oss"),
        ("abfs://ponds/a", "schemes: s3, gs, oss"),
        ("abfss://ponds@account.dfs.core.windows.net/a", "has something before its bucket"),
        ("s3://ponds//events", "is no place in an object store"),
        ("s3://[ponds", "is no place in an object store"),
        ("s3://ponds/a//b", "is no place in an object store"),
    ],
)
def test_what_is_no_place_in_a_store_is_refused(tmp_path: Path, warehouse: str, sentence: str) -> None:
    with pytest.raises(LakeError, match=sentence):
        LakeCatalog(LakeSettings(tmp_path, warehouse=warehouse))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["s3://AKIA:gehe/im@ponds/events", "s3a://gehe:im@ponds", "s3://gehe@im/#?"])
def test_keys_in_a_uri_are_refused_and_not_repeated(tmp_path: Path, uri: str) -> None:
    with pytest.raises(LakeError, match="keys are given in the environment") as told:
        LakeCatalog(LakeSettings(tmp_path, warehouse=uri))
    assert not any(part in str(told.value) for part in ("AKIA", "gehe", "im@"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", STORES)
def test_tables_in_every_store_are_read_and_written_by_arrow(scheme: str) -> None:
    assert type(load_file_io({}, f"{scheme}://bucket/events")) is PyArrowFileIO


def test_what_arrow_does_not_understand_is_one_sentence(tmp_path: Path, store: ObjectStore) -> None:
    LakeCatalog(settings_of(tmp_path, store))
    note = tmp_path / "lake.json"
    note.write_text(note.read_text().replace(WAREHOUSE, f"s3://{BUCKET}//events"))
    with pytest.raises(LakeError, match="tables under s3://ponds//events cannot be reached: Empty path"):
        LakeCatalog(LakeSettings(tmp_path, properties=store.properties)).ensure(TABLE, COLUMNS)


def test_keys_may_be_in_the_environment_from_where_they_go_to_tasks(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.properties.items():
        variable = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TIDELOG__{variable}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which it reads when it is loaded
    table = LakeCatalog(LakeSettings(tmp_path, warehouse=WAREHOUSE)).ensure(TABLE, COLUMNS)
    assert store.properties.items() <= table_files(table).io_properties.items()
    assert collect(table, 0, 1)
    assert read(tmp_path, store) == expected(1)


def test_a_lake_stays_where_its_tables_are(tmp_path: Path, store: ObjectStore) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    LakeCatalog(LakeSettings(here))
    with pytest.raises(
        LakeError, match="has its tables not in an object store of its own: leave --lake-ware"
    ):
        LakeCatalog(settings_of(here, store))
    settings = settings_of(there, store)
    LakeCatalog(settings)
    LakeCatalog(replace(settings, warehouse=f"{WAREHOUSE}/"))
    with pytest.raises(LakeError, match=f"has its tables under {WAREHOUSE}: leave --lake-warehouse out"):
        LakeCatalog(replace(settings, warehouse=f"s3://{BUCKET}/others"))
    with pytest.raises(LakeError, match="a REST catalog says itself where tables are"):
        LakeCatalog(LakeSettings(tmp_path / "rest", "http://127.0.0.1:1", warehouse=WAREHOUSE))


def test_the_directory_of_its_catalog_may_be_moved(tmp_path: Path, store: ObjectStore) -> None:
    collect(LakeCatalog(settings_of(tmp_path / "one", store)).ensure(TABLE, COLUMNS), 0, 7)
    (tmp_path / "one").rename(tmp_path / "two")
    table = LakeCatalog(LakeSettings(tmp_path / "two", properties=store.properties)).table(TABLE)
    assert table.scan().to_arrow()["event_id"].to_pylist() == ["e-7"]
    # There may be another one where it was, at the same place in the store.
    LakeCatalog(settings_of(tmp_path / "one", store))
    LakeCatalog(LakeSettings(tmp_path / "two", properties=store.properties))


def test_a_copy_of_its_directory_is_refused_since_it_would_remove_what_it_does_not_know(
    tmp_path: Path, store: ObjectStore
) -> None:
    one, two, copy = tmp_path / "one", tmp_path / "two", tmp_path / "copy"
    LakeCatalog(settings_of(one, store)).ensure(TABLE, COLUMNS)
    shutil.copytree(one, copy)
    with pytest.raises(LakeError, match=r"copy is a copy of .*one, and both have their tables under s3://"):
        LakeCatalog(LakeSettings(copy, properties=store.properties))
    shutil.rmtree(copy)
    # It is known where it was moved to, and what is a copy from then on.
    one.rename(two)
    LakeCatalog(LakeSettings(two, properties=store.properties))
    shutil.copytree(two, copy)
    with pytest.raises(LakeError, match=r"copy is a copy of .*two"):
        LakeCatalog(settings_of(copy, store))
    shutil.rmtree(two)
    copy.rename(two)
    assert LakeCatalog(settings_of(two, store)).names() == [TABLE]


def test_a_store_that_does_not_answer_or_has_no_such_bucket_is_one_sentence(
    tmp_path: Path, store: ObjectStore
) -> None:
    missing = replace(settings_of(tmp_path / "a", store), warehouse="s3://nobodys-bucket/events")
    with pytest.raises(
        LakeError, match=r"tables under s3://nobodys-bucket/events cannot be reached: .*s3.endp"
    ):
        LakeCatalog(missing).ensure(TABLE, COLUMNS)
    away = {**store.properties, "s3.endpoint": "http://127.0.0.1:1", "s3.connect-timeout": "1"}
    with pytest.raises(LakeError, match=f"tables under {WAREHOUSE} cannot be reached"):
        LakeCatalog(replace(settings_of(tmp_path / "b", store), properties=away)).ensure(TABLE, COLUMNS)


def test_a_place_that_does_not_answer_is_not_what_a_lake_is_remembered_by(
    tmp_path: Path, store: ObjectStore
) -> None:
    settings = settings_of(tmp_path, store)
    with pytest.raises(LakeError, match=r"tables under s3://nobodys-bucket/events cannot be reached"):
        LakeCatalog(replace(settings, warehouse="s3://nobodys-bucket/events"))
    assert not (tmp_path / "lake.json").exists()
    assert LakeCatalog(settings).ensure(TABLE, COLUMNS).location().startswith(WAREHOUSE)
    assert not [each for each in store.objects("") if "/.tidelog-" in each]


def test_a_lake_is_made_where_nothing_may_be_deleted(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(io: PyArrowFileIO, location: str) -> None:
        raise PermissionError(f"Cannot delete file, access denied: {location}")

    monkeypatch.setattr(PyArrowFileIO, "delete", denied)
    collect(LakeCatalog(settings_of(tmp_path, store)).ensure(TABLE, COLUMNS), 0, 1)
    assert read(tmp_path, store) == expected(1)
