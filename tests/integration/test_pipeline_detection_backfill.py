"""A backfill of a detecting pipeline never puts less over more: by a cut log, or beside a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline_traffic import read_all, table_rows, time_text

from tidelog import Producer
from tidelog.client import Admin, NewTopic
from tidelog.ids import TopicPartition
from tidelog.spark.pipelines import registry
from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.detection import alert_job
from tidelog_rewards.detection.alert_tasks import answers_of
from tidelog_rewards.detection.log_reach import CutLogError
from tidelog_rewards.generator.delivery import SIMULATED_TIME
from tidelog_rewards.settings import RewardsSettings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

START = datetime(2026, 1, 5, tzinfo=UTC)
EVERYTHING = TimeRange(START, START + timedelta(days=20))
LAST_DAY = TimeRange(START + timedelta(days=19), START + timedelta(days=20))
PIPELINE = registry.load("account-switch")


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[PipelineSettings]:
    """Of a cluster where a new account comes to one phone every half day, for twenty days."""
    with BrokerProcess(tmp_path / "data") as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic(events.LOGIN.topic, 1, -1, configs=dict(SIMULATED_TIME))])
        send_logins(broker.bootstrap, *range(40))
        yield PipelineSettings(broker.bootstrap, tmp_path / "pipelines")


def send_logins(bootstrap: str, *numbers: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            moment = START + timedelta(hours=12 * number)
            login = {
                "event_id": f"e{number:03d}",
                "event_time": time_text(moment),
                "user_id": f"u{number}",
                "device_id": "d",
                "ip": "10.0.0.1",
                "phone": "+8613800000000",
                "method": "sms",
                "success": True,
            }
            producer.send(
                events.LOGIN.topic,
                msgspec.json.encode(login),
                timestamp_ms=round(moment.timestamp() * 1000),
            )
        producer.flush()


def held(settings: PipelineSettings) -> dict[str, dict[str, Any]]:
    """The newest of each incident."""
    found = read_all(settings.bootstrap_servers, events.INCIDENTS)
    return {record.key.decode(): msgspec.json.decode(record.value) for record in found}


def test_a_log_that_is_cut_accuses_nobody_and_replaces_nothing(
    spark: SparkSession, settings: PipelineSettings
) -> None:
    assert PIPELINE.backfill(spark, settings, EVERYTHING).written
    before, rows = held(settings), table_rows(settings.tables, "incidents")
    with Admin(bootstrap_servers=settings.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(events.LOGIN.topic, 0): 20})
    with pytest.raises(CutLogError, match=r"records of ml_user_login_log .*from before 2026-01-15T00:00"):
        PIPELINE.backfill(spark, settings, LAST_DAY)
    allowed = replace(settings, extensions=(RewardsSettings(allow_cut_log=True),))
    assert dict(PIPELINE.backfill(spark, allowed, LAST_DAY).written) == {}
    assert (held(settings), table_rows(settings.tables, "incidents")) == (before, rows)


def test_what_a_stream_tells_while_a_backfill_judges_stays(
    spark: SparkSession, settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    PIPELINE.backfill(spark, settings, EVERYTHING)
    ((name, told),) = held(settings).items()
    rows = table_rows(settings.tables, "incidents")
    newer = {**told, "evidence": "of a login that came when the backfill had read"}
    calls: list[int] = []

    def stream_goes_on(results: Any) -> Any:
        answers = answers_of(results)
        if not calls:
            with Producer(bootstrap_servers=settings.bootstrap_servers) as producer:
                for topic in (events.ACCOUNT_SWITCH_ALERTS, events.INCIDENTS):
                    producer.send(topic, msgspec.json.encode(newer), key=name.encode())
                producer.flush()
        calls.append(1)
        # As if it had given up searches, which takes far larger logs.
        return [msgspec.structs.replace(each, dropped=3) if each.alerts else each for each in answers]

    monkeypatch.setattr(alert_job, "answers_of", stream_goes_on)
    report = PIPELINE.backfill(spark, settings, EVERYTHING)
    assert (dict(report.written), report.dropped) == ({}, 3)
    assert (held(settings), table_rows(settings.tables, "incidents")) == ({name: newer}, rows)
    # The next one knows all that the stream knew: now it decides.
    assert PIPELINE.backfill(spark, settings, EVERYTHING).written
    assert held(settings)[name]["evidence"] == told["evidence"]
