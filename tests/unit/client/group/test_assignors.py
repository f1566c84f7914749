"""Our assignors beside Kafka's: the same groups, the same assignments.

The vectors come from the Java client (tests/compat/assignor_vectors.py).
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tidelog.client.group._classic.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.group.assignor import Assignment, Assignor, RebalanceProtocol, Subscription
from tidelog.client.group.assignors import assignors_from, common_protocol
from tidelog.client.group.assignors._sticky_claims import Claim
from tidelog.client.group.assignors.sticky import decode_claim, encode_claim
from tidelog.client.group.membership import ConsumerGroupMetadata
from tidelog.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from tidelog.errors import ConfigError, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition

Case = dict[str, Any]

VECTORS: dict[str, list[Case]] = json.loads((Path(__file__).parent / "assignor_vectors.json").read_text())


def data_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def subscription_of(member: Case) -> Subscription:
    return Subscription(
        tuple(member["topics"]),
        data_of(member["user_data"]),
        tuple(TopicPartition(*each) for each in member["owned"]),
        member["generation"],
        member["rack"],
        member.get("instance"),
    )


def metadata_of(case: Case) -> ClusterMetadata:
    nodes = {number: Node(number, f"broker{number}", 9092, rack) for number, rack in case["brokers"]}
    topics = {
        name: TopicMetadata(
            name,
            ZERO_UUID,
            False,
            {
                index: PartitionMetadata(index, replicas[0], 0, tuple(replicas), tuple(replicas))
                for index, replicas in enumerate(partitions)
            },
        )
        for name, partitions in case["topics"].items()
    }
    return ClusterMetadata("vectors", -1, nodes, topics)


def assign(case: Case) -> dict[str, list[tuple[str, int]]]:
    (assignor,) = assignors_from([case["assignor"]])
    members = {member["id"]: subscription_of(member) for member in case["members"]}
    assigned = assignor.assign(metadata_of(case), members)
    return {
        member_id: sorted((at.topic, at.partition) for at in each.partitions)
        for member_id, each in assigned.items()
    }


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_an_assignor_assigns_as_javas_does(name: str) -> None:
    cases = [case for case in VECTORS["assignments"] if case["assignor"] == name]
    assert len(cases) >= 10
    for number, case in enumerate(cases):
        expected = {member: sorted(map(tuple, each)) for member, each in case["java"].items()}
        assert assign(case) == expected, f"case {number}: {json.dumps(case)}"


@pytest.mark.parametrize("case", VECTORS["messages"], ids=lambda case: f"v{case['version']}")
def test_subscriptions_and_assignments_are_written_and_read_as_java_does(case: Case) -> None:
    version, java = case["version"], case["java"]
    subscription = subscription_of(case)
    written = encode_subscription(subscription, version)
    assert written == data_of(java["subscription"])
    read = decode_subscription(written, "member")
    assert (read.topics, read.user_data) == (subscription.topics, subscription.user_data)
    assert read.owned_partitions == (subscription.owned_partitions if version >= 1 else ())
    assert read.generation_id == (subscription.generation_id if version >= 2 else None)
    assert read.rack_id == (subscription.rack_id if version >= 3 else None)
    assignment = Assignment(subscription.owned_partitions, subscription.user_data)
    assert encode_assignment(assignment, version) == data_of(java["assignment"])
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


@pytest.mark.parametrize("case", VECTORS["messages"][:10], ids=lambda case: f"v{case['version']}")
@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_user_data_is_javas(case: Case, name: str) -> None:
    (assignor,) = assignors_from([name])
    owned = tuple(TopicPartition(*each) for each in case["owned"])
    assignor.on_assignment(Assignment(owned), ConsumerGroupMetadata("g", case["generation"], "m"))
    ours, javas = assignor.subscription_user_data(case["topics"]), data_of(case["java"][name])
    if name == "sticky":
        assert ours is not None
        assert javas is not None
        # Java writes topics in the order of a hash map.
        assert _comparable(decode_claim(ours)) == _comparable(decode_claim(javas))
    else:
        assert ours == javas


def _comparable(claim: Claim) -> tuple[list[TopicPartition], int | None]:
    return sorted(claim.partitions), claim.generation


def test_a_claim_survives_its_encoding_and_version_0_has_no_generation() -> None:
    claim = Claim((TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("a", 7)), 12)
    assert decode_claim(encode_claim(claim)) == claim
    assert decode_claim(encode_claim(claim)[:-4]) == Claim(claim.partitions, None)
    assert decode_claim(b"\x00\x00\x00\x01\x00\x05ab") == Claim((), -1)


def test_members_of_the_future_are_understood_and_others_are_not() -> None:
    subscription = Subscription(("t",), None, (TopicPartition("t", 1),), 3, "r")
    future = b"\x00\x09" + encode_subscription(subscription)[2:] + b"more"
    assert decode_subscription(future, "m") == subscription
    for garbage in (b"", b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x09"):
        with pytest.raises(KafkaError):
            decode_subscription(garbage, "m")
    with pytest.raises(KafkaError):
        decode_assignment(b"")


class Shouting(Assignor):
    """An own assignor: all to the first member."""

    name = "all-to-the-first"
    protocols = (RebalanceProtocol.COOPERATIVE,)


def test_strategies_go_by_names_java_names_classes_and_objects() -> None:
    chosen = assignors_from(["range", "org.apache.kafka.clients.consumer.RoundRobinAssignor", "sticky"])
    assert [each.name for each in chosen] == ["range", "roundrobin", "sticky"]
    own = Shouting()
    assert assignors_from([own, "cooperative-sticky"])[0] is own
    assert isinstance(assignors_from([Shouting])[0], Shouting)


@pytest.mark.parametrize(
    ("strategies", "text"),
    [
        (["rnage"], "not known"),
        (["range", "range"], "twice"),
        ([Shouting, "range"], "in common"),
        ([object()], "subclass of Assignor"),
    ],
)
def test_strategies_that_make_no_sense_are_refused(strategies: list[object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        assignors_from(strategies)


def test_members_are_cooperative_only_if_all_their_assignors_are() -> None:
    assert common_protocol(assignors_from(["cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE
    assert common_protocol(assignors_from(["range", "cooperative-sticky"])) is RebalanceProtocol.EAGER


def test_a_sticky_group_keeps_what_it_can_when_a_member_leaves() -> None:
    """Without a foreign witness: everything assigned, evenly, and nobody loses what need not move."""
    topics = {"t": [[0]] * 12}
    case = {
        "assignor": "sticky",
        "brokers": [[0, None]],
        "topics": topics,
        "members": [
            {"id": f"m{number}", "topics": ["t"], "owned": [], "generation": None, "rack": None}
            for number in range(4)
        ],
    }
    for member in case["members"]:
        member["user_data"] = None  # type: ignore[index]
    first = assign(case)
    survivors = [member for member in case["members"] if member["id"] != "m1"]  # type: ignore[index]
    for member in survivors:
        claim = Claim(tuple(TopicPartition(*each) for each in first[member["id"]]), 1)  # type: ignore[index]
        member["user_data"] = base64.b64encode(encode_claim(claim)).decode()  # type: ignore[index]
    second = assign({**case, "members": survivors})
    owners: defaultdict[tuple[str, int], int] = defaultdict(int)
    for member_id, partitions in second.items():
        assert set(first[member_id]) <= set(partitions)
        assert len(partitions) == 4
        for partition in partitions:
            owners[partition] += 1
    assert len(owners) == 12
    assert set(owners.values()) == {1}


@pytest.mark.parametrize("other_topics", [[], ["u"]], ids=["equal", "unequal"])
def test_partitions_that_are_gone_are_given_to_nobody(other_topics: list[str]) -> None:
    """A topic that was made again with fewer partitions: members still say that they own the others."""
    case = {
        "assignor": "cooperative-sticky",
        "brokers": [[0, None]],
        "topics": {"t": [[0]] * 2, "u": [[0]]},
        "members": [
            {
                "id": member_id,
                "topics": topics,
                "owned": [["t", number] for number in owned],
                "generation": 1,
                "rack": None,
                "user_data": None,
            }
            for member_id, topics, owned in (("m0", ["t"], (2, 3)), ("m1", ["t", *other_topics], (1,)))
        ],
    }
    given = assign(case)
    assert set(given["m0"]) == {("t", 0)}
    assert set(given["m1"]) == {("t", 1), *((topic, 0) for topic in other_topics)}
