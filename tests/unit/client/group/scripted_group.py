"""A cluster whose coordinator says what a test tells it to, and a membership in front of it.

Without a script the coordinator runs a group of one: it takes every join, chooses the first assignor, hands
the leader's assignment back and answers heartbeats and commits. ``answers`` come before that: per request
type a queue of responses, errors to raise, or functions of the request.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

from tidelog.client._network.ongoing_errors import OngoingErrors
from tidelog.client._network.retry import Backoff, Deadline
from tidelog.client.group._membership_choice import membership_for
from tidelog.client.group._rebalance_callbacks import RebalanceCallbacks
from tidelog.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from tidelog.client.metrics import Metrics
from tidelog.client.options import CONSUMER, ClientConfig
from tidelog.client.subscription._partition_state import FetchPosition
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.client.subscription.listener import RebalanceListener
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition, Uuid
from tidelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.schema import Payload

RequestT = TypeVar("RequestT", bound=Payload)
Answer = Payload | Exception | Callable[[Any], Payload]

NODE = Node(7, "coordinator", 9092)


class Updates:
    """What a membership uses of the metadata updater."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.listeners: list[Callable[[ClusterMetadata], None]] = []

    def retain_topics(self, names: Collection[str]) -> None:
        self.topics = set(names)


class ScriptedCluster:
    """Stands in for ``Cluster``."""

    request_timeout_ms = 30_000

    def __init__(self) -> None:
        self.updates = Updates()
        self.ongoing_errors = OngoingErrors()
        self.metrics = Metrics()
        self.metadata = ClusterMetadata("scripted", 7, {7: NODE}, {})
        self.asked: list[Payload] = []
        self.answers: defaultdict[type[Payload], deque[Answer]] = defaultdict(deque)
        self.versions: dict[type[Payload], int] = {}
        self.generation = 0
        self.epoch = 0
        self.target: dict[Uuid, list[int]] = {}
        self._told: dict[Uuid, list[int]] | None = None

    def set_topics(self, **counts: int) -> None:
        """Metadata from now on."""
        topics = {
            name: TopicMetadata(
                name,
                topic_id(name),
                False,
                {index: PartitionMetadata(index, 7, 0, (7,), (7,)) for index in range(count)},
            )
            for name, count in counts.items()
        }
        self.metadata = ClusterMetadata("scripted", 7, {7: NODE}, topics)
        for listener in self.updates.listeners:
            listener(self.metadata)

    def script(self, request: type[Payload], *answers: Answer) -> None:
        """Answer the next requests of this type so."""
        self.answers[request].extend(answers)

    def requests(self, kind: type[RequestT]) -> list[RequestT]:
        return [each for each in self.asked if isinstance(each, kind)]

    # What ``Cluster`` offers

    def backoff(self) -> Backoff:
        return Backoff(100, 1000)

    def deadline(self, timeout_ms: float | None = None) -> Deadline:
        return Deadline(60_000 if timeout_ms is None else timeout_ms)

    def subscribe_updates(self, listener: Callable[[ClusterMetadata], None]) -> Callable[[], None]:
        self.updates.listeners.append(listener)
        return lambda: self.updates.listeners.remove(listener)

    async def refresh(self, topics: Collection[str] | None, **ignored: object) -> ClusterMetadata:
        return self.metadata

    async def request_any(self, build: Any, response: type[Payload], deadline: Deadline) -> Payload:
        return await self.ask_node(NODE, build, response, deadline)

    async def ask_node(
        self,
        node: Node,
        build: Any,
        response: type[Payload],
        deadline: Deadline,
        *,
        max_version: int | None = None,
        **ignored: object,
    ) -> Payload:
        request = build(self._version(response, max_version)) if callable(build) else build
        self.asked.append(request)
        await asyncio.sleep(0.001)
        queue = self.answers[type(request)]
        answer: Answer = queue.popleft() if queue else self._usual
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    def _version(self, response: type[Payload], max_version: int | None = None, **ignored: object) -> int:
        newest = self.versions.get(response, response.VERSIONS[1])
        return newest if max_version is None else min(newest, max_version)

    # The group of one

    def _usual(self, request: Payload) -> Payload:
        match request:
            case FindCoordinatorRequest():
                key = request.coordinator_keys[0]
                found = Coordinator(key=key, node_id=7, host=NODE.host, port=NODE.port)
                return FindCoordinatorResponse(coordinators=[found])
            case JoinGroupRequest():
                return self.joined(request)
            case SyncGroupRequest():
                mine = [each for each in request.assignments if each.member_id == request.member_id]
                return SyncGroupResponse(
                    protocol_type="consumer",
                    protocol_name=request.protocol_name,
                    assignment=mine[0].assignment if mine else b"",
                )
            case HeartbeatRequest():
                return HeartbeatResponse()
            case LeaveGroupRequest():
                return LeaveGroupResponse()
            case OffsetCommitRequest():
                return committed(request)
            case OffsetFetchRequest():
                return OffsetFetchResponse()
            case ConsumerGroupHeartbeatRequest():
                return self._heartbeat(request)
            case MetadataRequest():
                return MetadataResponse()
        raise AssertionError(f"no answer to {type(request).__name__}")

    def joined(
        self, request: JoinGroupRequest, others: Mapping[str, bytes] | None = None
    ) -> JoinGroupResponse:
        """The member is in, and leads; ``others`` are there too, with their subscriptions."""
        self.generation += 1
        member_id = request.member_id or "member-1"
        chosen = request.protocols[0]
        members = {member_id: chosen.metadata, **(others or {})}
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader=member_id,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(member_id=each, metadata=metadata)
                for each, metadata in members.items()
            ],
        )

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch == 0:
            self._told = None
        if request.member_epoch >= 0:
            self.epoch = max(self.epoch, 1)
        news = self._told != self.target
        self._told = dict(self.target)
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=each, partitions=partitions)
                for each, partitions in self.target.items()
            ]
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.epoch if request.member_epoch >= 0 else request.member_epoch,
            heartbeat_interval_ms=5000,
            assignment=assignment if news and request.member_epoch >= 0 else None,
        )


