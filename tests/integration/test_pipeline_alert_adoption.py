"""A checkpoint of account-switch by an earlier release, with windows in Spark's state, is taken over."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.pipeline_traffic import read_all, send, time_text

from tidelog.pipelines import registry
from tidelog.pipelines.framework.alert_job import prepare
from tidelog.pipelines.framework.alert_state import StateError
from tidelog.pipelines.framework.events import ACCOUNT_SWITCH_ALERTS, LOGIN
from tidelog.pipelines.framework.parsing import parse
from tidelog.pipelines.framework.query import start_query
from tidelog.pipelines.framework.source import read_stream
from tidelog.pipelines.jobs.account_switch.schema import USUAL
from tidelog.pipelines.pipeline import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PIPELINE = registry.load("account-switch")
START = datetime.now(UTC) - timedelta(minutes=5)
SWITCHES = USUAL.rules.burst[0][0]


def login(number: int) -> tuple[str, bytes, bytes]:
    event = {
        "event_id": f"e{number}",
        "event_time": time_text(START + timedelta(seconds=number)),
        "user_id": f"u{number % 3}",
        "device_id": "d",
        "ip": "10.0.0.1",
        "phone": "+8613800000000",
        "method": "sms",
        "success": True,
    }
    return LOGIN.topic, b"k", json.dumps(event).encode()


def run_as_earlier_releases_did(session: SparkSession, settings: PipelineSettings) -> None:
    def look(batch: DataFrame, _: int) -> None:
        batch.collect()

    prepare(settings, PIPELINE)
    logins = parse(read_stream(session, settings, PIPELINE, PIPELINE.inputs), LOGIN).events
    windows = (
        logins.withWatermark("event_time", "15 minutes")
        .groupBy("device_id", F.window("event_time", "10 minutes", "5 minutes"))
        .agg(F.collect_list("event_id"))
    )
    writer = windows.writeStream.outputMode("update").foreachBatch(look)
    start_query(writer, settings, PIPELINE.name).awaitTermination()


def test_what_spark_kept_is_computed_again_and_nothing_is_reported_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        settings = PipelineSettings(broker.bootstrap, tmp_path / "pipelines", "available-now")
        checkpoint = settings.checkpoint(PIPELINE.name)
        prepare(settings, PIPELINE)
        send(broker.bootstrap, [login(number) for number in range(SWITCHES)])
        run_as_earlier_releases_did(spark, settings)
        assert (checkpoint / "state").exists()
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
        unfinished = checkpoint / "offsets" / str(last + 1)
        unfinished.write_bytes((checkpoint / "offsets" / str(last)).read_bytes())
        with pytest.raises(StateError, match=rf"in the middle of micro-batch {last + 1}: have that release"):
            PIPELINE.start(spark, settings)
        unfinished.unlink()
        send(broker.bootstrap, [login(SWITCHES)])
        PIPELINE.start(spark, settings).awaitTermination()
        alerts = [json.loads(record.value) for record in read_all(broker.bootstrap, ACCOUNT_SWITCH_ALERTS)]
        # A state of the release before, with other columns, is put away as well.
        (checkpoint / "keyed" / "layout.json").write_text('{"buckets":4,"columns":["key"],"version":1}')
        send(broker.bootstrap, [login(SWITCHES + 1)])
        PIPELINE.start(spark, settings).awaitTermination()
        last = [json.loads(record.value) for record in read_all(broker.bootstrap, ACCOUNT_SWITCH_ALERTS)][-1]
    assert alerts
    assert {alert["switches"] for alert in alerts} == {SWITCHES}
    assert [each["event_id"] for each in alerts[0]["logins"]] == [f"e{at}" for at in range(6)]
    assert not (checkpoint / "state").exists()
    assert (last["switches"], last["alert_id"]) == (SWITCHES + 1, alerts[0]["alert_id"])
