"""earnings on Spark with a real broker: totals are the sum of the distinct events, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline_traffic import (
    EarningsTraffic,
    latest_states,
    ledger_rows,
    ledger_totals,
    read_all,
    send,
)

from tidelog.spark.pipelines.figures import figures_of
from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.jobs.earnings.schema import TABLES
from tidelog_rewards.pipelines import EARNINGS as PIPELINE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def own_bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker of our own: the names of the pipelines' topics are fixed."""
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker.bootstrap


def run_to_the_end(spark: SparkSession, settings: PipelineSettings) -> None:
    query = PIPELINE.start(spark, settings)
    assert query.awaitTermination(240)


def test_restarts_repetitions_and_backfills_leave_exact_totals(
    spark: SparkSession, own_bootstrap: str, tmp_path: Path
) -> None:
    settings = PipelineSettings(own_bootstrap, tmp_path / "pipelines", trigger="available-now")
    traffic = EarningsTraffic(seed=1)
    _create(settings, (*PIPELINE.inputs, events.USER_EARNINGS, events.DEAD_LETTERS))
    send(own_bootstrap, traffic.shuffled([*traffic.fresh(300), *traffic.again(60), *traffic.damaged(5)]))
    run_to_the_end(spark, settings)
    assert ledger_totals(settings) == dict(traffic.cents)
    send(own_bootstrap, traffic.shuffled([*traffic.again(100), *traffic.fresh(100), *traffic.damaged(2)]))
    run_to_the_end(spark, settings)
    assert ledger_totals(settings) == dict(traffic.cents)
    states = latest_states(own_bootstrap)
    assert {user: state["total_cents"] for user, state in states.items()} == dict(traffic.cents)
    letters = read_all(own_bootstrap, events.DEAD_LETTERS)
    assert [dict(letter.headers)["pipeline"] for letter in letters] == [b"earnings"] * traffic.broken
    quality = figures_of(settings.directory, "earnings").quality
    assert (quality.records, quality.malformed) == (560 + traffic.broken, traffic.broken)
    assert quality.duplicated > 0
    before = ledger_rows(settings, *TABLES)
    for path in (settings.directory / "earnings").glob("ledger-*"):
        path.unlink()
    report = PIPELINE.backfill(spark, settings, TimeRange(traffic.start, datetime.now(UTC)))
    assert report.written["events in the ledger"] == 560
    assert ledger_rows(settings, *TABLES) == before
    assert len(read_all(own_bootstrap, events.DEAD_LETTERS)) == traffic.broken


def _create(settings: PipelineSettings, topics: tuple[str, ...]) -> None:
    from tidelog_rewards.topics import ensure_topics

    ensure_topics(settings, topics, partitions=2)
