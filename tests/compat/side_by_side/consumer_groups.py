"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: validation, epochs, assignments, static members."""

from __future__ import annotations

import time

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.consumer_group_requests import (
    LEAVE,
    LEAVE_FOR_A_WHILE,
    Consumer,
    described,
    heartbeat_request,
    read_topic,
    reconcile,
)
from tests.compat.side_by_side.group_requests import group_of
from tests.compat.side_by_side.side import TIMEOUT_S, UNKNOWN_ID, Side

from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import TopicPartitions

VERSIONS = (0, 1)


JOINS: dict[str, dict[str, object]] = {
    "right": {},
    "no-group": {"group_id": ""},
    "no-member": {"member_id": ""},
    "no-instance": {"instance_id": ""},
    "no-rack": {"rack_id": ""},
    "rack": {"rack_id": "r1"},
    "no-timeout": {"rebalance_timeout_ms": -1},
    "timeout-0": {"rebalance_timeout_ms": 0},
    "timeout-negative": {"rebalance_timeout_ms": -2},
    "no-partitions": {"topic_partitions": None},
    "some-partitions": {"topic_partitions": [TopicPartitions(topic_id=UNKNOWN_ID, partitions=[0])]},
    "no-names": {"subscribed_topic_names": None},
    "uniform": {"server_assignor": "uniform"},
    "range": {"server_assignor": "range"},
    "unknown-assignor": {"server_assignor": "sticky"},
    "empty-assignor": {"server_assignor": ""},
    "epoch-minus-3": {"member_epoch": -3},
    "epoch-lowest": {"member_epoch": -(2**31)},
    "long-member": {"member_id": "m" * 500},
    "odd-member": {"member_id": "a b/\u00e9"},
    "space-group": {"group_id": " "},
    "unknown-topics": {"subscribed_topic_names": ["no-such-topic", "other"]},
    "same-topic-twice": {"subscribed_topic_names": ["no-such-topic", "no-such-topic"]},
    "bad-topic": {"subscribed_topic_names": ["", "a b"]},
}


@case(JOINS, versions=VERSIONS)
def first_heartbeat(side: Side, given: dict[str, object], version: int) -> object:
    group_id = group_of(side)
    fields: dict[str, object] = {"group_id": group_id, "member_id": "m", "epoch": 0, **given}
    fields["epoch"] = fields.pop("member_epoch", 0)
    if fields["epoch"] == 0:
        answer = side.ask(version, heartbeat_request(**fields))  # type: ignore[arg-type]
    else:
        answer = side.ask(version, heartbeat_request(group_id, "m", int(str(fields["epoch"]))))
    return [answer, described(side, group_id)]


REGEXES = {
    "empty": "",
    "nothing": "no-such.*",
    "unclosed": "(",
    "bad-class": "[",
    "lookahead": "(?=x)t",
    "backreference": "(a)\\1",
    "named": "(?P<x>t)",
    "posix": "[[:alpha:]]+",
    "repeat": "a{1001}",
    "star": "*",
}


@case(REGEXES)
def regex(side: Side, pattern: str) -> object:
    consumer = Consumer(side)
    seen = [consumer.heartbeat(subscribed_topic_regex=pattern, subscribed_topic_names=None)]
    return [*seen, consumer.heartbeat(), described(side, consumer.group_id)]


def _topics_by_regex(side: Side, pattern: str, names: list[str] | None, count: int) -> object:
    """What a member is assigned once the expression is resolved, which Kafka does aside."""
    consumer = Consumer(side)
    consumer.heartbeat(subscribed_topic_regex=pattern, subscribed_topic_names=names)
    deadline = time.monotonic() + TIMEOUT_S
    while len(consumer.owned) < count:
        assert time.monotonic() < deadline, f"{side.name}: {consumer.owned}"
        consumer.owns()
    reconcile(consumer)
    found = described(side, consumer.group_id)
    assert isinstance(found, dict)
    return found["groups"][0]["members"][0] | {"member_epoch": "any"}


