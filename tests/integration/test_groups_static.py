"""Static membership (KIP-345): a member that comes back in time under its own name disturbs nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient, MemberToRemove
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create, fill

CLIENTS = ["confluent", "kafka-python", "aiokafka"]

TopicName = Callable[[], str]


def instances(bootstrap: str, group: str) -> dict[str, str]:
    """Member ids by instance id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(20)
    return {each.group_instance_id: each.member_id for each in described.members}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", ["killed", "closed"])
def test_a_static_member_that_restarts_in_time_gets_its_partitions_back_and_nobody_rebalances(
    group_bootstrap: str, topic_name: TopicName, client: str, way: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 4)
    with Team(group_bootstrap, topic, [topic], session_ms=10_000) as team:
        with Stream(group_bootstrap, places) as stream:
            # A follower restarts: kafka-python's leaders rejoin on their own when metadata turn up late.
            leader = team.join(client, instance="leader")
            team.wait_for_owners(places)
            follower = team.join(client, instance="follower")
            team.wait_for_owners(places)
            before = instances(group_bootstrap, topic)
            share, told = set(follower.assignment), (leader.count("assigned"), leader.count("revoked"))
            if way == "killed":
                follower.kill()
            else:
                follower.leave()
            again = team.join(client, instance="follower")
            team.wait_for_owners(places)
            assert again.assignment == share
            team.wait("records for the one that came back", lambda: again.delivered)
            after = instances(group_bootstrap, topic)
            assert (leader.count("assigned"), leader.count("revoked")) == told
            assert after["leader"] == before["leader"]
            assert after["follower"] != before["follower"]
        team.wait_for_records(stream.ends)
        team.check_ownership()


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])  # aiokafka goes on without a word
def test_of_two_members_with_one_name_the_older_is_fenced(
    group_bootstrap: str, topic_name: TopicName, client: str
) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    with Team(group_bootstrap, topic, [topic]) as team:
        old = team.join(client, instance="twin")
        team.wait_for_owners(places)
        new = team.join(client, instance="twin")
        team.wait("the newer one's partitions", lambda: new.assignment == set(places))
        ends = fill(group_bootstrap, places, 10)
        team.wait("the older one's end", lambda: any("fenced" in each.lower() for each in old.failures))
        team.wait_for_records(ends)


def test_a_static_member_stays_until_its_session_ends(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    ends = fill(group_bootstrap, places, 20)
    with Team(group_bootstrap, topic, [topic], session_ms=2000) as team:
        one = team.join("confluent", instance="one")
        two = team.join("kafka-python", instance="two")
        team.wait_for_owners(places)
        one.leave()
        assert set(instances(group_bootstrap, topic)) == {"one", "two"}
        team.wait("its partitions with the other", lambda: two.assignment == set(places))
        assert set(instances(group_bootstrap, topic)) == {"two"}
        team.wait_for_records(ends)


def test_a_static_member_is_removed_by_its_name(group_bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name()
    places = create(group_bootstrap, topic, 2)
    with Team(group_bootstrap, topic, [topic], session_ms=10_000) as team:
        one = team.join("kafka-python", instance="one")
        two = team.join("confluent", instance="two")
        team.wait_for_owners(places)
        one.kill()
        admin = KafkaAdminClient(bootstrap_servers=group_bootstrap)
        try:
            admin.remove_group_members(topic, [MemberToRemove(group_instance_id="one")])
        finally:
            admin.close()
        team.wait("its partitions with the other", lambda: two.assignment == set(places))
        assert set(instances(group_bootstrap, topic)) == {"two"}
