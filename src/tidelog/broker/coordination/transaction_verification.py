"""Asks the transaction coordinator before a partition takes the first batch of a transaction (KIP-890).

Older clients add partitions to their transaction with a request of their own: the coordinator is asked
whether they did (:attr:`Operation.VERIFY`). Clients of transaction version 2 do not: their first batch adds
its partition (:attr:`Operation.ADD`). In both cases a :class:`Verification` of the partition is begun before
the question and must still hold when the batch is appended, because a marker may have come in between.

The answer is usually there at once, from the coordinator of this very broker. It is an error that concerns
partitions one by one:

* PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH, on which producers abort and go on;
* TRANSACTION_ABORTABLE becomes INVALID_TXN_STATE for clients that are older than it;
* CONCURRENT_TRANSACTIONS, while the transaction before is being completed, is asked again for
  ``add.partitions.to.txn.retry.backoff.max.ms`` where a produce request would add: sending all those records
  again would cost more.

Without ``transaction.partition.verification.enable`` older clients are believed. In a cluster the
coordinator may be another broker (``cluster/remote_transactions``).

Used by ``broker/produce/transactional_produce`` and by the TxnOffsetCommit handler.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.runtime import Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_SEQUENCE, TopicPartition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.timers import Timers
from tidelog.storage.producers.producer_verification import Verification

logger = logging.getLogger(__name__)

R = TypeVar("R")


class PartitionAdder(Protocol):
    """The coordinator of a transaction, wherever it is."""

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        verify_only: bool,
    ) -> Promise[dict[TopicPartition, ErrorCode]]:
        """Add partitions to a transaction, or see whether they are part of it."""


class Operation(enum.Enum):
    """What a client's version lets the broker do."""

    VERIFY_OLD = "verify, for a client that does not know TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "add"

    @classmethod
    def of_produce(cls, version: int) -> Operation:
        """By the version of a Produce request."""
        return cls.ADD if version >= 12 else cls.VERIFY if version == 11 else cls.VERIFY_OLD

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> Operation:
        """By the version of a TxnOffsetCommit request."""
        return cls.ADD if version >= 5 else cls.VERIFY if version == 4 else cls.VERIFY_OLD


class Verified(NamedTuple):
    """What is known of the partitions of one request; those in neither mapping may be written to."""

    errors: Mapping[TopicPartition, ErrorCode]
    verifications: Mapping[TopicPartition, Verification]
    """What must still hold when a batch is appended."""


UNVERIFIED_OK = Verified({}, {})


class TransactionVerification:
    """Verifies for the partitions of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        partitions: Partitions,
        transactions: PartitionAdder,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._partitions = partitions
        self._transactions = transactions

    def verify(
        self,
        transactional_id: str,
        producer: Producer,
        sequences: Mapping[TopicPartition, int],
        operation: Operation,
    ) -> Promise[Verified]:
        """Ask once; ``sequences`` has the first sequence number of each partition's batch."""
        adds = operation is Operation.ADD
        if not adds and not self._config.bool("transaction.partition.verification.enable"):
            return Promise.of(UNVERIFIED_OK)
        verifications: dict[TopicPartition, Verification] = {}
        errors: dict[TopicPartition, ErrorCode] = {}
        now_ms = self._clock.time_ms()
        for name, sequence in sequences.items():
            try:
                partition = self._partitions.get(*name)
                partition.check_leader()
                begun = partition.log.producers.begin_verification(
                    producer.producer_id, producer.epoch, sequence, adds_partitions=adds, now_ms=now_ms
                )
            except KafkaError as error:
                errors[name] = error.code
            else:
                if begun is not None:
                    verifications[name] = begun
        if not verifications:
            return Promise.of(Verified(errors, {}))
        asked = self._transactions.add_or_verify(
            transactional_id, producer.producer_id, producer.epoch, verifications, not adds
        )
        return asked.recover(lambda error: _failed(verifications, error)).then(
            lambda answers: Verified(errors | _refused(answers, operation), verifications)
        )

    def verify_patiently(
        self,
        transactional_id: str,
        producer: Producer,
        sequences: Mapping[TopicPartition, int],
        operation: Operation,
    ) -> Promise[Verified]:
        """Ask, for a short while again and again if the transaction before is still being completed."""
        if operation is not Operation.ADD:
            return self.verify(transactional_id, producer, sequences, operation)
        until_ms = self._clock.monotonic_ms() + self._config.int("add.partitions.to.txn.retry.backoff.max.ms")
        backoff_ms = self._config.int("add.partitions.to.txn.retry.backoff.ms")
        verification: Promise[Verified] = Promise()

        def ask() -> None:
            self.verify(transactional_id, producer, sequences, operation).when_done(look)

        def look(asked: Promise[Verified]) -> None:
            verified = asked.result()
            again = ErrorCode.CONCURRENT_TRANSACTIONS in verified.errors.values()
            if again and self._clock.monotonic_ms() < until_ms:
                self._timers.schedule(verification, backoff_ms, ask)
            else:
                verification.resolve(verified)

        ask()
        return verification

    def in_transaction(
        self,
        transactional_id: str,
        producer: Producer,
        name: TopicPartition,
        operation: Operation,
        write: Callable[[], Promise[R]],
    ) -> Promise[R]:
        """Do ``write``, which appends for a transaction to one partition, once that is verified or added.

        Fails with the coordinator's error, with INVALID_PRODUCER_EPOCH for an old epoch, or with
        INVALID_TXN_STATE if the transaction has ended meanwhile.
        """

        def verified(answer: Verified) -> Promise[R]:
            if name in answer.errors:
                raise KafkaError(answer.errors[name])
            self.check(name, producer, answer)
            return write()

        return self.verify(transactional_id, producer, {name: NO_SEQUENCE}, operation).then(verified)

    def check(self, name: TopicPartition, producer: Producer, verified: Verified) -> None:
        """Refuse a batch whose transaction has ended since it was verified."""
        verification = verified.verifications.get(name)
        if verification is None:
            return
        producers = self._partitions.get(*name).log.producers
        if not producers.is_verified(producer.producer_id, producer.epoch, verification):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")


def _refused(
    answers: Mapping[TopicPartition, ErrorCode], operation: Operation
) -> dict[TopicPartition, ErrorCode]:
    return {name: _for_client(code, operation) for name, code in answers.items() if code}


def _for_client(code: ErrorCode, operation: Operation) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY_OLD:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _failed(names: Mapping[TopicPartition, object], error: Exception) -> dict[TopicPartition, ErrorCode]:
    if isinstance(error, KafkaError):
        return dict.fromkeys(names, error.code)
    logger.error(
        "Unexpected error in verifying a transaction in %s", ", ".join(map(str, names)), exc_info=error
    )
    return dict.fromkeys(names, ErrorCode.UNKNOWN_SERVER_ERROR)