@case({"all": "%s-.*", "dot": "%s-.", "choice": "%s-(t|x)", "class": "%s-[s-u]", "exact": "%s-t"})
def topics_by_regex(side: Side, pattern: str) -> object:
    read_topic(side, "t", 2)
    return _topics_by_regex(side, pattern % side.prefix, None, 1)


@case()
def regex_and_names(side: Side) -> object:
    topic, other = read_topic(side, "t"), read_topic(side, "other")
    return _topics_by_regex(side, topic, [other], 2)


OTHERS: dict[str, dict[str, object]] = {
    "unknown-member": {"member_id": "nobody", "epoch": 1},
    "unknown-member-leaves": {"member_id": "nobody", "epoch": LEAVE},
    "unknown-member-joins": {"member_id": "nobody", "epoch": 0},
    "no-member": {"member_id": "", "epoch": 1},
    "no-member-leaves": {"member_id": "", "epoch": LEAVE},
    "epoch-later": {"epoch": 99},
    "epoch-later-by-one": {"later": 1},
    "epoch-older-by-one": {"later": -1},
    "epoch-minus-3": {"epoch": -3},
    "static-leave-without-instance": {"epoch": LEAVE_FOR_A_WHILE},
    "unknown-instance": {"instance_id": "two"},
    "unknown-instance-leaves": {"instance_id": "two", "epoch": LEAVE},
    "unknown-assignor": {"server_assignor": "sticky"},
    "other-assignor": {"server_assignor": "range"},
    "foreign-partitions": {"topic_partitions": [TopicPartitions(topic_id=UNKNOWN_ID, partitions=[0, 3])]},
    "nothing-owned": {"topic_partitions": []},
    "other-topics": {"subscribed_topic_names": ["no-such-topic"]},
    "no-topics": {"subscribed_topic_names": []},
    "joins-again": {"epoch": 0, "subscribed_topic_names": ["no-such-topic"]},
    "leaves": {"epoch": LEAVE},
    "right": {},
    "empty-instance": {"instance_id": ""},
    "empty-rack": {"rack_id": ""},
}


@case(OTHERS, versions=VERSIONS)
def later_heartbeat(side: Side, given: dict[str, object], version: int) -> object:
    """To a group of one member that owns both partitions."""
    topic = read_topic(side, "t", 2)
    consumer = Consumer(side)
    consumer.join(topic)
    reconcile(consumer)
    fields = {"member_id": consumer.member_id, "epoch": consumer.epoch, **given}
    fields["epoch"] = int(str(fields["epoch"])) + int(str(fields.pop("later", 0)))
    request = heartbeat_request(consumer.group_id, **fields)  # type: ignore[arg-type]
    answer = side.ask(version, request)
    return [answer, described(side, consumer.group_id), consumer.heartbeat()]


@case(OTHERS)
def heartbeat_to_no_group(side: Side, given: dict[str, object]) -> object:
    fields = {"member_id": "m", "epoch": 1, **given}
    fields["epoch"] = int(str(fields["epoch"])) + int(str(fields.pop("later", 0)))
    answer = side.ask(1, heartbeat_request(group_of(side), **fields))  # type: ignore[arg-type]
    return [answer, described(side, group_of(side))]


@case(
    {
        f"{assignor}-{count}-{partitions}": (assignor, count, partitions)
        for assignor in ("uniform", "range")
        for count in (1, 2, 3)
        for partitions in (1, 2, 5)
    }
)
def assignments(side: Side, given: tuple[str, int, int]) -> object:
    """How partitions are spread; which member has which is compared too."""
    assignor, count, partitions = given
    topics = [read_topic(side, stem, partitions) for stem in ("t", "u")]
    consumers = [Consumer(side, stem) for stem in "abc"[:count]]
    for consumer in consumers:
        consumer.join(*topics, server_assignor=assignor)
    reconcile(*consumers)
    found = described(side, consumers[0].group_id)
    assert isinstance(found, dict)
    for member in found["groups"][0]["members"]:
        if assignor == "uniform":
            for kind in ("assignment", "target_assignment"):
                member[kind] = sum(len(each["partitions"]) for each in member[kind]["topic_partitions"])
    return found


