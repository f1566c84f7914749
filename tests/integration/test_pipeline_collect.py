"""collect on a real broker: everything arrives once, whatever is repeated, late or broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.rigs.collect_events import TODAY, event, letters, run, send

from tidelog.spark.lake.catalog import LakeCatalog
from tidelog.spark.lake.expiry import ExpiryRule, expire
from tidelog.spark.pipelines.figures import figures_of
from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks import open_lake, record_sink
from tidelog.spark.sinks.lake import Lake
from tidelog.testing import LocalBroker, broker
from tidelog_rewards import events
from tidelog_rewards.jobs.collect.schema import TABLES, table_of
from tidelog_rewards.phones.phone_keys import FILE_NAME, read_keys
from tidelog_rewards.phones.phone_tokens import PhoneTokens
from tidelog_rewards.pipelines import COLLECT as PIPELINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DAY = timedelta(days=1)


@pytest.fixture
def running() -> Iterator[LocalBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def settings(running: LocalBroker, tmp_path: Path) -> PipelineSettings:
    return PipelineSettings(running.bootstrap_servers, tmp_path / "data", trigger="available-now")


def lake_rows(spark: SparkSession, settings: PipelineSettings, kind: events.EventKind) -> Counter[str]:
    """How often each event is in the files."""
    found = open_lake(settings).read(spark, table_of(kind), once=False)
    return Counter(row.event_id for row in found.collect())


def test_all_logs_are_collected_by_date_and_broken_records_become_letters(
    spark: SparkSession, settings: PipelineSettings
) -> None:
    for kind in events.LOGS:
        late = event(kind, 7, TODAY - 3 * DAY)
        send(settings, kind.topic, [*(event(kind, number) for number in range(5)), late])
    broken = {**event(events.CREDIT, 9), "amount_cents": -3}
    send(settings, events.CREDIT.topic, [b"{", broken, None])
    run(spark, settings)

    lake = open_lake(settings)
    tokens = PhoneTokens(read_keys(settings.directory / FILE_NAME), "CN")
    for kind in events.LOGS:
        rows = {row["event_id"]: row for row in lake.rows(table_of(kind))}
        assert rows.keys() == {f"{kind.name}-{number}" for number in (*range(5), 7)}
        sent = event(kind, 4)
        if "phone" in sent:
            sent["phone"] = tokens.of(sent["phone"], 0)
        row = rows[sent["event_id"]]
        assert {name: row[name] for name in sent if name != "event_time"} == {
            name: value for name, value in sent.items() if name != "event_time"
        }
        assert (row["event_time"], row["date"], row["topic"]) == (TODAY, f"{TODAY:%Y-%m-%d}", kind.topic)
        assert rows[f"{kind.name}-7"]["date"] == f"{TODAY - 3 * DAY:%Y-%m-%d}"
    found = letters(settings)
    assert {letter["reason"] for letter in found} == {
        "not a JSON object",
        "field amount_cents: -3 is less than 0",
        "the value is null (a tombstone)",
    }
    assert {(letter["pipeline"], letter["topic"]) for letter in found} == {("collect", events.CREDIT.topic)}
    assert len({(letter["partition"], letter["offset"]) for letter in found}) == 3
    quality = figures_of(settings.directory, "collect").quality
    assert (quality.records, quality.malformed, quality.duplicated) == (6 * len(events.LOGS) + 3, 3, 0)
    assert quality.reasons == {"not-json": 1, "range:amount_cents": 1, "tombstone": 1}

    send(settings, events.LOGIN.topic, [event(events.LOGIN, 20)])
    run(spark, settings)
    assert lake_rows(spark, settings, events.LOGIN)["login-20"] == 1
    assert set(lake_rows(spark, settings, events.LOGIN).values()) == {1}
    assert len(letters(settings)) == 3


def test_a_batch_that_failed_half_way_is_repeated_without_a_trace(
    spark: SparkSession, settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(settings, events.CREDIT.topic, [*(event(events.CREDIT, number) for number in range(50)), b"broken"])
    finish = record_sink.RecordSink.finish

    def fail_after(*arguments: Any) -> None:
        finish(*arguments)
        raise RuntimeError("the power went off")

    monkeypatch.setattr(record_sink.RecordSink, "finish", fail_after)
    with pytest.raises(StreamingQueryException, match="the power went off"):
        run(spark, settings)
    monkeypatch.undo()
    assert len(lake_rows(spark, settings, events.CREDIT)) == 50
    send(settings, events.CREDIT.topic, [event(events.CREDIT, 50)])
    run(spark, settings)
    assert lake_rows(spark, settings, events.CREDIT) == Counter(f"credit-{number}" for number in range(51))
    assert [letter["value"] for letter in letters(settings)] == ["broken"]


def test_a_kill_before_the_commit_leaves_files_that_expiry_removes(
    spark: SparkSession, settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(settings, events.CREDIT.topic, [event(events.CREDIT, number) for number in range(20)])

    def cut_off(*arguments: Any) -> None:
        raise RuntimeError("the power went off")

    monkeypatch.setattr(Lake, "commit", cut_off)
    with pytest.raises(StreamingQueryException, match="the power went off"):
        run(spark, settings)
    monkeypatch.undo()
    left = set(settings.lake.rglob("data/**/*.parquet"))
    assert left
    assert lake_rows(spark, settings, events.CREDIT) == Counter()
    run(spark, settings)
    expected = Counter(f"credit-{number}" for number in range(20))
    assert lake_rows(spark, settings, events.CREDIT) == expected
    table = LakeCatalog(settings.lake_settings).table("credit")
    expire(table, ExpiryRule(older_than_s=0, keep=1, grace_s=0), settings.lake, dry_run=False)
    assert not left & set(settings.lake.rglob("data/**/*.parquet"))
    assert lake_rows(spark, settings, events.CREDIT) == expected


def test_an_event_that_was_sent_again_is_one_row_of_its_table(
    spark: SparkSession, settings: PipelineSettings
) -> None:
    for _ in range(2):
        send(settings, events.LOGIN.topic, [event(events.LOGIN, 1), event(events.LOGIN, 1)])
        run(spark, settings)
    table = table_of(events.LOGIN)
    assert [row["event_id"] for row in open_lake(settings).rows(table)] == ["login-1"]
    assert open_lake(settings).read(spark, table).count() == 1


def test_a_backfill_loads_its_range_once_however_often_it_runs(
    spark: SparkSession, settings: PipelineSettings
) -> None:
    days = [event(events.EXPOSURE, number, TODAY - number * DAY) for number in range(4)]
    send(settings, events.EXPOSURE.topic, [*days, *days, b"broken"])
    time_range = TimeRange(TODAY - 2 * DAY, TODAY)
    for _ in range(2):
        report = PIPELINE.backfill(spark, settings, time_range)
        assert report.written["lake exposure"] == 2
        assert lake_rows(spark, settings, events.EXPOSURE) == Counter(["exposure-1", "exposure-2"])
    assert letters(settings) == []

    run(spark, settings)
    assert set(lake_rows(spark, settings, events.EXPOSURE)) == {f"exposure-{number}" for number in range(4)}
    assert len(letters(settings)) == 1
    everything = TimeRange(TODAY - 9 * DAY, TODAY + DAY)
    report = PIPELINE.backfill(spark, settings, everything)
    assert lake_rows(spark, settings, events.EXPOSURE) == Counter(f"exposure-{number}" for number in range(4))
    assert report.dead_letters == 0
    assert len(letters(settings)) == 1


def test_the_progress_shows_in_its_consumer_group(
    spark: SparkSession, settings: PipelineSettings, running: LocalBroker
) -> None:
    send(settings, events.INSTALL.topic, [event(events.INSTALL, number) for number in range(3)])
    run(spark, settings)
    offsets = running.admin.list_group_offsets([PIPELINE.group])[PIPELINE.group].offsets
    collected = [
        position.offset for partition, position in offsets.items() if partition.topic == events.INSTALL.topic
    ]
    assert sum(collected) == 3


def test_every_log_has_a_table_with_the_same_key() -> None:
    assert [table.name for table in TABLES] == [kind.name for kind in events.LOGS]
    assert {table.primary_key for table in TABLES} == {("user_id", "date", "event_time", "event_id")}
