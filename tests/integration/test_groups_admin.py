"""Groups seen and changed from outside: each client's admin calls, and what they must be refused.

Four groups are there for all tests: a live one of each protocol, one that its members left, and one that only
ever had offsets committed to it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as PurePartition
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NoError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata
from tests.rigs.group_members.member import Member, Place
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import create, fill

WAIT_S = 20


@dataclass(frozen=True)
class World:
    """The groups by what they are, and their topic."""

    bootstrap: str
    topic: str
    places: list[Place]
    classic: str
    consumer: str
    left: str
    simple: str
    classic_member: Member
    consumer_member: Member

    @property
    def groups(self) -> set[str]:
        return {self.classic, self.consumer, self.left, self.simple}


@pytest.fixture(scope="module")
def world(group_bootstrap: str) -> Iterator[World]:
    tag = uuid.uuid4().hex[:8]
    topic = f"admin-{tag}"
    names = (f"classic-{tag}", f"consumer-{tag}", f"left-{tag}", f"simple-{tag}")
    places = create(group_bootstrap, topic, 2)
    ends = fill(group_bootstrap, places, 10)
    with (
        Team(group_bootstrap, names[0], [topic]) as classic,
        Team(group_bootstrap, names[1], [topic], protocol="consumer") as consumer,
        Team(group_bootstrap, names[2], [topic]) as left,
    ):
        members = classic.join("confluent"), consumer.join("confluent")
        gone = left.join("kafka-python")
        for team in (classic, consumer, left):
            team.wait_for_owners(places)
            team.wait_for_records(ends)
        gone.leave()
        alter(group_bootstrap, names[3], dict.fromkeys(places, 3))
        yield World(group_bootstrap, topic, places, *names, *members)


@pytest.fixture(scope="module")
def admin(group_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": group_bootstrap})


@pytest.fixture(scope="module")
def pure(group_bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=group_bootstrap)
    yield client
    client.close()


def alter(bootstrap: str, group: str, offsets: dict[Place, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    changed = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group]
    errors = [each.error for each in changed.result(WAIT_S).topic_partitions if each.error is not None]
    if errors:
        raise KafkaException(errors[0])


def listed_offsets(admin: AdminClient, group: str) -> dict[Place, int]:
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in answer.result(WAIT_S).topic_partitions}


def listing(admin: AdminClient, world: World, **filters: object) -> dict[str, tuple[object, object, bool]]:
    """The world's groups among those listed, with state and type and whether they are simple."""
    found = admin.list_consumer_groups(**filters).result(WAIT_S)
    assert found.errors == []
    return {
        each.group_id: (each.state, each.type, each.is_simple_consumer_group)
        for each in found.valid
        if each.group_id in world.groups
    }


def test_confluent_lists_groups_with_their_states_and_types(admin: AdminClient, world: World) -> None:
    stable, empty = ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY
    assert listing(admin, world) == {
        world.classic: (stable, ConsumerGroupType.CLASSIC, False),
        world.consumer: (stable, ConsumerGroupType.CONSUMER, False),
        world.left: (empty, ConsumerGroupType.CLASSIC, False),
        world.simple: (empty, ConsumerGroupType.CLASSIC, True),
    }


def test_confluent_lists_groups_by_state_and_type(admin: AdminClient, world: World) -> None:
    assert listing(admin, world, states={ConsumerGroupState.STABLE}).keys() == {world.classic, world.consumer}
    assert listing(admin, world, types={ConsumerGroupType.CONSUMER}).keys() == {world.consumer}
    empty = listing(admin, world, states={ConsumerGroupState.EMPTY}, types={ConsumerGroupType.CLASSIC})
    assert empty.keys() == {world.left, world.simple}
    assert listing(admin, world, states={ConsumerGroupState.PREPARING_REBALANCING}) == {}


def test_confluent_describes_members_and_assignments(admin: AdminClient, world: World) -> None:
    for group, member, kind in (
        (world.classic, world.classic_member, ConsumerGroupType.CLASSIC),
        (world.consumer, world.consumer_member, ConsumerGroupType.CONSUMER),
    ):
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        assert (described.state, described.type) == (ConsumerGroupState.STABLE, kind)
        assert described.partition_assignor == ("range" if kind == ConsumerGroupType.CLASSIC else "uniform")
        assert described.coordinator.port == int(world.bootstrap.rpartition(":")[2])
        (only,) = described.members
        assert only.client_id == member.name
        assert only.host == "/127.0.0.1"
        assert {(at.topic, at.partition) for at in only.assignment.topic_partitions} == set(world.places)
    described = admin.describe_consumer_groups([world.left])[world.left].result(WAIT_S)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])


def test_a_group_that_is_not_there_is_dead_or_unknown(admin: AdminClient, pure: KafkaAdminClient) -> None:
    name = f"never-{uuid.uuid4().hex}"
    try:
        described = admin.describe_consumer_groups([name])[name].result(WAIT_S)
    except KafkaException as refused:
        assert refused.args[0].name() == "GROUP_ID_NOT_FOUND"  # noqa: PT017
    else:
        assert (described.state, described.members) == (ConsumerGroupState.DEAD, [])
    assert pure.delete_groups([name]) == {name: "GroupIdNotFoundError"}
    assert listed_offsets(admin, name) == {}


def test_confluent_alters_offsets_of_a_group_without_members_only(admin: AdminClient, world: World) -> None:
    alter(world.bootstrap, world.left, {world.places[0]: 4})
    assert listed_offsets(admin, world.left) == {world.places[0]: 4, world.places[1]: 10}
    alter(world.bootstrap, world.left, {world.places[0]: 10})
    for group in (world.classic, world.consumer):
        with pytest.raises(KafkaException) as refused:
            alter(world.bootstrap, group, {world.places[0]: 4})
        assert refused.value.args[0].name() == "UNKNOWN_MEMBER_ID"
        assert listed_offsets(admin, group) == dict.fromkeys(world.places, 10)


