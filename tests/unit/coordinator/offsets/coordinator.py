"""A group coordinator on logs in memory with the handlers in front of it: requests in, responses out."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Generator, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from tests.rigs.coordinator import GroupHarness
from tests.rigs.memory_log import MemoryLog

from tidelog.broker.access.authorization import OPEN
from tidelog.broker.context import RequestContext
from tidelog.broker.exchange.services import bind
from tidelog.coordinator.group.offsets.committed_offset import CommittedOffset
from tidelog.coordinator.group.shard import GroupShard
from tidelog.coordinator.runtime import Producer
from tidelog.ids import ZERO_UUID, Uuid, random_uuid
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.znodes.znodes import TopicAssignment
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import run_to_end
from tidelog.security.session import Session
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode, encode
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.wire.schema import Payload

P = TypeVar("P", bound=Payload)

SHARDS = 3
Write = Callable[[], Promise[Any]]
LATEST_COMMIT, LATEST_FETCH, LATEST_TXN_COMMIT = 10, 10, 5


class Coordinator:
    """Group coordinator, handlers and clock; ``orders`` has three partitions, ``payments`` one."""

    def __init__(self, options: Mapping[str, str] | None = None, *, autocommit: bool = True) -> None:
        self.harness = GroupHarness(
            {"group.initial.rebalance.delay.ms": "0", **(options or {})},
            partitions=SHARDS,
            autocommit=autocommit,
        )
        self.clock = self.harness.clock
        self.timers = self.harness.timers
        self.image = self.harness.image
        self.groups = self.harness.coordinator
        self.create_topic("orders", 3)
        self.create_topic("payments", 1)

    def restart(self) -> None:
        """The broker dies and another finds what was committed."""
        for partition in range(SHARDS):
            self.harness.crash(partition)

    # Topics

    def create_topic(self, name: str, partitions: int) -> Uuid:
        topic_id = random_uuid()
        assignment = TopicAssignment(topic_id=topic_id, partitions=dict.fromkeys(range(partitions), (1,)))
        self.image.put_topic(name, assignment, {})
        return topic_id

    def delete_topic(self, name: str) -> None:
        self.image.drop_topic(name)
        self.topics_changed(name)

    def topics_changed(self, *names: str) -> None:
        self.groups.runtime.metadata_changed(ImageDelta(topics=set(names)))
        self.timers.run_due()

    def topic_id(self, name: str) -> Uuid:
        return self.image.topics[name].id

    # State

    def log_of(self, group_id: str) -> MemoryLog:
        return self.harness.log_of(group_id)

    def shard(self, group_id: str = "g") -> GroupShard:
        return self.harness.shard_of(group_id)

    def committed(self, group_id: str, topic: str, partition: int = 0) -> CommittedOffset | None:
        return self.shard(group_id).offsets.committed.get(group_id, topic, partition)

    def offsets_of(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        return {
            (topic, partition): found.offset
            for topic, by_partition in self.shard(group_id).offsets.committed.of_group(group_id).items()
            for partition, found in by_partition.items()
        }

    # Requests

    def send(self, version: int, request: Payload) -> Payload | Promise[Payload]:
        """What the handler gives for a request that has been over the wire."""
        received, _ = decode(type(request), version, encode(request, version))
        handler = importlib.import_module(f"tidelog.broker.handlers.{ApiKey(request.API_KEY).name.lower()}")
        coordinators = SimpleNamespace(groups=self.groups, verification=self)
        services = SimpleNamespace(
            image=self.image, coordinators=coordinators, groups=self.groups, authorization=OPEN
        )
        connection: Any = SimpleNamespace(session=Session("127.0.0.1"))
        context = RequestContext(connection, version, 1, "test")
        answer = bind(handler.handle, services)(context, received)
        if isinstance(answer, Generator):
            answer = run_to_end(answer)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        return cast("Payload | Promise[Payload]", answer)

    def ask(self, version: int, request: Payload, response: type[P]) -> P:
        """The response after its own way over the wire; what the handler raises is raised."""
        answer = self.send(version, request)
        if isinstance(answer, Promise):
            assert answer.done, "the answer is still to come"
            answer = answer.result()
        assert API_TABLE[ApiKey(request.API_KEY)].response is response
        return decode(response, version, encode(answer, version))[0]

    def in_transaction(
        self, transactional_id: str, producer: Producer, name: object, operation: object, write: Write
    ) -> Promise[Any]:
        """In the place of ``TransactionVerification``: every transaction is open everywhere."""
        return write()

    def commit_request(
        self,
        offsets: Mapping[tuple[str, int], int],
        group_id: str = "g",
        *,
        member_id: str = "",
        generation: int = -1,
        group_instance_id: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
    ) -> OffsetCommitRequest:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            found = self.image.topics.get(name)
            topic = topics.setdefault(
                name, OffsetCommitRequestTopic(name=name, topic_id=found.id if found else random_uuid())
            )
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=group_instance_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        group_id: str = "g",
        *,
        version: int = LATEST_COMMIT,
        **how: Any,
    ) -> dict[tuple[str, int], int]:
        """Error codes by topic (by name or id) and partition."""
        request = self.commit_request(offsets, group_id, **how)
        return self.commit_errors(self.ask(version, request, OffsetCommitResponse))

    def commit_errors(self, response: OffsetCommitResponse) -> dict[tuple[str, int], int]:
        return {
            (self._name(topic.name, topic.topic_id), partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }

    def _name(self, name: str, topic_id: Uuid) -> str:
        if name or topic_id == ZERO_UUID:
            return name
        found = self.image.topic_by_id.get(topic_id)
        return found.name if found else "?"

    def commit_in_transaction(
        self,
        offsets: Mapping[tuple[str, int], int],
        group_id: str = "g",
        *,
        producer_id: int = 7,
        epoch: int = 0,
        version: int = LATEST_TXN_COMMIT,
        member_id: str = "",
        generation: int = -1,
        group_instance_id: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
    ) -> dict[tuple[str, int], int]:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name)).partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=list(topics.values()),
        )
        response = self.ask(version, request, TxnOffsetCommitResponse)
        return {
            (topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }

    def end(self, group_id: str = "g", *, producer_id: int = 7, epoch: int = 0, committed: bool) -> None:
        """The marker comes."""
        partition = self.groups.partition_for(group_id)
        self.groups.runtime.end_transaction(
            partition, Producer(producer_id, epoch), 0, committed=committed
        ).result()

    def fetch_request(
        self,
        version: int,
        wanted: Mapping[str, list[int]] | None,
        group_id: str = "g",
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> OffsetFetchRequest:
        if version < 8:
            old = (
                None
                if wanted is None
                else [OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in wanted.items()]
            )
            return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=require_stable)
        topics = None
        if wanted is not None:
            topics = [
                OffsetFetchRequestTopics(
                    name=name,
                    topic_id=self.topic_id(name) if name in self.image.topics else random_uuid(),
                    partition_indexes=indexes,
                )
                for name, indexes in wanted.items()
            ]
        group = OffsetFetchRequestGroup(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics
        )
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)

    def fetch_response(
        self, wanted: Mapping[str, list[int]] | None, group_id: str = "g", *, version: int, **how: Any
    ) -> OffsetFetchResponse:
        return self.ask(version, self.fetch_request(version, wanted, group_id, **how), OffsetFetchResponse)

    def fetch(
        self,
        wanted: Mapping[str, list[int]] | None,
        group_id: str = "g",
        *,
        version: int = LATEST_FETCH,
        **how: Any,
    ) -> dict[tuple[str, int], tuple[int, int, str | None, int]]:
        """Offset, leader epoch, metadata and error code by topic and partition; a group's error is raised."""
        response = self.fetch_response(wanted, group_id, version=version, **how)
        if version < 8:
            assert response.error_code == 0
            return {
                (topic.name, each.partition_index): (
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for topic in response.topics
                for each in topic.partitions
            }
        (group,) = response.groups
        assert (group.group_id, group.error_code) == (group_id, 0)
        return {
            (self._name(topic.name, topic.topic_id), part.partition_index): (
                part.committed_offset,
                part.committed_leader_epoch,
                part.metadata,
                part.error_code,
            )
            for topic in group.topics
            for part in topic.partitions
        }

    def delete(self, wanted: Mapping[str, list[int]], group_id: str = "g") -> dict[tuple[str, int], int]:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in indexes]
                )
                for name, indexes in wanted.items()
            ],
        )
        response = self.ask(0, request, OffsetDeleteResponse)
        assert response.error_code == 0
        return {
            (topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
