"""Different libraries in one classic group: one of them leads and assigns, and all understand its word.

Which one leads is up to the order of joining, so each pair is tried both ways. What the leader must come to
is known: range and round robin go by the members' ids, which the broker gives.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.rigs.group_members import scenarios
from tests.rigs.group_members.scenarios import in_order_of_ids, ranges
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create

PAIRS = [
    ("confluent", "kafka-python"),
    ("confluent", "aiokafka"),
    ("kafka-python", "aiokafka"),
    ("kafka-python", "confluent"),
    ("aiokafka", "confluent"),
    ("aiokafka", "kafka-python"),
]

TopicName = Callable[[], str]


@pytest.mark.parametrize("clients", PAIRS, ids="+".join)
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_two_libraries_share_a_group_partition_by_partition(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str], assignor: str
) -> None:
    topics = [topic_name(), topic_name()]
    scenarios.two_libraries_share_by_the_rules(group_bootstrap, topics, clients, assignor)


def test_three_libraries_in_one_group(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 7)
    with Team(group_bootstrap, topic, [topic], assignor="range") as team:
        with Stream(group_bootstrap, places) as stream:
            members = [team.join(client) for client in ("aiokafka", "confluent", "kafka-python")]
            team.wait_for_owners(places)
            ordered = in_order_of_ids(group_bootstrap, team.group, members)
            assert [member.assignment for member in ordered] == ranges(ordered, places)
            members[0].kill()
            team.wait_for_owners(places)
            newcomer = team.join("kafka-python")
            team.wait_for_owners(places)
            members[1].leave()
            team.wait_for_owners(places)
            ordered = in_order_of_ids(group_bootstrap, team.group, [members[2], newcomer])
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
