"""The states of a producer with transactions, and what brings it from one into another::

    UNINITIALIZED → INITIALIZING → READY ⇄ IN_TRANSACTION → COMMITTING_TRANSACTION → READY
                                                ↓     ↘ ABORTING_TRANSACTION → READY
                                         ABORTABLE_ERROR ↗            any → FATAL_ERROR, for good

An idempotent producer without transactions knows the first three and the last. ``TransactionManager`` is made
on this; ``transactional_requests`` and the sender report what brokers say.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from tidelog.client.producer.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)

logger = logging.getLogger(__name__)


class TransactionState(enum.Enum):
    """Where a producer stands; the names are Kafka's."""

    UNINITIALIZED = enum.auto()
    INITIALIZING = enum.auto()
    READY = enum.auto()
    IN_TRANSACTION = enum.auto()
    COMMITTING_TRANSACTION = enum.auto()
    ABORTING_TRANSACTION = enum.auto()
    ABORTABLE_ERROR = enum.auto()
    FATAL_ERROR = enum.auto()


_S = TransactionState
ALLOWED_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.INITIALIZING}),
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.IN_TRANSACTION}),
    _S.ABORTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset(
        {_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.INITIALIZING}
    ),
    _S.FATAL_ERROR: frozenset(_S),
}


class TransactionStates:
    """The state of one producer."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.last_error: Exception | None = None
        self.is_version_2 = False
        self.can_bump_epoch = False
        """Whether the coordinator knows InitProducerId 3 (KIP-360), so that an abortable error is one."""
        self.epoch_bump_required = False
        self.on_error: Callable[[], None] = lambda: None
        """Called when the state becomes an error: no record may slip in any more."""

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
                f"{self.subject} cannot become {words(target)} while it is {words(self.state)}"
            )
        logger.debug("%s: %s -> %s", self.subject, self.state.name, target.name)
        self.state = target
        self.last_error = error
        if error is not None:
            self.on_error()

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


def words(state: TransactionState) -> str:
    """A state as people write it."""
    return state.name.lower().replace("_", " ")
