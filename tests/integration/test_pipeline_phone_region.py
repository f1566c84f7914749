"""phone-region on Spark with a real broker: each event once in the topic, the newest number in the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline_traffic import read_all, send, table_rows, time_text

from tidelog import Producer
from tidelog.spark.dead_letters.letter import read_letter
from tidelog.spark.pipelines.figures import figures_of
from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.jobs.phone_region.schema import TABLE
from tidelog_rewards.phones.phone_keys import FILE_NAME, read_keys
from tidelog_rewards.phones.phone_tokens import PhoneTokens
from tidelog_rewards.pipelines import PHONE_REGION as PIPELINE
from tidelog_rewards.topics import ensure_topics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

START = datetime.now(UTC) - timedelta(days=2)
JIANGSU, BRAZIL, SHORT = "+8613812345678", "+5511987654321", "+86138123456"


@pytest.fixture
def own_bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker of our own: the names of the pipelines' topics are fixed."""
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker.bootstrap


def event(topic: str, number: int, user: str, hour: int, **fields: Any) -> tuple[str, bytes, bytes]:
    value = {
        "event_id": f"e{number}",
        "event_time": time_text(START + timedelta(hours=hour)),
        "user_id": user,
        "device_id": "d",
        "ip": "10.0.0.1",
        **fields,
    }
    return topic, user.encode(), json.dumps(value).encode()


def login(number: int, user: str, hour: int, phone: str, *, success: bool = True) -> tuple[str, bytes, bytes]:
    return event(events.LOGIN.topic, number, user, hour, phone=phone, method="sms", success=success)


def code(number: int, user: str, hour: int, phone: str, result: str) -> tuple[str, bytes, bytes]:
    topic = events.MESSAGE_VERIFICATION.topic
    return event(topic, number, user, hour, phone=phone, purpose="bind", result=result)


def invite(number: int, user: str, hour: int, phone: str) -> tuple[str, bytes, bytes]:
    fields = {"invitee_id": "guest", "invitee_device_id": "g", "invitee_ip": "10.0.0.2", "channel": "link"}
    return event(events.INVITE.topic, number, user, hour, invitee_phone=phone, **fields)


def test_events_are_enriched_once_and_the_newest_number_of_a_user_stays(
    spark: SparkSession, own_bootstrap: str, tmp_path: Path
) -> None:
    settings = PipelineSettings(own_bootstrap, tmp_path / "pipelines", trigger="available-now")
    ensure_topics(settings, partitions=2)
    send(
        own_bootstrap,
        [
            login(1, "ann", 5, JIANGSU),
            login(2, "ann", 7, BRAZIL, success=False),
            code(3, "bob", 3, BRAZIL, "verified"),
            code(4, "bob", 4, JIANGSU, "sent"),
            invite(5, "ann", 6, SHORT),
        ],
    )
    own = (("trace", b"\xff"), ("pipeline", b"not ours"), ("trace", None))
    with Producer(bootstrap_servers=own_bootstrap) as producer:
        sent = producer.send(events.LOGIN.topic, b"{", b"ann", headers=own, timestamp_ms=1_772_000_000_123)
        sent.result(60)
    assert PIPELINE.start(spark, settings).awaitTermination(240)
    # Older than what is known, then newer: only the second one changes the table.
    send(own_bootstrap, [login(6, "ann", 1, BRAZIL), login(7, "bob", 9, JIANGSU)])
    assert PIPELINE.start(spark, settings).awaitTermination(240)

    records = read_all(own_bootstrap, events.USER_REGIONS)
    found = {value["event_id"]: value for value in (json.loads(record.value) for record in records)}
    assert sorted(found) == [f"e{number}" for number in range(1, 8)]
    assert len(records) == len(found)
    [token] = PhoneTokens(read_keys(settings.directory / FILE_NAME), "CN").all_of(JIANGSU)
    assert found["e1"]["phone_region"] == {
        "e164": token,
        "region": "CN",
        "country": "China",
        "country_zh": "中国",
        "place": "Lianyungang, Jiangsu",
        "place_zh": "江苏省连云港市",
        "carrier": "China Mobile",
        "carrier_zh": "中国移动",
        "number_type": "mobile",
        "valid": True,
    }
    assert (found["e1"]["kind"], found["e1"]["method"], found["e1"]["subject_id"]) == ("login", "sms", "ann")
    assert found["e5"]["subject_id"] == "guest"
    assert found["e5"]["phone_region"]["reason"] == "too short for a mobile number of China: 9 digits"
    keys = {json.loads(record.value)["event_id"]: record.key for record in records}
    assert (keys["e1"], keys["e5"]) == (b"ann", b"guest")
    [letter] = map(read_letter, read_all(own_bootstrap, events.DEAD_LETTERS))
    assert letter is not None
    assert (letter.pipeline, letter.code, letter.place.topic) == (
        "phone-region",
        "not-json",
        events.LOGIN.topic,
    )
    assert (letter.key, letter.value, letter.headers) == (b"ann", b"{", own)
    assert letter.timestamp_ms == 1_772_000_000_123
    quality = figures_of(settings.directory, "phone-region").quality
    assert (quality.records, quality.malformed, quality.duplicated) == (8, 1, 0)
    assert quality.null_rates["app_version"] == 1

    rows = table_rows(settings.tables, "user_regions")["user_regions"]
    at = TABLE.names.index("event_id")
    assert [(row[0], row[1], row[at]) for row in rows] == [("ann", token, "e1"), ("bob", token, "e7")]
    send(own_bootstrap, [(events.LOGIN.topic, b"ann", b"[1]")])
    report = PIPELINE.backfill(spark, settings, TimeRange(START, datetime.now(UTC)))
    assert (report.read, report.dead_letters) == (7, 1)  # the stream has the other letter
    codes = [
        letter.code for letter in map(read_letter, read_all(own_bootstrap, events.DEAD_LETTERS)) if letter
    ]
    assert sorted(codes) == ["not-json", "not-json"]
    assert table_rows(settings.tables, "user_regions")["user_regions"] == rows
    assert len(read_all(own_bootstrap, events.USER_REGIONS)) == 7
