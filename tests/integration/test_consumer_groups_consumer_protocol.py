"""Our consumers in the consumer protocol (KIP-848): automatic commits, and beside librdkafka.

What all clients do is in ``test_groups_consumer_protocol``. With TIDELOG_TEST_ORACLE=1 the broker is Apache
Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.rigs.group_members.scenarios import share
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create

TopicName = Callable[[], str]


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
