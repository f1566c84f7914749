"""The producer's identity, the order of its batches, and the state of its transaction; no I/O.

With idempotence alone (the default) it holds a producer id and numbers batches per partition, so that retries
neither duplicate nor reorder, with up to five requests under way. After an error that leaves a hole in the
numbers it raises the epoch by itself (KIP-360) and numbers that partition's batches anew.

With a ``transactional.id`` it also knows which partitions belong to the transaction; ``transaction_states``
has its states.

Transactions are of version 1 (partitions are announced to the coordinator before anything is written there)
or 2 (KIP-890: the broker does that by itself, and every transaction gets a new epoch).

``transactional_requests`` talks to coordinators and tells the outcome; the sender asks before it drains and
tells how batches ended; threads that send call ``check_send`` and ``add_partition`` only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from tidelog.client.errors import is_retriable
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._transaction.sequences import (
    NO_IDENTITY,
    PartitionSequences,
    ProducerIdentity,
    precedes,
)
from tidelog.client.producer._transaction.transaction_states import (
    ALLOWED_FROM,
    TransactionState,
    words,
)
from tidelog.client.producer.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.records.batch import add_sequence

logger = logging.getLogger(__name__)

_S = TransactionState
_MAX_EPOCH = 2**15 - 1
# What a program wanted by a state, and what it must call first in the state that it is in.
_CALLS = {
    _S.INITIALIZING: "call init_transactions()",
    _S.IN_TRANSACTION: "begin a transaction",
    _S.COMMITTING_TRANSACTION: "commit a transaction",
    _S.ABORTING_TRANSACTION: "abort a transaction",
}
_REMEDIES = {
    _S.UNINITIALIZED: "call init_transactions() first",
    _S.INITIALIZING: "call init_transactions() again, and wait for it, first",
    _S.READY: "call begin_transaction() first",
    _S.IN_TRANSACTION: "call commit_transaction() or abort_transaction() first",
}
_FATAL_FOR_BATCHES = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class TransactionManager:
    """Identity, sequences and transaction state of one producer."""

    def __init__(self, transactional_id: str | None = None) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.last_error: Exception | None = None
        self.is_version_2 = False
        self.can_bump_epoch = False
        """Whether the coordinator knows InitProducerId 3 (KIP-360), so that an abortable error is one."""
        self.epoch_bump_required = False
        self.on_error: Callable[[], None] = lambda: None
        """Called when the state becomes an error: no record may slip in any more."""
        self.identity = NO_IDENTITY
        self.transaction_started = False
        """Whether the coordinator knows of the transaction, and must be told of its end."""
        self._lock = threading.Lock()
        self._new_partitions: set[TopicPartition] = set()
        self._partitions: set[TopicPartition] = set()
        self._sequences: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, int] = {}
        self._to_rewrite: set[TopicPartition] = set()
        self._introduced: set[TopicPartition] = set()
        """Partitions whose broker has acknowledged something under this producer id."""

    # -- state

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def is_completing(self) -> bool:
        """Whether a transaction is about to end: nothing lingers any more."""
        return self.state in (_S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION)

    @property
    def is_aborting(self) -> bool:
        return self.state is _S.ABORTING_TRANSACTION

    @property
    def has_fatal_error(self) -> bool:
        return self.state is _S.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self.state is _S.ABORTABLE_ERROR

    @property
    def has_ongoing_transaction(self) -> bool:
        """Whether there is a transaction that has neither ended nor failed for good."""
        return self.is_transactional and (
            self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR) or self.is_completing
        )

    def to(self, target: TransactionState, error: Exception | None = None) -> None:
        """Change the state; raises :class:`TransactionStateError` where that is not allowed."""
        if self.state not in ALLOWED_FROM[target]:
            raise TransactionStateError(
                self._instead(target)
                or f"{self.subject} cannot become {words(target)} while it is {words(self.state)}"
            )
        logger.debug("%s: %s -> %s", self.subject, self.state.name, target.name)
        self.state = target
        self.last_error = error
        if error is not None:
            self.on_error()

    def _instead(self, target: TransactionState) -> str:
        """What to call where ``target`` was called too early or once too often; empty: no such mistake."""
        what = _CALLS.get(target)
        remedy = _REMEDIES.get(self.state)
        if self.state is _S.READY and target is _S.INITIALIZING:
            remedy = "it was called before, and is called once: call begin_transaction()"
        if what is None or remedy is None:
            return ""
        return f"{self.subject} cannot {what}: {remedy}"

    def fail_for_good(self, error: Exception) -> None:
        """Only ``close`` is left."""
        if not self.has_fatal_error:
            logger.error("%s cannot go on: %s", self.subject, error)
        self.to(_S.FATAL_ERROR, error)

    def fail_transaction(self, error: Exception) -> None:
        """The transaction can only be aborted; without effect while it already is."""
        if self.state is _S.ABORTING_TRANSACTION or self.has_fatal_error:
            return
        logger.info("%s must abort its transaction: %s", self.subject, error)
        if self.needs_bump_by_client:
            self.epoch_bump_required = True
        self.to(_S.ABORTABLE_ERROR, error)

    def fail_transaction_or_for_good(self, error: Exception) -> None:
        """Abortable where the coordinator can fence what was lost by a new epoch, else for good."""
        if self.can_bump_epoch or self.is_version_2:
            self.fail_transaction(error)
        else:
            self.fail_for_good(error)

    @property
    def needs_bump_by_client(self) -> bool:
        """Whether this client must ask for a new epoch after a failure; version 2 gives one anyway."""
        return self.can_bump_epoch and not self.is_version_2

    def require_transactional(self) -> None:
        if not self.is_transactional:
            raise TransactionStateError("this producer has no transactions: give it a transactional.id")

    def raise_if_failed(self) -> None:
        """Raise what brought the producer into an error state, if it is in one."""
        error = self.last_error
        if self.state not in (_S.ABORTABLE_ERROR, _S.FATAL_ERROR) or error is None:
            return
        if isinstance(error, ProducerFencedError):
            raise ProducerFencedError(self.transactional_id)
        if self.has_abortable_error:
            raise TransactionAbortableError(
                f"the transaction of {self.transactional_id!r} has failed and must be aborted: {error}"
            ) from error
        raise error

    @property
    def subject(self) -> str:
        """What messages call the producer."""
        if self.transactional_id is not None:
            return f"the producer with transactional.id={self.transactional_id!r}"
        return "the idempotent producer"

    # -- life of the transaction

    @property
    def has_producer_id(self) -> bool:
        return self.identity.is_valid

    def begin(self) -> None:
        """A transaction begins."""
        self.require_transactional()
        self.raise_if_failed()
        self.to(_S.IN_TRANSACTION)

    def begin_end(self, commit: bool) -> None:
        """The transaction is about to be committed or aborted."""
        self.require_transactional()
        if commit or not self.has_abortable_error:
            self.raise_if_failed()
        self.to(_S.COMMITTING_TRANSACTION if commit else _S.ABORTING_TRANSACTION)
        if not commit:
            with self._lock:
                self._new_partitions.clear()

    def ended(self, identity: ProducerIdentity | None) -> None:
        """The transaction has ended; ``identity`` is the one for the next (version 2)."""
        if identity is not None:
            self._take_identity(identity)
            self.reset_sequences()
        bump = self.epoch_bump_required
        self.to(_S.INITIALIZING if bump else _S.READY)
        self.epoch_bump_required = False
        self.transaction_started = False
        with self._lock:
            self._new_partitions.clear()
            self._partitions.clear()

    def initialized(self, identity: ProducerIdentity) -> None:
        """A producer id has come."""
        logger.info("%s has producer id %d, epoch %d", self.subject, *identity)
        bumped = self.identity.is_valid
        self._take_identity(identity)
        self.to(_S.READY)
        if bumped:
            self.reset_sequences()
        self._rewrite_sequences()

    def _take_identity(self, identity: ProducerIdentity) -> None:
        if identity.producer_id != self.identity.producer_id:
            self._introduced.clear()
        self.identity = identity

    # -- partitions of the transaction

    def check_send(self) -> None:
        """Raise unless a record may be sent now."""
        self.raise_if_failed()
        if self.is_transactional and self.state is not _S.IN_TRANSACTION:
            hint = "init_transactions" if not self.has_producer_id else "begin_transaction"
            raise TransactionStateError(f"{self.subject} cannot send records: call {hint}() first")

    def add_partition(self, partition: TopicPartition) -> None:
        """A record for ``partition`` has been buffered within the transaction."""
        if not self.is_transactional:
            return
        with self._lock:
            if self.is_version_2:
                self._partitions.add(partition)
                self.transaction_started = True
            elif partition not in self._partitions:
                self._new_partitions.add(partition)

    def take_new_partitions(self) -> set[TopicPartition]:
        """The partitions that the coordinator must hear of (version 1)."""
        with self._lock:
            taken, self._new_partitions = self._new_partitions, set()
            return taken

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        """The coordinator knows ``partitions``: they may be written to."""
        with self._lock:
            self._partitions.update(partitions)
        self.transaction_started = True

    @property
    def has_new_partitions(self) -> bool:
        return bool(self._new_partitions)

    @property
    def has_partitions(self) -> bool:
        return bool(self._partitions)

    # -- sequences; on the sender's loop

    def sequences(self, partition: TopicPartition) -> PartitionSequences:
        """The numbers of ``partition``."""
        found = self._sequences.get(partition)
        if found is None:
            found = self._sequences[partition] = PartitionSequences()
        return found

    def reset_sequences(self) -> None:
        """All partitions start at 0 (under a new epoch, with nothing under way)."""
        self._sequences.clear()
        self._unresolved.clear()

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Whether the first batch of a partition may go out without breaking the order of numbers."""
        partition = batch.topic_partition
        if self.has_fatal_error or (self.is_transactional and partition not in self._partitions):
            return False
        if not self.has_producer_id:
            return False
        known = self.sequences(partition)
        if not batch.has_sequence:
            if partition in self._unresolved or known.may_forget:
                return False
            # A batch of a new epoch could be written before those of the old one have ended. And a broker
            # that has no record of the producer takes any number first: it must be the right one.
            stale = known.identity != self.identity
            return not known.in_flight or not (stale or partition not in self._introduced)
        # A retry waits until it is the oldest: only one of the partition is then under way.
        return not known.in_flight or known.in_flight[0] is batch

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Number ``batch`` if it is sent for the first time."""
        batch.sequence_has_been_reset = False
        if batch.has_sequence:
            return
        known = self.sequences(batch.topic_partition)
        if known.identity != self.identity and not known.in_flight:
            known.start_at_beginning(self.identity)
        known.assign(batch, self.is_transactional)

    def precedes(self, batch: ProducerBatch, other: ProducerBatch) -> bool:
        """Whether ``batch`` stays in front of ``other``, which comes back for a retry."""
        return batch.has_sequence and precedes(batch.base_sequence, other.base_sequence)

    def replace_in_flight(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """``batch`` was split into ``parts``."""
        self.sequences(batch.topic_partition).replace(batch, parts)

    def batch_completed(self, batch: ProducerBatch, base_offset: int) -> None:
        """A broker has ``batch``."""
        if batch.has_sequence:
            self.sequences(batch.topic_partition).acked(batch, base_offset)
            self._introduced.add(batch.topic_partition)

    def batch_failed(self, batch: ProducerBatch, error: Exception, adjust_sequences: bool) -> None:
        """``batch`` will not be sent again; with ``adjust_sequences`` no broker has taken its numbers."""
        self._note_failure(error)
        partition = batch.topic_partition
        known = self.sequences(partition)
        known.remove(batch)
        if self.has_fatal_error or not batch.has_sequence:
            return
        code = error.code if isinstance(error, KafkaError) else None
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.is_transactional:
            self.request_epoch_bump(partition)
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._sequences.pop(partition, None)
            self._unresolved.pop(partition, None)
        elif adjust_sequences:
            if self.is_transactional:
                known.close_gap(batch)
            else:
                self.request_epoch_bump(partition)

    def _note_failure(self, error: Exception) -> None:
        code = error.code if isinstance(error, KafkaError) else None
        if code in _FATAL_FOR_BATCHES:
            self.fail_for_good(error)
        elif self.is_transactional and not self.has_fatal_error:
            if is_retriable(error) or code is ErrorCode.INVALID_TXN_STATE:
                text = f"a record was not written, however often it was sent again: {error}"
                cause, error = error, TransactionAbortableError(text)
                error.__cause__ = cause
            if self.state in ALLOWED_FROM[_S.ABORTABLE_ERROR]:
                self.fail_transaction(error)

    def record_lost(self, error: Exception) -> None:
        """A record of the transaction could not even be buffered."""
        if self.state in ALLOWED_FROM[_S.ABORTABLE_ERROR]:
            self.fail_transaction(error)

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether ``batch``, refused with ``code``, may be sent again; may ask for a new epoch."""
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown(batch, log_start_offset)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            partition = batch.topic_partition
            unresolved = self._unresolved.get(partition)
            is_next = self.sequences(partition).is_next(batch.base_sequence)
            if unresolved is None and (batch.sequence_has_been_reset or not is_next):
                # One before it is missing and will be sent again first.
                return True
            if not self.is_transactional:
                if unresolved is None or unresolved == batch.base_sequence:
                    self.request_epoch_bump(partition)
                return True
        return code.retriable

    def _can_retry_unknown(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        """The broker has lost the producer's state, perhaps because retention took its last record."""
        if log_start_offset == NO_OFFSET or batch.sequence_has_been_reset:
            return True
        known = self.sequences(batch.topic_partition)
        if self.is_transactional and known.last_acked_offset < log_start_offset:
            known.start_at_beginning(self.identity)
            return True
        if not self.is_transactional:
            self.request_epoch_bump(batch.topic_partition)
            return True
        return False

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """A batch that may have been written was given up; number nothing behind it until that is clear."""
        following = add_sequence(batch.last_sequence, 1)
        known = self._unresolved.get(batch.topic_partition)
        if known is None or precedes(known, following):
            self._unresolved[batch.topic_partition] = following

    def resolve_sequences(self) -> None:
        """Look at the partitions whose last word was unclear and that have nothing under way any more."""
        for partition in list(self._unresolved):
            known = self.sequences(partition)
            if known.in_flight:
                continue
            del self._unresolved[partition]
            if known.is_next(known.next_sequence):
                continue
            if self.is_transactional:
                error = TransactionAbortableError(
                    f"records of {partition} were sent, never acknowledged, and can no longer be retried"
                )
                if self.state in ALLOWED_FROM[_S.ABORTABLE_ERROR]:
                    self.fail_transaction_or_for_good(error)
            else:
                self.request_epoch_bump(partition)

    def request_epoch_bump(self, partition: TopicPartition) -> None:
        """``partition`` needs numbers from 0 on, under a new epoch."""
        self.epoch_bump_required = True
        self._to_rewrite.add(partition)

    def bump_idempotent_epoch(self) -> None:
        """Raise the epoch where one was asked for; transactions get theirs from the coordinator instead."""
        if not self.epoch_bump_required or self.is_transactional:
            return
        self.epoch_bump_required = False
        if self.identity.epoch >= _MAX_EPOCH:
            self.identity = NO_IDENTITY
            self.to(_S.UNINITIALIZED)
            return
        self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        logger.info("%s goes on under epoch %d", self.subject, self.identity.epoch)
        self._rewrite_sequences()

    def _rewrite_sequences(self) -> None:
        for partition in self._to_rewrite:
            self.sequences(partition).start_at_beginning(self.identity)
            self._unresolved.pop(partition, None)
        self._to_rewrite.clear()
