"""A log directory fails in a cluster: its partitions get other leaders, the broker's other directories go on;
without any directory the broker ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.cluster_thread import ClusterThread

from tidelog import Admin, NewTopic, Producer
from tidelog.ids import TopicPartition

WAIT_S = 60
PARTITIONS = 6
TOPIC = "orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterThread]:
    def directories(broker: int) -> dict[str, str]:
        return {"log.dirs": ",".join(str(tmp_path / f"{broker}{disk}") for disk in "ab")}

    with ClusterThread(tmp_path, 3, each=directories) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics(
                [NewTopic(TOPIC, partitions=PARTITIONS, configs={"segment.bytes": "1048576"})]
            )
        for partition in range(PARTITIONS):
            running.leader_of(TOPIC, partition)
        write(running, 3)
        yield running


def write(cluster: ClusterThread, count: int, size: int = 100) -> None:
    """So many records to each partition, all acknowledged."""
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        sent = [
            producer.send(TOPIC, b"x" * size, partition=partition)
            for _ in range(count)
            for partition in range(PARTITIONS)
        ]
        for each in sent:
            each.result(timeout=WAIT_S)


def partitions_in(cluster: ClusterThread, broker: int, directory: Path) -> set[int]:
    return cluster.call(
        lambda: {
            partition
            for partition in range(PARTITIONS)
            if cluster.partition(broker, TOPIC, partition).log.directory.parent == directory
        }
    )


def leaders(cluster: ClusterThread) -> dict[int, int]:
    return {partition: cluster.leader_of(TOPIC, partition) for partition in range(PARTITIONS)}


def offline(cluster: ClusterThread) -> dict[int, tuple[int, ...]]:
    """By partition: the replicas that metadata call offline."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        topic = admin.describe_topics([TOPIC])[TOPIC]
        return {each.partition: tuple(each.offline_replicas) for each in topic.partitions}


def in_sync(cluster: ClusterThread) -> list[int]:
    replicas = [
        broker.partitions.by_name.get((TOPIC, partition))
        for broker in cluster.brokers.values()
        for partition in range(PARTITIONS)
    ]
    return [len(each.isr) for each in replicas if each is not None and each.is_leader]


def test_partitions_of_a_failed_directory_move_and_the_others_stay(
    cluster: ClusterThread, tmp_path: Path
) -> None:
    before = leaders(cluster)
    failing, other = tmp_path / "1a", tmp_path / "1b"
    lost, kept = partitions_in(cluster, 1, failing), partitions_in(cluster, 1, other)
    led = {partition for partition, leader in before.items() if leader == 1}
    assert lost & led, "the directory has a partition that its broker leads"

    failing.rename(tmp_path / "elsewhere")
    # More than a segment: the next one cannot be made.
    write(cluster, 150, size=10_000)
    cluster.wait_for(lambda: failing in cluster.brokers[1].log_dirs.offline_dirs)
    after = leaders(cluster)
    assert all(after[partition] != 1 for partition in lost)
    assert {partition for partition in kept if after[partition] == 1} == kept & led
    cluster.wait_for(lambda: not cluster.zookeeper.node("/log_dir_event_notification").children)
    expected = {each: (1,) if each in lost else () for each in range(PARTITIONS)}
    cluster.wait_for(lambda: told_offline(cluster), lambda seen: all(each == expected for each in seen))
    assert offline(cluster) == expected
    cluster.wait_for(
        lambda: sorted(in_sync(cluster)), lambda seen: seen == sorted([2] * len(lost) + [3] * len(kept))
    )
    assert all(TopicPartition(TOPIC, each) not in cluster.brokers[1].cluster.loops.leaders() for each in lost)
    write(cluster, 1)

    cluster.stop(1)
    (tmp_path / "elsewhere").rename(failing)
    cluster.start(1)
    cluster.wait_for(lambda: in_sync(cluster), lambda seen: seen == [3] * PARTITIONS, "all replicas in sync")
    well: dict[int, tuple[int, ...]] = dict.fromkeys(range(PARTITIONS), ())
    cluster.wait_for(lambda: told_offline(cluster), lambda seen: all(each == well for each in seen))
    assert offline(cluster) == well


def told_offline(cluster: ClusterThread) -> list[dict[int, tuple[int, ...]]]:
    """What each broker has been told."""
    images = [broker.image.topics[TOPIC].partitions for broker in cluster.brokers.values()]
    return [{index: tuple(each.offline_replicas) for index, each in image.items()} for image in images]


def test_a_broker_without_a_directory_ends_and_loses_nothing(cluster: ClusterThread, tmp_path: Path) -> None:
    said: list[str] = []
    cluster.brokers[1].on_fatal = said.append
    for disk in "ab":
        (tmp_path / f"1{disk}").rename(tmp_path / f"gone{disk}")
    write(cluster, 150, size=10_000)
    cluster.wait_for(lambda: said)
    assert "no log directory is left" in said[0]
    assert all(leader != 1 for leader in leaders(cluster).values())
    cluster.stop(1)
    write(cluster, 1)
