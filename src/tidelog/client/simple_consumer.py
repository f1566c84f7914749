"""Reads records from partitions that the caller names: no groups, no commits.

Owns one position per assigned partition: the offset of the next record to hand out, which only grows
between seeks. Control records and, with read_committed, records of aborted transactions are passed over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.errors import NoLeaderError, error_from, is_retriable
from tidelog.client.fetched import ConsumerRecord, read_records
from tidelog.client.metadata import Node, PartitionMetadata
from tidelog.client.offsets import list_offsets
from tidelog.client.resources import IsolationLevel, OffsetSpec
from tidelog.client.retry import Backoff, Deadline
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_TOPIC_IDS_SINCE = 13
_SESSIONLESS = -1


@dataclass(slots=True)
class _Assigned:
    position: int
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class _Trouble:
    """Since when polls fail, and how long to wait before the next."""

    deadline: Deadline
    backoff: Backoff


class SimpleConsumer:
    """Fetches assigned partitions; ``cluster`` stays the caller's to close.

    ``offset_reset`` says where to go on when a position has fallen out of the log; None raises instead.
    Errors that may pass are waited out; one that lasts for ``patience_ms`` is raised.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 52_428_800,
        max_partition_bytes: int = 1_048_576,
        offset_reset: OffsetSpec | None = None,
        check_crcs: bool = True,
        patience_ms: int = 60_000,
    ) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._max_partition_bytes = max_partition_bytes
        self._offset_reset = offset_reset
        self._check_crcs = check_crcs
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._patience_ms = patience_ms
        self._trouble: _Trouble | None = None

    async def assign(self, positions: Mapping[TopicPartition, int | OffsetSpec]) -> None:
        """Read these partitions from now on, from offsets or from ``OffsetSpec.EARLIEST``/``LATEST``."""
        specs = {partition: int(at) for partition, at in positions.items() if isinstance(at, OffsetSpec)}
        found = await list_offsets(self._cluster, specs, isolation_level=self._isolation_level)
        assigned: dict[TopicPartition, _Assigned] = {}
        for partition, at in positions.items():
            if partition in found:
                found[partition].raise_for_error()
                at = found[partition].offset
            assigned[partition] = _Assigned(int(at))
        await self._cluster.refresh({partition.topic for partition in positions})
        self._assigned = assigned

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading ``partition`` from ``offset``."""
        self._assigned[partition] = _Assigned(offset)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that ``poll`` will look for."""
        return self._assigned[partition].position

    def high_watermark(self, partition: TopicPartition) -> int:
        """The end of the partition as of the last fetch; -1 before the first."""
        return self._assigned[partition].high_watermark

    async def poll(self) -> list[ConsumerRecord]:
        """The next records of all partitions; empty when ``max_wait_ms`` passed without any."""
        deadline = Deadline(self._cluster.request_timeout_ms)
        try:
            by_leader = self._by_leader()
            answers = await asyncio.gather(
                *(self._fetch(node, partitions, deadline) for node, partitions in by_leader.items())
            )
            records = [record for answer in answers for record in await self._accept(answer)]
        except Exception as error:
            self._trouble = self._trouble or _Trouble(Deadline(self._patience_ms), self._cluster.backoff())
            if not is_retriable(error) or self._trouble.deadline.expired:
                raise
            await self._recover(self._trouble)
            return []
        self._trouble = None
        return records

    def _by_leader(self) -> dict[Node, dict[TopicPartition, PartitionMetadata]]:
        by_leader: dict[Node, dict[TopicPartition, PartitionMetadata]] = defaultdict(dict)
        problem: NoLeaderError | None = None
        for partition in self._assigned:
            try:
                node, metadata = self._cluster.leader_of(partition)
            except NoLeaderError as error:
                problem = error
                continue
            by_leader[node][partition] = metadata
        if problem is not None and not by_leader:
            raise problem
        return by_leader

    async def _recover(self, trouble: _Trouble) -> None:
        """Wait a moment, then learn anew who leads what, if anybody answers; the next poll will see."""
        await asyncio.sleep(trouble.backoff.next_ms() / 1000)
        topics = {partition.topic for partition in self._assigned}
        try:
            await self._cluster.refresh(topics, deadline=Deadline(self._cluster.request_timeout_ms))
        except Exception as error:
            if not is_retriable(error):
                raise

    async def _fetch(
        self, node: Node, partitions: Mapping[TopicPartition, PartitionMetadata], deadline: Deadline
    ) -> list[tuple[TopicPartition, PartitionData]]:
        connection = await self._cluster.connection_to(node)
        topics = self._cluster.metadata.topics
        names = {topics[partition.topic].topic_id: partition.topic for partition in partitions}
        max_version = _TOPIC_IDS_SINCE - 1 if ZERO_UUID in names else None
        response = await self._request(connection, partitions, deadline, max_version)
        if error := error_from(response.error_code, None, f"fetching from {node}"):
            raise error
        return [
            (TopicPartition(topic.topic or names[topic.topic_id], data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
        ]

    async def _request(
        self,
        connection: Connection,
        partitions: Mapping[TopicPartition, PartitionMetadata],
        deadline: Deadline,
        max_version: int | None,
    ) -> FetchResponse:
        def build(version: int) -> FetchRequest:
            by_topic: dict[str, list[FetchPartition]] = defaultdict(list)
            for partition, metadata in partitions.items():
                by_topic[partition.topic].append(
                    FetchPartition(
                        partition=partition.partition,
                        current_leader_epoch=metadata.leader_epoch if version >= 9 else -1,
                        fetch_offset=self._assigned[partition].position,
                        partition_max_bytes=self._max_partition_bytes,
                    )
                )
            return FetchRequest(
                max_wait_ms=self._max_wait_ms,
                min_bytes=self._min_bytes,
                max_bytes=self._max_bytes,
                isolation_level=self._isolation_level,
                session_epoch=_SESSIONLESS,
                topics=[self._fetch_topic(name, parts, version) for name, parts in by_topic.items()],
            )

        return await connection.request(build, FetchResponse, deadline, max_version=max_version)

    def _fetch_topic(self, name: str, partitions: list[FetchPartition], version: int) -> FetchTopic:
        if version >= _TOPIC_IDS_SINCE:
            return FetchTopic(topic_id=self._cluster.metadata.topics[name].topic_id, partitions=partitions)
        return FetchTopic(topic=name, partitions=partitions)

    async def _accept(self, answers: Iterable[tuple[TopicPartition, PartitionData]]) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        for partition, data in answers:
            assigned = self._assigned.get(partition)
            if assigned is None:
                continue
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._reset(partition, assigned)
                continue
            if error := error_from(data.error_code, None, f"partition {partition}"):
                raise error
            assigned.high_watermark = data.high_watermark
            assigned.log_start_offset = data.log_start_offset
            fetched, assigned.position = read_records(
                partition,
                data,
                assigned.position,
                read_committed=self._isolation_level is IsolationLevel.READ_COMMITTED,
                check_crcs=self._check_crcs,
            )
            records += fetched
        return records

    async def _reset(self, partition: TopicPartition, assigned: _Assigned) -> None:
        ends = {}
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
            found = (await list_offsets(self._cluster, {partition: spec}))[partition]
            found.raise_for_error()
            ends[spec] = found.offset
        if self._offset_reset is None:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {partition} holds offsets {ends[OffsetSpec.EARLIEST]} to "
                f"{ends[OffsetSpec.LATEST]}, not {assigned.position}",
            )
        assigned.position = ends[self._offset_reset]
