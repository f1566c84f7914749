"""`tidelog perf`, `top` and `clients` beside Kafka's own perf tools, on Apache Kafka and on Tidelog.

What reads the output of one tool must read the other's: the same columns in the same order, and figures that
add up to the records that are there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.conftest import available

RECORDS, SIZE = 3000, 100
Tool = Callable[..., subprocess.CompletedProcess[str]]
NUMBER = re.compile(r"\d+(\.\d+)?")


@pytest.fixture(scope="module", params=[ApacheKafka, Tidelog], ids=["apache", "tidelog"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Both, always: the commands are for Apache Kafka as much as for our own broker."""
    with available():
        running: BrokerProcess = request.param(tmp_path_factory.mktemp("perf"))
        running.start()
    yield running
    running.stop()


@pytest.fixture
def tidelog(server: BrokerProcess) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TIDELOG_BOOTSTRAP": server.address},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def shape(line: str) -> str:
    """A line without its figures."""
    return NUMBER.sub("#", line)


def kafkas(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a tool of Kafka printed, without what it says of its own options."""
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line and not line.lower().startswith("warning")]


def test_figures_are_those_of_kafkas_tools(
    server: BrokerProcess, tidelog: Callable[..., str], kafka_tool: Tool, topic: str
) -> None:
    tidelog("topics", "create", topic, "--partitions", "2")
    size = ("--num-records", str(RECORDS), "--record-size", str(SIZE))
    ours = tidelog("perf", "produce", topic, *size).splitlines()
    theirs = kafkas(
        kafka_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--throughput", "-1", *size),
            *("--producer-props", f"bootstrap.servers={server.address}"),
        )
    )
    assert shape(ours[-1]) == shape(theirs[-1])

    # Both have written: both read twice as much.
    ours = tidelog("perf", "consume", topic, "--num-records", str(2 * RECORDS), "--headings").splitlines()
    theirs = kafkas(
        kafka_tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", server.address, "--topic", topic, "--messages", str(2 * RECORDS)),
        )
    )
    assert ours[0] == theirs[0]
    assert shape(ours[1]) == shape(theirs[1])
    read, wanted = (line.split(", ") for line in (ours[1], theirs[1]))
    assert (read[2], read[4]) == (wanted[2], wanted[4])
    assert read[4] == str(2 * RECORDS)

    probe = f"{topic}-probe"
    ours = tidelog("perf", "latency", probe, "--num-records", "20").splitlines()
    theirs = kafkas(
        kafka_tool("org.apache.kafka.tools.EndToEndLatency", server.address, probe, "20", "1", "100")
    )
    assert [shape(line) for line in ours] == [shape(line) for line in theirs if not line.startswith("Topic")]


def test_top_and_the_other_commands_work(tidelog: Callable[..., str], topic: str) -> None:
    tidelog("topics", "create", topic, "--partitions", "2")
    tidelog("perf", "produce", topic, "-n", "500", "--transaction-duration-ms", "50", "--throughput", "5000")
    tidelog("groups", "reset-offsets", topic, "--topic", topic, "--to-earliest", "--execute")

    load = json.loads(tidelog("top", "--once", "--json", "--interval", "0.5"))
    assert [each["alive"] for each in load["brokers"]] == [True]
    assert load["brokers"][0]["size_bytes"] > 0
    assert load["brokers"][0]["free_bytes"] > 0
    own = next(each for each in load["topics"] if each["name"] == topic)
    assert own["size_bytes"] > 500
    group = next(each for each in load["groups"] if each["group"] == topic)
    assert group["lag"] >= 500
    assert load["problems"] == []
    assert load["requests"] == []
    assert "--metrics" in load["unwatched"]

    # Neither broker tells who is connected: what Kafka's protocol has is shown, and where it comes from.
    clients = json.loads(tidelog("clients", "list", "--json"))
    assert clients["clients"] == []
    assert any(each["transactional_id"] for each in clients["producers"])
    assert "metrics.listeners" in " ".join(clients["remarks"])

    tidelog("topics", "delete-records", topic, "--all")
    after = json.loads(tidelog("topics", "describe", topic, "--json"))[0]
    assert all(each["start_offset"] == each["end_offset"] for each in after["partitions"])
    assert topic in tidelog("log-dirs", "describe", "--replicas", "--topic", topic)
    features = json.loads(tidelog("features", "describe", "--json"))["features"]
    assert {"group.version", "transaction.version"} <= {each["feature"] for each in features}
    assert "could change" in tidelog("features", "downgrade", "transaction.version=1", "--dry-run")
    tidelog("configs", "alter", "--group", topic, "--set", "consumer.session.timeout.ms=50000")
    assert "50000" in tidelog("configs", "describe", "--group", topic)
