"""Clients of the simulated cluster: an idempotent producer, a consumer, one who commits offsets.

They speak the real protocol over the simulated network, retry what may be retried, and write into the
``History`` what they were told. A client knows where to go from some broker's metadata, which may be old.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tests.simulation.cluster.history import BrokenPromise, History
from tests.simulation.cluster.machine import PORT
from tests.simulation.cluster.world import ClusterWorld

from tidelog.client._address import Address
from tidelog.client._network.connect import open_connection
from tidelog.client._network.connection import Connection
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.schema import Payload

TIMEOUT_MS = 1500
MIN_IN_SYNC = 2
NO_ANSWER = -1000
"""Stands for an error code where there was no answer at all."""
_READ_COMMITTED = 1
_LATEST = -1

R = TypeVar("R", bound=Payload)


class Caller:
    """Somebody with connections to brokers."""

    def __init__(self, world: ClusterWorld, history: History, name: str) -> None:
        self.world = world
        self.history = history
        self.name = name
        self.rng = world.rng
        self._connections: dict[int, Connection] = {}
        self._settings = NetworkSettings(client_id=name)
        self._epochs: dict[TopicPartition, int] = {}

    def leader_of(self, name: TopicPartition) -> int | None:
        """Where to go for a partition; metadata that are older than what is known already are passed over."""
        found = self.world.leader_of(name)
        if found is None or found[0] < 0 or found[1] < self._epochs.get(name, 0):
            return None
        self._epochs[name] = found[1]
        return found[0]

    async def ask(
        self, broker_id: int, request: Payload, response_type: type[R], max_version: int | None = None
    ) -> R | None:
        """A broker's answer, None if there is none."""
        deadline = Deadline(TIMEOUT_MS)
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                connection = self._connections.get(broker_id)
                if connection is None or not connection.is_open:
                    address = Address(f"broker{broker_id}", PORT)
                    connection = await open_connection(address, self._settings, deadline)
                    self._connections[broker_id] = connection
                return await connection.request(request, response_type, deadline, max_version=max_version)
        except (TidelogError, OSError, TimeoutError):
            self._connections.pop(broker_id, None)
            return None

    async def pause(self, low_s: float, high_s: float) -> None:
        await asyncio.sleep(self.rng.uniform(low_s, high_s))

    async def produce(
        self, name: TopicPartition, batch: bytes, *, acks: int = -1, version: int = 12, txn: str | None = None
    ) -> tuple[int, int]:
        """An error code, or ``NO_ANSWER``, and an offset."""
        leader = self.leader_of(name)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1
        request = ProduceRequest(
            transactional_id=txn,
            acks=acks,
            timeout_ms=TIMEOUT_MS - 300,
            topic_data=[
                TopicProduceData(
                    name=name.topic,
                    partition_data=[PartitionProduceData(index=name.partition, records=batch)],
                )
            ],
        )
        response = await self.ask(leader, request, ProduceResponse, version)
        if response is None:
            return NO_ANSWER, -1
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def fetch(
        self, name: TopicPartition, offset: int, isolation: int = 0, *, anywhere: bool = False
    ) -> tuple[int, PartitionData] | None:
        """Who was asked, and the answer; with ``anywhere`` not the leader, but any replica (KIP-392)."""
        leader = self.leader_of(name)
        if leader is None:
            return None
        if anywhere:
            leader = self.rng.choice(sorted(self.world.machines))
        wanted = FetchPartition(
            partition=name.partition,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=self._epochs[name],
        )
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            isolation_level=isolation,
            topics=[FetchTopic(topic=name.topic, partitions=[wanted])],
        )
        response = await self.ask(leader, request, FetchResponse, 12)
        if response is None or not response.responses:
            return None
        return leader, response.responses[0].partitions[0]


class Producer(Caller):
    """An idempotent producer of one partition; ``next`` is the number of its next value."""

    def __init__(self, world: ClusterWorld, history: History, name: str, where: TopicPartition) -> None:
        super().__init__(world, history, name)
        self.where = where
        self.next = 0
        self.stopping = False
        self.refused: dict[int, int] = {}

    async def run(self) -> None:
        """Write until told to stop."""
        producer = await self._init()
        while not self.stopping:
            # Bursts and silences: a follower is behind, or has long caught up.
            await self.pause(0.01, 0.08 if self.rng.random() < 0.7 else 1.2)
            count = self.rng.randint(1, 3)
            values = [f"{self.name}:{self.next + each}".encode() for each in range(count)]
            batch = encode_batch(
                [Record(timestamp=_now_ms(), value=value) for value in values],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=self.next,
            )
            if not await self._send(batch, values):
                return
            self.next += count

    async def _init(self) -> int:
        while True:
            if self.world.up:
                request = InitProducerIdRequest(transactional_id=None)
                found = await self.ask(self.rng.choice(self.world.up), request, InitProducerIdResponse)
                if found is not None and not found.error_code:
                    return found.producer_id
            await self.pause(0.05, 0.3)

    async def _send(self, batch: bytes, values: list[bytes]) -> bool:
        while True:
            code, offset = await self.produce(self.where, batch)
            if code == ErrorCode.NONE:
                self.world.trace.note(self.name, self.next, offset)
                if self.world.copies(self.where, offset) < MIN_IN_SYNC:
                    raise BrokenPromise(
                        f"acknowledged records have {MIN_IN_SYNC} copies: not so at {offset} of {self.where}"
                    )
                self.history.acknowledge(self.where, offset, values)
                return True
            if code in (
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                ErrorCode.UNKNOWN_PRODUCER_ID,
                ErrorCode.INVALID_PRODUCER_EPOCH,
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                ErrorCode.CORRUPT_MESSAGE,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            ):
                raise BrokenPromise(
                    f"a producer that sends in order is understood: {values} of {self.where} was refused "
                    f"with {ErrorCode(code).name}"
                )
            self.refused[code] = self.refused.get(code, 0) + 1
            if self.stopping and self.refused.get(code, 0) > 10:
                return False
            await self.pause(0.02, 0.3)


