"""A replica with messages of formats 0 and 1: others copy it, lead with it, and lose nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.old_formats import EVERY_FORMAT, Old, in_sets, numbered_records, old_set, seen

from tidelog import Admin, Consumer, NewTopic, Producer
from tidelog.ids import TopicPartition

RECORDS = 200
WAIT_S = 30.0
TOPICS = {f"old-v{magic}-{codec.label}": (magic, codec) for magic, codec in EVERY_FORMAT}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    """Broker 1 found old segments in its directory; then the others become replicas."""
    options = {"log.retention.ms": "-1", "min.insync.replicas": "1"}
    with ClusterThread(tmp_path_factory.mktemp("old"), 3, options=options) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, assignments={0: [1]}) for topic in TOPICS])
            running.stop(1)
            for topic in TOPICS:
                put_old_segments(running.log_dir(1) / f"{topic}-0", topic)
            running.start(1)
            for topic in TOPICS:
                running.wait_for(lambda topic=topic: leads(running, 1, topic))  # type: ignore[misc]
            places = {TopicPartition(topic, 0): [1, 2, 3] for topic in TOPICS}
            assert not [each.error for each in admin.alter_partition_reassignments(places) if each.error]
        for topic in TOPICS:
            running.wait_for(lambda topic=topic: isr(running, 1, topic) == [1, 2, 3])  # type: ignore[misc]
        yield running


def leads(cluster: ClusterThread, broker: int, topic: str) -> bool:
    partition = cluster.brokers[broker].partitions.by_name.get((topic, 0))
    return partition is not None and partition.is_leader


def isr(cluster: ClusterThread, broker: int, topic: str) -> list[int]:
    return sorted(cluster.partition(broker, topic).isr)


@functools.cache
def old_segments(topic: str) -> tuple[bytes, bytes]:
    """The segments at offset 0 and at :data:`RECORDS`; made once, as gzip writes down when it was."""
    magic, codec = TOPICS[topic]
    last = numbered_records(7, first=RECORDS)
    return b"".join(in_sets(numbered_records(RECORDS), magic, codec)), old_set(last, magic, codec)


def put_old_segments(directory: Path, topic: str) -> None:
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for base_offset, data in zip((0, RECORDS), old_segments(topic), strict=True):
        (directory / f"{base_offset:020d}.log").write_bytes(data)


def stored(cluster: ClusterThread, broker: int, topic: str) -> bytes:
    def read() -> bytes:
        log = cluster.partition(broker, topic).log
        return b"".join(segment.read_bytes(0, segment.size) for segment in log.segments)

    return cluster.call(read)


@pytest.mark.parametrize("topic", TOPICS)
def test_followers_copy_old_segments_and_lead_with_them(cluster: ClusterThread, topic: str) -> None:
    magic, _ = TOPICS[topic]
    assert cluster.call(lambda: leads(cluster, 1, topic))
    for broker in (1, 2, 3):
        assert stored(cluster, broker, topic) == b"".join(old_segments(topic))
    place = TopicPartition(topic, 0)
    new = numbered_records(5, first=RECORDS + 7)
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer,
    ):
        for record in new:
            producer.send(topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp)
        producer.flush()
        (moved,) = admin.alter_partition_reassignments({place: [2, 1, 3]})
        assert moved.error is None
        cluster.wait_for(lambda: isr(cluster, 1, topic) == [1, 2, 3])
        (elected,) = admin.elect_leaders([place])
        assert elected.error is None
        cluster.wait_for(lambda: leads(cluster, 2, topic))
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[Old] = []
        for each in consumer.records(timeout=WAIT_S):
            found.append(Old(each.offset, each.timestamp, each.key, each.value))
            if len(found) == RECORDS + 12:
                break
    assert found == [*seen(numbered_records(RECORDS + 7), magic), *new]
    cluster.wait_for(lambda: cluster.partition(3, topic).log.log_end_offset == RECORDS + 12)
    assert stored(cluster, 1, topic) == stored(cluster, 2, topic) == stored(cluster, 3, topic)
