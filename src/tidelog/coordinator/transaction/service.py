"""The transaction coordinator of one broker: finds a transactional id's shard and runs commands on it.

Checks what concerns no shard (names, timeouts, whether partitions exist) in Kafka's order, waits for producer
ids, and turns what the log refuses into what clients of a coordinator understand.

Called by the handlers of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions
and ListTransactions, and by the produce path, which verifies or adds partitions (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar

from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.log import partition_for, told_error
from tidelog.coordinator.runtime import Producer, Result, Runtime, ShardContext
from tidelog.coordinator.transaction.ending import EndRequest
from tidelog.coordinator.transaction.listing import TransactionFilter
from tidelog.coordinator.transaction.markers import MarkerWriter
from tidelog.coordinator.transaction.producer_id_supply import (
    ProducerIdNeeded,
    ProducerIdSource,
    ProducerIdSupply,
)
from tidelog.coordinator.transaction.records import SCHEMAS
from tidelog.coordinator.transaction.shard import TransactionShard
from tidelog.coordinator.transaction.support import TransactionSupport
from tidelog.coordinator.transaction.transaction import EPOCH_BUMP_VERSION, NO_TIMEOUT_MS, Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.scheduling.timers import Timers

R = TypeVar("R")

_LOOKED_UP_AT_ONCE = 64


class TransactionCoordinator:
    """Everything that has a ``transactional.id``, and the ids of producers that have none."""

    TOPIC = TRANSACTION_STATE_TOPIC

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        image: MetadataImage,
        timers: Timers,
        producer_ids: ProducerIdSource,
        markers: MarkerWriter,
    ) -> None:
        self.config = config
        self.image = image
        self.clock = clock
        self.support = TransactionSupport(config, image, ProducerIdSupply(producer_ids, timers), markers)
        self.runtime: Runtime[TransactionShard] = Runtime(
            self.TOPIC, SCHEMAS, self._make_shard, clock=clock, timers=timers
        )

    def partition_for(self, transactional_id: str) -> int:
        """The partition of ``__transaction_state`` that a transactional id belongs to."""
        return _partition_for(transactional_id, self._partition_count)

    def close(self) -> None:
        """Wait for producer ids no longer."""
        self.support.producer_ids.close()

    # Requests

    def new_producer(self) -> Promise[Producer]:
        """A producer without a transactional id: an id that nobody has, with epoch 0."""
        try:
            return Promise.of(Producer(self.support.producer_ids.take(), 0))
        except ProducerIdNeeded:
            return self.support.producer_ids.refill().then(lambda _: self.new_producer())

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None = None,
        *,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> Promise[Producer]:
        """The producer id and epoch with which a transactional producer begins."""
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")
        if two_phase and not self.config.bool("transaction.two.phase.commit.enable"):
            return _refused(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "Two-phase commit is not allowed: transaction.two.phase.commit.enable is false.",
            )
        if keep_prepared:
            return _refused(ErrorCode.UNSUPPORTED_VERSION, "Prepared transactions cannot be kept.")
        max_timeout_ms = self.config.int("transaction.max.timeout.ms")
        if not two_phase and not 0 < timeout_ms <= max_timeout_ms:
            return _refused(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"The transaction timeout must be between 1 and {max_timeout_ms} ms "
                f"(transaction.max.timeout.ms), not {timeout_ms} ms.",
            )
        timeout_ms = NO_TIMEOUT_MS if two_phase else timeout_ms
        return self._write(
            self.partition_for(transactional_id),
            lambda shard: shard.init_producer_id(transactional_id, timeout_ms, expected),
        )

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        verify_only: bool,
        *,
        from_client: bool = False,
    ) -> Promise[dict[TopicPartition, ErrorCode]]:
        """Add partitions to a transaction, or see whether they are part of it; never fails as a whole.

        Partitions that do not exist keep all others from being added. Clients (``from_client``) must not
        name internal topics and are of transaction version 0; brokers are of version 2.
        """
        names = frozenset(partitions)
        refused = run_to_end(self.refused_partitions(names, from_client=from_client))
        if refused:
            return Promise.of({name: refused.get(name, ErrorCode.OPERATION_NOT_ATTEMPTED) for name in names})
        producer = Producer(producer_id, producer_epoch)
        if not transactional_id:
            return Promise.of(dict.fromkeys(names, ErrorCode.INVALID_REQUEST))
        if verify_only:
            verified = self.runtime.read(
                self.partition_for(transactional_id),
                lambda shard: shard.verify_partitions(transactional_id, producer, names),
            )
        else:
            version = 0 if from_client else EPOCH_BUMP_VERSION
            verified = self.add_partitions(transactional_id, producer, names, version).then(
                lambda _: dict.fromkeys(names, ErrorCode.NONE)
            )
        return verified.recover(lambda error: dict.fromkeys(names, _code_of(error)))

    def refused_partitions(
        self, partitions: Iterable[TopicPartition], *, from_client: bool, denied: Collection[str] = ()
    ) -> Slices[dict[TopicPartition, ErrorCode]]:
        """Which of the partitions keep all of them from being added, and why.

        Those of topics that a client may not write to (``denied``), too.
        """
        refused: dict[TopicPartition, ErrorCode] = {}
        for count, name in enumerate(partitions):
            code = self._refusal_of(name, from_client)
            if name.topic in denied:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if code is not None:
                refused[name] = code
            if not count % _LOOKED_UP_AT_ONCE:
                yield
        return refused

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> Promise[None]:
        """Add partitions that are known to exist, or a group's of ``__consumer_offsets``."""
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")
        return self._write(
            self.partition_for(transactional_id),
            lambda shard: shard.add_partitions(transactional_id, producer, partitions, client_version),
        )

    def end(self, transactional_id: str, request: EndRequest, client_version: int) -> Promise[Producer]:
        """Commit or abort; answered when the outcome is committed, before its markers are all written."""
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")
        return self._write(
            self.partition_for(transactional_id),
            lambda shard: shard.end(transactional_id, request, client_version),
        )

    def describe(
        self,
        transactional_ids: Sequence[str],
        show: Callable[[Transaction], R],
        refuse: Callable[[str, KafkaError], R],
    ) -> Slices[Promise[list[R]]]:
        """What is known of each transactional id, as ``show`` tells it, or why nothing is."""

        def find(shard: TransactionShard, transactional_id: str) -> R:
            found = shard.transactions.get(transactional_id)
            if found is None:
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                    f"There is no transactional id {transactional_id!r}.",
                )
            return show(found)

        def refused(transactional_id: str, error: KafkaError) -> R:
            if not transactional_id:
                # What is the matter with it, whoever coordinates it.
                error = KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")
            return refuse(transactional_id, error)

        return self.runtime.read_each(transactional_ids, self.partition_for, find, refused)

    def list(
        self,
        wanted: TransactionFilter,
        show: Callable[[Transaction], R],
        is_visible: Callable[[str], bool] = lambda transactional_id: True,
    ) -> Slices[Promise[list[R]]]:
        """The transactions that this broker coordinates and that are visible, as ``show`` tells them.

        Refused while some of them are being loaded.
        """
        now_ms = self.clock.time_ms()

        def listed(shard: TransactionShard, name: str) -> Transaction | None:
            found = shard.transactions.get(name)
            return found if found is not None and wanted.matches(found, now_ms) and is_visible(name) else None

        def select(shard: TransactionShard) -> Slices[list[R]]:
            selected: list[R] = []
            for name in list(shard.transactions):
                if listed(shard, name) and (yield from wanted.matching_id(name)):
                    # Others ran meanwhile.
                    found = listed(shard, name)
                    if found is not None:
                        selected.append(show(found))
                yield
            return selected

        replies: list[Promise[list[R]]] = []
        for index in range(self._partition_count):
            reply = yield from self.runtime.read_in_slices(index, select)
            replies.append(reply.recover(_nothing_if_led_elsewhere))
            yield
        return gather(replies).then(lambda lists: list(chain.from_iterable(lists)))

    # Running commands

    @property
    def _partition_count(self) -> int:
        topic = self.image.topics.get(self.TOPIC)
        return topic.partition_count if topic else self.config.int("transaction.state.log.num.partitions")

    def _make_shard(self, context: ShardContext) -> TransactionShard:
        def run(command: Callable[[], Result[None]]) -> Promise[None]:
            return self._write(context.partition, lambda _: command())

        return TransactionShard(context, self.support, run)

    def _write(self, partition: int, command: Callable[[TransactionShard], Result[R]]) -> Promise[R]:
        try:
            reply = self.runtime.write(partition, command)
        except ProducerIdNeeded:
            return self._write_after_refill(partition, command)
        return reply if reply.done and reply.error is None else reply.recover(_raise_to_client)

    def _write_after_refill(
        self, partition: int, command: Callable[[TransactionShard], Result[R]]
    ) -> Promise[R]:
        return self.support.producer_ids.refill().then(lambda _: self._write(partition, command))

    def _refusal_of(self, name: TopicPartition, from_client: bool) -> ErrorCode | None:
        if from_client and name.topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self.image.partition(*name) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None


@lru_cache(maxsize=16_384)
def _partition_for(transactional_id: str, count: int) -> int:
    return partition_for(transactional_id, count)


def without_producer_fenced(reply: Promise[R]) -> Promise[R]:
    """The same for clients that are older than PRODUCER_FENCED (KIP-588): INVALID_PRODUCER_EPOCH instead."""

    def change(error: Exception) -> R:
        if isinstance(error, KafkaError) and error.code is ErrorCode.PRODUCER_FENCED:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
        raise error

    return reply.recover(change)


def _refused(code: ErrorCode, message: str) -> Promise[R]:
    return Promise.failed(KafkaError(code, message))


def _raise_to_client(error: Exception) -> R:  # type: ignore[type-var]
    raise told_error(error) if isinstance(error, KafkaError) else error


def _code_of(error: Exception) -> ErrorCode:
    if isinstance(error, KafkaError):
        return error.code
    raise error


def _nothing_if_led_elsewhere(error: Exception) -> list[R]:
    if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_COORDINATOR:
        return []
    raise error
