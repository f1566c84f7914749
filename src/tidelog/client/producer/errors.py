"""What a producer raises besides the errors of network and brokers.

ClientError
├── BufferExhaustedError       records wait for room in ``buffer.memory``
├── TransactionStateError      a call that the transaction's state does not allow
├── TransactionAbortableError  the transaction cannot be committed any more: abort it and go on
└── TransactionAbortedError    why the records of an aborted transaction were not written
KafkaError
└── ProducerFencedError        another producer has taken over the transactional id: close this one
"""

from __future__ import annotations

from tidelog.client.errors import ClientError
from tidelog.errors import ErrorCode, KafkaError


class BufferExhaustedError(ClientError):
    """``buffer.memory`` is full of unacknowledged records and stayed so for ``max.block.ms``."""


class TransactionStateError(ClientError):
    """A call that is not allowed now, such as ``commit_transaction`` without a transaction."""


class TransactionAbortableError(ClientError):
    """The transaction has failed; after ``abort_transaction`` the next one may succeed."""


class TransactionAbortedError(ClientError):
    """A record that was not sent because its transaction was aborted."""


class ProducerFencedError(KafkaError):
    """A newer producer with the same transactional id is at work; this one can only be closed."""

    def __init__(self, transactional_id: str | None) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"another producer with transactional.id={transactional_id!r} has taken over; close this one",
        )
