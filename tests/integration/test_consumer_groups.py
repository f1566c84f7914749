"""Our consumers in classic groups: what only they promise, and beside confluent-kafka, kafka-python and
aiokafka; what all clients do is in ``test_groups_classic``.

Records flow all the while; every one must reach exactly one live member, and none may be lost. With
TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.rigs.group_members import scenarios
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create, fill

TopicName = Callable[[], str]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_automatic_commits_lose_and_repeat_nothing_while_members_come_and_go(
    group_bootstrap: str, topic_name: TopicName, assignor: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], assignor=assignor, commit="auto") as team:
        with Stream(group_bootstrap, places) as stream:
            one = team.join("tidelog")
            team.wait_for_owners(places)
            team.join("tidelog-async")
            team.wait_for_owners(places)
            team.leave(one)
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


def test_a_cooperative_rebalance_takes_only_what_moves_and_the_rest_is_read_on(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], assignor="cooperative-sticky") as team:
        with Stream(group_bootstrap, places) as stream:
            one = team.join("tidelog")
            team.wait_for_owners(places)
            idle = team.join("tidelog")
            team.wait_for_owners(places)
            # A member that joins and does not poll holds the rebalance up: the others go on meanwhile.
            idle.idle()
            team.wait("the other's rest", lambda: idle.count("idle") == 1)
            late = team.join("tidelog")
            team.wait("the newcomer's start", lambda: late.count("started") == 1)
            before = len(one.delivered)
            team.wait("records during the rebalance", lambda: len(one.delivered) > before + 20)
            idle.work()
            team.wait_for_owners(places)
            revoked = [place for event in one.events if event.kind == "revoked" for place in event.places]
            assert len(revoked) == len(set(revoked)) <= 3
            assert one.assignment.isdisjoint(revoked)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_may_want_different_topics_and_change_their_minds(
    group_bootstrap: str, topic_name: TopicName, assignor: str
) -> None:
    one_topic, other_topic = topic_name(), topic_name()
    one_places, other_places = (create(group_bootstrap, each, 2) for each in (one_topic, other_topic))
    with Team(group_bootstrap, one_topic, assignor=assignor) as team:
        one = team.join("tidelog", topics=[one_topic])
        two = team.join("tidelog-async", topics=[other_topic])
        team.wait_for_owners([*one_places, *other_places])
        assert one.assignment == set(one_places)
        assert two.assignment == set(other_places)
        one.tell("subscribe", topics=[one_topic, other_topic])
        two.tell("subscribe", topics=[one_topic])
        team.wait("the other topic with the one that reads it", lambda: set(other_places) <= one.assignment)
        team.wait_for_owners([*one_places, *other_places])
        ends = fill(group_bootstrap, [*one_places, *other_places], 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


def test_a_static_member_comes_back_without_a_rebalance(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], session_ms=10_000) as team:
        one, two = team.join("tidelog", instance="one"), team.join("tidelog", instance="two")
        team.wait_for_owners(places)
        before, rebalances = set(two.assignment), one.count("assigned")
        two.leave()
        again = team.join("tidelog-async", instance="two")
        team.wait_for_owners(places)
        assert again.assignment == before
        assert one.count("assigned") == rebalances
        ends = fill(group_bootstrap, places, 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


def test_a_second_static_member_of_the_same_name_fences_the_first(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    with Team(group_bootstrap, topic, [topic]) as team:
        one = team.join("tidelog", instance="same")
        team.wait_for_owners(places)
        two = team.join("tidelog", instance="same")
        team.wait("the end of the first", lambda: "poll: KafkaError" in one.failures)
        team.wait("all partitions with the second", lambda: two.assignment == set(places))
        team.wait("the first one's loss", lambda: one.count("lost") == 1)
        # However often it polls, it does not take the name back.
        polls = len(one.failures) + 100
        team.wait("more polls of the first", lambda: len(one.failures) > polls)
        assert two.failures == []
        assert two.assignment == set(places)


PAIRS = [(ours, theirs) for ours in ("tidelog",) for theirs in ("confluent", "kafka-python", "aiokafka")]


@pytest.mark.parametrize("clients", [*PAIRS, *(pair[::-1] for pair in PAIRS)], ids="+".join)
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_ours_and_another_library_share_a_group_partition_by_partition(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str], assignor: str
) -> None:
    topics = [topic_name(), topic_name()]
    scenarios.two_libraries_share_by_the_rules(group_bootstrap, topics, clients, assignor)


@pytest.mark.parametrize(
    "clients",
    [
        ("tidelog", "confluent"),
        ("confluent", "tidelog"),
        ("tidelog", "kafka-python"),
        ("kafka-python", "tidelog"),
    ],
    ids="+".join,
)
def test_ours_and_another_library_hand_partitions_over_cooperatively(
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
            revoked = [place for event in first.events if event.kind == "revoked" for place in event.places]
            assert sorted(revoked) == sorted(second.assignment)
            second.leave()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)
