"""The consumer protocol (KIP-848) with librdkafka and our own clients: the broker assigns, members keep up.

Members of both protocols may be in one group while it moves from one to the other, up or down. With
TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription
from tests.rigs.group_members import scenarios
from tests.rigs.group_members.scenarios import share
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create, fill, grow

CLIENTS = ["confluent", "tidelog", "tidelog-async"]
PAIRS = [("confluent", "confluent"), ("tidelog", "tidelog-async")]

TopicName = Callable[[], str]


def describe(bootstrap: str, group: str) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: ConsumerGroupDescription = admin.describe_consumer_groups([group])[group].result(20)
    return found


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go_and_every_record_reaches_one_of_them(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str
) -> None:
    scenarios.consumer_members_come_and_go(group_bootstrap, topic_name(), client, assignor)


def test_the_group_says_what_it_is(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], protocol="consumer", assignor="uniform") as team:
        one, two = team.join("confluent"), team.join("confluent")
        team.wait_for_owners(places)
        team.wait(
            "the members' word that they have got there",
            lambda: describe(group_bootstrap, topic).state == ConsumerGroupState.STABLE,
        )
        described = describe(group_bootstrap, topic)
        assert described.type == ConsumerGroupType.CONSUMER
        assert described.partition_assignor == "uniform"
        assert not described.is_simple_consumer_group
        by_name = {each.client_id: each for each in described.members}
        for member in (one, two):
            told = by_name[member.name]
            assert {(at.topic, at.partition) for at in told.assignment.topic_partitions} == member.assignment
            target = told.target_assignment
            assert target is not None
            assert {(at.topic, at.partition) for at in target.topic_partitions} == member.assignment


@pytest.mark.parametrize(
    "clients", [("confluent",) * 3, ("tidelog", "tidelog", "tidelog-async")], ids="+".join
)
def test_the_partitions_of_killed_and_frozen_members_go_to_the_others(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str, str]
) -> None:
    scenarios.consumer_members_are_killed_and_frozen(group_bootstrap, topic_name(), clients)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_that_does_not_poll_is_put_out_and_taken_back(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    scenarios.a_consumer_member_does_not_poll_for_a_while(group_bootstrap, topic_name(), client)


@pytest.mark.parametrize("clients", PAIRS, ids="+".join)
def test_a_regular_expression_is_the_brokers_to_match(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str]
) -> None:
    stem = topic_name()
    # For librdkafka a pattern is what begins so; ours have a way of their own to say it.
    begin = "^" if "confluent" in clients else ""
    scenarios.the_broker_matches(group_bootstrap, stem, f"{begin}{stem}-[ab]", clients)


@pytest.mark.slow
def test_a_regular_expression_finds_topics_that_come_later(
    group_bootstrap: str, topic_name: TopicName
) -> None:
    stem = topic_name()
    first = create(group_bootstrap, f"{stem}-a", 2)
    with Team(group_bootstrap, stem, pattern=f"^{stem}-[ab]", protocol="consumer") as team:
        team.join("confluent")
        team.wait_for_owners(first)
        second = create(group_bootstrap, f"{stem}-b", 2)
        team.wait_for_owners([*first, *second])  # the broker looks again no sooner than after ten seconds


@pytest.mark.parametrize(
    ("client", "pattern", "told"),
    [("confluent", r"^(a)\1", "regular expression"), ("tidelog", r"(a)\1", "poll: KafkaError")],
    ids=["confluent", "tidelog"],
)
def test_a_bad_regular_expression_is_refused(
    group_bootstrap: str, topic_name: TopicName, client: str, pattern: str, told: str
) -> None:
    # RE2, which Kafka uses, has no backward references; the library would have them.
    with Team(group_bootstrap, topic_name(), pattern=pattern, protocol="consumer") as team:
        member = team.join(client)
        team.wait("the refusal", lambda: any(told in each for each in member.failures))


@pytest.mark.parametrize("clients", PAIRS, ids="+".join)
def test_a_topic_that_grows_and_a_subscription_that_changes(
    group_bootstrap: str, topic_name: TopicName, clients: tuple[str, str]
) -> None:
    topic, other = topic_name(), topic_name()
    places = create(group_bootstrap, topic, 1)
    others = create(group_bootstrap, other, 2)
    with Team(group_bootstrap, topic, [topic], protocol="consumer") as team:
        one, two = map(team.join, clients)
        team.wait("an owner", lambda: one.assignment | two.assignment == set(places))
        more = grow(group_bootstrap, topic, 4)
        team.wait_for_owners(more)
        two.tell("subscribe", topics=[other])
        team.wait("a topic each", lambda: one.assignment == set(more) and two.assignment == set(others))
        ends = fill(group_bootstrap, [*more, *others], 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


@pytest.mark.parametrize("client", ["confluent", "tidelog"])
def test_a_static_member_that_restarts_in_time_gets_its_partitions_back(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], protocol="consumer") as team:
        with Stream(group_bootstrap, places) as stream:
            one = team.join(client, instance="one")
            two = team.join(client, instance="two")
            team.wait_for_owners(places)
            team.wait("fair shares", lambda: share(one) == share(two) == 2)
            share_of_one, told = set(one.assignment), (two.count("assigned"), two.count("revoked"))
            one.leave()
            again = team.join(client, instance="one")
            team.wait_for_owners(places)
            assert again.assignment == share_of_one
            assert (two.count("assigned"), two.count("revoked")) == told
        team.wait_for_records(stream.ends)
        team.check_ownership()


@pytest.mark.parametrize(
    ("client", "told"),
    [("confluent", "still used"), ("tidelog", "poll: KafkaError")],
    ids=["confluent", "tidelog"],
)
def test_a_static_member_cannot_be_there_twice(
    group_bootstrap: str, topic_name: TopicName, client: str, told: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    with Team(group_bootstrap, topic, [topic], protocol="consumer") as team:
        first = team.join(client, instance="twin")
        team.wait_for_owners(places)
        second = team.join(client, instance="twin")
        # UNRELEASED_INSTANCE_ID: the newcomer is refused, not the older one as in the classic protocol.
        team.wait("the refusal", lambda: any(told in each for each in second.failures))
        assert first.assignment == set(places)


@pytest.mark.parametrize(
    ("old_client", "new_client", "assignor"),
    [
        ("confluent", "confluent", "range"),
        ("kafka-python", "confluent", "range"),
        ("aiokafka", "confluent", "roundrobin"),
        ("kafka-python", "confluent", "cooperative-sticky"),
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
            assert describe(group_bootstrap, topic).type == ConsumerGroupType.CLASSIC
            new = team.join(new_client, protocol="consumer")
            team.wait_for_owners(places)
            assert describe(group_bootstrap, topic).type == ConsumerGroupType.CONSUMER
            team.wait("fair shares", lambda: share(old) == share(new) == 2)
            old.leave()
            team.wait_for_owners(places)
            again = team.join(old_client, assignor=assignor)
            team.wait_for_owners(places)
            new.leave()
            team.wait_for_owners(places)
            assert again.assignment == set(places)
            assert describe(group_bootstrap, topic).type == ConsumerGroupType.CLASSIC
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)


def test_classic_and_consumer_members_live_together(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 6)
    with Team(group_bootstrap, topic, [topic], session_ms=1500) as team:
        with Stream(group_bootstrap, places) as stream:
            team.join("kafka-python")
            team.join("confluent", protocol="consumer")
            team.join("aiokafka")
            team.join("confluent")
            team.wait_for_owners(places)
            team.members[0].kill()
            team.wait_for_owners(places)
            team.members[1].kill()
            team.wait_for_owners(places)
            team.join("confluent", protocol="consumer")
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)
