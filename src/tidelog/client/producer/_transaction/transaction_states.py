"""The states of a producer with transactions, and what brings it from one into another::

    UNINITIALIZED → INITIALIZING → READY ⇄ IN_TRANSACTION → COMMITTING_TRANSACTION → READY
                                                ↓     ↘ ABORTING_TRANSACTION → READY
                                         ABORTABLE_ERROR ↗            any → FATAL_ERROR, for good

An idempotent producer without transactions knows the first three and the last. ``TransactionManager`` is in
one of them.
"""

from __future__ import annotations

import enum


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


def words(state: TransactionState) -> str:
    """A state as people write it."""
    return state.name.lower().replace("_", " ")
