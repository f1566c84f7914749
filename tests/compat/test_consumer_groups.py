"""Our consumers beside Kafka's Java client (and others) in one group, on our broker and on Apache Kafka.

Whoever joins first leads a classic group and assigns for all: so each pair is tried both ways, and what the
sticky assignors of both know of each other must agree.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.conftest import BROKERS, available
from tests.compat.test_groups import join as join_foreign
from tests.compat.test_groups import wait_for_shares
from tests.rigs.group_members.brokers import GROUP_OPTIONS
from tests.rigs.group_members.member import Member
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create


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


def join(team: Team, name: str) -> Member:
    return team.join(name) if name.startswith("tidelog") else join_foreign(team, name)


@pytest.mark.parametrize("clients", [("tidelog", "java-4"), ("java-4", "tidelog-async")], ids="+".join)
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_ours_and_java_share_a_classic_group(
    group_broker: BrokerProcess, topic: str, clients: tuple[str, str], assignor: str
) -> None:
    places = create(group_broker.address, topic, 6)
    with Team(group_broker.address, topic, [topic], assignor=assignor) as team:
        with Stream(group_broker.address, places, pause_s=0.01) as stream:
            first = join(team, clients[0])
            team.wait_for_owners(places, seconds=60)
            second = join(team, clients[1])
            wait_for_shares(team, 3)
            third = join(team, clients[0])
            wait_for_shares(team, 2)
            if "sticky" in assignor:
                kept = {member.name: set(member.assignment) for member in (second, third)}
            first.leave()
            team.wait_for_owners(places)
            if "sticky" in assignor:
                assert all(kept[member.name] <= member.assignment for member in (second, third))
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)


@pytest.mark.parametrize("clients", [("tidelog", "java-4"), ("java-4", "tidelog-async")], ids="+".join)
def test_ours_and_java_share_a_group_of_the_consumer_protocol(
    group_broker: BrokerProcess, topic: str, clients: tuple[str, str]
) -> None:
    places = create(group_broker.address, topic, 4)
    with Team(group_broker.address, topic, [topic], protocol="consumer") as team:
        with Stream(group_broker.address, places, pause_s=0.01) as stream:
            first = join(team, clients[0])
            team.wait_for_owners(places, seconds=60)
            join(team, clients[1])
            wait_for_shares(team, 2)
            team.leave(first)
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


def test_six_clients_share_one_classic_group(group_broker: BrokerProcess, topic: str) -> None:
    places = create(group_broker.address, topic, 12)
    with Team(group_broker.address, topic, [topic], assignor="range", session_ms=6000) as team:
        with Stream(group_broker.address, places, pause_s=0.01) as stream:
            names = ("tidelog", "java-4", "librdkafka", "franz-go", "sarama", "tidelog-async")
            members = [join(team, name) for name in names]
            team.wait_for_owners(places, seconds=60)
            wait_for_shares(team, 2)
            members[0].leave()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
