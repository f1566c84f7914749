"""The states of a transaction, by the numbers in ``__transaction_state`` and the names in Kafka's tools.

    Empty ──────────┐
    Ongoing ◄───────┤ partitions are added
       │            │
       ├─► PrepareCommit ─► CompleteCommit ─┐   markers are written between Prepare and Complete
       └─► PrepareAbort ──► CompleteAbort ──┴─► Empty (a new producer), Ongoing (the next transaction)

With transaction version 2 an abort may also come where nothing was added (KIP-890), so PrepareAbort follows
Empty and the Complete states too. Dead (being forgotten) and PrepareEpochFence (a producer being fenced) last
for a moment only and are never written.
"""

from __future__ import annotations

import enum


class TransactionState(enum.IntEnum):
    """Where a transactional id stands."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that DescribeTransactions and ListTransactions give."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and its markers are being written."""
        return self in PREPARED

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, so that the id may be forgotten or given to a new producer."""
        return self in IDLE


_S = TransactionState
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

BY_LABEL = {state.label: state for state in TransactionState}

LEGAL_PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
