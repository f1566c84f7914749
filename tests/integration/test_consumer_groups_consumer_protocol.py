"""Our consumers in the consumer protocol (KIP-848): alone, beside librdkafka, and beside classic members.

With TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group_members import scenarios
from tests.group_members.scenarios import share
from tests.group_members.team import Team
from tests.group_members.topics import Stream, create, fill, grow

OURS = ["tidelog", "tidelog-async"]

TopicName = Callable[[], str]


@pytest.mark.parametrize("client", OURS)
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go_and_every_record_reaches_one_of_them(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str
) -> None:
    scenarios.consumer_members_come_and_go(group_bootstrap, topic_name(), client, assignor)


def test_automatic_commits_lose_and_repeat_nothing_while_members_come_and_go(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], protocol="consumer", commit="auto") as team:
        with Stream(group_bootstrap, places) as stream:
            one = team.join("tidelog")
            team.wait_for_owners(places)
            two = team.join("tidelog-async")
            team.wait("fair shares", lambda: share(one) == share(two) == 2)
            team.leave(one)
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


def test_the_partitions_of_killed_and_frozen_members_go_to_the_others(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    clients = ("tidelog", "tidelog", "tidelog-async")
    scenarios.consumer_members_are_killed_and_frozen(group_bootstrap, topic_name(), clients)


@pytest.mark.parametrize("client", OURS)
def test_a_member_that_does_not_poll_leaves_and_comes_back(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    scenarios.a_consumer_member_does_not_poll_for_a_while(group_bootstrap, topic_name(), client)


def test_a_regular_expression_is_the_brokers_to_match(group_bootstrap: str, topic_name: TopicName) -> None:
    stem = topic_name()
    scenarios.the_broker_matches(group_bootstrap, stem, f"{stem}-[ab]", ("tidelog", "tidelog-async"))


def test_a_bad_regular_expression_is_refused(group_bootstrap: str, topic_name: TopicName) -> None:
    with Team(group_bootstrap, topic_name(), pattern=r"(a)\1", protocol="consumer") as team:
        member = team.join("tidelog")
        team.wait("the refusal", lambda: "poll: KafkaError" in member.failures)


def test_a_topic_that_grows_and_a_subscription_that_changes(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    topic, other = topic_name(), topic_name()
    places = create(group_bootstrap, topic, 1)
    others = create(group_bootstrap, other, 2)
    with Team(group_bootstrap, topic, [topic], protocol="consumer") as team:
        one, two = team.join("tidelog"), team.join("tidelog-async")
        team.wait("an owner", lambda: one.assignment | two.assignment == set(places))
        more = grow(group_bootstrap, topic, 4)
        team.wait_for_owners(more)
        two.tell("subscribe", topics=[other])
        team.wait("a topic each", lambda: one.assignment == set(more) and two.assignment == set(others))
        ends = fill(group_bootstrap, [*more, *others], 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


def test_a_static_member_that_restarts_in_time_gets_its_partitions_back(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], protocol="consumer") as team:
        with Stream(group_bootstrap, places) as stream:
            one = team.join("tidelog", instance="one")
            two = team.join("tidelog", instance="two")
            team.wait_for_owners(places)
            team.wait("fair shares", lambda: share(one) == share(two) == 2)
            share_of_one, told = set(one.assignment), (two.count("assigned"), two.count("revoked"))
            one.leave()
            again = team.join("tidelog", instance="one")
            team.wait_for_owners(places)
            assert again.assignment == share_of_one
            assert (two.count("assigned"), two.count("revoked")) == told
        team.wait_for_records(stream.ends)
        team.check_ownership()


def test_a_static_member_cannot_be_there_twice(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    with Team(group_bootstrap, topic, [topic], protocol="consumer") as team:
        first = team.join("tidelog", instance="twin")
        team.wait_for_owners(places)
        second = team.join("tidelog", instance="twin")
        team.wait("the refusal", lambda: "poll: KafkaError" in second.failures)
        assert first.assignment == set(places)


@pytest.mark.parametrize("clients", [("tidelog", "confluent"), ("confluent", "tidelog")], ids="+".join)
def test_ours_and_librdkafka_share_a_group(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str]
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], protocol="consumer") as team:
        with Stream(group_bootstrap, places) as stream:
            one = team.join(clients[0])
            team.wait_for_owners(places)
            two = team.join(clients[1])
            team.wait("fair shares", lambda: share(one) == share(two) == 2)
            team.leave(one)
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


@pytest.mark.parametrize(
    ("old_client", "new_client", "assignor"),
    [
        ("tidelog", "tidelog", "range"),
        ("tidelog", "confluent", "cooperative-sticky"),
        ("kafka-python", "tidelog-async", "range"),
    ],
)
def test_a_group_moves_to_the_consumer_protocol_and_back_while_it_works(
    group_bootstrap: str, topic_name: TopicName, old_client: str, new_client: str, assignor: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic]) as team:
        with Stream(group_bootstrap, places) as stream:
            old = team.join(old_client, assignor=assignor)
            team.wait_for_owners(places)
            new = team.join(new_client, protocol="consumer")
            team.wait("fair shares", lambda: share(old) == share(new) == 2)
            old.leave()
            team.wait_for_owners(places)
            again = team.join(old_client, assignor=assignor)
            team.wait_for_owners(places)
            new.leave()
            team.wait_for_owners(places)
            assert again.assignment == set(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)
