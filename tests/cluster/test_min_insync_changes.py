"""Idempotent producers while ``min.insync.replicas`` goes up and down under them."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import confluent_kafka
import pytest
from tests.rigs.cluster_thread import ClusterThread

from tidelog import Admin, NewTopic, Producer
from tidelog.client.resources import AlterConfigOp, ConfigResource, ResourceType

PARTITIONS = 3
FLIPS = 40
RECORDS_BETWEEN_FLIPS = 60
UNDER_WAY = 200
WAIT_S = 60.0
OPTION = "min.insync.replicas"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    options = {"offsets.topic.replication.factor": "2"}
    with ClusterThread(tmp_path_factory.mktemp("min-insync"), 3, options=options) as running:
        yield running


@pytest.fixture
def admin(cluster: ClusterThread) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_of(1, 2)) as running:
        yield running


@pytest.fixture
def topic(cluster: ClusterThread, admin: Admin, topic_name: Callable[[], str]) -> str:
    """A topic with three replicas for each partition, two of them in sync: broker 3 is down."""
    topic = topic_name()
    if 3 not in cluster.brokers:
        cluster.start(3)
    replicas = {index: [1 + index % 2, 2 - index % 2, 3] for index in range(PARTITIONS)}
    (made,) = admin.create_topics([NewTopic(topic, assignments=replicas)])
    assert made.error is None
    leaders = [cluster.leader_of(topic, index) for index in range(PARTITIONS)]
    cluster.stop(3)
    for index, leader in enumerate(leaders):
        in_sync = partial(lambda *at: len(cluster.partition(*at).isr), leader, topic, index)
        cluster.wait_for(in_sync, lambda count: count == 2)
    return topic


def set_min_insync(cluster: ClusterThread, admin: Admin, topic: str, count: int) -> None:
    """Set the option, and wait until all leaders know."""
    (result,) = admin.alter_configs(
        {ConfigResource(ResourceType.TOPIC, topic): [AlterConfigOp(OPTION, str(count))]}
    )
    assert result.error is None
    for broker, index in itertools.product(list(cluster.brokers), range(PARTITIONS)):
        known = partial(
            lambda *at: cluster.partition(*at).log.config.min_insync_replicas, broker, topic, index
        )
        cluster.wait_for(known, lambda known: known == count)


def read_all(cluster: ClusterThread, topic: str) -> list[str]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[str] = []
    ended = 0
    deadline = time.monotonic() + WAIT_S
    while ended < PARTITIONS:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            ended += 1
    consumer.close()
    return values


def test_librdkafka_repeats_nothing_when_the_minimum_of_replicas_in_sync_changes(
    cluster: ClusterThread, admin: Admin, topic: str
) -> None:
    acknowledged: list[str] = []
    failed: list[str] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        (acknowledged if error is None else failed).append((message.value() or b"").decode())

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 5,
            "retry.backoff.ms": 10,
            "delivery.timeout.ms": 60_000,
        }
    )
    sent = 0

    def send_until(condition: Callable[[], bool]) -> None:
        nonlocal sent
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            if len(producer) < UNDER_WAY:
                producer.produce(
                    topic, str(sent).encode(), partition=sent % PARTITIONS, on_delivery=delivered
                )
                sent += 1
            producer.poll(0.0005)

    for _ in range(FLIPS):
        wanted = len(acknowledged) + RECORDS_BETWEEN_FLIPS
        send_until(lambda wanted=wanted: len(acknowledged) >= wanted)  # type: ignore[misc]
        set_min_insync(cluster, admin, topic, 3)
        send_until(lambda: len(producer) >= UNDER_WAY)
        set_min_insync(cluster, admin, topic, 2)
    assert producer.flush(WAIT_S) == 0
    counts = Counter(read_all(cluster, topic))
    assert not failed
    assert [value for value, count in counts.items() if count > 1] == []
    assert set(counts) == set(acknowledged)


def test_what_is_written_is_committed_when_the_minimum_falls(
    cluster: ClusterThread, admin: Admin, topic: str
) -> None:
    """And not only when more is written: nobody may be there to do that."""
    set_min_insync(cluster, admin, topic, 3)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="1") as producer:
        producer.send(topic, b"a", partition=0).result(timeout=WAIT_S)
    leader = cluster.partition(cluster.leader_of(topic), topic)
    assert cluster.call(lambda: (leader.log.log_end_offset, leader.log.high_watermark)) == (1, 0)
    set_min_insync(cluster, admin, topic, 2)
    cluster.wait_for(lambda: leader.log.high_watermark == 1)
