"""EndTxn: what a request to commit or abort comes to, for a transaction at rest. Pure functions.

With transaction versions 0 and 1 a request has the transaction's epoch, and is repeated with it:

    ===============  ==========================  ==========================
                     commit                      abort
    ===============  ==========================  ==========================
    Ongoing          PrepareCommit               PrepareAbort
    CompleteCommit   done already                INVALID_TXN_STATE
    CompleteAbort    INVALID_TXN_STATE           done already
    Empty            INVALID_TXN_STATE           INVALID_TXN_STATE
    ===============  ==========================  ==========================

With version 2 (KIP-890) the epoch grows by one with every end, so a repetition shows the epoch before the
present one (or the last one of the previous producer id), and the present epoch means the next transaction,
of which the producer may not know whether anything was added:

    ===============  ============================  ============================
                     repeated (old epoch)          present epoch
    ===============  ============================  ============================
    Ongoing          PRODUCER_FENCED               PrepareCommit or PrepareAbort
    CompleteCommit   commit: done, abort: refused  commit: refused, abort: PrepareAbort
    CompleteAbort    abort: done, commit: refused  commit: refused, abort: PrepareAbort
    Empty            PRODUCER_FENCED               commit: refused, abort: PrepareAbort
    ===============  ============================  ============================

Any other epoch is PRODUCER_FENCED, any other producer id INVALID_PRODUCER_ID_MAPPING. Whoever calls has
checked that no step is under way (CONCURRENT_TRANSACTIONS).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.transaction import LAST_USABLE_EPOCH, Transaction
from tidelog.errors import ErrorCode, KafkaError


class EndRequest(NamedTuple):
    """What a producer asks for."""

    producer_id: int
    producer_epoch: int
    committed: bool

    @property
    def prepared_state(self) -> TransactionState:
        """The state that follows if the request is granted."""
        return TransactionState.PREPARE_COMMIT if self.committed else TransactionState.PREPARE_ABORT

    @property
    def complete_state(self) -> TransactionState:
        """The state in which nothing is left to do."""
        return TransactionState.COMPLETE_COMMIT if self.committed else TransactionState.COMPLETE_ABORT


def check_producer(transaction: Transaction, producer_id: int, producer_epoch: int) -> None:
    """Refuse a producer that is not the present one of ``transaction``."""
    if transaction.producer_id != producer_id:
        raise unknown_producer(transaction.transactional_id)
    if transaction.producer_epoch != producer_epoch:
        raise _fenced(transaction, producer_epoch)


def is_done(transaction: Transaction, request: EndRequest) -> bool:
    """Versions 0 and 1, the producer being checked: whether nothing is left to do; raises if refused."""
    if transaction.state is TransactionState.ONGOING:
        return False
    if transaction.state is request.complete_state:
        return True
    raise _illegal(transaction, request)


def is_done_with_new_epoch(transaction: Transaction, request: EndRequest) -> bool:
    """Version 2: whether the request repeats one that has been granted; raises if refused."""
    state = transaction.state
    is_complete = state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    repeats_across_ids = (
        transaction.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_USABLE_EPOCH
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != request.producer_id and not repeats_across_ids:
        raise unknown_producer(transaction.transactional_id)
    repeats = transaction.producer_epoch == request.producer_epoch + 1 or repeats_across_ids
    if repeats and is_complete:
        if state is not request.complete_state:
            raise _illegal(transaction, request)
        return True
    if transaction.producer_epoch != request.producer_epoch:
        raise _fenced(transaction, request.producer_epoch)
    if state is TransactionState.ONGOING or (state.is_idle and not request.committed):
        return False
    raise _illegal(transaction, request)


def unknown_producer(transactional_id: str) -> KafkaError:
    """The transactional id is not that producer's."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{transactional_id!r} does not belong to this producer id; initialize the producer again.",
    )


def _fenced(transaction: Transaction, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"Epoch {epoch} of {transaction.transactional_id!r} is not the current one, "
        f"{transaction.producer_epoch}: another producer has taken over.",
    )


def _illegal(transaction: Transaction, request: EndRequest) -> KafkaError:
    if transaction.state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{transaction.transactional_id!r} is in state {transaction.state.label}, which nobody writes.",
        )
    wanted = "committed" if request.committed else "aborted"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{transaction.transactional_id!r} is in state {transaction.state.label} and cannot be {wanted}.",
    )
