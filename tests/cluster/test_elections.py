"""Elections in a cluster: unclean ones, by command and by option, and leadership that goes back to preferred
replicas by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.command_line import CommandLine
from tests.rigs.cluster_thread import ClusterThread

from tidelog import Admin, NewTopic, Producer
from tidelog.client.resources import AlterConfigOp, ConfigResource, ResourceType
from tidelog.ids import TopicPartition
from tidelog.storage.log.log import Isolation

WAIT_S = 60
UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    options = {"min.insync.replicas": "1", "leader.imbalance.check.interval.seconds": "1"}
    with ClusterThread(tmp_path_factory.mktemp("elections"), 3, options=options) as running:
        yield running


def write(cluster: ClusterThread, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for sent in [producer.send(topic, value, partition=0) for value in values]:
            sent.result(timeout=WAIT_S)


def contents(cluster: ClusterThread, broker: int, topic: str) -> bytes:
    log = cluster.partition(broker, topic).log
    return log.read_bytes(0, 1 << 20, isolation=Isolation.LOG_END) if log.log_end_offset else b""


def by_command(cluster: ClusterThread, topic: str) -> None:
    tidelog = CommandLine(cluster.bootstrap)
    refused = tidelog("partitions", "elect", "--topic", topic)
    assert refused.returncode == 1, "only the preferred replica could lead, and it is gone"
    (elected,) = tidelog.json("partitions", "elect", "--topic", topic, "--unclean", "--yes")
    assert elected["elected"] is True


def by_topic(cluster: ClusterThread, topic: str) -> None:
    set_option(cluster, ConfigResource(ResourceType.TOPIC, topic), "true")


def by_broker(cluster: ClusterThread, topic: str) -> None:
    set_option(cluster, ConfigResource(ResourceType.BROKER, ""), "true")


def set_option(cluster: ClusterThread, resource: ConfigResource, value: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        (result,) = admin.alter_configs({resource: [AlterConfigOp(UNCLEAN, value)]})
        assert result.error is None


@pytest.mark.parametrize("allow", [by_command, by_topic, by_broker])
def test_a_replica_that_is_not_in_sync_leads_only_when_that_is_allowed(
    cluster: ClusterThread, topic_name: Callable[[], str], allow: Callable[[ClusterThread, str], None]
) -> None:
    topic = topic_name()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [1, 2]})])
    write(cluster, topic, b"both have it")
    cluster.stop(2)
    write(cluster, topic, b"broker 1 has it")
    cluster.stop(1)
    cluster.start(2)
    cluster.wait_for(lambda: (topic, 0) in cluster.brokers[2].partitions.by_name)
    assert not cluster.call(lambda: cluster.partition(2, topic).is_leader)

    allow(cluster, topic)
    assert cluster.leader_of(topic) == 2
    write(cluster, topic, b"written after")
    cluster.start(1)
    cluster.wait_for(
        lambda: (
            (topic, 0) in cluster.brokers[1].partitions.by_name
            and contents(cluster, 1, topic) == contents(cluster, 2, topic)
        ),
        what="the same records on both brokers",
    )
    found = cluster.call(lambda: contents(cluster, 1, topic))
    assert b"both have it" in found
    assert b"written after" in found
    assert b"broker 1 has it" not in found
    cluster.wait_for(
        lambda: set(cluster.partition(2, topic).isr) | set(cluster.partition(1, topic).isr) == {1, 2}
    )
    set_option(cluster, ConfigResource(ResourceType.BROKER, ""), "false")


def test_leadership_goes_back_to_the_preferred_replica_by_itself(
    cluster: ClusterThread, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [2, 3, 1]})])
    assert cluster.leader_of(topic) == 2
    cluster.stop(2)
    assert cluster.leader_of(topic) != 2
    cluster.start(2)
    cluster.wait_for(
        lambda: (
            (TopicPartition(topic, 0) in cluster.brokers[2].partitions.by_name)
            and cluster.partition(2, topic).is_leader
        ),
        what="broker 2 to lead again",
    )
    write(cluster, topic, b"x")


def test_a_client_finds_the_new_controller_when_the_old_one_is_gone(
    cluster: ClusterThread, topic_name: Callable[[], str]
) -> None:
    controller = cluster.call(lambda: cluster.controller.broker_id)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic_name(), partitions=1)])
        cluster.stop(controller)
        try:
            (result,) = admin.create_topics([NewTopic(topic_name(), partitions=1, replication_factor=2)])
            assert result.error is None
        finally:
            cluster.start(controller)