class CarelessProducer(Caller):
    """Writes with acks=1 where nothing is promised, so that logs part and have to be brought together."""

    def __init__(self, world: ClusterWorld, history: History, name: str, where: TopicPartition) -> None:
        super().__init__(world, history, name)
        self.where = where
        self.stopping = False

    async def run(self) -> None:
        """Write until told to stop."""
        number = 0
        while not self.stopping:
            await self.pause(0.02, 0.4)
            batch = encode_batch([Record(timestamp=_now_ms(), value=f"{self.name}:{number}".encode())])
            await self.produce(self.where, batch, acks=1)
            number += 1


class Consumer(Caller):
    """Reads one partition from its start to its end, and again."""

    def __init__(
        self,
        world: ClusterWorld,
        history: History,
        name: str,
        where: TopicPartition,
        *,
        committed: bool,
        anywhere: bool = False,
    ) -> None:
        super().__init__(world, history, name)
        self.where = where
        self.committed = committed
        self.anywhere = anywhere
        self.position = 0
        self.watermarks: dict[object, int] = {}
        self._aborted: set[int] = set()

    async def run(self) -> None:
        """Read for ever."""
        while True:
            await self.pause(0.05, 0.6)
            if self.rng.random() < 0.3:
                await self._ask_end()
            isolation = _READ_COMMITTED if self.committed else 0
            found = await self.fetch(self.where, self.position, isolation, anywhere=self.anywhere)
            if found is None:
                continue
            leader, answer = found
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # A follower may be behind what its leader has told.
                if not self.anywhere:
                    await self._out_of_range()
            elif answer.error_code == ErrorCode.NONE:
                self._take(leader, answer)

    async def _ask_end(self) -> None:
        leader = self.leader_of(self.where)
        if leader is None:
            return
        wanted = ListOffsetsPartition(partition_index=self.where.partition, timestamp=_LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self.where.topic, partitions=[wanted])]
        )
        before = self.history.ends.get(self.where)
        response = await self.ask(leader, request, ListOffsetsResponse, 7)
        if response is None or response.topics[0].partitions[0].error_code:
            return
        if self.history.ends.get(self.where) == before:
            # Nobody else has been told anything since this was asked.
            answer = response.topics[0].partitions[0]
            self.history.told_end(self.where, answer.leader_epoch, answer.offset)

    async def _out_of_range(self) -> None:
        start = self.history.starts.get(self.where, 0)
        if self.position >= start and self.where.topic != "short":
            raise BrokenPromise(
                f"what was read stays: {self.where} has nothing at {self.position}, where {self.name} is"
            )
        ends = [held.partition.log.log_start_offset for held in self.world.replicas(self.where)]
        self.position = max([self.position, *ends])

    def _take(self, leader: int, answer: PartitionData) -> None:
        raw = answer.records or b""
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or [])
        for at, header in iter_batches(raw):
            if header.next_offset <= self.position:
                continue
            while aborted and aborted[0][0] <= header.last_offset:
                self._aborted.add(aborted.pop(0)[1])
            if header.is_control:
                marker = next(iter(decode_batch(raw, at)))
                if parse_control_type(marker.key) is ControlType.ABORT:
                    self._aborted.discard(header.producer_id)
            elif not (self.committed and header.is_transactional and header.producer_id in self._aborted):
                for record in decode_batch(raw, at):
                    if record.offset >= self.position and record.value is not None:
                        self.history.consumed(
                            self.where, record.offset, record.value, committed=self.committed
                        )
            self.position = header.next_offset
        self.world.trace.note(self.name, self.position)


class Committer(Caller):
    """Commits ever higher offsets of a group, and looks whether they are there."""

    async def run(self) -> None:
        """Commit for ever."""
        offset = 0
        while True:
            await self.pause(0.1, 0.9)
            offset += 1
            if await self._commit(offset):
                self.history.committed_offsets[self.name] = offset
            if self.rng.random() < 0.3:
                low = self.history.committed_offsets.get(self.name, -1)
                found = await self.committed()
                if found is not None and found < low:
                    raise BrokenPromise(f"committed offsets are kept: {found} came after {low}")

    async def _commit(self, offset: int) -> bool:
        coordinator = self.coordinator()
        if coordinator is None:
            return False
        self.history.asked_offsets[self.name] = offset
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.name, topics=[OffsetCommitRequestTopic(name="data", partitions=[partition])]
        )
        response = await self.ask(coordinator, request, OffsetCommitResponse, 9)
        return response is not None and not response.topics[0].partitions[0].error_code

    async def committed(self) -> int | None:
        """Where the group is, None if nobody says."""
        coordinator = self.coordinator()
        if coordinator is None:
            return None
        group = OffsetFetchRequestGroup(
            group_id=self.name, topics=[OffsetFetchRequestTopics(name="data", partition_indexes=[0])]
        )
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self.ask(coordinator, request, OffsetFetchResponse, 9)
        if response is None or response.groups[0].error_code:
            return None
        partition = response.groups[0].topics[0].partitions[0]
        return None if partition.error_code else partition.committed_offset

    def coordinator(self) -> int | None:
        """The broker that coordinates groups, as some broker believes."""
        return self.leader_of(TopicPartition(CONSUMER_OFFSETS_TOPIC, 0))


def _now_ms() -> int:
    return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)
