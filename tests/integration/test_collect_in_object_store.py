"""collect with the tables of its lake in an object store: Spark's tasks write there and read from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import StreamingQueryException
from tests.rigs.collect_events import TODAY, event, run, send
from tests.unit.spark.lake.object_store import BUCKET, ObjectStore, object_store

from tidelog.spark.lake import compaction
from tidelog.spark.lake.catalog import CATALOG_FILE, LakeCatalog
from tidelog.spark.lake.expiry import ExpiryRule, expire
from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks import open_lake
from tidelog.spark.sinks.lake import Lake
from tidelog.testing import broker
from tidelog_rewards import events
from tidelog_rewards.jobs.collect.schema import table_of
from tidelog_rewards.pipelines import COLLECT as PIPELINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DAY = timedelta(days=1)
EVERYTHING = ExpiryRule(older_than_s=0, keep=1, grace_s=0)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def settings(store: ObjectStore, tmp_path: Path) -> Iterator[PipelineSettings]:
    with broker() as running:
        yield PipelineSettings(
            running.bootstrap_servers,
            tmp_path / "data",
            trigger="available-now",
            lake_properties=store.properties,
            lake_warehouse=f"s3://{BUCKET}/lake",
        )


def rows(spark: SparkSession, settings: PipelineSettings, kind: events.EventKind) -> Counter[str]:
    """How often each event is in the files, as Spark's tasks read them."""
    found = open_lake(settings).read(spark, table_of(kind), once=False)
    return Counter(row.event_id for row in found.collect())


def named(kind: events.EventKind, *numbers: int) -> Counter[str]:
    return Counter(f"{kind.name}-{number}" for number in numbers)


def test_a_batch_that_was_killed_is_repeated_and_its_files_go(
    spark: SparkSession, settings: PipelineSettings, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (events.LOGIN, events.EXPOSURE):
        send(settings, kind.topic, [event(kind, number) for number in range(20)])

    def cut_off(*arguments: Any) -> None:
        raise RuntimeError("the power went off")

    monkeypatch.setattr(Lake, "commit", cut_off)
    with pytest.raises(StreamingQueryException, match="the power went off"):
        run(spark, settings)
    monkeypatch.undo()
    left = store.objects()
    assert left
    assert rows(spark, settings, events.LOGIN) == Counter()
    run(spark, settings)
    for kind in (events.LOGIN, events.EXPOSURE):
        assert rows(spark, settings, kind) == named(kind, *range(20))
        table = LakeCatalog(settings.lake_settings).table(kind.name)
        expire(table, EVERYTHING, settings.lake, dry_run=False)
    assert not left & store.objects()
    assert rows(spark, settings, events.LOGIN) == named(events.LOGIN, *range(20))
    assert not list(settings.directory.rglob("*.parquet"))
    # Somebody who knows nothing of Tidelog reads the same.
    catalog = SqlCatalog("tidelog", uri=f"sqlite:///{settings.lake / CATALOG_FILE}", **store.properties)
    found = catalog.load_table("tidelog.login").scan().to_arrow()
    assert Counter(found["event_id"].to_pylist()) == named(events.LOGIN, *range(20))
    assert {each[:4] for each in found["phone"].to_pylist()} == {"tel_"}


def test_a_backfill_merges_with_what_is_in_the_store(
    spark: SparkSession, settings: PipelineSettings, store: ObjectStore
) -> None:
    kind = events.EXPOSURE
    for _ in range(2):
        send(settings, kind.topic, [event(kind, number, TODAY - number * DAY) for number in range(4)])
        run(spark, settings)
    assert rows(spark, settings, kind) == named(kind, *range(4), *range(4))
    report = PIPELINE.backfill(spark, settings, TimeRange(TODAY - 2 * DAY, TODAY))
    assert report.written["lake exposure"] == 2
    assert rows(spark, settings, kind) == named(kind, *range(4), 0, 3)
    table = LakeCatalog(settings.lake_settings).table(kind.name)
    compaction.compact(table, compaction.plan(table), lambda group: None)
    assert rows(spark, settings, kind) == named(kind, *range(4), 0, 3)
    assert open_lake(settings).read(spark, table_of(kind)).count() == 4
    expire(table, EVERYTHING, settings.lake, dry_run=False)
    assert len(store.objects()) == 4
    assert rows(spark, settings, kind) == named(kind, *range(4), 0, 3)
