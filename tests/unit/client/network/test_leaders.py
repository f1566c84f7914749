"""Requests to leaders of which one is dead: the others' answers count, and the next leader is found."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client._offsets import delete_records, list_offsets
from tidelog.client.errors import BrokerUnreachableError
from tidelog.client.resources import OffsetSpec
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import MetadataResponseBroker

DEAD = 8
WAIT_S = 20
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
WANTED = dict.fromkeys((A0, A1), int(OffsetSpec.LATEST))


class Brokers:
    """One that lives and one that is dead, which leads partition 1 until ``elect``."""

    def __init__(self, living: Any, dead_port: int) -> None:
        self.living = living
        self.dead_port = dead_port
        self.answers_until_elected: int | None = None
        living.add_topic("a", 2)
        living.topics[0].partitions[1].leader_id = DEAD
        living.handlers[ApiKey.METADATA] = self.metadata
        living.handlers[ApiKey.LIST_OFFSETS] = self.list_offsets
        living.handlers[ApiKey.DELETE_RECORDS] = self.delete_records

    def elect_after(self, answers: int) -> None:
        """Metadata names the new leader after so many answers that name the dead one."""
        self.answers_until_elected = answers

    def metadata(self, request: Any, version: int) -> Any:
        if self.answers_until_elected == 0:
            self.living.topics[0].partitions[1].leader_id = 7
        elif self.answers_until_elected is not None and request.topics:
            self.answers_until_elected -= 1
        answer = self.living.metadata()
        answer.brokers.append(MetadataResponseBroker(node_id=DEAD, host="127.0.0.1", port=self.dead_port))
        return answer

    def list_offsets(self, request: Any, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=42)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def delete_records(self, request: Any, version: int) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(partition_index=each.partition_index, low_watermark=5)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


@pytest.fixture
def brokers(scripted_broker: Any) -> Brokers:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return Brokers(scripted_broker, unused.getsockname()[1])


def run(brokers: Brokers, action: Callable[[Cluster], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        options.update(retry_backoff_ms=1, reconnect_backoff_ms=1, reconnect_backoff_max_ms=5)
        living = brokers.living
        async with living, asyncio.timeout(WAIT_S), Cluster(living.address, **options) as cluster:
            await action(cluster)

    asyncio.run(main())


def test_a_new_leader_is_found_where_the_old_one_is_dead(brokers: Brokers) -> None:
    brokers.elect_after(2)

    async def action(cluster: Cluster) -> None:
        found = await list_offsets(cluster, WANTED)
        assert {each: result.offset for each, result in found.items()} == {A0: 42, A1: 42}

    run(brokers, action, api_timeout_ms=600_000)
    asked = [
        [each.partition_index for each in request.topics[0].partitions]
        for _, request in brokers.living.requests(ApiKey.LIST_OFFSETS)
    ]
    assert asked == [[0], [1]], "only what was not answered is asked for again"


def test_records_are_deleted_on_the_new_leader_where_the_old_one_is_dead(brokers: Brokers) -> None:
    brokers.elect_after(1)

    async def action(cluster: Cluster) -> None:
        deleted = await delete_records(cluster, {A0: 5, A1: 5})
        assert [(each.low_watermark, each.error) for each in deleted.values()] == [(5, None), (5, None)]

    run(brokers, action, api_timeout_ms=600_000)


def test_a_dead_leader_takes_nothing_from_the_answers_of_others(brokers: Brokers) -> None:
    async def action(cluster: Cluster) -> None:
        found = await list_offsets(cluster, WANTED)
        assert (found[A0].offset, found[A0].error) == (42, None)
        error = found[A1].error
        assert error is not None
        assert error.code is ErrorCode.NETWORK_EXCEPTION
        assert "broker 8 is advertised as" in str(error)

    run(brokers, action, retries=2)


def test_where_nobody_has_answered_the_error_of_the_network_is_raised(brokers: Brokers) -> None:
    async def action(cluster: Cluster) -> None:
        with pytest.raises(BrokerUnreachableError, match="broker 8 is advertised as"):
            await list_offsets(cluster, {A1: int(OffsetSpec.LATEST)})

    run(brokers, action, retries=2)
