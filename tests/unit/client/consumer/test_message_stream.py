"""Message streams during a rebalance, before a scripted broker that is the group's coordinator, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.consumer.conftest import TIMEOUT_S, FetchService, ServedLog, batch

from tidelog.client.consumer._message_stream import DeadLetters, MessageStream, StreamOutcome
from tidelog.client.consumer.failure_policy import Stop
from tidelog.client.group._classic.consumer_protocol import encode_assignment
from tidelog.client.group.assignor import Assignment
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import ConsumerRecord
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tidelog.wire.messages.sync_group import SyncGroupResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    """Has one member, led by another; a rebalance begins with ``rebalance`` and ends with ``settle``."""

    def __init__(self, broker: Any) -> None:
        self.assignment: tuple[TopicPartition, ...] = (T0, T1)
        self.commits: list[dict[TopicPartition, int]] = []
        self.joining = asyncio.Event()
        """A member has asked to join while the group was rebalancing."""
        self._news = asyncio.Event()
        self._broker = broker
        self._is_rebalancing = False
        self._generation = 0
        for key in (
            ApiKey.FIND_COORDINATOR,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_COMMIT,
        ):
            broker.handlers[key] = getattr(self, key.name.lower())

    def rebalance(self) -> None:
        self._is_rebalancing = True

    def settle(self, *assignment: TopicPartition) -> None:
        self.assignment = assignment
        self._is_rebalancing = False

    async def wait_commits(self, *expected: dict[TopicPartition, int]) -> None:
        while len(self.commits) < len(expected):
            self._news.clear()
            await self._news.wait()
        assert self.commits == list(expected)

    def find_coordinator(self, request: Any, version: int) -> Any:
        found = Coordinator(key="g", node_id=7, host="127.0.0.1", port=self._broker.port)
        return FindCoordinatorResponse(coordinators=[found])

    def join_group(self, request: Any, version: int) -> Any:
        if self._is_rebalancing:
            # Stands for a join that waits for the other members: the member stays in its rebalance.
            self.joining.set()
            return JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._generation += 1
        return JoinGroupResponse(
            generation_id=self._generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader="another",
            member_id="this one",
        )

    def sync_group(self, request: Any, version: int) -> Any:
        return SyncGroupResponse(assignment=encode_assignment(Assignment(self.assignment)))

    def heartbeat(self, request: Any, version: int) -> Any:
        code = ErrorCode.REBALANCE_IN_PROGRESS if self._is_rebalancing else ErrorCode.NONE
        return HeartbeatResponse(error_code=code)

    def leave_group(self, request: Any, version: int) -> Any:
        return LeaveGroupResponse()

    def offset_fetch(self, request: Any, version: int) -> Any:
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")])

    def offset_commit(self, request: Any, version: int) -> Any:
        self.commits.append(
            {
                TopicPartition(topic.name, each.partition_index): each.committed_offset
                for topic in request.topics
                for each in topic.partitions
            }
        )
        self._news.set()
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=each.partition_index)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


Story = Callable[[Group, FetchService, "asyncio.Queue[ConsumerRecord]"], Any]


@pytest.fixture
def stream_of(scripted_broker: Any) -> Callable[[Story], StreamOutcome]:
    """Runs a story beside a stream that reads both partitions cooperatively; how the stream ended."""

    def run(story: Story) -> StreamOutcome:
        async def main() -> StreamOutcome:
            async with scripted_broker, asyncio.timeout(TIMEOUT_S):
                service = FetchService(scripted_broker, partitions=2)
                service.logs[0] = ServedLog(batch(0, b"before"), end=1)
                group = Group(scripted_broker)
                handled: asyncio.Queue[ConsumerRecord] = asyncio.Queue()
                options = {
                    "bootstrap.servers": scripted_broker.address,
                    "group.id": "g",
                    "enable.auto.commit": False,
                    "partition.assignment.strategy": "cooperative-sticky",
                    "auto.offset.reset": "earliest",
                    "heartbeat.interval.ms": 20,
                    "retry.backoff.ms": 1,
                    "retry.backoff.max.ms": 5,
                }

                # On the loop: the commit behind a record is tried before anything else has its turn.
                stream = MessageStream("t", 0, options, handled.put, Stop(), DeadLetters({}))
                running = asyncio.ensure_future(stream.run())
                telling = asyncio.ensure_future(story(group, service, handled))
                await asyncio.wait([running, telling], return_when=asyncio.FIRST_COMPLETED)
                if not telling.done():
                    telling.cancel()
                    raise AssertionError(f"the stream has ended: {stream.failure!r}")
                stream.stop()
                await telling
                return await running

        return asyncio.run(main())

    return run


def test_what_is_handled_during_a_cooperative_rebalance_is_committed_after_it(
    stream_of: Callable[[Story], StreamOutcome],
) -> None:
    async def story(group: Group, service: FetchService, handled: asyncio.Queue[ConsumerRecord]) -> None:
        await group.wait_commits({T0: 1})
        group.rebalance()
        await group.joining.wait()
        service.logs[0] = ServedLog(batch(0, b"before"), batch(1, b"during"), end=2)
        await handled.get()
        assert (await handled.get()).value == b"during"
        group.settle(T0, T1)
        await group.wait_commits({T0: 1}, {T0: 2})

    assert stream_of(story) is StreamOutcome.STOPPED


def test_what_is_handled_of_a_partition_that_a_rebalance_takes_away_is_committed_before_it_goes(
    stream_of: Callable[[Story], StreamOutcome],
) -> None:
    async def story(group: Group, service: FetchService, handled: asyncio.Queue[ConsumerRecord]) -> None:
        await group.wait_commits({T0: 1})
        group.rebalance()
        await group.joining.wait()
        service.logs[0] = ServedLog(batch(0, b"before"), batch(1, b"kept"), end=2)
        service.logs[1] = ServedLog(batch(0, b"taken away"), end=1)
        seen = {(await handled.get()).value for _ in range(3)}
        assert seen == {b"before", b"kept", b"taken away"}
        group.settle(T0)
        await group.wait_commits({T0: 1}, {T1: 1}, {T0: 2})

    assert stream_of(story) is StreamOutcome.STOPPED
