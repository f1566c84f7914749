"""Both protocols and one group: what each API says of a group of the other kind, and migration."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.consumer_group_requests import (
    LEAVE,
    Consumer,
    heartbeat_request,
    read_topic,
    reconcile,
)
from tests.compat.side_by_side.consumer_group_requests import described as consumer_described
from tests.compat.side_by_side.group_admin import listed
from tests.compat.side_by_side.group_offset_requests import (
    COMMIT_VERSIONS,
    commit,
    delete_offsets,
    offsets,
    place,
)
from tests.compat.side_by_side.group_requests import (
    Member,
    alone,
    described,
    group_of,
    join_request,
    leave_request,
    protocols,
    settled,
    subscription,
    sync_request,
)
from tests.compat.side_by_side.group_requests import heartbeat_request as classic_heartbeat
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import Producer

from tidelog.wire.messages.delete_groups import DeleteGroupsRequest


def consumer_group(side: Side, *topics: str) -> Consumer:
    """A consumer group of one member."""
    consumer = Consumer(side)
    consumer.join(*topics)
    reconcile(consumer)
    return consumer


@case(range(7))
def classic_describe_of_a_consumer_group(side: Side, version: int) -> object:
    return described(side, consumer_group(side).group_id, version=version)


@case((0, 1))
def consumer_describe_of_a_classic_group(side: Side, version: int) -> object:
    return consumer_described(side, alone(side).group_id, version=version)


@case(range(6))
def list_of_both(side: Side, version: int) -> object:
    alone(side, group_of(side, "classic"))
    consumer = Consumer(side, group_id=group_of(side, "consumer"))
    consumer.join()
    return listed(side, version)


@case(("classic", "consumer"))
def list_by_type(side: Side, kind: str) -> object:
    alone(side, group_of(side, "classic"))
    consumer = Consumer(side, group_id=group_of(side, "consumer"))
    consumer.join()
    return listed(side, types_filter=[kind])


CLASSIC_JOINS: dict[str, dict[str, object]] = {
    "not-a-consumer": {"protocol_type": "connect"},
    "bad-metadata": {"protocols": protocols(("range", b"\x00\x63garbage"))},
    "no-metadata": {"protocols": protocols(("range", b""))},
    "no-protocols": {"protocols": []},
    "unknown-member": {"member_id": "nobody"},
    "of-the-other-kind": {"member_id": "me"},
    "short-session": {"session_timeout_ms": 1},
}


@case(CLASSIC_JOINS, versions=(0, 4, 9))
def classic_join_of_a_consumer_group(side: Side, given: dict[str, object], version: int) -> object:
    consumer = consumer_group(side)
    fields = dict(given)
    member_id = str(fields.pop("member_id", ""))
    member_id = consumer.member_id if member_id == "me" else member_id
    seen = [side.ask(version, join_request(consumer.group_id, member_id, **fields))]
    return [*seen, consumer_described(side, consumer.group_id), consumer.heartbeat()]


@case(("sync", "heartbeat", "leave"))
def classic_requests_of_a_consumer_member(side: Side, kind: str) -> object:
    consumer = consumer_group(side)
    group_id, who, epoch = consumer.group_id, consumer.member_id, consumer.epoch
    asked = {
        "sync": (5, sync_request(group_id, epoch, who, protocol_type="consumer", protocol_name="range")),
        "heartbeat": (4, classic_heartbeat(group_id, epoch, who)),
        "leave": (5, leave_request(group_id, (who, None), ("nobody", None))),
    }[kind]
    return [side.ask(*asked), consumer_described(side, group_id), consumer.heartbeat()]


@case((0, 1, LEAVE))
def consumer_heartbeat_of_a_classic_group(side: Side, epoch: int) -> object:
    """While its members could not follow: they do not speak the consumers' protocol."""
    member = Member(side, group_of(side))
    member.join(protocol_type="connect")
    member.sync((member.member_id, b""))
    seen = [side.ask(1, heartbeat_request(member.group_id, "m", epoch))]
    return [*seen, described(side, member.group_id), member.heartbeat()]


@case((0, 1, LEAVE))
def consumer_heartbeat_of_a_classic_member(side: Side, epoch: int) -> object:
    member = alone(side)
    seen = [side.ask(1, heartbeat_request(member.group_id, member.member_id, epoch))]
    return [*seen, listed(side)]


@case()
def empty_classic_group_becomes_a_consumer_group(side: Side) -> object:
    topic = read_topic(side)
    member = alone(side)
    commit(side, member.group_id, topic, place(9), member_id=member.member_id, generation=1)
    member.leave()
    consumer = Consumer(side)
    seen = [consumer.join(topic), listed(side), offsets(side, consumer.group_id)]
    return [*seen, consumer_described(side, consumer.group_id)]


