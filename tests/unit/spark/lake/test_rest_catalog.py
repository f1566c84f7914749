"""A lake whose tables are in a REST catalog, by its URI and properties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.utils.config import Config
from tests.unit.spark.lake.rest_catalog import TOKEN, RestCatalog, rest_catalog
from tests.unit.spark.lake.rig import COLUMNS, TABLE, collect, expected

from tidelog.spark.lake import compaction
from tidelog.spark.lake.catalog import LakeCatalog
from tidelog.spark.lake.expiry import ExpiryRule, expire
from tidelog.spark.lake.lake_note import LakeError, LakeSettings


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path / "warehouse") as running:
        yield running


def test_tables_are_made_written_and_kept_up_there(tmp_path: Path, server: RestCatalog) -> None:
    settings = LakeSettings(tmp_path / "lake", server.uri, {"token": TOKEN})
    table = LakeCatalog(settings).ensure(TABLE, COLUMNS)
    for version in range(3):
        assert collect(table, version, version)
    assert not collect(LakeCatalog(settings).table(TABLE), 2, 2)
    # The directory knows its catalog; who has no other one to give may leave it out.
    known = LakeCatalog(LakeSettings(tmp_path / "lake", properties={"token": TOKEN}))
    assert known.names() == [TABLE]
    table = known.table(TABLE)
    assert compaction.compact(table, compaction.plan(table), lambda group: None).files_before == 3
    assert expire(table, ExpiryRule(0, 1, 0), tmp_path, dry_run=False).snapshots == 3
    found = server.tables.load_table(("tidelog", TABLE))
    assert sorted(found.scan().to_arrow()["event_id"].to_pylist()) == sorted(expected(0, 1, 2))
    assert table.location().startswith("file://")
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) == 1


def test_its_token_may_be_in_the_environment(
    tmp_path: Path, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__TIDELOG__TOKEN", TOKEN)
    monkeypatch.setenv("PYICEBERG_CATALOG__TIDELOG__S3__SECRET_ACCESS_KEY", "for tasks")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which it reads when it is loaded
    table = LakeCatalog(LakeSettings(tmp_path / "lake", server.uri)).ensure(TABLE, COLUMNS)
    assert table.io.properties["s3.secret-access-key"] == "for tasks"


def test_an_answer_that_is_lost_leaves_the_batch_once(tmp_path: Path, server: RestCatalog) -> None:
    settings = LakeSettings(tmp_path / "lake", server.uri, {"token": TOKEN})
    table = LakeCatalog(settings).ensure(TABLE, COLUMNS)
    server.lost_answers = 1
    assert collect(table, 0, 1)
    found = server.tables.load_table(("tidelog", TABLE))
    assert found.scan().to_arrow()["event_id"].to_pylist() == ["e-1"]
    assert len(found.snapshots()) == 1


def test_a_catalog_that_lets_nobody_in_or_is_not_there_is_one_sentence(
    tmp_path: Path, server: RestCatalog
) -> None:
    with pytest.raises(LakeError, match=r"catalog http://127.* cannot be used: UnauthorizedError"):
        LakeCatalog(LakeSettings(tmp_path / "lake", server.uri))
    with pytest.raises(LakeError, match=r"catalog http://127.0.0.1:1 cannot be used: ConnectionError"):
        LakeCatalog(LakeSettings(tmp_path / "lake", "http://127.0.0.1:1"))
    # A wrong address is not what the lake is remembered by.
    LakeCatalog(LakeSettings(tmp_path / "lake", server.uri, {"token": TOKEN}))
