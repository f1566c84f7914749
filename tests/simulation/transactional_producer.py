"""A transactional producer as a generator, the way clients of transaction version 1 or 2 behave."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tests.simulation.transaction_history import Attempt, TransactionHistory
from tests.simulation.transaction_world import TransactionWorld, code_of
from tests.simulation.world import Call, Life, Sleep

from tidelog.broker.coordination.transaction_verification import Operation
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.ending import EndRequest
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.record import Record, encode_batch
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.scheduling.promise import Promise
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TIMEOUT_MS = 15_000
_TRY_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
Steps = Generator[Call | Sleep, Any, ErrorCode]


class TransactionalProducer:
    """One incarnation of a transactional id; it ends when it is fenced."""

    def __init__(
        self,
        broker: TransactionWorld,
        history: TransactionHistory,
        transactional_id: str,
        topic: str,
        version: int,
    ) -> None:
        self.broker = broker
        self.history = history
        self.transactional_id = transactional_id
        self.topic = topic
        self.version = version
        self.producer = Producer(-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.added: set[TopicPartition] = set()
        self.leaving = False

    def life(self) -> Life:
        """Initialise, then one transaction after the other."""
        if (yield from self._begin_anew()):
            return
        while not self.leaving:
            attempt = self.history.begin(self.transactional_id)
            code = yield from self._transaction(attempt)
            if code:
                # As clients do: what cannot go on is aborted; who cannot even do that is fenced.
                code = yield from self._end(attempt, committed=False)
                if code and (yield from self._begin_anew()):
                    return
            yield Sleep(self.broker.world.random.randint(0, 300))

    def _begin_anew(self) -> Steps:
        expected = self.producer if self.producer.producer_id >= 0 else None
        code = yield from self._patiently(
            "init",
            lambda: self.broker.transactions.init_producer_id(
                self.transactional_id, TIMEOUT_MS, expected
            ).then(self._become),
        )
        return code

    def _become(self, producer: Producer) -> None:
        if producer != self.producer:
            self.producer = producer
            self.sequences = {}

    def _transaction(self, attempt: Attempt) -> Steps:
        dice = self.broker.world.random
        self.added = set()
        count = len(self.broker.image.topics[self.topic].partitions)
        for _ in range(dice.randint(0, 4)):
            partition = TopicPartition(self.topic, dice.randrange(count))
            if code := (yield from self._add(partition)):
                return code
            value = self.history.send(attempt, partition)
            sequence = self.sequences.get(partition, 0)
            if code := (
                yield from self._patiently("produce", lambda: self._produce(partition, value, sequence))  # noqa: B023
            ):
                return code
            attempt.written.add(value)
            self.sequences[partition] = sequence + 1
            yield Sleep(dice.randint(0, 50))
        if attempt.values and self.broker.world.chance(0.5):
            attempt.commits_offset = True
            if code := (yield from self._commit_offset(attempt)):
                return code
        if self.broker.world.chance(0.02):
            yield Sleep(TIMEOUT_MS * 2)
        return (yield from self._end(attempt, committed=self.broker.world.chance(0.7)))

    def _add(self, partition: TopicPartition) -> Steps:
        """Before version 2 the producer itself tells the coordinator where it is going to write."""
        if self.version >= 2 or partition in self.added:
            return ErrorCode.NONE
        code = yield from self._patiently("add", lambda: self._add_partition(partition))
        if not code:
            self.added.add(partition)
        return code

    def _end(self, attempt: Attempt, *, committed: bool) -> Steps:
        attempt.commit_requested = attempt.commit_requested or committed
        request = EndRequest(*self.producer, committed)
        client_version = 2 if self.version >= 2 else 0

        def ended(producer: Producer) -> None:
            attempt.outcome = "committed" if committed else "aborted"

        def end() -> Promise[Producer]:
            reply = self.broker.transactions.end(self.transactional_id, request, client_version)
            reply.when_done(lambda settled: ended(settled.result()) if settled.error is None else None)
            return reply

        answer: list[Producer] = []
        what = "commit" if committed else "abort"
        code = yield from self._patiently(what, end, lambda reply: answer.append(reply.result()))
        if not code and self.version >= 2:
            self._become(answer[0])
        return code

    def _patiently(self, what: str, send: Any, got: Any = lambda reply: None) -> Steps:
        """Ask until there is an answer that is not "try again"."""
        while True:
            reply = yield Call(f"{what} {self.producer}", send)
            if reply is None:
                yield Sleep(self.broker.world.random.randint(20, 200))
                continue
            code = code_of(reply.error)
            if code is ErrorCode.NONE:
                got(reply)
                return code
            self.history.refused(code)
            if code not in _TRY_AGAIN:
                return code
            yield Sleep(self.broker.world.random.randint(5, 100))

    # What the broker does with the requests

    def _add_partition(self, partition: TopicPartition) -> Promise[None]:
        asked = self.broker.transactions.add_or_verify(
            self.transactional_id, *self.producer, [partition], verify_only=False, from_client=True
        )
        return asked.then(lambda codes: _raise(codes[partition]))

    def _produce(self, name: TopicPartition, value: bytes, sequence: int) -> Promise[None]:
        producer = self.producer
        operation = Operation.ADD if self.version >= 2 else Operation.VERIFY
        partition = self.broker.partitions.by_name[name]
        batch = encode_batch(
            [Record(timestamp=self.broker.world.clock.time_ms(), value=value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        written: Promise[None] = Promise()

        def verified(asked: Promise[Any]) -> None:
            try:
                answer = asked.result()
                _raise(answer.errors.get(name, ErrorCode.NONE))
                self.broker.verification.check(name, producer, answer)
                info = partition.stage(memoryview(bytearray(batch)), ACKS_ALL)
                partition.write_staged()
            except KafkaError as error:
                written.fail(error)
            else:
                _Replicated(partition, info.last_offset, written)

        self.broker.verification.verify_patiently(
            self.transactional_id, producer, {name: sequence}, operation
        ).when_done(verified)
        return written

    def _commit_offset(self, attempt: Attempt) -> Steps:
        groups = self.broker.groups
        name = TopicPartition(groups.TOPIC, groups.partition_for(self.transactional_id))
        if self.version < 2:
            added = yield from self._patiently(
                "add offsets",
                lambda: self.broker.transactions.add_partitions(
                    self.transactional_id, self.producer, frozenset([name]), 0
                ),
            )
            if added:
                return added
        operation = Operation.ADD if self.version >= 2 else Operation.VERIFY
        position = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=attempt.number)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[position])],
        )
        producer = self.producer
        return (
            yield from self._patiently(
                "commit offsets",
                lambda: self.broker.verification.in_transaction(
                    self.transactional_id,
                    producer,
                    name,
                    operation,
                    lambda: self.broker.groups.write(
                        self.transactional_id,
                        lambda shard: requests.commit_in_transaction(shard.offsets, request, 5),
                        producer,
                    ),
                ),
            )
        )


class _Replicated:
    """Settles a reply when a batch has reached all replicas; a ``Waiter`` of its partition."""

    def __init__(self, partition: Partition, last_offset: int, reply: Promise[None]) -> None:
        self._last_offset = last_offset
        self._reply = reply
        partition.watch(self)
        self.partition_changed(partition)

    def partition_changed(self, partition: Partition) -> None:
        if not partition.is_leader:
            partition.unwatch(self)
        elif partition.log.high_watermark > self._last_offset:
            partition.unwatch(self)
            self._reply.resolve(None)


def _raise(code: ErrorCode) -> None:
    if code:
        raise KafkaError(code)
