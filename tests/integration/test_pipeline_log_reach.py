"""Whether a log holds what a past range is judged by: one that is cut is refused, a young one is whole."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.integration.command_line import CommandLine

from tidelog import Producer
from tidelog.client import Admin, NewTopic
from tidelog.ids import TopicPartition
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.log_reach import CutLogError, ends, is_cut
from tidelog_rewards.events import LOGIN
from tidelog_rewards.generator.delivery import SIMULATED_TIME

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
MEMORY_US = 30 * DAY_US
PARTITIONS = 2


def day(number: int) -> Window:
    start_us = round(START.timestamp()) * 1_000_000 + number * DAY_US
    return Window(start_us, start_us + DAY_US)


def topic_of_days(bootstrap: str, topic: str, days: int) -> None:
    """A record for each day, in each partition."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, -1, configs=dict(SIMULATED_TIME))])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(days):
            moment_ms = round((START + timedelta(days=number)).timestamp() * 1000)
            for partition in range(PARTITIONS):
                producer.send(topic, b"{}", partition=partition, timestamp_ms=moment_ms)
        producer.flush()


def cut(bootstrap: str, partition: TopicPartition, before: int) -> None:
    """What retention does, at once."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({partition: before})[partition].raise_for_error()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"reach-{uuid.uuid4().hex[:8]}"
    topic_of_days(bootstrap, name, 40)
    return name


@pytest.fixture
def asked(bootstrap: str, topic: str) -> Callable[..., bool]:
    def ask(number: int, *, allowed: bool = False) -> bool:
        client = {"bootstrap.servers": bootstrap}
        return is_cut(client, [topic, "there-is-no-such-topic"], day(number), MEMORY_US, allowed=allowed)

    return ask


def test_a_log_that_begins_with_its_first_record_is_whole_however_young(asked: Callable[..., bool]) -> None:
    assert not asked(3)
    assert not asked(30)


def test_a_log_that_begins_later_than_what_is_needed_is_refused_with_the_ways_out(
    asked: Callable[..., bool], bootstrap: str, topic: str
) -> None:
    cut(bootstrap, TopicPartition(topic, 1), 20)
    said = (
        rf"records of {topic} \(partition 1\) from before 2026-01-21T00:00:00.000Z are deleted, and a range "
        r"from 2026-03-22T00:00:00.000Z on is judged by those since 2026-01-20T00:00:00.000Z: "
        r".*retention.ms.*, give --from 2026-03-23T00:00:00.000Z or later, or take what is there "
        r"with --allow-cut-log"
    )
    with pytest.raises(CutLogError, match=said):
        asked(80)
    assert asked(80, allowed=True)
    assert not asked(81)
    assert not asked(81, allowed=True)


def test_a_partition_of_which_all_is_deleted_is_no_witness(
    asked: Callable[..., bool], bootstrap: str, topic: str
) -> None:
    cut(bootstrap, TopicPartition(topic, 0), -1)
    with pytest.raises(
        CutLogError, match=r"\(partition 0\) are all deleted.*retention.ms\), or take what is"
    ):
        asked(81)


def test_the_ends_of_all_partitions_are_told(bootstrap: str, topic: str) -> None:
    found = ends({"bootstrap.servers": bootstrap}, [topic])
    assert found == {TopicPartition(topic, partition): 40 for partition in range(PARTITIONS)}


def test_a_dry_run_does_not_judge_by_a_log_that_is_cut(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('version = "try"\n')
    asked = ("pipeline", "dry-run", "account-switch", "--rules", str(rules))
    days = ("--from", "2026-01-30", "--to", "2026-01-31")
    with BrokerProcess(tmp_path / "data") as broker:
        tidelog = CommandLine(broker.bootstrap)
        topic_of_days(broker.bootstrap, LOGIN.topic, 40)
        assert tidelog(*asked, *days).returncode == 0
        cut(broker.bootstrap, TopicPartition(LOGIN.topic, 0), 20)
        refused = tidelog(*asked, *days)
        assert refused.returncode == 1
        assert f"records of {LOGIN.topic} (partition 0) from before 2026-01-21" in refused.stderr
        assert tidelog(*asked, *days, "--allow-cut-log").returncode == 0
