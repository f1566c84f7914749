"""The classic group protocol with each client: members join, leave, crash, stop polling, change their minds.

The records flow all the while; every one must reach exactly one live member, and none may be lost. Our own
clients run the same suite as the others; what only they promise is in ``test_consumer_groups``. With
TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from tests.rigs.group_members import scenarios
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import create

OURS = ["tidelog", "tidelog-async"]
OTHERS = ["confluent", "kafka-python", "aiokafka"]
CLIENTS = [*OTHERS, *OURS]
ASSIGNORS = [
    ("confluent", "range"),
    ("confluent", "roundrobin"),
    ("confluent", "cooperative-sticky"),
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "sticky"),
    ("kafka-python", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("aiokafka", "sticky"),
    *product(OURS, ["range", "roundrobin", "sticky", "cooperative-sticky"]),
]
# The others as they come, ours with both protocols.
LOSERS = [
    *(pytest.param(client, None, id=client) for client in OTHERS),
    *product(OURS, ["range", "cooperative-sticky"]),
]

TopicName = Callable[[], str]


@pytest.mark.parametrize(("client", "assignor"), ASSIGNORS)
def test_members_come_and_go_and_every_record_reaches_one_of_them(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str
) -> None:
    # Cooperative members go on while the generation changes: of the others' libraries the last commit of one
    # that leaves may be late.
    cooperative = assignor == "cooperative-sticky"
    team = scenarios.members_come_and_go(
        group_bootstrap, topic_name(), client, assignor, exactly_once=not cooperative or client in OURS
    )
    if not cooperative:
        assert [member.failures for member in team.members] == [[], [], []]


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_a_cooperative_rebalance_takes_only_what_moves(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], assignor="cooperative-sticky") as team:
        one = team.join(client)
        team.wait_for_owners(places)
        two = team.join(client)
        team.wait_for_owners(places)
        revoked = [place for event in one.events if event.kind == "revoked" for place in event.places]
        assert sorted(revoked) == sorted(two.assignment)
        assert len(revoked) == 2


@pytest.mark.parametrize(("client", "assignor"), LOSERS)
def test_the_partitions_of_a_killed_member_go_to_the_others(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str | None
) -> None:
    scenarios.a_member_is_killed(group_bootstrap, topic_name(), client, assignor)


@pytest.mark.parametrize(("client", "assignor"), LOSERS)
def test_a_frozen_member_loses_its_partitions_and_comes_back_when_it_thaws(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str | None
) -> None:
    frozen = scenarios.a_member_freezes_and_thaws(group_bootstrap, topic_name(), client, assignor)
    if client in OURS:
        frozen.check_losses()


@pytest.mark.parametrize(("client", "assignor"), LOSERS)
def test_a_member_that_does_not_poll_is_put_out_and_taken_back(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str | None
) -> None:
    idle = scenarios.a_member_does_not_poll_for_a_while(group_bootstrap, topic_name(), client, assignor)
    if client in OURS:
        idle.check_losses()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_pattern_finds_topics_that_come_later(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    scenarios.topics_of_a_pattern_come_later(group_bootstrap, topic_name(), client)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_grows_is_shared_out_anew(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    scenarios.a_topic_grows(group_bootstrap, topic_name(), client)


@pytest.mark.parametrize("client", OTHERS)
def test_members_may_want_different_topics(group_bootstrap: str, topic_name: TopicName, client: str) -> None:
    one_topic, other_topic = topic_name(), topic_name()
    one_places, other_places = (create(group_bootstrap, each, 2) for each in (one_topic, other_topic))
    with Team(group_bootstrap, one_topic) as team:
        one = team.join(client, topics=[one_topic])
        two = team.join(client, topics=[other_topic])
        team.wait_for_owners([*one_places, *other_places])
        assert one.assignment == set(one_places)
        assert two.assignment == set(other_places)
        one.tell("subscribe", topics=[one_topic, other_topic])
        team.wait("the newcomer's share", lambda: len(one.assignment) == 3 and len(two.assignment) == 1)
        two.tell("subscribe", topics=[one_topic])
        team.wait("the other topic's share", lambda: two.assignment and two.assignment < set(one_places))
        team.wait_for_owners([*one_places, *other_places])
        assert set(other_places) < one.assignment