@case()
def assignments_move_when_somebody_joins(side: Side) -> object:
    """The newcomer waits until the partitions are given up."""
    topic = read_topic(side, "t", 2)
    one, two = Consumer(side, "a"), Consumer(side, "b")
    seen = [one.join(topic, server_assignor="range"), one.owns(), two.join(topic, server_assignor="range")]
    seen += [two.heartbeat(), described(side, one.group_id), one.heartbeat(), two.heartbeat()]
    seen += [one.owns(), two.heartbeat(), two.owns(), one.heartbeat(), described(side, one.group_id)]
    return seen


@case()
def assignments_move_when_somebody_leaves(side: Side) -> object:
    topic = read_topic(side, "t", 2)
    one, two = Consumer(side, "a"), Consumer(side, "b")
    for each in (one, two):
        each.join(topic, server_assignor="range")
    reconcile(one, two)
    seen = [one.leave(), two.heartbeat(), two.owns(), described(side, one.group_id), one.heartbeat()]
    return [*seen, two.leave(), described(side, one.group_id)]


@case()
def more_partitions_of_unknown_topic(side: Side) -> object:
    """A topic that comes to be is assigned at the next heartbeats."""
    consumer = Consumer(side)
    seen = [consumer.join(side.name_of("t")), consumer.owns()]
    read_topic(side, "t", 2)
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.owned:
        assert time.monotonic() < deadline, f"{side.name}: nothing is assigned"
        consumer.heartbeat()
    reconcile(consumer)
    return [*seen, described(side, consumer.group_id)["groups"][0]["members"]]  # type: ignore[index]


# Static members


@case()
def static_member_comes_back(side: Side) -> object:
    topic = read_topic(side, "t", 2)
    old, new = Consumer(side, "old"), Consumer(side, "new")
    old.join(topic, instance_id="one")
    reconcile(old)
    seen = [new.join(topic, instance_id="one")]
    seen.append(old.leave(LEAVE_FOR_A_WHILE, instance_id="one"))
    seen += [described(side, old.group_id), old.heartbeat(), new.join(topic, instance_id="one")]
    return [
        *seen,
        described(side, old.group_id),
        old.heartbeat(),
        old.heartbeat(instance_id="one"),
        new.owns(),
    ]


@case({"right": "one", "unknown": "two", "none": None})
def static_leave(side: Side, instance_id: str | None) -> object:
    consumer = Consumer(side)
    consumer.join(read_topic(side), instance_id="one")
    reconcile(consumer)
    seen = [consumer.leave(LEAVE_FOR_A_WHILE, instance_id=instance_id), described(side, consumer.group_id)]
    return [*seen, consumer.leave(LEAVE, instance_id=instance_id), described(side, consumer.group_id)]


@case()
def more_than_the_group_may_have(side: Side) -> object:
    consumers = [Consumer(side, str(each)) for each in range(6)]
    return [each.join() for each in consumers]


# ConsumerGroupDescribe


@case(VERSIONS)
def describe_odd_groups(side: Side, version: int) -> object:
    consumer = Consumer(side)
    consumer.join()
    names = ["", group_of(side, "none"), consumer.group_id, consumer.group_id]
    return described(side, *names, version=version)


@case((True, False), versions=VERSIONS)
def describe_with_operations(side: Side, wanted: bool, version: int) -> object:
    consumer = Consumer(side)
    consumer.join()
    return described(side, consumer.group_id, version=version, include_authorized_operations=wanted)


@case(VERSIONS)
def describe_nothing(side: Side, version: int) -> object:
    return side.ask(version, ConsumerGroupDescribeRequest(group_ids=[]))
