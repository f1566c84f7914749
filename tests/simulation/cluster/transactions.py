"""A transactional client: writes to several partitions, commits offsets with them, and ends it one way or
the other.

It speaks either of two protocols: partitions are added by hand (transaction version 1), or join by being
written to and every transaction has an epoch of its own (version 2, KIP-890). After any error that is not
to be retried it begins anew with InitProducerId, which aborts what was open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.cluster.clients import NO_ANSWER, Committer, _now_ms
from tests.simulation.cluster.history import Attempt, BrokenPromise, Fate, History
from tests.simulation.cluster.world import ClusterWorld

from tidelog.errors import ErrorCode
from tidelog.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from tidelog.records.record import Record, encode_batch
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_TRANSACTION_TIMEOUT_MS = 6000
_AGAIN = frozenset(
    {
        NO_ANSWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_NEVER = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE})

Step = Callable[[], Coroutine[Any, Any, int]]


class GivenUp(Exception):
    """This transaction cannot go on."""


class Transactor(Committer):
    """One transactional id, which is the name of its group, too."""

    def __init__(
        self, world: ClusterWorld, history: History, name: str, partitions: list[TopicPartition]
    ) -> None:
        super().__init__(world, history, name)
        self.partitions = partitions
        self.stopping = False
        self.version = world.rng.choice((1, 2))
        self.attempts: list[Attempt] = []
        history.attempts[name] = self.attempts
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._values = 0

    async def run(self) -> None:
        """One transaction after the other until told to stop."""
        await self._begin_anew()
        while not self.stopping:
            await self.pause(0.05, 0.8)
            attempt = Attempt(len(self.attempts))
            self.attempts.append(attempt)
            try:
                await self._attempt(attempt)
            except GivenUp:
                if attempt.fate is Fate.OPEN:
                    attempt.fate = Fate.ABORTED
                await self._begin_anew()

    async def _attempt(self, attempt: Attempt) -> None:
        added: set[TopicPartition] = set()
        for _ in range(self.rng.randint(1, 3)):
            where = self.rng.choice(self.partitions)
            if self.version == 1 and where not in added:
                await self._patiently(lambda where=where: self._add(where))  # type: ignore[misc]
            added.add(where)
            await self._write(attempt, where)
        if self.rng.random() < 0.5:
            await self._commit_offset(attempt)
        if self.rng.random() < 0.05:
            # Its time is over before it ends: the coordinator aborts it.
            await asyncio.sleep(_TRANSACTION_TIMEOUT_MS / 1000 * 1.5)
        committed = self.rng.random() < 0.7
        attempt.fate = Fate.UNKNOWN if committed else Fate.OPEN
        await self._patiently(lambda: self._end(committed))
        attempt.fate = Fate.COMMITTED if committed else Fate.ABORTED

    async def _write(self, attempt: Attempt, where: TopicPartition) -> None:
        value = f"{self.name}:{self._values}".encode()
        self._values += 1
        attempt.values.append((where, value))
        self.history.fates[value] = attempt
        sequence = self._sequences.get(where, 0)
        producer_id, epoch = self._producer
        batch = encode_batch(
            [Record(timestamp=_now_ms(), value=value)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        offset = await self._patiently_produce(where, batch)
        attempt.acknowledged.add(value)
        self.history.acknowledge(where, offset, [value])
        self._sequences[where] = sequence + 1

    async def _patiently_produce(self, where: TopicPartition, batch: bytes) -> int:
        offset = -1

        async def send() -> int:
            nonlocal offset
            version = 12 if self.version == 2 else 11
            code, offset = await self.produce(where, batch, version=version, txn=self.name)
            return code

        await self._patiently(send)
        return offset

    async def _commit_offset(self, attempt: Attempt) -> None:
        if self.version == 1:
            await self._patiently(self._add_offsets)
        attempt.commits_offset = True
        await self._patiently(lambda: self._send_offset(attempt.number))

    # Requests

    async def _patiently(self, step: Step) -> None:
        for _ in range(40):
            code = await step()
            if code == ErrorCode.NONE:
                return
            if code in _NEVER:
                raise BrokenPromise(f"{self.name} was refused with {ErrorCode(code).name}")
            if code not in _AGAIN:
                self.world.trace.note(self.name, code)
                raise GivenUp
            await self.pause(0.02, 0.3)
        raise GivenUp

    def _transaction_coordinator(self) -> int | None:
        return self.leader_of(TopicPartition(TRANSACTION_STATE_TOPIC, 0))

    async def _begin_anew(self) -> None:
        while True:
            coordinator = self._transaction_coordinator()
            if coordinator is not None:
                request = InitProducerIdRequest(
                    transactional_id=self.name, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
                )
                found = await self.ask(coordinator, request, InitProducerIdResponse, 5)
                if found is not None and not found.error_code:
                    self._producer = found.producer_id, found.producer_epoch
                    self._sequences.clear()
                    return
                if found is not None and found.error_code in _NEVER:
                    raise BrokenPromise(f"{self.name} gets no producer id: {found.error_code}")
            await self.pause(0.05, 0.4)

    async def _add(self, where: TopicPartition) -> int:
        coordinator = self._transaction_coordinator()
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=where.topic, partitions=[where.partition])],
        )
        found = await self.ask(coordinator, request, AddPartitionsToTxnResponse, 3)
        if found is None:
            return NO_ANSWER
        return found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def _add_offsets(self) -> int:
        coordinator = self._transaction_coordinator()
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=self.name,
        )
        found = await self.ask(coordinator, request, AddOffsetsToTxnResponse, 3)
        return NO_ANSWER if found is None else found.error_code

    async def _send_offset(self, offset: int) -> int:
        coordinator = self.coordinator()
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[TxnOffsetCommitRequestTopic(name="data", partitions=[partition])],
        )
        found = await self.ask(coordinator, request, TxnOffsetCommitResponse, 5 if self.version == 2 else 4)
        return NO_ANSWER if found is None else found.topics[0].partitions[0].error_code

    async def _end(self, committed: bool) -> int:
        coordinator = self._transaction_coordinator()
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=committed,
        )
        found = await self.ask(coordinator, request, EndTxnResponse, 5 if self.version == 2 else 4)
        if found is None:
            return NO_ANSWER
        if not found.error_code and self.version == 2:
            self._producer = found.producer_id, found.producer_epoch
            self._sequences.clear()
        return found.error_code
