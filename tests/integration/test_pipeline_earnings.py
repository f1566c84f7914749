"""earnings on Spark with a real broker: totals are the sum of the distinct events, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline_traffic import (
    EarningsTraffic,
    latest_states,
    read_all,
    send,
    table_rows,
    table_totals,
)

from tidelog.pipelines import events
from tidelog.pipelines.earnings.job import PIPELINE
from tidelog.pipelines.earnings.schema import TABLES
from tidelog.pipelines.earnings.transform import entries, in_range, sort_entries
from tidelog.pipelines.pipeline import PipelineSettings, TimeRange
from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RAW = "topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, key BINARY, value BINARY"


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
    assert table_totals(settings.tables) == dict(traffic.cents)
    send(own_bootstrap, traffic.shuffled([*traffic.again(100), *traffic.fresh(100), *traffic.damaged(2)]))
    run_to_the_end(spark, settings)
    assert table_totals(settings.tables) == dict(traffic.cents)
    states = latest_states(own_bootstrap)
    assert {user: state["total_cents"] for user, state in states.items()} == dict(traffic.cents)
    letters = read_all(own_bootstrap, events.DEAD_LETTERS)
    assert [dict(letter.headers)["pipeline"] for letter in letters] == [b"earnings"] * traffic.broken
    before = table_rows(settings.tables, *TABLES)
    for path in settings.directory.glob("tables.sqlite*"):
        path.unlink()
    report = PIPELINE.backfill(spark, settings, TimeRange(traffic.start, datetime.now(UTC)))
    assert report.written["events in the ledger"] == 560
    assert table_rows(settings.tables, *TABLES) == before
    assert len(read_all(own_bootstrap, events.DEAD_LETTERS)) == traffic.broken


def _create(settings: PipelineSettings, topics: tuple[str, ...]) -> None:
    from tidelog.pipelines.topics import ensure_topics

    ensure_topics(settings, topics, partitions=2)


def _record(topic: str, offset: int, **fields: object) -> tuple[object, ...]:
    event = {
        "event_id": f"e{offset}",
        "event_time": "2026-03-02T12:00:00.123456Z",
        "user_id": "ann",
        "device_id": "d",
        "ip": "10.0.0.1",
        **fields,
    }
    return topic, 0, offset, datetime(2026, 3, 2, 13), b"ann", json.dumps(event).encode()


def test_records_become_entries_and_impossible_ones_say_why(spark: SparkSession) -> None:
    credit, task = events.CREDIT.topic, events.TASK.topic
    raw = spark.createDataFrame(
        [
            _record(credit, 0, source="task", amount_cents=5),
            _record(task, 1, task_id="t", step=2, steps=3),
            _record(credit, 2, source="task", amount_cents=10_000_000_001),
            _record(task, 3, task_id="t", step=4, steps=3),
            _record(credit, 4, source="theft", amount_cents=5),
        ],
        RAW,
    )
    found = entries(raw)
    credits, steps, malformed = sort_entries(found.collect())
    assert [(each.event_time, each.source, each.amount_cents) for each in credits] == [
        ("2026-03-02T12:00:00.123Z", "task", 5)
    ]
    assert [(each.task_id, each.step, each.steps) for each in steps] == [("t", 2, 3)]
    reasons = {row.offset: row.reason for row in malformed}
    assert reasons[2] == "field amount_cents: more than 10000000000"
    assert reasons[3] == "field step: more than field steps"
    assert "theft" in str(reasons[4])
    assert all(row.key == b"ann" and row.value for row in malformed)
    day_after = in_range(found, "2026-03-03T00:00:00.000Z", "2026-03-04T00:00:00.000Z")
    same_day = in_range(found, "2026-03-02T00:00:00.000Z", "2026-03-03T00:00:00.000Z")
    assert (day_after.count(), same_day.count()) == (0, 5)