class Recorder(RebalanceListener):
    """Writes down what a listener is told, beside the requests of the same moment."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.failing: str | None = None

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, what: str, partitions: Iterable[TopicPartition]) -> None:
        self.events.append(f"{what} {' '.join(map(str, partitions))}".strip())
        if self.failing == what:
            raise RuntimeError(f"{what} failed")


class Rig:
    """A consumer's membership without the rest of a consumer."""

    def __init__(self, *topics: str, **options: object) -> None:
        chosen: dict[str, object] = {
            "bootstrap_servers": "unused:1",
            "group_id": "g",
            "enable_auto_commit": False,
            "partition_assignment_strategy": "range",
            **options,
        }
        if chosen.get("group_protocol") == "consumer":
            del chosen["partition_assignment_strategy"]
        self.config = ClientConfig.parse(CONSUMER, None, **chosen)
        self.cluster = ScriptedCluster()
        self.events: list[str] = []
        self.listener = Recorder(self.events)
        self.subscription = SubscriptionState()
        self._choice = membership_for(self.config)
        self.membership = self._choice.before_start
        self.woken = asyncio.Event()
        if topics:
            self.subscription.subscribe(topics, self.listener)

    async def __aenter__(self) -> Rig:
        self.membership = self._choice.start(
            cast(Any, self.cluster), self.subscription, RebalanceCallbacks(self.subscription)
        )
        self.membership.subscribe_wakeups(self.woken.set)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.membership.close()

    async def poll(self, seconds: float = 5.0) -> bool:
        """As a consumer's poll without records: until the group has settled, or time is up."""
        deadline = Deadline(seconds * 1000)
        while True:
            self.woken.clear()
            settled = await self.membership.ensure_active(deadline)
            self.membership.poll(asyncio.get_running_loop().time() * 1000)
            if settled or deadline.expired:
                return settled
            await self._wait(deadline)

    async def poll_for(self, seconds: float) -> None:
        """A poll that waits for records all the time and gets none."""
        deadline = Deadline(seconds * 1000)
        while not deadline.expired:
            self.woken.clear()
            await self.membership.ensure_active(deadline)
            self.membership.poll(asyncio.get_running_loop().time() * 1000)
            await self._wait(deadline)

    async def _wait(self, deadline: Deadline) -> None:
        try:
            async with asyncio.timeout(deadline.remaining):
                await self.woken.wait()
        except TimeoutError:
            return

    def consume(self, **offsets: int) -> None:
        """Let records be consumed: ``t_0=5`` puts the position of t-0 behind offset 4."""
        for name, offset in offsets.items():
            topic, _, number = name.rpartition("_")
            partition = TopicPartition(topic, int(number))
            self.subscription.seek(partition, FetchPosition(offset))

    def assigned(self) -> list[str]:
        return sorted(map(str, self.subscription.assignment))


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\x01"))


def committed(request: OffsetCommitRequest, code: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    """The answer to a commit: the same code for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
