"""Committed offsets: by hand and by the library, kept over a kill -9 of the broker, and taken up again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from foreign.broker_process import BrokerProcess
from tests.rigs.group_members.brokers import group_broker
from tests.rigs.group_members.member import Place
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create, fill

CLIENTS = ["confluent", "kafka-python", "aiokafka"]

NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)

TopicName = Callable[[], str]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may kill."""
    broker = group_broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    """All offsets of the group, as an admin client sees them, once the coordinator has loaded them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 20
    while True:
        (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        try:
            found = answer.result(20).topic_partitions
            return {(each.topic, each.partition): each.offset for each in found}
        except KafkaException as refused:
            if refused.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise


def commit(admin: AdminClient, group: str, offsets: dict[Place, int]) -> None:
    """Commit offsets of a group without members; it may have to wait for the coordinator to be there."""
    places = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    deadline = time.monotonic() + 20
    while True:
        altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        try:
            results = altered[group].result(20).topic_partitions
            errors = [each.error for each in results if each.error is not None]
        except KafkaException as refused:
            errors = [refused.args[0]]
        if not errors:
            return
        assert all(each.code() in NOT_YET for each in errors), errors
        assert time.monotonic() < deadline, errors


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("commit", ["each", "auto"])
def test_the_group_goes_on_where_it_was_after_everybody_left(
    group_bootstrap: str, topic_name: TopicName, client: str, commit: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    fill(group_bootstrap, places, 30)
    with Team(group_bootstrap, topic, [topic], commit=commit) as team:
        one = team.join(client)
        team.wait_for_records(dict.fromkeys(places, 30))
        one.leave()
        assert committed(group_bootstrap, topic) == dict.fromkeys(places, 30)
        fill(group_bootstrap, places, 10)
        two = team.join(client)
        team.wait_for_records(dict.fromkeys(places, 40))
        assert {offset for _, offset in two.delivered} == set(range(30, 40))


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_not_committed_comes_again(group_bootstrap: str, topic_name: TopicName, client: str) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    ends = fill(group_bootstrap, places, 10)
    with Team(group_bootstrap, topic, [topic], commit="never") as team:
        one = team.join(client)
        team.wait_for_records(ends)
        one.leave()
        two = team.join(client)
        team.wait("all of it once more", lambda: len(two.delivered) == 20)
        assert committed(group_bootstrap, topic) == {}


def test_metadata_and_leader_epochs_are_kept_with_the_offset(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    create(group_bootstrap, topic, 2)
    consumer = Consumer(
        {"bootstrap.servers": group_bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    try:
        wanted = TopicPartition(topic, 0, 7, metadata="as far as the seventh", leader_epoch=0)
        consumer.commit(offsets=[wanted], asynchronous=False)
        seven, none = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=20)
        assert (seven.offset, seven.metadata, seven.leader_epoch) == (7, "as far as the seventh", 0)
        assert none.offset == -1001
    finally:
        consumer.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_members_ride_through_a_kill_of_the_broker(broker: BrokerProcess, client: str) -> None:
    places = create(broker.address, "numbers", 4)
    with Team(broker.address, "riders", ["numbers"]) as team:
        with Stream(broker.address, places) as stream:
            members = [team.join(client) for _ in range(2)]
            team.wait_for_owners(places)
            team.wait("records for everybody", lambda: all(len(each.delivered) > 50 for each in members))
            broker.kill()
            team.pump()
            before = {member.name: len(member.delivered) for member in members}
            broker.start()
            team.wait(
                "more records for everybody",
                lambda: all(len(each.delivered) > before[each.name] + 50 for each in members),
            )
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.wait("the last commits", lambda: committed(broker.address, "riders") == stream.ends)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_commits_survive_the_broker(broker: BrokerProcess, end: str) -> None:
    places = create(broker.address, "numbers", 3)
    fill(broker.address, places, 100)
    groups = [f"group-{number}" for number in range(8)]  # over all partitions of __consumer_offsets
    admin = AdminClient({"bootstrap.servers": broker.address})
    for number, group in enumerate(groups):
        for offset in range(number, number + 3):
            commit(admin, group, {("numbers", index): offset + index for index in range(3)})
    if end == "killed":
        broker.kill()
    else:
        broker.stop()
    broker.start()
    for number, group in enumerate(groups):
        expected = {("numbers", index): number + 2 + index for index in range(3)}
        assert committed(broker.address, group) == expected


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_goes_on_where_it_was_when_broker_and_members_were_killed(
    broker: BrokerProcess, client: str
) -> None:
    places = create(broker.address, "numbers", 2)
    fill(broker.address, places, 40)
    with Team(broker.address, "readers", ["numbers"], session_ms=1000) as team:
        one = team.join(client)
        team.wait_for_records(dict.fromkeys(places, 40))
        team.wait("the commits", lambda: committed(broker.address, "readers") == dict.fromkeys(places, 40))
        broker.kill()
        one.kill()
        broker.start()
        fill(broker.address, places, 10)
        two = team.join(client)
        team.wait_for_records(dict.fromkeys(places, 50))
        assert {offset for _, offset in two.delivered} == set(range(40, 50))
