"""A broker that takes a request and never answers: ``request.timeout.ms`` holds for every kind of request.

What is asked for again is seen at the broker more than once, long before the call's own deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.unit.client.conftest import ScriptedBroker

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.resources import NewTopic
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.schema import Payload

PLACE = TopicPartition("orders", 0)
REQUEST_TIMEOUT_MS = 100
TIMES: dict[str, Any] = {
    "request_timeout_ms": REQUEST_TIMEOUT_MS,
    "retry_backoff_ms": 10,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 20,
}
ENOUGH_S = 30.0

Action = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def producer_of(address: str, **options: Any) -> AsyncIterator[AsyncProducer]:
    patience: dict[str, Any] = {"delivery_timeout_ms": 60_000, "max_block_ms": 60_000}
    producer = AsyncProducer(bootstrap_servers=address, **TIMES, **patience, **options)
    try:
        yield producer
    finally:
        await producer.close(0)


@asynccontextmanager
async def consumer_of(address: str, **options: Any) -> AsyncIterator[AsyncConsumer]:
    consumer = AsyncConsumer(bootstrap_servers=address, enable_auto_commit=False, **TIMES, **options)
    try:
        yield consumer
    finally:
        await consumer.close(0)


async def produce(address: str) -> None:
    async with producer_of(address) as producer:
        await producer.send("orders", b"tea")


async def begin_transactions(address: str) -> None:
    async with producer_of(address, transactional_id="writer") as producer:
        await producer.init_transactions()


async def read(address: str) -> None:
    async with consumer_of(address, auto_offset_reset="earliest", fetch_max_wait_ms=10) as consumer:
        consumer.assign([PLACE])
        await consumer.poll(60)


async def commit(address: str) -> None:
    async with consumer_of(address, group_id="g") as consumer:
        consumer.assign([PLACE])
        await consumer.commit({PLACE: 3}, timeout=60)


async def committed(address: str) -> None:
    async with consumer_of(address, group_id="g") as consumer:
        consumer.assign([PLACE])
        await consumer.committed([PLACE], timeout=60)


async def end_offsets(address: str) -> None:
    async with consumer_of(address) as consumer:
        await consumer.end_offsets([PLACE], timeout=60)


async def create_topic(address: str) -> None:
    async with AsyncAdmin(bootstrap_servers=address, **TIMES) as admin:
        await admin.create_topics([NewTopic("news")])


async def describe_group(address: str) -> None:
    async with AsyncAdmin(bootstrap_servers=address, **TIMES) as admin:
        await admin.describe_groups(["g"])


async def list_topics(address: str) -> None:
    async with AsyncAdmin(bootstrap_servers=address, **TIMES) as admin:
        await admin.list_topics()


def coordinator(broker: ScriptedBroker, request: Payload) -> Payload:
    assert isinstance(request, FindCoordinatorRequest)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=7, host="127.0.0.1", port=broker.port)
            for key in request.coordinator_keys
        ]
    )


def first_offset(request: Payload, version: int) -> Payload:
    partition = ListOffsetsPartitionResponse(partition_index=0, offset=0)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[partition])])


@pytest.mark.parametrize(
    ("silent", "action"),
    [
        (ApiKey.METADATA, produce),
        (ApiKey.INIT_PRODUCER_ID, produce),
        (ApiKey.PRODUCE, produce),
        (ApiKey.FIND_COORDINATOR, begin_transactions),
        (ApiKey.INIT_PRODUCER_ID, begin_transactions),
        (ApiKey.METADATA, read),
        (ApiKey.LIST_OFFSETS, read),
        (ApiKey.FETCH, read),
        (ApiKey.FIND_COORDINATOR, commit),
        (ApiKey.OFFSET_COMMIT, commit),
        (ApiKey.OFFSET_FETCH, committed),
        (ApiKey.LIST_OFFSETS, end_offsets),
        (ApiKey.CREATE_TOPICS, create_topic),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, describe_group),
        (ApiKey.METADATA, list_topics),
    ],
    ids=lambda each: each.name if isinstance(each, ApiKey) else each.__name__,
)
def test_a_request_without_an_answer_is_given_up_and_sent_again(
    scripted_broker: ScriptedBroker, silent: ApiKey, action: Action
) -> None:
    broker = scripted_broker
    broker.add_topic("orders")
    broker.handlers |= {
        ApiKey.FIND_COORDINATOR: lambda request, version: coordinator(broker, request),
        ApiKey.INIT_PRODUCER_ID: lambda request, version: InitProducerIdResponse(producer_id=1),
        ApiKey.LIST_OFFSETS: first_offset,
        silent: lambda request, version: None,
    }

    async def main() -> None:
        async with broker:
            call = asyncio.create_task(_quietly(action, broker.address))
            try:
                async with asyncio.timeout(ENOUGH_S):
                    while len(broker.requests(silent)) < 3:
                        assert not call.done()
                        await asyncio.sleep(0.01)
            finally:
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

    asyncio.run(main())


async def _quietly(action: Any, address: str) -> None:
    with suppress(TidelogError):
        await action(address)
