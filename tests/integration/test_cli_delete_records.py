"""`tidelog topics delete-records` as a person runs it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.command_line import CommandLine

NewName = Callable[[], str]
DAY_MS = 86_400_000


@pytest.fixture
def tidelog(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(tidelog: CommandLine, bootstrap: str, topic_name: NewName) -> str:
    """Two partitions with six records each, the first four of them a week old."""
    name = topic_name()
    tidelog.ok("topics", "create", name, "--partitions", "2")
    now_ms = round(time.time() * 1000)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in (0, 1):
        for number in range(6):
            age_ms = 7 * DAY_MS if number < 4 else 0
            producer.produce(name, b"v", partition=partition, timestamp=now_ms - age_ms)
    producer.flush(30)
    return name


def starts(bootstrap: str, topic: str) -> list[int]:
    """Where a foreign client finds the partitions to begin."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[0] for each in (0, 1)]
    finally:
        consumer.close()


def test_records_before_an_offset_or_a_time_are_deleted(
    tidelog: CommandLine, bootstrap: str, topic: str
) -> None:
    shown = tidelog("topics", "delete-records", topic, "--older-than", "P1D", "--dry-run")
    assert shown.stdout.splitlines() == [f"{topic}\t0\t0\t4\t6\t4", f"{topic}\t1\t0\t4\t6\t4"]
    assert "nothing was deleted" in shown.stderr
    assert starts(bootstrap, topic) == [0, 0]

    done = tidelog("topics", "delete-records", f"{topic}:1", "--before-offset", "2")
    assert done.stderr == "deleted 2 records of 1 partition\n"
    assert starts(bootstrap, topic) == [0, 2]
    deleted = tidelog.json("topics", "delete-records", topic, "--older-than", "P1D")
    assert [(each["start_offset"], each["low_watermark"]) for each in deleted] == [(0, 4), (2, 4)]
    tidelog("topics", "delete-records", topic, "--all")
    assert starts(bootstrap, topic) == [6, 6]
    again = tidelog("topics", "delete-records", topic, "--all")
    assert (again.returncode, "nothing to delete" in again.stderr) == (0, True)


def test_a_person_sees_what_goes_and_may_decline(tidelog: CommandLine, bootstrap: str, topic: str) -> None:
    code, seen = tidelog.on_terminal("topics", "delete-records", topic, "--all", typed=b"n\n")
    assert code == 1
    assert "Permanently delete these records of 2 partitions?" in seen
    assert starts(bootstrap, topic) == [0, 0]


def test_refusals_name_the_mend(tidelog: CommandLine, topic: str) -> None:
    past = tidelog.refusal("topics", "delete-records", topic, "--before-offset", "7")
    assert "ends at offset 6: 7 is past it" in past
    assert "no partition 9" in tidelog.refusal("topics", "delete-records", f"{topic}:9", "--all")
    assert "does not exist" in tidelog.refusal("topics", "delete-records", f"{topic}-not", "--all")
