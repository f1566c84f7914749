"""Different libraries in one classic group: one of them leads and assigns, and all understand its word.

Which one leads is up to the order of joining, so each pair is tried both ways. What the leader must come to
is known: range and round robin go by the members' ids, which the broker gives.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from tests.group_members.member import Member, Place
from tests.group_members.team import Team
from tests.group_members.topics import Stream, create

PAIRS = [
    ("confluent", "kafka-python"),
    ("confluent", "aiokafka"),
    ("kafka-python", "aiokafka"),
    ("kafka-python", "confluent"),
    ("aiokafka", "confluent"),
    ("aiokafka", "kafka-python"),
]

TopicName = Callable[[], str]


def member_ids(bootstrap: str, group: str, members: list[Member]) -> dict[str, Member]:
    """The members by the ids that the broker gave them, in the order of the ids."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(20)
    by_name = {member.name: member for member in members}
    return {
        each.member_id: by_name[each.client_id]
        for each in sorted(described.members, key=lambda m: m.member_id)
    }


def ranges(members: list[Member], places: list[Place]) -> list[set[Place]]:
    """Each topic cut into consecutive pieces, the first ones one longer."""
    shares: list[set[Place]] = [set() for _ in members]
    for topic in {topic for topic, _ in places}:
        of_topic = sorted(place for place in places if place[0] == topic)
        each, more = divmod(len(of_topic), len(members))
        for number in range(len(members)):
            start = number * each + min(number, more)
            shares[number] |= set(of_topic[start : start + each + (number < more)])
    return shares


def round_robin(members: list[Member], places: list[Place]) -> list[set[Place]]:
    """All partitions dealt out like cards."""
    ordered = sorted(places)
    return [set(ordered[number :: len(members)]) for number in range(len(members))]


@pytest.mark.parametrize("clients", PAIRS, ids="+".join)
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_two_libraries_share_a_group_partition_by_partition(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str], assignor: str
) -> None:
    topics = [topic_name(), topic_name()]
    places = [*create(group_bootstrap, topics[0], 3), *create(group_bootstrap, topics[1], 2)]
    with Team(group_bootstrap, topics[0], topics, assignor=assignor) as team:
        with Stream(group_bootstrap, places) as stream:
            first = team.join(clients[0])
            team.wait_for_owners(places)
            second = team.join(clients[1])
            team.wait_for_owners(places)
            ordered = list(member_ids(group_bootstrap, team.group, [first, second]).values())
            expected = (ranges if assignor == "range" else round_robin)(ordered, places)
            assert [member.assignment for member in ordered] == expected
            first.leave()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


def test_three_libraries_in_one_group(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 7)
    with Team(group_bootstrap, topic, [topic], assignor="range", session_ms=1500) as team:
        with Stream(group_bootstrap, places) as stream:
            members = [team.join(client) for client in ("aiokafka", "confluent", "kafka-python")]
            team.wait_for_owners(places)
            ordered = list(member_ids(group_bootstrap, team.group, members).values())
            assert [member.assignment for member in ordered] == ranges(ordered, places)
            members[0].kill()
            team.wait_for_owners(places)
            newcomer = team.join("kafka-python")
            team.wait_for_owners(places)
            members[1].leave()
            team.wait_for_owners(places)
            ordered = list(member_ids(group_bootstrap, team.group, [members[2], newcomer]).values())
            assert [member.assignment for member in ordered] == ranges(ordered, places)
        team.wait_for_records(stream.ends)
        team.check_ownership()


@pytest.mark.parametrize(
    "clients", [("confluent", "kafka-python"), ("kafka-python", "confluent")], ids="+".join
)
def test_two_libraries_rebalance_cooperatively(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str]
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], assignor="cooperative-sticky") as team:
        with Stream(group_bootstrap, places) as stream:
            first = team.join(clients[0])
            team.wait_for_owners(places)
            second = team.join(clients[1])
            team.wait_for_owners(places)
            assert len(first.assignment) == len(second.assignment) == 2
            kept = [place for event in first.events if event.kind == "revoked" for place in event.places]
            assert set(kept) == second.assignment
            first.leave()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()


def test_members_without_a_common_assignor_do_not_meet(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    with Team(group_bootstrap, topic, [topic]) as team:
        first = team.join("confluent", assignor="range")
        team.wait_for_owners(places)
        stranger = team.join("kafka-python", assignor="roundrobin")
        team.wait("the refusal", lambda: "poll: InconsistentGroupProtocolError" in stranger.failures)
        assert first.assignment == set(places)
        assert first.count("revoked") == 0
