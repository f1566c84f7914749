"""A transaction coordinator without a broker: a log in memory, a clock moved by hand, markers that fail."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from tests.rigs.clock import ManualClock
from tests.rigs.memory_log import MemoryLog

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.ending import EndRequest
from tidelog.coordinator.transaction.markers import MarkerRequest
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.coordinator.transaction.shard import TransactionShard
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.znodes.znodes import TopicAssignment
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.timers import Timers

TX = "tx"
TIMEOUT_MS = 60_000
ORDERS = [TopicPartition("orders", index) for index in range(4)]
OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)


class ProducerIdList:
    """Producer ids in order; none at hand while ``dry``, until somebody awaits one."""

    def __init__(self) -> None:
        self.next = 1000
        self.dry = False
        self.fail_with: Exception | None = None
        self.gate: asyncio.Event | None = None
        """Awaited before an id is given, and then there are more at hand."""
        self.awaited = 0

    def next_id_nowait(self) -> int | None:
        if self.dry:
            return None
        self.next += 1
        return self.next - 1

    async def next_id(self) -> int:
        self.awaited += 1
        if self.gate is not None:
            await self.gate.wait()
            self.dry = False
        if self.fail_with is not None:
            raise self.fail_with
        self.next += 1
        return self.next - 1


class FakeMarkers:
    """Partitions that take markers: at once, or when a test says so, or not."""

    def __init__(self) -> None:
        self.requests: list[MarkerRequest] = []
        self.held: deque[tuple[MarkerRequest, Promise[dict[TopicPartition, ErrorCode]]]] = deque()
        self.hold = False
        self.answers: deque[ErrorCode | Exception] = deque()
        """What the next requests get for all partitions, instead of being carried out."""
        self.raise_next: Exception | None = None
        self.codes: dict[TopicPartition, ErrorCode] = {}
        """Partitions that refuse, until the test takes them out."""
        self.written: list[tuple[TopicPartition, int, int, bool]] = []
        self.untold: set[TopicPartition] = set()
        """Partitions that exist though the metadata do not know of them."""
        self.nobody_knows = False

    def gone(self, partitions: frozenset[TopicPartition]) -> Promise[frozenset[TopicPartition]]:
        if self.nobody_knows:
            return Promise.failed(ConnectionError("no session"))
        return Promise.of(partitions - self.untold)

    def write(self, request: MarkerRequest) -> Promise[dict[TopicPartition, ErrorCode]]:
        self.requests.append(request)
        if self.raise_next is not None:
            error, self.raise_next = self.raise_next, None
            raise error
        if self.hold:
            reply: Promise[dict[TopicPartition, ErrorCode]] = Promise()
            self.held.append((request, reply))
            return reply
        return self._carry_out(request)

    def release(self) -> None:
        """Carry out the oldest request that is held."""
        request, reply = self.held.popleft()
        reply.follow(self._carry_out(request))

    def lose(self) -> None:
        """Carry out the oldest request that is held, and lose the answer."""
        request, reply = self.held.popleft()
        self._carry_out(request)
        reply.fail(ConnectionError("the answer got lost"))

    def _carry_out(self, request: MarkerRequest) -> Promise[dict[TopicPartition, ErrorCode]]:
        if self.answers:
            answer = self.answers.popleft()
            if isinstance(answer, Exception):
                return Promise.failed(answer)
            return Promise.of(dict.fromkeys(request.partitions, answer))
        codes = {name: self.codes.get(name, ErrorCode.NONE) for name in request.partitions}
        for name, code in codes.items():
            if code is ErrorCode.NONE:
                self.written.append((name, request.producer_id, request.producer_epoch, request.committed))
        return Promise.of(codes)


class Scene:
    """One coordinator with one partition of ``__transaction_state``."""

    def __init__(
        self,
        version: int = 2,
        options: Mapping[str, str] | None = None,
        *,
        autocommit: bool = True,
        log: MemoryLog | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.image = MetadataImage()
        self.image.features = {"transaction.version": version}
        self.put_topic("orders", len(ORDERS))
        self.put_topic(CONSUMER_OFFSETS_TOPIC, 1)
        self.put_topic(TRANSACTION_STATE_TOPIC, 1)
        self.config = BrokerConfig({"log.dirs": "unused", **(options or {})})
        self.ids = ProducerIdList()
        self.markers = FakeMarkers()
        self.log = log or MemoryLog(autocommit=autocommit)
        self.epoch = 0
        self._start()

    def put_topic(self, name: str, partitions: int) -> None:
        assignment = TopicAssignment(topic_id=None, partitions=dict.fromkeys(range(partitions), (1,)))
        self.image.put_topic(name, assignment, {})

    def _start(self) -> None:
        self.timers = Timers(self.clock)
        self.coordinator = TransactionCoordinator(
            self.config, self.clock, self.image, self.timers, self.ids, self.markers
        )
        self.epoch += 1
        assert self.coordinator.runtime.load_nowait(0, self.epoch, self.log)

    def crash(self) -> None:
        """The broker dies; another one loads what is committed."""
        autocommit = self.log.autocommit
        self.markers.held.clear()
        self.log = self.log.crash()
        self.log.autocommit = autocommit
        self._start()

    def unload(self) -> None:
        self.coordinator.runtime.unload(0)

    def advance(self, delta_ms: int) -> None:
        """Time passes, and what is due is done."""
        self.clock.advance(delta_ms)
        self.timers.run_due()

    # What is known

    @property
    def shard(self) -> TransactionShard:
        found: list[TransactionShard] = []
        self.coordinator.runtime.read(0, found.append)
        return found[0]

    def find(self, name: str = TX) -> Transaction | None:
        return self.shard.transactions.get(name)

    def get(self, name: str = TX) -> Transaction:
        found = self.find(name)
        assert found is not None
        return found

    def state(self) -> TransactionState:
        return self.get().state

    # Requests

    def init(
        self, name: str = TX, timeout_ms: int = TIMEOUT_MS, expected: Producer | None = None
    ) -> Promise[Producer]:
        return self.coordinator.init_producer_id(name, timeout_ms, expected)

    def initialized(self, name: str = TX) -> Producer:
        return self.init(name).result()

    def add(
        self,
        producer: Producer,
        partitions: Iterable[TopicPartition] = ORDERS[:2],
        name: str = TX,
        *,
        verify_only: bool = False,
        from_client: bool = False,
    ) -> Promise[dict[TopicPartition, ErrorCode]]:
        return self.coordinator.add_or_verify(
            name, producer.producer_id, producer.epoch, partitions, verify_only, from_client=from_client
        )

    def end(
        self, producer: Producer, *, commit: bool, version: int | None = None, name: str = TX
    ) -> Promise[Producer]:
        if version is None:
            version = self.image.features["transaction.version"]
        return self.coordinator.end(name, EndRequest(*producer, commit), version)

    def in_state(self, state: TransactionState, version: int | None = None) -> Producer:
        """Bring the id to a state; gives the producer that the transaction began with."""
        producer = self.initialized()
        if state is TransactionState.EMPTY:
            return producer
        added(self.add(producer))
        if state is TransactionState.ONGOING:
            return producer
        self.markers.hold = state.is_prepared
        commit = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        self.end(producer, commit=commit, version=version).result()
        assert self.state() is state
        return producer


def code(reply: Promise[object] | Promise[Producer] | Promise[None]) -> ErrorCode:
    """What a request was refused with, NONE if it was not."""
    assert reply.done
    if reply.error is None:
        return ErrorCode.NONE
    assert isinstance(reply.error, KafkaError), reply.error
    return reply.error.code


def added(reply: Promise[dict[TopicPartition, ErrorCode]]) -> None:
    assert set(reply.result().values()) <= {ErrorCode.NONE}


def only_code(reply: Promise[dict[TopicPartition, ErrorCode]]) -> ErrorCode:
    """The error that all partitions have."""
    (found,) = set(reply.result().values())
    return found


def unchanged(scene: Scene, request: Callable[[], object]) -> None:
    """Do something, and see that neither the log nor the shard has changed."""
    before, offset = dict(scene.shard.transactions), scene.log.end_offset
    request()
    assert scene.shard.transactions == before
    assert scene.log.end_offset == offset
