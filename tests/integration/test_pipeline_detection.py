"""Detection measured: generated traffic → broker → both pipelines → score against the planted truth.

Seeds run one after the other through the same checkpoints, in micro-batches of four hundred records, so that
state, watermarks and restarts are part of what is measured. The least precision and recall of every rule is
0.95; a share of 8 incidents cannot be lower than 1 and still reach it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline_traffic import read_all, table_rows, time_text

from tidelog import Producer
from tidelog.client import Admin, NewTopic
from tidelog.spark.pipelines import registry
from tidelog.spark.pipelines.pipeline import BackfillReport, TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.detection.detection_report import read_alerts, read_truth, score
from tidelog_rewards.generator import Traffic, TrafficSettings
from tidelog_rewards.generator.delivery import SIMULATED_TIME, deliver, to_broker
from tidelog_rewards.generator.truth import truth_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LEAST = 0.95
SEEDS = (11, 12)
HOURS = 1.5
START = datetime(2026, 1, 5, tzinfo=UTC)
PIPELINES = ("account-switch", "invite-fraud")
RULES = ("account-switch", "address", "burst", "chain", "cycle", "device", "mutual", "number-block")


@dataclass
class Measured:
    """What the runs left behind."""

    bootstrap: str
    settings: PipelineSettings
    truths: list[Path] = field(default_factory=list)
    backfill: BackfillReport | None = None
    """That of account-switch over the first seed, before any stream has run."""
    backfill_rows: int = 0
    """In the table of incidents, after that."""

    def truth(self) -> list[dict[str, Any]]:
        return [record for path in self.truths for record in read_truth(path)]

    @property
    def time_range(self) -> TimeRange:
        return TimeRange(START, START + timedelta(hours=3 * len(self.truths)))


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    directory = tmp_path_factory.mktemp("detection")
    with BrokerProcess(directory / "data") as broker:
        settings = PipelineSettings(
            broker.bootstrap, directory / "pipelines", "available-now", max_offsets_per_trigger=400
        )
        done = Measured(broker.bootstrap, settings)
        for seed in SEEDS:
            _generate(done, seed, directory / f"{seed}.jsonl")
            if seed == SEEDS[0]:
                pipeline = registry.load("account-switch")
                with ThreadPoolExecutor() as thread:  # as the command does: Spark has no active session there
                    done.backfill = thread.submit(
                        pipeline.backfill, spark, settings, done.time_range
                    ).result()
                done.backfill_rows = len(table_rows(settings.tables, "incidents")["incidents"])
            for name in PIPELINES:
                query = registry.load(name).start(spark, settings)
                query.awaitTermination()
        yield done


def _generate(done: Measured, seed: int, truth: Path) -> None:
    start = START + timedelta(hours=3 * len(done.truths))
    with (
        truth_file(truth) as known,
        to_broker(
            {"bootstrap.servers": done.bootstrap}, partitions=3, topic_configs=SIMULATED_TIME
        ) as broker,
    ):
        traffic = Traffic(TrafficSettings(start, seed=seed, rate=5.0, fraud=4.0), known)
        deliver(traffic, broker, paced=False, seconds=HOURS * 3600)
    done.truths.append(truth)


def test_every_rule_finds_what_was_planted_and_accuses_nobody_else(measured: Measured) -> None:
    report = score(measured.truth(), read_alerts({"bootstrap.servers": measured.bootstrap}))
    by_rule = {rule.rule: rule for rule in report.rules}
    for name in RULES:
        rule = by_rule[name]
        assert rule.planted >= 3, "too little was planted to measure"
        assert rule.recall is not None
        assert rule.recall >= LEAST, (rule, report.missed)
        assert rule.precision is not None
        assert rule.precision >= LEAST, (rule, report.false_alarms)
    assert sum(report.honest_cases.values()) >= 10
    assert report.accused == {}


def test_the_measure_fails_when_a_rule_is_blind(measured: Measured) -> None:
    alerts = read_alerts({"bootstrap.servers": measured.bootstrap})
    for name in RULES[1:]:
        blind = [
            {**alert, "reasons": [reason for reason in alert.get("reasons", ()) if reason["rule"] != name]}
            for alert in alerts
        ]
        failed = {rule.rule for rule in score(measured.truth(), blind).below(LEAST)}
        assert failed == {name}


def test_damaged_events_of_both_topics_are_dead_letters_once(measured: Measured) -> None:
    topics = (events.LOGIN.topic, events.INVITE.topic)
    planted: dict[str, int] = {}
    for path in measured.truths:
        for line in path.read_bytes().splitlines():
            record = msgspec.json.decode(line)
            if record["record"] == "malformed" and record["topic"] in topics:
                planted[record["topic"]] = planted.get(record["topic"], 0) + 1
    letters = read_all(measured.bootstrap, events.DEAD_LETTERS)
    told: dict[str, int] = {}
    places = set()
    for letter in letters:
        # The last one may be a seal, which is no text.
        headers = {name: (value or b"").decode(errors="replace") for name, value in letter.headers}
        places.add((headers["pipeline"], headers["topic"], headers["partition"], headers["offset"]))
        assert headers["reason"]
    for _, topic, _, _ in places:
        told[topic] = told.get(topic, 0) + 1
    assert planted
    assert told == planted


def test_incidents_are_in_their_topic_and_table_one_for_each_subject(measured: Measured) -> None:
    newest: dict[str, Any] = {}
    for record in read_all(measured.bootstrap, events.INCIDENTS):
        newest[record.key.decode()] = record.value and msgspec.json.decode(record.value)
    lasting = {name: told for name, told in newest.items() if told is not None}
    subjects = [(told["pipeline"], told["subject_kind"], told["subject"]) for told in lasting.values()]
    assert len(subjects) == len(set(subjects))
    assert {told["alert_id"] for told in read_alerts({"bootstrap.servers": measured.bootstrap})} == set(
        lasting
    )
    assert {told["state"] for told in lasting.values()} <= {"open", "updated", "closed"}
    assert all(told["rules"]["version"] and told["rules"]["digest"] for told in lasting.values())
    rows = table_rows(measured.settings.tables, "incidents")["incidents"]
    assert {row[0]: (row[3], row[4], row[5]) for row in rows if row[0] in lasting} == {
        name: (told["subject"], told["state"], told["score"]) for name, told in lasting.items()
    }


def test_a_backfill_writes_once_and_agrees_with_the_stream(spark: SparkSession, measured: Measured) -> None:
    first = measured.backfill
    assert first is not None
    assert first.read > 0
    assert first.written[f"topic {events.ACCOUNT_SWITCH_ALERTS}"] > 0
    assert measured.backfill_rows == first.written[f"topic {events.INCIDENTS}"]
    for name in PIPELINES:
        report = registry.load(name).backfill(spark, measured.settings, measured.time_range)
        assert (dict(report.written), report.dead_letters) == ({}, 0), name


def test_a_backfill_of_a_day_adds_nothing_to_a_stream_of_two_months(
    spark: SparkSession, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic(events.LOGIN.topic, 1, -1, configs=dict(SIMULATED_TIME))])
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for at in range(124):
                moment = START + timedelta(hours=12 * at)
                login = {
                    "event_id": f"e{at:03d}",
                    "event_time": time_text(moment),
                    "user_id": f"u{at}",
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
        settings = PipelineSettings(broker.bootstrap, tmp_path / "pipelines", "available-now")
        pipeline = registry.load("account-switch")
        pipeline.start(spark, settings).awaitTermination()
        told = msgspec.json.decode(read_all(broker.bootstrap, events.INCIDENTS)[-1].value)
        assert len(told["history"]) == 60
        day = TimeRange(START + timedelta(days=61), START + timedelta(days=62))
        assert dict(pipeline.backfill(spark, settings, day).written) == {}