@case()
def empty_consumer_group_becomes_a_classic_group(side: Side) -> object:
    topic = read_topic(side)
    consumer = consumer_group(side, topic)
    commit(side, consumer.group_id, topic, place(9), member_id=consumer.member_id, generation=consumer.epoch)
    consumer.leave()
    member = Member(side, consumer.group_id)
    return [member.join(), listed(side), offsets(side, consumer.group_id), described(side, member.group_id)]


@case()
def offsets_alone_become_a_consumer_group(side: Side) -> object:
    topic, group_id = read_topic(side), group_of(side)
    commit(side, group_id, topic, place(9))
    consumer = Consumer(side)
    return [consumer.join(topic), listed(side), offsets(side, group_id)]


@case()
def consumer_joins_a_classic_group_and_members_follow(side: Side) -> object:
    """Online upgrade: the classic member keeps its protocol and shares the partitions."""
    topic = read_topic(side, "t", 2)
    member = Member(side, group_of(side), subscription(topic))
    member.join()
    member.sync((member.member_id, b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"))
    consumer = Consumer(side.another())
    joined = consumer.join(topic)
    seen = [_without_partitions(joined), listed(side), member.heartbeat(), described(side, member.group_id)]
    found = consumer_described(side, member.group_id)
    assert isinstance(found, dict)
    shown = [(each["member_type"], each["member_epoch"]) for each in found["groups"][0]["members"]]
    seen += [sorted(shown), found["groups"][0]["group_state"], member.join()]
    part = member.sync()
    assert isinstance(part, dict)
    return [*seen, {**part, "assignment": len(part["assignment"])}, consumer.leave(), listed(side)]


def _without_partitions(answer: object) -> object:
    """Which partitions a member has depends on the other's id."""
    assert isinstance(answer, dict)
    parts = answer["assignment"]["topic_partitions"]
    return {**answer, "assignment": sorted(len(each["partitions"]) for each in parts)}


# Offsets of a consumer group

WHO: dict[str, tuple[str, int]] = {
    "right": ("me", 0),
    "older": ("me", -1),
    "later": ("me", 1),
    "stranger": ("nobody", 0),
    "nobody": ("", -100),
    "nobody-with-epoch": ("", 0),
}


def _who(consumer: Consumer, given: tuple[str, int]) -> tuple[str, int]:
    name, by = given
    return consumer.member_id if name == "me" else name, -1 if by == -100 else consumer.epoch + by


@case(WHO, versions=COMMIT_VERSIONS)
def commit_to_a_consumer_group(side: Side, given: tuple[str, int], version: int) -> object:
    topic = read_topic(side)
    consumer = consumer_group(side, topic)
    member_id, epoch = _who(consumer, given)
    seen = [commit(side, consumer.group_id, topic, version=version, member_id=member_id, generation=epoch)]
    return [*seen, offsets(side, consumer.group_id), consumer.heartbeat()]


@case(WHO, versions=(8, 9, 10))
def fetch_of_a_consumer_group(side: Side, given: tuple[str, int], version: int) -> object:
    topic = read_topic(side)
    consumer = consumer_group(side, topic)
    commit(side, consumer.group_id, topic, member_id=consumer.member_id, generation=consumer.epoch)
    member = _who(consumer, given) if version >= 9 else None
    return [
        offsets(side, consumer.group_id, {topic: [0]}, version=version, member=member),
        offsets(side, consumer.group_id, None, version=version, member=member),
    ]


@case(WHO, versions=(3, 5))
def transactional_commit_to_a_consumer_group(side: Side, given: tuple[str, int], version: int) -> object:
    topic = read_topic(side)
    consumer = consumer_group(side, topic)
    member_id, epoch = _who(consumer, given)
    producer = Producer(side, tv="tv1" if version < 5 else "tv2").begun()
    if version < 5:
        producer.add_offsets(consumer.group_id)
    answer = producer.commit_offsets(
        consumer.group_id, topic, version=version, member_id=member_id, generation_id=epoch
    )
    seen = [answer]
    return [*seen, producer.end(), producer.settled(), offsets(side, consumer.group_id)]


@case(("t", "other"))
def delete_offsets_of_a_consumer_group(side: Side, stem: str) -> object:
    topic, other = read_topic(side, "t"), read_topic(side, "other")
    consumer = consumer_group(side, topic)
    for name in (topic, other):
        commit(side, consumer.group_id, name, member_id=consumer.member_id, generation=consumer.epoch)
    answer = delete_offsets(side, consumer.group_id, {side.name_of(stem): [0]})
    return [answer, offsets(side, consumer.group_id)]


@case((True, False))
def delete_a_consumer_group(side: Side, empty: bool) -> object:
    consumer = consumer_group(side)
    if empty:
        consumer.leave()
    settled(side)
    answer = side.ask(2, DeleteGroupsRequest(groups_names=[consumer.group_id]))
    return [answer, consumer_described(side, consumer.group_id), listed(side)]
