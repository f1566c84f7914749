"""The audit log as a topic (``tidelog.audit.log.topic``): each entry a record with a line of JSON.

Entries wait in a buffer that is bounded in number and bytes (:class:`AuditBuffer`), so that a flood of
denials while the topic cannot be written to costs a bounded amount of memory; what does not fit is counted,
and the count is the next entry. A task writes them in batches (:class:`AuditTopic`), a few times a second:
into a partition that this broker leads, or else over the network to whoever leads one. What may have been
written when an answer is lost is written again, so that an entry may be there twice, and none is missing for
that.

No entry leads to another: writing here asks nobody for leave, and that brokers may write to the topic is not
written down (``access_log``). The topic is made if it is missing, like one that a client asks for; who wants
another retention or more replicas makes it himself before. Whoever is not a broker or a super user can change
nothing in it, whatever rules allow (``authorization``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.clock import Clock
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, TidelogError
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.records.record import Record, encode_batch
from tidelog.replication.partitions import Partitions
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

logger = logging.getLogger(__name__)

_MAX_ENTRIES = 20_000
_MAX_BYTES = 8 * 1024 * 1024
_BATCH_ENTRIES = 200
_BATCH_BYTES = 128 * 1024
_WRITE_EVERY_S = 0.2
_RETRY_S = 1.0
_LAST_WORDS_S = 3.0
_TIMEOUT_MS = 10_000


class AuditBuffer:
    """Entries that are not in the topic yet."""

    def __init__(self, clock: Clock, max_entries: int = _MAX_ENTRIES, max_bytes: int = _MAX_BYTES) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: deque[Record] = deque()
        self._bytes = 0
        self._lost = 0

    def __len__(self) -> int:
        return len(self._entries) + bool(self._lost)

    def write(self, line: bytes) -> None:
        """Add an entry, if there is room."""
        self._note_lost()
        if len(self._entries) >= self._max_entries or self._bytes + len(line) > self._max_bytes:
            self._lost += 1
        else:
            self._add(line)

    def first(self) -> list[Record]:
        """The next batch; it stays here until it is :meth:`written`."""
        self._note_lost()
        batch: list[Record] = []
        size = 0
        for entry in self._entries:
            size += len(entry.value or b"")
            if batch and (len(batch) == _BATCH_ENTRIES or size > _BATCH_BYTES):
                break
            batch.append(entry)
        return batch

    def written(self, count: int) -> None:
        """The first so many are in the topic."""
        for _ in range(count):
            self._bytes -= len(self._entries.popleft().value or b"")

    def _note_lost(self) -> None:
        """Say how many did not fit, where there is room for that again."""
        if self._lost and len(self._entries) < self._max_entries and self._bytes < self._max_bytes:
            lost, self._lost = self._lost, 0
            self._add(msgspec.json.encode({"timestampMs": self._clock.time_ms(), "lostEntries": lost}))

    def _add(self, line: bytes) -> None:
        self._entries.append(Record(timestamp=self._clock.time_ms(), key=None, value=line))
        self._bytes += len(line)


class TopicMaker(Protocol):
    """Who makes topics that are missing."""

    async def auto_create_topics(self, names: list[str]) -> dict[str, KafkaError | None]:
        """Create topics; one that is there by now is fine too."""


class RemoteWriter(Protocol):
    """Who has other brokers write."""

    async def produce(self, broker_id: int, request: ProduceRequest, timeout_ms: float) -> ProduceResponse:
        """The answer of a broker to a request; raises what keeps it from being asked."""


class AuditPlaces(NamedTuple):
    """What the writer works on."""

    broker_id: int
    image: MetadataImage
    partitions: Partitions
    topics: TopicMaker
    others: RemoteWriter
    on_offline: Callable[[LogDirOfflineError], None]


class AuditTopic:
    """Writes what is in a buffer into a topic."""

    def __init__(self, name: str, buffer: AuditBuffer, places: AuditPlaces, clock: Clock) -> None:
        self._name = name
        self._buffer = buffer
        self._places = places
        self._log = RateLimitedLog(logger, clock)
        self._turn = 0
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Write from now on."""
        self._writing = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Write what is left, if that can be done soon, and nothing more."""
        if self._writing is None:
            return
        self._writing.cancel()
        with suppress(asyncio.CancelledError):
            await self._writing
        self._writing = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                while self._buffer and await self._write_some():
                    pass
        if self._buffer:
            logger.warning("%d entries of the audit log did not get into %s", len(self._buffer), self._name)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            while self._buffer:
                if not await self._write_some():
                    await asyncio.sleep(_RETRY_S)
                # A batch is a step of the loop.
                await asyncio.sleep(0)

    async def _write_some(self) -> bool:
        """Write a batch; whether it is written."""
        try:
            await self._write(self._buffer.first())
        except (TidelogError, OSError, TimeoutError) as error:
            self._log.warn(
                "audit", "The audit log cannot be written to topic %s, and waits: %s", self._name, error
            )
            return False
        except Exception:
            logger.exception("The audit log cannot be written to topic %s, and waits", self._name)
            return False
        return True

    async def _write(self, entries: list[Record]) -> None:
        topic = await self._topic()
        here = self._places.broker_id
        leaders = {index: each.leader for index, each in topic.partitions.items() if each.leader >= 0}
        if not leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no partition of it has a leader")
        led_here = [index for index, leader in leaders.items() if leader == here]
        self._turn += 1
        choice = led_here or list(leaders)
        index = choice[self._turn % len(choice)]
        batch = bytearray(encode_batch(entries))
        if leaders[index] == here:
            self._append(index, batch)
        else:
            await self._send(leaders[index], topic, index, bytes(batch))
        self._buffer.written(len(entries))

    def _append(self, index: int, batch: bytearray) -> None:
        try:
            self._places.partitions.get(self._name, index).append(memoryview(batch))
        except LogDirOfflineError as error:
            self._places.on_offline(error)
            raise

    async def _send(self, leader: int, topic: TopicImage, index: int, batch: bytes) -> None:
        data = TopicProduceData(
            name=topic.name,
            topic_id=topic.id,
            partition_data=[PartitionProduceData(index=index, records=batch)],
        )
        request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
        response = await self._places.others.produce(leader, request, _TIMEOUT_MS)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "the leader refuses it")

    async def _topic(self) -> TopicImage:
        topics = self._places.image.topics
        if self._name not in topics:
            outcome = (await self._places.topics.auto_create_topics([self._name]))[self._name]
            if outcome is not None:
                raise outcome
        found = topics.get(self._name)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is being made")
        return found
