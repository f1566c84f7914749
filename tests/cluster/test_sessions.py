"""Brokers whose session with ZooKeeper is suspended or expires: who leads, who comes back, and what goes on
meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.rigs.cluster_thread import ClusterThread

from tidelog import Admin, Consumer, NewTopic, Producer
from tidelog.broker.state import BrokerState
from tidelog.ids import TopicPartition

WAIT_S = 60
TOPIC = "orders"
BROKERS = (1, 2, 3)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    options = {
        "zookeeper.session.timeout.ms": "100",
        "replica.lag.time.max.ms": "2000",
    }
    with ClusterThread(tmp_path_factory.mktemp("sessions"), 3, options=options) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, assignments={0: [1, 2, 3]})])
        running.leader_of(TOPIC)
        write(running, 3)
        yield running


def write(cluster: ClusterThread, count: int, *brokers: int) -> None:
    """So many records, all acknowledged; by way of ``brokers``, or of all."""
    bootstrap = cluster.bootstrap_of(*(brokers or cluster.brokers))
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for sent in [producer.send(TOPIC, b"x", partition=0) for _ in range(count)]:
            sent.result(timeout=WAIT_S)


def records(cluster: ClusterThread) -> int:
    """How many records a consumer finds."""
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        end = cluster.partition(cluster.leader_of(TOPIC), TOPIC).log.log_end_offset
        count = 0
        while count < end:
            count += len(consumer.poll(timeout=WAIT_S))
        return count


def registered(cluster: ClusterThread) -> list[str]:
    return sorted(cluster.zookeeper.node("/brokers/ids").children)


def in_sync(cluster: ClusterThread) -> int:
    replicas = [cluster.partition(each, TOPIC) for each in cluster.brokers]
    return max((len(each.isr) for each in replicas if each.is_leader), default=0)


def wait_until_well(cluster: ClusterThread) -> None:
    cluster.wait_for(lambda: registered(cluster), lambda seen: seen == ["1", "2", "3"], "all registered")
    cluster.wait_for(lambda: in_sync(cluster), lambda count: count == 3, "all replicas in sync")


def test_a_broker_that_has_left_its_session_replaces_its_registration_before_zookeeper_misses_it(
    cluster: ClusterThread,
) -> None:
    broker = cluster.call(lambda: cluster.controller.config.node_id) % 3 + 1
    session = cluster.sessions[broker]

    def owner() -> int:
        return cluster.zookeeper.stat(f"/brokers/ids/{broker}").owner

    def leave() -> None:
        # Twice: in the second session it does not come to register.
        for _ in range(2):
            session.expired()
            cluster.zookeeper.resume(session)

    cluster.call(leave)
    cluster.wait_for(owner, lambda seen: seen == session.session_id, "its registration in the new session")
    wait_until_well(cluster)


def test_an_expired_broker_leads_nothing_at_once_and_comes_back_by_itself(cluster: ClusterThread) -> None:
    epoch = cluster.brokers[1].cluster.broker_epoch

    def expire() -> bool:
        cluster.zookeeper.expire(cluster.sessions[1])
        return cluster.partition(1, TOPIC).is_leader

    assert cluster.call(expire) is False
    assert cluster.leader_of(TOPIC) != 1
    # What broker 1 was told last is that it leads: clients must not ask there.
    write(cluster, 3, 2, 3)
    assert cluster.call(lambda: registered(cluster)) == ["2", "3"]
    cluster.zookeeper_back(1)
    wait_until_well(cluster)
    assert cluster.brokers[1].cluster.broker_epoch > epoch + 1
    assert records(cluster) == 6


def test_a_controller_that_expires_is_succeeded(cluster: ClusterThread) -> None:
    first = cluster.call(lambda: cluster.controller.broker_id)
    states = cluster.call(lambda: {each: cluster.brokers[each].state for each in BROKERS})
    assert states == dict.fromkeys(BROKERS, BrokerState.RUNNING_AS_BROKER) | {
        first: BrokerState.RUNNING_AS_CONTROLLER
    }
    cluster.expire_and_keep_away(first)
    second = cluster.wait_for(
        lambda: [each for each in cluster.brokers if cluster.brokers[each].cluster.controller.is_active]
    )
    assert second != [first]
    assert cluster.call(lambda: cluster.brokers[first].state) is BrokerState.RUNNING_AS_BROKER
    assert cluster.call(lambda: cluster.brokers[second[0]].state) is BrokerState.RUNNING_AS_CONTROLLER
    cluster.zookeeper_back(first)
    wait_until_well(cluster)
    node = json.loads(cluster.call(lambda: cluster.zookeeper.node("/controller").data))
    assert node["brokerid"] == second[0]
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        (result,) = admin.create_topics([NewTopic("more", partitions=2)])
        assert result.error is None


def test_when_all_sessions_expire_all_come_back(cluster: ClusterThread) -> None:
    for _ in range(3):
        for broker in BROKERS:
            cluster.expire(broker)
        wait_until_well(cluster)
        write(cluster, 1)
    assert records(cluster) == 6


def test_a_broker_registers_as_soon_as_another_with_its_id_is_gone(cluster: ClusterThread) -> None:
    cluster.expire_and_keep_away(1)

    async def impersonate() -> object:
        other = cluster.zookeeper.session()
        await other.create(
            "/brokers/ids/1", b'{"version":5,"host":"x","port":1,"endpoints":[]}', ephemeral=True
        )
        return other

    other = cluster.run(impersonate())
    cluster.zookeeper_back(1)
    cluster.wait_for(lambda: cluster.brokers[1].cluster.controller._retry is not None, what="a failed try")
    cluster.run(other.close())  # type: ignore[attr-defined]
    wait_until_well(cluster)
    write(cluster, 1)


def test_without_zookeeper_acknowledgements_go_on_but_nothing_changes(cluster: ClusterThread) -> None:
    wait_until_well(cluster)
    for broker in BROKERS:
        cluster.zookeeper_away(broker)
    write(cluster, 3)
    # A follower stops: nobody can put it out of the in-sync replicas, so nothing more is acknowledged.
    cluster.call(lambda: cluster.brokers[3].cluster.loops.stop(TopicPartition(TOPIC, 0)))
    leader = cluster.partition(cluster.leader_of(TOPIC), TOPIC)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        waiting = producer.send(TOPIC, b"later", partition=0)
        cluster.wait_for(lambda: leader._in_sync.proposed is not None, what="the request to the controller")
        assert cluster.call(lambda: len(leader.isr)) == 3
        assert not waiting.done()
        for broker in BROKERS:
            cluster.zookeeper_back(broker)
        assert waiting.result(timeout=WAIT_S).offset == 6
    cluster.wait_for(lambda: in_sync(cluster), lambda count: count == 2, "the follower to be out of sync")


def test_a_broker_stops_soon_though_zookeeper_is_away(cluster: ClusterThread) -> None:
    for broker in BROKERS:
        cluster.zookeeper_away(broker)
    cluster.stop(1)
    for broker in (2, 3):
        cluster.zookeeper_back(broker)
    write(cluster, 1)
