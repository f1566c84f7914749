"""Transactions across brokers: each part goes to whoever is responsible, and the answers come back as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.cluster.peer_broker import PeerBroker
from tidelog.broker.cluster.remote_transactions import BrokerLinks, Codes
from tidelog.coordinator.transaction.markers import MarkerRequest
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.metadata.store import StoreClosed, ensure_path
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration, TopicAssignment
from tidelog.scheduling.promise import Promise
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ME = 1
HERE, THERE, AWAY, UNKNOWN = (TopicPartition("t", index) for index in range(4))
STATE = "__transaction_state"


class Local:
    """This broker's own side: everything is well."""

    TOPIC = STATE

    def __init__(self) -> None:
        self.asked: list[tuple[TopicPartition, ...]] = []

    def gone(self, partitions: frozenset[TopicPartition]) -> Promise[frozenset[TopicPartition]]:
        raise AssertionError("this broker alone cannot know")

    def write(self, request: MarkerRequest) -> Promise[Codes]:
        self.asked.append(request.partitions)
        return Promise.of(dict.fromkeys(request.partitions, ErrorCode.NONE))

    def partition_for(self, transactional_id: str) -> int:
        return int(transactional_id)

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        verify_only: bool,
    ) -> Promise[Codes]:
        self.asked.append(tuple(partitions))
        return Promise.of(dict.fromkeys(partitions, ErrorCode.NONE))


class Other:
    """A connection to another broker."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.requests: list[Any] = []

    async def request(self, message: Any, response_type: type[Any], timeout_ms: float) -> Any:
        self.requests.append(message)
        await asyncio.sleep(0)
        answer = self.answer(message)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, response_type)
        return answer

    async def close(self) -> None:
        """There is nothing to close."""


def image() -> MetadataImage:
    """Broker 1 is here, 2 is alive and 9 is not."""
    known = MetadataImage()
    for broker in (1, 2):
        known.put_broker(BrokerRegistration(broker_id=broker, endpoints=()))
    for name, leaders in (("t", (1, 2, 9)), (STATE, (1, 2, 9, -1))):
        partitions = {
            index: PartitionImage(replicas=(1, 2), leader=leader, leader_epoch=0, isr=(1,))
            for index, leader in enumerate(leaders)
        }
        known.install(TopicImage(name, random_uuid(), partitions))
    return known


def run(test: Callable[[BrokerLinks, Local, Other], Awaitable[None]]) -> None:
    async def main() -> None:
        other = Other(lambda request: None)
        zookeeper = MemoryZooKeeper()
        links = BrokerLinks(ME, image(), zookeeper.session(), lambda broker: cast(PeerBroker, other))
        await test(links, Local(), other)
        await links.close()

    asyncio.run(main())


async def settled(reply: Promise[Any]) -> Promise[Any]:
    async with asyncio.timeout(60):
        while not reply.done:  # noqa: ASYNC110 (there is nothing to wait on)
            await asyncio.sleep(0)
    return reply


def test_what_does_not_exist_any_more_is_looked_up_in_zookeeper() -> None:
    async def test(links: BrokerLinks, local: Local, other: Other) -> None:
        node = TopicAssignment(topic_id=random_uuid(), partitions={0: (1,), 1: (1,)})
        await ensure_path(links.store, znodes.TOPICS)
        await links.store.create(znodes.topic_path("t"), node.encode())
        asked = frozenset({HERE, THERE, AWAY, TopicPartition("deleted", 0)})
        reply = await settled(links.markers(local).gone(asked))
        assert reply.result() == {AWAY, TopicPartition("deleted", 0)}

    run(test)


@pytest.mark.parametrize("raw", [b"no JSON", b"[]", b'{"partitions": 7}', b"\xff"])
def test_nothing_is_held_to_be_gone_where_a_znode_cannot_be_read(raw: bytes) -> None:
    async def test(links: BrokerLinks, local: Local, other: Other) -> None:
        await ensure_path(links.store, znodes.TOPICS)
        await links.store.create(znodes.topic_path("t"), raw)
        reply = await settled(links.markers(local).gone(frozenset({HERE})))
        assert reply.error is not None

    run(test)


def test_nothing_is_held_to_be_gone_where_zookeeper_does_not_answer() -> None:
    async def test(links: BrokerLinks, local: Local, other: Other) -> None:
        await links.store.close()
        reply = await settled(links.markers(local).gone(frozenset({HERE})))
        assert isinstance(reply.error, StoreClosed)

    run(test)


MARKERS = MarkerRequest(7, 2, 5, True, (HERE, THERE, AWAY, UNKNOWN), 2)


def marked(code: ErrorCode) -> Callable[[WriteTxnMarkersRequest], WriteTxnMarkersResponse]:
    def answer(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    return answer


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_markers_go_to_the_leaders_and_their_answers_come_back_as_one(code: ErrorCode) -> None:
    async def test(links: BrokerLinks, local: Local, other: Other) -> None:
        other.answer = marked(code)
        reply = links.markers(local).write(MARKERS)
        assert not reply.done
        assert await reply == {
            HERE: ErrorCode.NONE,
            # What nobody knows of is this broker's to refuse.
            UNKNOWN: ErrorCode.NONE,
            THERE: code,
            AWAY: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        assert local.asked == [(HERE, UNKNOWN)]
        (request,) = other.requests
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, 5)
        assert (marker.transaction_result, marker.transaction_version) == (True, 2)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1])]

    run(test)


@pytest.mark.parametrize(
    "trouble", [ConnectionResetError(), TimeoutError(), WriteTxnMarkersResponse(), AssertionError("a bug")]
)
def test_a_leader_that_does_not_answer_is_to_be_asked_again(trouble: object) -> None:
    async def test(links: BrokerLinks, local: Local, other: Other) -> None:
        other.answer = lambda request: trouble
        codes = await links.markers(local).write(MARKERS._replace(partitions=(THERE,)))
        assert codes == {THERE: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run(test)


def verified(code: ErrorCode) -> Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse]:
    def answer(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index, partition_error_code=code
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )

    return answer


@pytest.mark.parametrize(
    ("transactional_id", "answer", "code"),
    [
        ("0", None, ErrorCode.NONE),
        ("1", verified(ErrorCode.NONE), ErrorCode.NONE),
        ("1", verified(ErrorCode.INVALID_TXN_STATE), ErrorCode.INVALID_TXN_STATE),
        (
            "1",
            lambda request: AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        ("1", lambda request: ConnectionResetError(), ErrorCode.NOT_COORDINATOR),
        ("1", lambda request: AssertionError("a bug"), ErrorCode.NOT_COORDINATOR),
        # What a newer broker says.
        ("1", verified(cast(ErrorCode, 9999)), ErrorCode.UNKNOWN_SERVER_ERROR),
        ("2", None, ErrorCode.NOT_COORDINATOR),
        ("3", None, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_partitions_are_verified_by_the_coordinator_wherever_it_is(
    transactional_id: str, answer: Callable[[Any], Any] | None, code: ErrorCode
) -> None:
    async def test(links: BrokerLinks, local: Local, other: Other) -> None:
        if answer is not None:
            other.answer = answer
        transactions = links.transactions(cast(TransactionCoordinator, local))
        codes = await transactions.add_or_verify(transactional_id, 7, 2, [HERE, THERE], True)
        assert codes == {HERE: code, THERE: code}
        assert bool(local.asked) == (transactional_id == "0")
        for request in other.requests:
            (transaction,) = request.transactions
            assert (transaction.transactional_id, transaction.verify_only) == (transactional_id, True)

    run(test)
