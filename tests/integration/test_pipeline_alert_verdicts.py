"""What people say of incidents reaches topic and table with the next micro-batch, and can be taken back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline_traffic import read_all, send, table_rows, time_text

from tidelog.spark.pipelines import registry
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.detection.incident_topic import read_incidents, write_verdict
from tidelog_rewards.detection.verdicts import Verdict
from tidelog_rewards.events import ACCOUNT_SWITCH_ALERTS, INCIDENTS, LOGIN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PIPELINE = registry.load("account-switch")
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=4)


def login(device: str, number: int, after: timedelta) -> tuple[str, bytes, bytes]:
    event = {
        "event_id": f"{device} {after}",
        "event_time": time_text(START + after),
        "user_id": f"u{number % 3}",
        "device_id": device,
        "ip": "10.0.0.1",
        "phone": "+8613800000000",
        "method": "sms",
        "success": True,
    }
    return LOGIN.topic, b"k", json.dumps(event).encode()


def test_a_verdict_that_is_taken_back_leaves_the_incident_to_be_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        settings = PipelineSettings(broker.bootstrap, tmp_path / "pipelines", "0 seconds")
        options = {"bootstrap.servers": broker.bootstrap}
        query = PIPELINE.start(spark, settings)

        def run(*logins: tuple[str, bytes, bytes]) -> set[str]:
            """The state by both topics and by the table."""
            send(broker.bootstrap, list(logins))
            query.processAllAvailable()
            told = (read_all(broker.bootstrap, topic)[-1] for topic in (INCIDENTS, ACCOUNT_SWITCH_ALERTS))
            (row,) = table_rows(settings.tables, "incidents")["incidents"]
            return {*(json.loads(each.value)["state"] for each in told), row[4]}

        def say(*, undo: bool) -> None:
            (told,) = read_incidents(options).values()
            verdict = Verdict("dismissed", "account-switch", "device", "d", told["alert_id"])
            write_verdict(options, verdict, told, undo=undo)

        try:
            assert run(*(login("d", at, timedelta(seconds=at * at)) for at in range(9))) == {"open"}
            say(undo=False)
            assert run(login("other", 0, timedelta(minutes=5))) == {"dismissed"}
            assert run(login("other", 0, timedelta(hours=50))) == {"dismissed"}
            say(undo=True)
            assert run(login("other", 0, timedelta(hours=51))) == {"closed"}
        finally:
            query.stop()
