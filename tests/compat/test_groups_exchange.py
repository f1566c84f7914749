"""Groups change hands with the directory: Tidelog goes on with Kafka's groups, and Kafka with Tidelog's.

Each is left with a classic group and one of the consumer protocol, of two static members that have closed (so
they are still members, KIP-345), and is killed. Who opens the directory must know their members and what they
had, take a member back under its name with just that, and deliver from where the group was.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.conftest import available
from tests.rigs.group_members.member import Place
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import create, fill

TOPIC, PARTITIONS = "numbers", 4
PLACES = [(TOPIC, index) for index in range(PARTITIONS)]
WAIT_S = 60.0
SESSION_MS = 45_000  # longer than it takes to open the directory elsewhere

OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "5000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
}
Shares = dict[str, set[Place]]


@dataclass
class Left:
    """What a broker left behind: its directory, and of each group its state and who had what, by instance."""

    data_dir: Path
    states: dict[str, Enum]
    shares: dict[str, Shares]


def settings(protocol: str) -> dict[str, Any]:
    return {"protocol": protocol, "session_ms": SESSION_MS, "max_poll_ms": SESSION_MS}


def live(broker: BrokerProcess, protocols: Sequence[str]) -> Left:
    """Make the groups, let them read ten records of each partition, and kill the broker."""
    create(broker.address, TOPIC, PARTITIONS)
    ends = fill(broker.address, PLACES, 10)
    states, shares = {}, {}
    for protocol in protocols:
        with Team(broker.address, protocol, [TOPIC], **settings(protocol)) as team:
            members = {name: team.join("confluent", instance=name) for name in ("one", "two")}
            team.wait_for_owners(PLACES)
            team.wait_for_records(ends)
            shares[protocol] = {name: set(member.assignment) for name, member in members.items()}
            for member in members.values():
                member.leave()
        states[protocol] = described(broker, protocol).state
    broker.kill()
    return Left(broker.data_dir, states, shares)


def described(broker: BrokerProcess, group: str) -> ConsumerGroupDescription:
    """The group, as soon as its coordinator has loaded it."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            found: ConsumerGroupDescription = admin.describe_consumer_groups([group])[group].result(WAIT_S)
            return found
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def assert_understood(broker: BrokerProcess, left: Left) -> None:
    """The members are known with what they had, and one that comes back gets it again, from record 10 on."""
    for group, shares in left.shares.items():
        found = described(broker, group)
        assert found.state == left.states[group]
        assert {
            member.group_instance_id: {(at.topic, at.partition) for at in member.assignment.topic_partitions}
            for member in found.members
        } == shares
    fill(broker.address, PLACES, 5)
    for group, shares in left.shares.items():
        with Team(broker.address, group, [TOPIC], **settings(group)) as team:
            back = team.join("confluent", instance="one")
            its_share = partial(lambda back, share: back.assignment == share, back, shares["one"])
            team.wait("its share", its_share, WAIT_S)
            team.wait("the new records", partial(lambda back: len(back.delivered) >= 10, back), WAIT_S)
            assert sorted(back.delivered) == sorted((at, n) for at in shares["one"] for n in range(10, 15))


@pytest.fixture(scope="module", params=["kafka-4", "kafka-3.9"])
def kafkas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    with available():
        kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), OPTIONS, jars=request.param)
        kafka.start()
    try:
        # Kafka 3.9 has the consumer protocol as a preview, which librdkafka does not speak.
        yield live(kafka, ["classic"] if request.param == "kafka-3.9" else ["classic", "consumer"])
    finally:
        kafka.kill()


def test_tidelog_goes_on_with_kafkas_groups(kafkas: Left, tmp_path: Path) -> None:
    tidelog = Tidelog(tmp_path / "tidelog", OPTIONS)
    shutil.copytree(kafkas.data_dir, tidelog.data_dir)
    (tidelog.data_dir / ".lock").unlink(missing_ok=True)
    tidelog.start()
    try:
        assert_understood(tidelog, kafkas)
    finally:
        tidelog.kill()


def test_kafka_goes_on_with_tidelogs_groups(tmp_path: Path) -> None:
    with available():
        kafka = ApacheKafka(tmp_path / "kafka", OPTIONS)
        kafka.start()
    tidelog = Tidelog(tmp_path / "tidelog", OPTIONS)
    tidelog.start()
    try:
        left = live(tidelog, ["classic", "consumer"])
        with Team(kafka.address, "maker", [TOPIC]) as team:  # makes Kafka's __consumer_offsets
            create(kafka.address, TOPIC, PARTITIONS)
            team.join("confluent")
            team.wait_for_owners(PLACES)
        kafka.stop()
        for name in (f"{TOPIC}-*", "__consumer_offsets-*"):
            for partition in tidelog.data_dir.glob(name):
                transplant(partition, kafka.data_dir / partition.name)
        kafka.start()
        # The consumer protocol assigns by topic ids, and in Kafka's metadata log the topic has another one.
        modern = described(kafka, "consumer")
        assert {each.group_instance_id for each in modern.members} == set(left.shares.pop("consumer"))
        assert_understood(kafka, left)
    finally:
        tidelog.kill()
        kafka.kill()


def transplant(source: Path, target: Path) -> None:
    """Put the files of a partition in the place of another's, which keeps its topic id."""
    identity = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    shutil.copytree(source, target)
    (target / "partition.metadata").write_bytes(identity)