def test_offsets_of_a_partition_that_is_not_there_are_refused(world: World) -> None:
    with pytest.raises(KafkaException) as refused:
        alter(world.bootstrap, world.left, {(world.topic, 77): 4})
    assert refused.value.args[0].name() == "UNKNOWN_TOPIC_OR_PART"


def test_a_group_with_members_is_not_deleted(
    admin: AdminClient, pure: KafkaAdminClient, world: World
) -> None:
    for group in (world.classic, world.consumer):
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([group])[group].result(WAIT_S)
        assert refused.value.args[0].name() == "NON_EMPTY_GROUP"
        assert pure.delete_groups([group]) == {group: "NonEmptyGroupError"}
        assert listed_offsets(admin, group) == dict.fromkeys(world.places, 10)


def test_a_deleted_group_is_gone_with_its_offsets(
    admin: AdminClient, pure: KafkaAdminClient, world: World
) -> None:
    doomed = [f"doomed-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for group in doomed:
        alter(world.bootstrap, group, {world.places[0]: 1})
    admin.delete_consumer_groups([doomed[0]])[doomed[0]].result(WAIT_S)
    assert pure.delete_groups([doomed[1]]) == {doomed[1]: "OK"}
    there = {each.group_id for each in admin.list_consumer_groups().result(WAIT_S).valid}
    assert not there & set(doomed)
    assert [listed_offsets(admin, group) for group in doomed] == [{}, {}]


def test_kafka_python_lists_and_describes(pure: KafkaAdminClient, world: World) -> None:
    found = {each["group_id"]: each for each in pure.list_groups() if each["group_id"] in world.groups}
    assert {(name, each["group_state"], each["group_type"].lower()) for name, each in found.items()} == {
        (world.classic, "Stable", "classic"),
        (world.consumer, "Stable", "consumer"),
        (world.left, "Empty", "classic"),
        (world.simple, "Empty", "classic"),
    }
    assert found[world.classic]["protocol_type"] == found[world.consumer]["protocol_type"] == "consumer"
    assert found[world.simple]["protocol_type"] == ""
    filtered = pure.list_groups(states_filter=["Stable"], types_filter=["consumer"])
    assert world.consumer in {each["group_id"] for each in filtered}
    assert world.classic not in {each["group_id"] for each in filtered}
    described = pure.describe_groups([world.classic])[world.classic]
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
    (member,) = described["members"]
    assert member["client_id"] == world.classic_member.name


def test_kafka_python_alters_and_deletes_offsets(pure: KafkaAdminClient, world: World) -> None:
    group = f"offsets-{uuid.uuid4().hex[:8]}"
    zero, one = (PurePartition(topic, index) for topic, index in world.places)
    wanted = {zero: OffsetAndMetadata(5, "five", -1), one: OffsetAndMetadata(6, "", -1)}
    assert pure.alter_group_offsets(group, wanted) == {zero: NoError, one: NoError}
    found = pure.list_group_offsets({group: None, world.simple: [zero]})
    assert {at: (each.offset, each.metadata) for at, each in found[group].items()} == {
        zero: (5, "five"),
        one: (6, ""),
    }
    assert found[world.simple][zero].offset == 3
    assert pure.delete_group_offsets(group, [zero]) == {zero: NoError}
    assert set(pure.list_group_offsets(group)[group]) == {one}
    with pytest.raises(GroupIdNotFoundError):
        pure.delete_group_offsets("never-" + group, [zero])


def test_offsets_of_a_topic_that_the_group_reads_are_not_deleted(
    pure: KafkaAdminClient, world: World
) -> None:
    zero = PurePartition(*world.places[0])
    for group in (world.classic, world.consumer):
        assert pure.delete_group_offsets(group, [zero]) == {zero: GroupSubscribedToTopicError}
        assert pure.list_group_offsets(group)[group][zero].offset == 10


def test_kafka_python_removes_a_member(pure: KafkaAdminClient, world: World) -> None:
    group = f"removal-{uuid.uuid4().hex[:8]}"
    with Team(world.bootstrap, group, [world.topic]) as team:
        team.join("aiokafka")
        team.wait_for_owners(world.places)
        (member,) = pure.describe_groups([group])[group]["members"]
        unknown = pure.remove_group_members(group, [MemberToRemove(member_id="nobody")])
        assert list(unknown.values()) == [UnknownMemberIdError]
        removed = pure.remove_group_members(group, [MemberToRemove(member_id=member["member_id"])])
        assert list(removed.values()) == [NoError]
        team.wait("its return", lambda: team.members[0].count("assigned") == 2)
        (again,) = pure.describe_groups([group])[group]["members"]
        assert again["member_id"] != member["member_id"]


def test_aiokafka_lists_describes_and_reads_offsets(world: World) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=world.bootstrap)
        await admin.start()
        try:
            listed = {each[0]: each[1] for each in await admin.list_consumer_groups()}
            assert {name: listed[name] for name in world.groups} == {
                world.classic: "consumer",
                world.consumer: "consumer",
                world.left: "consumer",
                world.simple: "",
            }
            (described,) = await admin.describe_consumer_groups([world.classic])
            (group,) = described.groups
            assert group[:5] == (0, world.classic, "Stable", "consumer", "range")
            offsets = await admin.list_consumer_group_offsets(world.classic)
            assert {at: each.offset for at, each in offsets.items()} == {
                AioPartition(*place): 10 for place in world.places
            }
        finally:
            await admin.close()

    asyncio.run(run())
