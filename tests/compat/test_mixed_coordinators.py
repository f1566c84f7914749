"""Groups and transactions go on while their coordinators move between Apache Kafka and Tidelog.

Kafka is broker 1 and Tidelog is broker 2. The internal topics have one partition each, with a replica on
both, so that moving its leadership moves every group, or every transaction. What one wrote the other loads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, TOOLS, MixedCluster, pair

OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
}
GROUPS, TRANSACTIONS = ("__consumer_offsets", 0), ("__transaction_state", 0)
MOVES = [TIDELOG, KAFKA, TIDELOG]


@pytest.fixture(scope="module", params=["kafka", "tidelog"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    """Both brokers; the parameter says which of them came first and is the controller."""
    directory: Path = tmp_path_factory.mktemp("mixed")
    with available(), pair(directory, request.param, OPTIONS) as cluster:
        yield cluster


def create(cluster: MixedCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assignment = [[KAFKA, TIDELOG], [TIDELOG, KAFKA]]
    for made in admin.create_topics([NewTopic(topic, 2, replica_assignment=assignment)]).values():
        made.result(workload.TIMEOUT_S)


def produce(cluster: MixedCluster, topic: str, first: int, count: int) -> None:
    producer = workload.open_producer(cluster.bootstrap, **{"enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    workload.flush_all(producer)


def test_a_group_goes_on_without_a_rebalance_while_its_coordinator_moves(
    cluster: MixedCluster, topic: str
) -> None:
    create(cluster, topic)
    group = f"group-{topic}"
    assignments: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic], on_assign=lambda _, partitions: assignments.append(len(partitions)))
    read: list[int] = []
    for turn, leader in enumerate([None, *MOVES]):
        if leader is not None:
            cluster.lead(leader, [GROUPS])
        produce(cluster, topic, turn * 100, 100)
        deadline = time.monotonic() + workload.TIMEOUT_S
        while len(read) < (turn + 1) * 100 and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                read.append(int(message.value() or b""))
        commit(consumer)
        assert sorted(read) == list(range((turn + 1) * 100))
        committed = consumer.committed([TopicPartition(topic, index) for index in (0, 1)], 30)
        assert [each.offset for each in committed] == [50 * (turn + 1)] * 2
    assert assignments == [2]
    described = cluster.tool(TOOLS + "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    assert described.count("rdkafka-") == 2  # the members of both partitions, by name
    consumer.close()


def commit(consumer: Consumer) -> None:
    """Commits are refused while the coordinator is on its way; clients try again."""
    deadline = time.monotonic() + workload.TIMEOUT_S
    while True:
        try:
            consumer.commit(asynchronous=False)
            return
        except Exception:
            if time.monotonic() > deadline:
                raise


def test_transactions_go_on_while_their_coordinator_moves(cluster: MixedCluster, topic: str) -> None:
    create(cluster, topic)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": f"id-{topic}",
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(workload.TIMEOUT_S)
    for turn, leader in enumerate(MOVES):
        for end in ("commit", "abort"):
            producer.begin_transaction()
            send(producer, topic, f"{end}-{turn}-before")
            if end == "commit":
                cluster.lead(leader, [TRANSACTIONS])
            send(producer, topic, f"{end}-{turn}-after")
            if end == "commit":
                producer.commit_transaction(workload.TIMEOUT_S)
            else:
                producer.abort_transaction(workload.TIMEOUT_S)
    expected = [b"commit-%d-%s" % (turn, when) for turn in range(3) for when in (b"before", b"after")]
    found = workload.read(cluster.bootstrap, [(topic, 0), (topic, 1)])
    assert [[each.value for each in found[topic, index]] for index in (0, 1)] == [expected] * 2
    everything = workload.read(cluster.bootstrap, [(topic, 0), (topic, 1)], "read_uncommitted")
    assert [len(everything[topic, index]) for index in (0, 1)] == [12, 12]
    listed = cluster.tool(TOOLS + "TransactionsCommand", "list")
    assert f"id-{topic}" in listed
    assert "CompleteAbort" in listed


def send(producer: Producer, topic: str, value: str) -> None:
    for index in (0, 1):
        producer.produce(topic, value, partition=index)
    assert producer.flush(workload.TIMEOUT_S) == 0
