"""`tidelog clients` as people run it: on a broker that tells who is connected, and on one that does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from tests.integration.command_line import CommandLine
from tests.rigs.group_members.topics import create, fill

from tidelog.testing.broker_process import BrokerProcess

WAIT_S = 30.0
NAME = 'odd "name"\n'


class Watched:
    """A broker that tells of its connections, and a librdkafka that is one of them."""

    def __init__(self, process: BrokerProcess) -> None:
        self.tidelog = CommandLine(process.bootstrap)
        found = re.search(r"Metrics are at http://(\S+)/metrics", process.log)
        assert found is not None
        self.metrics = ("--metrics", found[1], "--interval", "0.1")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    options = {"metrics.listeners": "127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    with BrokerProcess(tmp_path_factory.mktemp("clients") / "data", options=options) as process:
        producer = confluent_kafka.Producer({"bootstrap.servers": process.bootstrap, "client.id": NAME})
        producer.produce("orders", b"x" * 1000)
        assert producer.flush(WAIT_S) == 0
        yield Watched(process)
        del producer


def test_everybody_who_is_connected_is_listed(watched: Watched) -> None:
    found = watched.tidelog.json("clients", "list", *watched.metrics)
    assert found["remarks"] == []
    client = next(each for each in found["clients"] if each["client_id"] == NAME)
    assert "rdkafka" in client["software_version"]
    assert client["host"] == "127.0.0.1"
    assert client["listener"] == "PLAINTEXT"
    assert client["principal"] == "User:ANONYMOUS"
    assert client["connections"] >= 1
    assert client["brokers"] == [1]
    lines = watched.tidelog.ok("clients", "list", *watched.metrics, "--limit", "5", "--headings").splitlines()
    assert lines[0].split("\t")[:3] == ["client id", "software", "address"]
    # A name that would break the lines is shown in another way.
    assert all(line.count("\t") == lines[0].count("\t") for line in lines)
    assert any(line.startswith('odd "name"\\n\t') for line in lines)
    assert watched.tidelog.json("clients", "list", "--throttled", *watched.metrics)["clients"] == []


def test_one_client_is_described_by_its_connections(watched: Watched) -> None:
    (client,) = watched.tidelog.json("clients", "describe", NAME, *watched.metrics)["clients"]
    assert sum(each["received_bytes"] for each in client["connections"]) > 1000
    assert sum(each["requests"] for each in client["connections"]) >= 2
    assert all(each["sent_bytes"] > 0 for each in client["connections"] if each["requests"])
    assert "`tidelog clients list`" in watched.tidelog.refusal(
        "clients", "describe", "nobody", *watched.metrics
    )


def test_top_tells_of_requests_and_of_nobody_who_is_throttled(watched: Watched) -> None:
    load = watched.tidelog.json("top", "--once", *watched.metrics[:2], "--interval", "0.2")
    assert {"Produce", "Metadata"} <= {each["request"] for each in load["requests"]}
    assert all(each["p99_ms"] > 0 for each in load["requests"])
    assert (load["throttled"], load["unwatched"]) == ([], "")


@pytest.mark.parametrize("columns", [80, 120])
def test_people_see_a_table_that_fits(watched: Watched, columns: int) -> None:
    code, text = watched.tidelog.on_terminal("clients", "list", *watched.metrics, columns=columns)
    assert code == 0
    assert "requests/s" in text
    assert ("principal" in text) is (columns == 120)
    assert max(map(len, text.splitlines())) <= columns


def test_a_broker_that_tells_nobody_is_asked_in_kafkas_protocol(
    group_bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    fill(group_bootstrap, create(group_bootstrap, topic, 2), 5)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": group_bootstrap,
            "group.id": topic,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        assert consumer.consume(1, WAIT_S)
        tidelog = CommandLine(group_bootstrap)
        found = tidelog.json("clients", "list")
        member = next(each for each in found["members"] if each["group"] == topic)
        assert (member["client_id"], member["host"], member["partitions"]) == ("reader", "127.0.0.1", 2)
        assert found["clients"] == []
        assert any(each["partitions"] >= 1 for each in found["producers"])
        assert "metrics.listeners" in " ".join(found["remarks"])
        told = tidelog("clients", "describe", "reader")
        assert told.returncode == 0
        assert topic in told.stdout
        assert "--metrics HOST:PORT" in told.stderr
    finally:
        consumer.close()
