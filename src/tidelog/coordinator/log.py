"""The seam between a coordinator and its log: append, read, truncate before.

``broker/coordination/coordinator_log`` puts it on a partition that this broker leads;
``tests/rigs/memory_log`` is its twin in memory. Both pass ``tests/contract/test_coordinator_log.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


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
