"""Our consumers in classic groups: alone, and beside confluent-kafka, kafka-python and aiokafka.

Records flow all the while; every one must reach exactly one live member, and none may be lost. With
TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group_members.team import Team
from tests.group_members.topics import Stream, create, fill, grow
from tests.integration.test_groups_mixed import member_ids, ranges, round_robin

OURS = ["tidelog", "tidelog-async"]
ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]

TopicName = Callable[[], str]


@pytest.mark.parametrize("client", OURS)
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_come_and_go_and_every_record_reaches_one_of_them(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 5)
    with Team(group_bootstrap, topic, [topic], assignor=assignor) as team:
        with Stream(group_bootstrap, places) as stream:
            one = team.join(client)
            team.wait_for_owners(places)
            two = team.join(client)
            team.wait_for_owners(places)
            three = team.join(client)
            team.wait_for_owners(places)
            assert sorted(len(member.assignment) for member in (one, two, three)) == [1, 2, 2]
            one.leave()
            team.wait_for_owners(places)
            assert {len(two.assignment), len(three.assignment)} == {2, 3}
            three.leave()
            team.wait_for_owners(places)
            assert two.assignment == set(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)
        if assignor != "cooperative-sticky":  # in which members go on while the generation changes
            assert [member.failures for member in team.members] == [[], [], []]


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
            one.leave()
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


@pytest.mark.parametrize("client", OURS)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_the_partitions_of_a_killed_member_go_to_the_others(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], session_ms=1000, assignor=assignor) as team:
        with Stream(group_bootstrap, places) as stream:
            members = [team.join(client) for _ in range(3)]
            team.wait_for_owners(places)
            team.wait("records for everybody", lambda: all(member.delivered for member in members))
            members[0].kill()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)


@pytest.mark.parametrize("client", OURS)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_frozen_member_loses_its_partitions_and_comes_back_when_it_thaws(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], session_ms=1000, assignor=assignor) as team:
        one, two = team.join(client), team.join(client)
        team.wait_for_owners(places)
        with Stream(group_bootstrap, places) as stream:
            team.wait("records for everybody", lambda: one.delivered and two.delivered)
            one.freeze()
            team.wait("all partitions with the other", lambda: two.assignment == set(places))
            one.thaw()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)
        assert one.count("lost") == 1


@pytest.mark.parametrize("client", OURS)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_that_does_not_poll_leaves_and_comes_back(
    group_bootstrap: str, topic_name: TopicName, client: str, assignor: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    ends = fill(group_bootstrap, places, 50)
    with Team(group_bootstrap, topic, [topic], max_poll_ms=1000, assignor=assignor) as team:
        one, two = team.join(client), team.join(client)
        team.wait_for_owners(places)
        team.wait_for_records(ends)
        one.idle()
        team.wait("all partitions with the one that polls", lambda: two.assignment == set(places))
        one.work()
        team.wait("both at work again", lambda: len(one.assignment) == 2 and len(two.assignment) == 2)
        team.wait_for_owners(places)
        assert one.count("lost") == 1


@pytest.mark.parametrize("client", OURS)
def test_a_pattern_finds_topics_that_come_later(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    stem = topic_name()
    first = create(group_bootstrap, f"{stem}-a", 2)
    create(group_bootstrap, f"other-{stem}", 1)
    with Team(group_bootstrap, stem, pattern=f"^{stem}-[ab]$") as team:
        team.join(client)
        team.join(client)
        team.wait_for_owners(first)
        second = create(group_bootstrap, f"{stem}-b", 2)
        create(group_bootstrap, f"{stem}-c", 1)
        team.wait_for_owners([*first, *second])
        ends = fill(group_bootstrap, [*first, *second], 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


@pytest.mark.parametrize("client", OURS)
def test_a_topic_that_grows_is_shared_out_anew(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 1)
    with Team(group_bootstrap, topic, [topic]) as team:
        team.join(client)
        team.wait_for_owners(places)
        team.join(client)
        more = grow(group_bootstrap, topic, 4)
        team.wait_for_owners(more)
        ends = fill(group_bootstrap, more, 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


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


PAIRS = [(ours, theirs) for ours in ("tidelog",) for theirs in ("confluent", "kafka-python", "aiokafka")]


@pytest.mark.parametrize("clients", [*PAIRS, *(pair[::-1] for pair in PAIRS)], ids="+".join)
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_ours_and_another_library_share_a_group_partition_by_partition(
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
