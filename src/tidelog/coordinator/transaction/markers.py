"""The seam through which a transaction coordinator ends a transaction in the partitions it has written to.

The coordinator says what to write (:class:`MarkerRequest`); whoever implements :class:`MarkerWriter` brings
the control batches into the partitions, local or remote, and tells what became of each.
``broker/coordination/transaction_markers`` is the real one; tests have one that fails, delays and repeats.

A writer must bear repetition: after a crash, or when an answer got lost, the same markers are sent again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.scheduling.promise import Promise


class MarkerRequest(NamedTuple):
    """The end of one transaction, for some or all of its partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition: partitions refuse markers of an older one."""
    committed: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """0 to 2; from 2 on the epoch must be greater than that of the transaction's records (KIP-890)."""


class MarkerWriter(Protocol):
    """Writes COMMIT and ABORT markers."""

    def write(self, request: MarkerRequest) -> Promise[dict[TopicPartition, ErrorCode]]:
        """What became of each partition of ``request``, once all is committed or refused.

        NONE where the marker is written. A partition that the answer leaves out, like a reply that fails,
        counts as one to try again.
        """

    def gone(self, partitions: frozenset[TopicPartition]) -> Promise[frozenset[TopicPartition]]:
        """Which of these, of which this broker's metadata do not know, do not exist any more.

        The others exist: this broker has started a moment ago, and has not been told of them yet.
        """
