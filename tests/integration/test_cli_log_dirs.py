"""`tidelog log-dirs` on a broker with two log directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.command_line import CommandLine

from tidelog.testing.broker_process import BrokerProcess

TOPIC = "orders"


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("disks")
    return [str(root / "one"), str(root / "two")]


@pytest.fixture(scope="module")
def tidelog(directories: list[str]) -> Iterator[CommandLine]:
    with BrokerProcess(Path(directories[0]), log_dirs=[Path(each) for each in directories]) as broker:
        command_line = CommandLine(broker.bootstrap)
        command_line.ok("topics", "create", TOPIC, "--partitions", "2")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(200):
            producer.produce(TOPIC, b"v" * 100, partition=number % 2)
        producer.flush(30)
        yield command_line


def places(tidelog: CommandLine) -> dict[int, str]:
    """The directory of each partition."""
    [broker] = tidelog.json("log-dirs", "describe", "--topic", TOPIC)
    return {replica["partition"]: each["path"] for each in broker["log_dirs"] for replica in each["replicas"]}


def test_replicas_move_between_directories(tidelog: CommandLine, directories: list[str]) -> None:
    before = places(tidelog)
    other = next(each for each in directories if each != before[0])
    moved = tidelog.ok("log-dirs", "move", f"{TOPIC}:0", "--to", other)
    assert moved == f"moved 1 replica of broker 1 to {other}\n"
    assert places(tidelog) == {**before, 0: other}


def test_directories_are_described_with_sizes(tidelog: CommandLine, directories: list[str]) -> None:
    heading, *lines = tidelog.ok("log-dirs", "describe", "--headings").splitlines()
    assert heading.split("\t") == ["broker", "directory", "replicas", "size", "free", "total", "state"]
    rows = [line.split("\t") for line in lines]
    assert [(row[1], row[6]) for row in rows] == [(each, "online") for each in directories]
    assert sum(int(row[2]) for row in rows) == 2
    assert sum(int(row[3]) for row in rows) > 200 * 100
    replicas = tidelog.ok("log-dirs", "describe", "--replicas").splitlines()
    assert {line.split("\t")[2] for line in replicas} == {TOPIC}


def test_refusals_name_the_mend(tidelog: CommandLine, directories: list[str]) -> None:
    unknown = tidelog.refusal("log-dirs", "move", TOPIC, "--to", "/nowhere")
    assert f"has no log directory /nowhere, only {', '.join(directories)}" in unknown
    elsewhere = tidelog.refusal("log-dirs", "move", f"{TOPIC}:7", "--to", directories[0])
    assert f"no replica of {TOPIC}-7" in elsewhere
    assert "no broker 9" in tidelog.refusal("log-dirs", "describe", "--broker", "9")
    refused = tidelog.refusal("log-dirs", "describe", "--topic", f"{TOPIC}:7")
    assert f"topic {TOPIC!r} has no partition 7, but 2 from 0 on" in refused
