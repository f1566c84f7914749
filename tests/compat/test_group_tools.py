"""Kafka's own tools for groups, of 3.9 and 4.x, against the broker and on its `__consumer_offsets` files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.conftest import BROKERS, available
from tests.rigs.group_members.brokers import GROUP_OPTIONS
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import create, fill

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPIC = "numbers"
ENDS = {(TOPIC, 0): 10, (TOPIC, 1): 10}

Tool = Callable[..., subprocess.CompletedProcess[str]]
Run = Callable[..., str]


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker with a live group of each protocol, `classic` and `consumer`, and one without members."""
    kind = {"tidelog": Tidelog, "apache": ApacheKafka}[request.param]
    with available():
        broker = kind(tmp_path_factory.mktemp(request.param), GROUP_OPTIONS)
        broker.start()
    places = create(broker.address, TOPIC, 2)
    fill(broker.address, places, 10)
    with (
        Team(broker.address, "classic", [TOPIC], assignor="roundrobin") as classic,
        Team(broker.address, "consumer", [TOPIC], protocol="consumer") as consumer,
    ):
        classic.join("kafka-python", instance="static")
        consumer.join("confluent")
        for team in (classic, consumer):
            team.wait_for_owners(places)
            team.wait_for_records(ENDS)
            team.wait("the commits", partial(lambda group: committed(broker, group) == ENDS, team.group))
        yield broker
    broker.stop()


@pytest.fixture
def run(kafka_tool: Tool, broker: BrokerProcess) -> Run:
    def call(main: str, *arguments: str | Path, **options: str) -> str:
        done = kafka_tool(main, "--bootstrap-server", broker.address, *arguments, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.fixture
def idle_group(broker: BrokerProcess, topic: str) -> str:
    """A group without members, at 4 of 10 in the first partition."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = [ConsumerGroupTopicPartitions(topic, [TopicPartition(TOPIC, 0, 4)])]
    admin.alter_consumer_group_offsets(wanted)[topic].result(20)
    return topic


def committed(broker: BrokerProcess, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": broker.address})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in answer.result(20).topic_partitions}


def rows(printed: str, group: str) -> list[list[str]]:
    return sorted(line.split() for line in printed.splitlines() if line.split()[:1] == [group])


def test_groups_are_listed_with_states_and_types(run: Run, idle_group: str) -> None:
    listed = run(GROUPS, "--list", "--state")
    found = {line.split()[0]: line.split()[1] for line in listed.splitlines() if len(line.split()) == 2}
    assert {found[name] for name in ("classic", "consumer")} == {"Stable"}
    assert found[idle_group] == "Empty"
    assert run(GROUPS, "--list", "--type", "consumer").split()[-2:] == ["consumer", "Consumer"]


def test_a_groups_offsets_and_lags_are_described(run: Run, idle_group: str) -> None:
    described = run(GROUPS, "--describe", "--group", "classic")
    assert [row[1:6] for row in rows(described, "classic")] == [
        [TOPIC, "0", "10", "10", "0"],
        [TOPIC, "1", "10", "10", "0"],
    ]
    assert all(row[6].startswith("static-") and row[7] == "/127.0.0.1" for row in rows(described, "classic"))
    (row,) = rows(run(GROUPS, "--describe", "--group", idle_group), idle_group)
    assert row[1:9] == [TOPIC, "0", "4", "10", "6", "-", "-", "-"]


def test_a_groups_members_and_state_are_described(run: Run, broker: BrokerProcess) -> None:
    members = rows(run(GROUPS, "--describe", "--members", "--verbose", "--group", "classic"), "classic")
    assert len(members) == 1
    assert "static" in members[0]
    assert any(cell.endswith(("(0,1)", ":0,1")) for cell in members[0]), members
    (state,) = rows(run(GROUPS, "--describe", "--state", "--group", "consumer"), "consumer")
    assert state[1] == broker.address
    assert {"uniform", "Stable"} <= set(state)


def test_offsets_are_reset_after_a_look(run: Run, broker: BrokerProcess, idle_group: str) -> None:
    where = ("--reset-offsets", "--group", idle_group, "--topic", TOPIC)
    planned = run(GROUPS, *where, "--to-earliest", "--dry-run")
    found = re.findall(rf"{idle_group}\s+{TOPIC}\s+(\d)\s+(\d+)", planned)  # 3.9 forgets the line ends
    assert sorted(found) == [("0", "0"), ("1", "0")]
    assert committed(broker, idle_group) == {(TOPIC, 0): 4}
    run(GROUPS, *where, "--to-latest", "--execute")
    assert committed(broker, idle_group) == ENDS
    run(GROUPS, *where, "--shift-by", "-3", "--execute")
    assert committed(broker, idle_group) == {(TOPIC, 0): 7, (TOPIC, 1): 7}


def test_offsets_of_a_live_group_are_not_reset(kafka_tool: Tool, broker: BrokerProcess) -> None:
    arguments = ("--reset-offsets", "--group", "classic", "--topic", TOPIC, "--to-earliest", "--execute")
    done = kafka_tool(GROUPS, "--bootstrap-server", broker.address, *arguments)
    assert "inactive, but the current state is Stable" in done.stdout + done.stderr
    assert committed(broker, "classic") == ENDS


def test_offsets_and_groups_are_deleted(run: Run, broker: BrokerProcess, idle_group: str) -> None:
    printed = run(GROUPS, "--delete-offsets", "--group", idle_group, "--topic", f"{TOPIC}:0")
    assert re.search(rf"{TOPIC}\s+0\s+Successful", printed), printed
    assert committed(broker, idle_group) == {}
    refused = run(GROUPS, "--delete", "--group", "classic")
    assert "not empty" in refused
    assert committed(broker, "classic") == ENDS


def test_the_console_consumer_is_a_group_member(run: Run, broker: BrokerProcess, topic: str) -> None:
    printed = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", TOPIC, "--group", topic, "--from-beginning", "--max-messages", "20"),
        *("--timeout-ms", "20000"),
    )
    assert sorted(int(line) for line in printed.split()) == sorted([*range(10), *range(10)])
    assert committed(broker, topic) == ENDS


def test_the_verifiable_consumer_commits_what_it_says(run: Run, broker: BrokerProcess, topic: str) -> None:
    printed = run(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--topic", TOPIC, "--group-id", topic, "--max-messages", "20", "--session-timeout", "6000"),
    )
    assert '"name":"partitions_assigned"' in printed
    assert '"success":true' in printed
    assert committed(broker, topic) == ENDS


def test_the_log_of_offsets_is_understood_record_by_record(kafka_tool: Tool, broker: BrokerProcess) -> None:
    logs = sorted(broker.data_dir.glob("__consumer_offsets-*/*.log"))
    arguments = ("--offsets-decoder", "--deep-iteration", "--files", ",".join(map(str, logs)))
    done = kafka_tool("org.apache.kafka.tools.DumpLogSegments", *arguments)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert not re.search(r"Exception|isvalid: false", printed), printed
    assert len(re.findall(r"^\| offset: ", printed, re.MULTILINE)) > 10
    assert re.search(r'"group":"classic","topic":"numbers","partition":\d', printed), printed[-2000:]
    assert re.search(r"protocolType|protocol_type", printed)
