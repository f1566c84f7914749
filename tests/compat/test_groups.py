"""Consumer groups of foreign clients: alone, side by side in one group, and over to the other protocol.

The clients' drivers have a second trade, `member`, which speaks the lines that all members speak
(tests/rigs/group_members); so any of them sit in one team here, and one checker serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ConsumerGroupType
from confluent_kafka.admin import AdminClient
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.clients import CLIENTS
from tests.compat.conftest import BROKERS, available
from tests.compat.driver import Client
from tests.rigs.group_members.brokers import GROUP_OPTIONS
from tests.rigs.group_members.member import Member, Place
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create, fill

WAIT_S = 20
BY_NAME = {client.name: client for client in CLIENTS}

Join = Callable[..., Member]


@pytest.fixture(scope="module", params=BROKERS)
def group_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker with short group timeouts."""
    kind = {"tidelog": Tidelog, "apache": ApacheKafka}[request.param]
    with available():
        broker = kind(tmp_path_factory.mktemp(request.param), GROUP_OPTIONS)
        broker.start()
    yield broker
    broker.stop()


def join(team: Team, name: str, **settings: Any) -> Member:
    """A member with the client of that name."""
    if name == "librdkafka":
        return team.join("confluent", **settings)
    with available():
        return team.join([*BY_NAME[name].command(), "member"], label=name, **settings)


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in answer.result(WAIT_S).topic_partitions}


def group_type(bootstrap: str, group: str) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: ConsumerGroupType = admin.describe_consumer_groups([group])[group].result(WAIT_S).type
    return found


def wait_for_shares(team: Team, count: int) -> None:
    """Until everybody has so many partitions; on the way there each may have one owner already."""
    team.wait("fair shares", lambda: all(len(member.assignment) == count for member in team.live))


def unless_lacking(client: Client, feature: str) -> None:
    if feature in client.lacks:
        pytest.skip(f"{client.name}: {client.lacks[feature]}")


def live_in_a_group(broker: BrokerProcess, topic: str, name: str, protocol: str) -> None:
    """Two share, one leaves, one is killed, one comes later and goes on where they were."""
    places = create(broker.address, topic, 4)
    with Team(broker.address, topic, [topic], protocol=protocol, session_ms=2000) as team:
        with Stream(broker.address, places, pause_s=0.01) as stream:
            one, two = join(team, name), join(team, name)
            team.wait_for_owners(places)
            team.wait("records for both", lambda: one.delivered and two.delivered)
            wait_for_shares(team, 2)
            team.leave(one)
            team.wait("all with the other", lambda: two.assignment == set(places))
        team.wait_for_records(stream.ends)
        if name == "kafkajs":  # takes the records of a revoked partition to their end
            team.check_ownership()
        else:
            team.check_exactly_once(stream.ends)
        team.wait("the commits", lambda: committed(broker.address, topic) == stream.ends)
        two.kill()
        fill(broker.address, places, 5)
        later = join(team, name)
        ends = {place: end + 5 for place, end in stream.ends.items()}
        team.wait_for_records(ends, 60)
        assert {(place, offset) for place, offset in later.delivered} == {
            (place, offset) for place, end in stream.ends.items() for offset in range(end, end + 5)
        }


@pytest.mark.needs("groups")
def test_a_group_shares_partitions_and_goes_on_where_it_was(
    group_broker: BrokerProcess, topic: str, client: Client
) -> None:
    unless_lacking(client, "groups")
    live_in_a_group(group_broker, topic, client.name, "classic")


@pytest.mark.needs("consumer_protocol")
def test_the_same_with_the_consumer_protocol(group_broker: BrokerProcess, topic: str, client: Client) -> None:
    unless_lacking(client, "consumer_protocol")
    live_in_a_group(group_broker, topic, client.name, "consumer")


def test_five_clients_share_one_classic_group(group_broker: BrokerProcess, topic: str) -> None:
    """All know range; who leads, and so assigns, is whoever came first."""
    places = create(group_broker.address, topic, 10)
    with Team(group_broker.address, topic, [topic], assignor="range", session_ms=6000) as team:
        with Stream(group_broker.address, places, pause_s=0.01) as stream:
            members = [
                join(team, name) for name in ("java-4", "librdkafka", "franz-go", "sarama", "java-3.9")
            ]
            team.wait_for_owners(places, seconds=60)
            wait_for_shares(team, 2)
            members[0].leave()
            team.wait_for_owners(places)
            members[1].kill()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()


def test_java_and_librdkafka_share_a_group_of_the_consumer_protocol(
    group_broker: BrokerProcess, topic: str
) -> None:
    places = create(group_broker.address, topic, 6)
    with Team(group_broker.address, topic, [topic], protocol="consumer", assignor="range") as team:
        with Stream(group_broker.address, places, pause_s=0.01) as stream:
            members = [join(team, name) for name in ("java-4", "librdkafka", "java-3.9")]
            team.wait_for_owners(places, seconds=60)
            wait_for_shares(team, 2)
            team.leave(members[0])
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


def test_java_and_librdkafka_leave_matching_to_the_broker(group_broker: BrokerProcess, topic: str) -> None:
    places = [*create(group_broker.address, f"{topic}-a", 2), *create(group_broker.address, f"{topic}-b", 2)]
    create(group_broker.address, f"{topic}-c", 1)
    with Team(group_broker.address, topic, pattern=f"^{topic}-[ab]", protocol="consumer") as team:
        join(team, "java-4")
        join(team, "librdkafka")
        team.wait_for_owners(places, seconds=60)


@pytest.mark.parametrize(
    ("classic", "consumer"),
    [("java-4", "librdkafka"), ("librdkafka", "java-4"), ("java-3.9", "java-4"), ("franz-go", "java-4")],
)
def test_a_group_moves_to_the_consumer_protocol_and_back(
    group_broker: BrokerProcess, topic: str, classic: str, consumer: str
) -> None:
    places = create(group_broker.address, topic, 4)
    with Team(group_broker.address, topic, [topic]) as team:
        with Stream(group_broker.address, places, pause_s=0.01) as stream:
            old = join(team, classic)
            team.wait_for_owners(places, seconds=60)
            assert group_type(group_broker.address, topic) == ConsumerGroupType.CLASSIC
            new = join(team, consumer, protocol="consumer")
            team.wait_for_owners(places, seconds=60)
            assert group_type(group_broker.address, topic) == ConsumerGroupType.CONSUMER
            wait_for_shares(team, 2)
            new.leave()
            team.wait("all with the old one", lambda: old.assignment == set(places))
            assert group_type(group_broker.address, topic) == ConsumerGroupType.CLASSIC
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)
