"""Transactions through the admin client: filters of old brokers, hanging ones, markers, fencing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.transaction_resources import AbortMarker, TransactionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages import describe_producers as producers
from tidelog.wire.messages import describe_transactions as described
from tidelog.wire.messages import list_transactions as listed
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)


@pytest.fixture
def broker(scripted_broker: Any) -> Any:
    """A broker that coordinates every transactional id and leads both partitions of topic ``a``."""
    scripted_broker.add_topic("a", 2)

    def find(request: Any, version: int) -> FindCoordinatorResponse:
        assert request.key_type == 1
        place = {"node_id": 7, "host": "127.0.0.1", "port": scripted_broker.port}
        keys = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, **place) for key in keys])

    scripted_broker.handlers[ApiKey.FIND_COORDINATOR] = find
    return scripted_broker


def run(broker: Any, action: Callable[[AsyncAdmin], Awaitable[None]]) -> None:
    async def main() -> None:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000) as cluster:
            await action(AsyncAdmin.of(cluster))

    asyncio.run(main())


def listing(*names: str) -> Callable[[Any, int], listed.ListTransactionsResponse]:
    return lambda request, version: listed.ListTransactionsResponse(
        transaction_states=[
            listed.TransactionState(transactional_id=name, producer_id=number, transaction_state="Ongoing")
            for number, name in enumerate(names)
        ]
    )


def test_the_newest_brokers_filter_by_themselves(broker: Any) -> None:
    broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing("pay-2", "pay-1")

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.list_transactions(
            states=[TransactionState.ONGOING],
            producer_ids=[0, 1],
            running_longer_than_ms=5,
            pattern="pay-.*",
        )
        assert [each.transactional_id for each in found.transactions] == ["pay-1", "pay-2"]

    run(broker, action)
    [(version, request)] = broker.requests(ApiKey.LIST_TRANSACTIONS)
    assert version == 2
    assert (request.state_filters, request.producer_id_filters) == (["Ongoing"], [0, 1])
    assert (request.duration_filter, request.transactional_id_pattern) == (5, "pay-.*")


def test_patterns_work_on_brokers_that_know_none(broker: Any) -> None:
    broker.versions[ApiKey.LIST_TRANSACTIONS] = (0, 1)
    broker.handlers[ApiKey.LIST_TRANSACTIONS] = listing("pay-1", "prepay-1", "other")

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.list_transactions(pattern="pay-.*")
        assert [each.transactional_id for each in found.transactions] == ["pay-1"]

    run(broker, action)


def test_durations_are_refused_by_brokers_that_cannot_tell(broker: Any) -> None:
    broker.versions[ApiKey.LIST_TRANSACTIONS] = (0, 0)

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.list_transactions(running_longer_than_ms=5)
        [error] = found.errors
        assert "older than Kafka 3.8" in str(error)

    run(broker, action)


def test_transactional_ids_are_described_each_with_its_own_error(broker: Any) -> None:
    broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = lambda request, version: (
        described.DescribeTransactionsResponse(
            transaction_states=[
                described.TransactionState(
                    transactional_id="a",
                    transaction_state="Ongoing",
                    transaction_start_time_ms=-1,
                    topics=[described.TopicData(topic="a", partitions=[1, 0])],
                ),
                described.TransactionState(
                    transactional_id="b", error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                ),
            ]
        )
    )

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.describe_transactions(["a", "b"])
        assert found["a"].error is None
        assert (found["a"].partitions, found["a"].start_time_ms) == ((A0, A1), None)
        with pytest.raises(KafkaError, match="transactional id 'b' does not exist"):
            found["b"].raise_for_error()

    run(broker, action)


def hanging_broker(broker: Any, *, known: dict[int, str], expected: list[int]) -> None:
    """Producers 1 to 3 have open transactions in a-0: 1 and 2 idle for an hour, 3 busy; 4 has none."""
    now = round(time.time() * 1000)
    hour_ago = now - 3_600_000
    states = [(1, hour_ago, 5), (2, hour_ago, 6), (3, now, 7), (4, hour_ago, -1)]
    broker.handlers[ApiKey.DESCRIBE_PRODUCERS] = lambda request, version: producers.DescribeProducersResponse(
        topics=[
            producers.TopicResponse(
                name="a",
                partitions=[
                    producers.PartitionResponse(
                        partition_index=index,
                        active_producers=[
                            producers.ProducerState(
                                producer_id=producer_id,
                                last_timestamp=timestamp,
                                coordinator_epoch=-1,
                                current_txn_start_offset=offset,
                            )
                            for producer_id, timestamp, offset in states
                        ]
                        if index == 0
                        else [],
                    )
                    for index in request.topics[0].partition_indexes
                ],
            )
        ]
    )
    broker.handlers[ApiKey.LIST_TRANSACTIONS] = lambda request, version: listed.ListTransactionsResponse(
        transaction_states=[
            listed.TransactionState(transactional_id=known[producer_id], producer_id=producer_id)
            for producer_id in request.producer_id_filters
            if producer_id in known
        ]
    )
    broker.handlers[ApiKey.DESCRIBE_TRANSACTIONS] = lambda request, version: (
        described.DescribeTransactionsResponse(
            transaction_states=[
                described.TransactionState(
                    transactional_id=name, topics=[described.TopicData(topic="a", partitions=expected)]
                )
                for name in request.transactional_ids
            ]
        )
    )


@pytest.mark.parametrize(
    ("known", "expected", "hanging"),
    [
        ({1: "one"}, [0], [2]),
        ({1: "one", 2: "two"}, [0], []),
        ({1: "one", 2: "two"}, [1], [1, 2]),
        ({}, [0], [1, 2]),
    ],
    ids=["one unknown", "all expected", "known but not in this partition", "none known"],
)
def test_a_transaction_hangs_when_no_coordinator_will_end_it(
    broker: Any, known: dict[int, str], expected: list[int], hanging: list[int]
) -> None:
    hanging_broker(broker, known=known, expected=expected)

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.find_hanging_transactions(topic="a")
        assert [each.producer.producer_id for each in found.hanging] == hanging
        assert {each.partition for each in found.hanging} <= {A0}
        assert found.searched == 2

    run(broker, action)


def test_a_silent_coordinator_makes_no_transaction_hang(broker: Any) -> None:
    hanging_broker(broker, known={}, expected=[])
    broker.handlers[ApiKey.LIST_TRANSACTIONS] = lambda request, version: listed.ListTransactionsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )

    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(KafkaError):
            await admin.find_hanging_transactions(topic="a")

    run(broker, action)


def test_one_partition_of_a_replica_can_be_asked(broker: Any) -> None:
    hanging_broker(broker, known={}, expected=[])

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.describe_producers([A0], broker_id=7)
        assert [each.txn_start_offset for each in found[A0].producers] == [5, 6, 7, None]
        with pytest.raises(KafkaError, match="topic 'b' does not exist"):
            await admin.find_hanging_transactions(topic="b")

    run(broker, action)


def markers(code: int) -> WriteTxnMarkersResponse:
    partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topics = [WritableTxnMarkerTopicResult(name="a", partitions=[partition])]
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=5, topics=topics)])


def test_an_abort_marker_goes_to_the_leader_until_it_takes_it(broker: Any) -> None:
    codes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE])
    broker.handlers[ApiKey.WRITE_TXN_MARKERS] = lambda request, version: markers(next(codes))

    async def action(admin: AsyncAdmin) -> None:
        await admin.abort_transaction(AbortMarker(A0, 5, 2, 3))

    run(broker, action)
    [_, (_, request)] = broker.requests(ApiKey.WRITE_TXN_MARKERS)
    [marker] = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (5, 2, 3)
    assert not marker.transaction_result


def test_a_refused_marker_raises(broker: Any) -> None:
    broker.handlers[ApiKey.WRITE_TXN_MARKERS] = lambda request, version: markers(
        ErrorCode.INVALID_PRODUCER_EPOCH
    )

    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(KafkaError, match="producer 5"):
            await admin.abort_transaction(AbortMarker(A0, 5, 2, 3))

    run(broker, action)


def test_fencing_waits_for_the_transaction_that_is_being_ended(broker: Any) -> None:
    codes = iter([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE])
    broker.handlers[ApiKey.INIT_PRODUCER_ID] = lambda request, version: InitProducerIdResponse(
        error_code=next(codes)
    )

    async def action(admin: AsyncAdmin) -> None:
        await admin.fence_producer("pay-1", timeout_ms=1234)

    run(broker, action)
    [_, (_, request)] = broker.requests(ApiKey.INIT_PRODUCER_ID)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("pay-1", 1234)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)
