"""Committed offsets by raw requests on a real broker: transactions, verification, deletion, kill -9.

With TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka, which must pass them too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from foreign.broker_process import BrokerProcess
from tests.rigs.group_members.brokers import group_broker
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic
from tests.rigs.raw_transaction import RawTransactions

from tidelog.errors import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

PATIENCE_S = 30.0
NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
NONE = (-1, 0)
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def wait_until(ask: Callable[[], T], good: Callable[[T], bool]) -> T:
    """The first answer that is good."""
    deadline = time.monotonic() + PATIENCE_S
    while not good(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer


class Offsets:
    """Group ``g`` over one connection."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str = "g") -> None:
        self.client = RawClient("127.0.0.1", broker.port)
        self.topic = topic
        self.group = group
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        wait_until(
            lambda: self.client.ask(4, find, FindCoordinatorResponse).coordinators[0].error_code,
            lambda code: not code,
        )

    def fetch(self, partition: int = 0, *, require_stable: bool = False) -> tuple[int, int]:
        """Offset and error of a partition, once the coordinator is there."""
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)],
            require_stable=require_stable,
        )
        group = wait_until(
            lambda: self.client.ask(9, request, OffsetFetchResponse).groups[0],
            lambda answer: answer.error_code not in NOT_YET,
        )
        assert group.error_code == 0
        (found,) = group.topics[0].partitions
        return found.committed_offset, found.error_code

    def commit(self, offset: int, partition: int = 0) -> int:
        asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[asked])]
        )
        return wait_until(
            lambda: self.client.ask(8, request, OffsetCommitResponse).topics[0].partitions[0].error_code,
            lambda code: code not in NOT_YET,
        )

    def commit_in(self, producer: RawTransactions, offset: int, *, version: int = 5, epoch: int = 0) -> int:
        """Commit in a transaction; ``epoch`` is added to the producer's."""
        asked = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=self.group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch + epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[asked])],
        )
        return wait_until(
            lambda: (
                self.client.ask(version, request, TxnOffsetCommitResponse).topics[0].partitions[0].error_code
            ),
            lambda code: code not in NOT_YET,
        )

    def add_to(self, producer: RawTransactions) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=self.group,
        )
        return wait_until(
            lambda: self.client.ask(3, request, AddOffsetsToTxnResponse).error_code,
            lambda code: code not in NOT_YET,
        )

    def delete(self) -> OffsetDeleteResponse:
        topic = OffsetDeleteRequestTopic(
            name=self.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        request = OffsetDeleteRequest(group_id=self.group, topics=[topic])
        return self.client.ask(0, request, OffsetDeleteResponse)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = group_broker(tmp_path_factory.mktemp("offsets"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def offsets(broker: BrokerProcess, topic_name: Callable[[], str]) -> Offsets:
    """Offsets of a new group and a new topic."""
    name = topic_name()
    with RawClient("127.0.0.1", broker.port) as client:
        RawTopic(client, name)
    return Offsets(broker, name, group=name)


def producer_of(offsets: Offsets) -> RawTransactions:
    return RawTransactions(offsets.client, f"tx-{offsets.group}").init()


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("committed", [True, False])
def test_old_producers_add_the_group_and_commit(offsets: Offsets, version: int, committed: bool) -> None:
    producer = producer_of(offsets)
    assert offsets.add_to(producer) == 0
    assert offsets.commit_in(producer, 5, version=version) == 0
    assert offsets.fetch(require_stable=True) == UNSTABLE
    assert offsets.fetch() == NONE
    assert producer.end(committed=committed, version=4) == 0
    after = wait_until(lambda: offsets.fetch(require_stable=True), lambda found: found != UNSTABLE)
    assert after == ((5, 0) if committed else NONE)


@pytest.mark.parametrize("committed", [True, False])
def test_version_5_adds_the_group_itself(offsets: Offsets, committed: bool) -> None:
    producer = producer_of(offsets)
    offsets.commit(1)
    assert offsets.commit_in(producer, 5) == 0
    assert offsets.fetch(require_stable=True) == UNSTABLE
    assert producer.end(committed=committed) == 0
    after = wait_until(lambda: offsets.fetch(require_stable=True), lambda found: found != UNSTABLE)
    assert after == (5 if committed else 1, 0)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_group_that_was_not_added_is_refused(offsets: Offsets, version: int, code: ErrorCode) -> None:
    assert offsets.commit_in(producer_of(offsets), 5, version=version) == code
    assert offsets.fetch(require_stable=True) == NONE


@pytest.mark.parametrize("version", [3, 5])
def test_a_zombie_commits_nothing(offsets: Offsets, version: int) -> None:
    zombie = producer_of(offsets)
    assert offsets.add_to(zombie) == 0
    assert offsets.commit_in(zombie, 5, version=version) == 0
    producer_of(offsets)
    assert offsets.commit_in(zombie, 6, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
    after = wait_until(lambda: offsets.fetch(require_stable=True), lambda found: found != UNSTABLE)
    assert after == NONE


def test_an_offset_deleted_while_a_transaction_is_open_stays_deleted(offsets: Offsets) -> None:
    producer = producer_of(offsets)
    offsets.commit(1)
    assert offsets.commit_in(producer, 5) == 0
    assert offsets.delete().topics[0].partitions[0].error_code == 0
    assert producer.end(committed=True) == 0
    assert offsets.fetch() == NONE


def test_offsets_go_with_their_topic(broker: BrokerProcess, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    with RawClient("127.0.0.1", broker.port) as client:
        topic = RawTopic(client, name)
        offsets = Offsets(broker, name, group=name)
        assert offsets.commit(7) == 0
        assert offsets.fetch() == (7, 0)
        topic.delete()
    assert wait_until(offsets.fetch, lambda found: found == NONE) == NONE


def test_librdkafka_commits_in_a_transaction(broker: BrokerProcess, offsets: Offsets) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": f"c-{offsets.group}"})
    producer.init_transactions(30)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": offsets.group})
    for offset, committed in ((3, True), (9, False), (4, True)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(offsets.topic, 0, offset)], consumer.consumer_group_metadata(), 30
        )
        producer.commit_transaction(30) if committed else producer.abort_transaction(30)
        (found,) = consumer.committed([TopicPartition(offsets.topic, 0)], timeout=30)
        assert found.offset == (offset if committed else 3)
    consumer.close()


@pytest.mark.parametrize("committed", [True, False])
def test_commits_and_open_transactions_survive_kill_9(tmp_path: Path, committed: bool) -> None:
    broker = group_broker(tmp_path)
    broker.start()
    try:
        with RawClient("127.0.0.1", broker.port) as client:
            RawTopic(client, "orders", partitions=2)
        offsets = Offsets(broker, "orders")
        assert offsets.commit(1, partition=0) == 0
        assert offsets.commit(2, partition=1) == 0
        producer = producer_of(offsets)
        assert offsets.commit_in(producer, 5) == 0
        broker.kill()
        broker.start()
        offsets = Offsets(broker, "orders")
        producer.client = offsets.client
        assert offsets.fetch(1, require_stable=True) == (2, 0)
        assert offsets.fetch(0, require_stable=True) == UNSTABLE
        assert offsets.fetch(0) == (1, 0)
        ended = wait_until(lambda: producer.end(committed=committed), lambda code: code not in NOT_YET)
        assert ended == 0
        after = wait_until(lambda: offsets.fetch(0, require_stable=True), lambda found: found != UNSTABLE)
        assert after == (5 if committed else 1, 0)
    finally:
        broker.kill()
