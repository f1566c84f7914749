"""One transactional id: its producer and how far its transaction has come. Immutable; steps give a new one.

Every step is legal by ``state.LEGAL_PREDECESSORS`` or raises; each remembers the producer id before it, by
which a retry that crosses the end of a producer id's epochs is recognised (KIP-360, KIP-890).

Epochs end at 32766: 32767 is kept for fencing a producer whose epochs are exhausted. Then the id moves on to
a new producer id with epoch 0.

``last_producer_epoch`` is in no record, as in Kafka: after a reload a retry of InitProducerId is fenced.
Used by ``shard`` and what it is made of; ``records`` turns it into what is written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.coordinator.transaction.state import LEGAL_PREDECESSORS, TransactionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

MAX_EPOCH = 32767
LAST_USABLE_EPOCH = MAX_EPOCH - 1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a producer in two-phase commit (KIP-939): its transactions are never timed out."""
EPOCH_BUMP_VERSION = 2
"""The transaction version from which every transaction has an epoch of its own (KIP-890)."""


def is_exhausted(epoch: int) -> bool:
    """Whether a producer with this epoch cannot get a higher one."""
    return epoch >= LAST_USABLE_EPOCH


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator knows of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """Who the producer will be once the transaction is complete, if its epochs are exhausted."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    client_version: int = 0
    """The transaction version that the producer showed with its last request."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left."""
        return is_exhausted(self.producer_epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether the transaction has been open for longer than its producer allowed."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return False
        return self.start_ms + self.timeout_ms < now_ms

    # Steps

    def with_new_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction:
        """InitProducerId: the next epoch, or the present one if the producer asks again (KIP-360)."""
        if self.is_exhausted:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"Producer id {self.producer_id} has no epochs left."
            )
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if expected_epoch == self.producer_epoch or self.producer_epoch == NO_PRODUCER_EPOCH:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    f"Epoch {expected_epoch} of {self.transactional_id!r} is not the current one, "
                    f"{self.producer_epoch}: another producer has taken over.",
                )
        return self._step(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool
    ) -> Transaction:
        """InitProducerId where the epochs are exhausted: another producer id, from epoch 0 on."""
        return self._step(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def with_partitions(
        self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> Transaction:
        """The transaction writes to ``partitions`` too; it begins with the first of them."""
        return self._step(
            TransactionState.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self) -> Transaction:
        """The same with an epoch that no producer has; only a step on the way to ``prepared``."""
        return msgspec.structs.replace(
            self,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def prepared(
        self,
        state: TransactionState,
        client_version: int,
        now_ms: int,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> Transaction:
        """The outcome is decided; from version 2 on with a new epoch, which late records do not have."""
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP_VERSION:
            epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
        return self._step(
            state,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            # An abort where nothing was added has no beginning, and yet must have one (KIP-890).
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            next_producer_id=next_producer_id,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written; the next transaction may belong to the next producer id."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        moves = self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID
        return self._step(
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
            producer_id=self.next_producer_id if moves else self.producer_id,
            producer_epoch=0 if moves else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    def _step(self, state: TransactionState, **changes: Any) -> Transaction:
        if self.state not in LEGAL_PREDECESSORS[state]:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{self.transactional_id!r} cannot go from {self.state.label} to {state.label}.",
            )
        return msgspec.structs.replace(self, state=state, previous_producer_id=self.producer_id, **changes)
