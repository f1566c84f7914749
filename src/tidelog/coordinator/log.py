"""The seam between a coordinator and its log: append, read, truncate before; its partitions and errors.

``broker/coordination/coordinator_log`` puts it on a partition that this broker leads;
``tests/rigs/memory_log`` is its twin in memory. Both pass ``tests/contract/test_coordinator_log.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol

from tidelog.errors import ErrorCode, KafkaError


class CoordinatorLog(Protocol):
    """One partition of an internal topic, written by its coordinator alone (and by transaction markers)."""

    on_committed: Callable[[], None]
    """Called when ``committed_offset`` has moved."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def committed_offset(self) -> int:
        """All before it is on every replica that has to have it: the high watermark."""

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that an append takes."""

    def append(self, batch: bytes | bytearray) -> int:
        """Append one batch; gives the offset of its first record. Raises ``KafkaError``."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset`` on, one at least; empty at the end of the log.

        Raises ``KafkaError``: ``IndexesNotReady`` where it can be read in a moment.
        """

    def truncate_before(self, offset: int) -> None:
        """Records before ``offset`` are not needed any more."""


_TOLD: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # From verifying a transaction; old clients do not know the error, and retry this one where they are.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def told_error(error: KafkaError) -> KafkaError:
    """The error for clients when the log refuses or fails to take a record; most pass as they are."""
    code = _TOLD.get(error.code)
    return error if code is None else KafkaError(code, error.message)


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java: over UTF-16 units, in 32 bits with a sign."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition of ``key`` among ``partitions``; the smallest of all hashes counts as 0, as in Kafka."""
    value = java_hash(key)
    return 0 if value == -0x8000_0000 else abs(value) % partitions
