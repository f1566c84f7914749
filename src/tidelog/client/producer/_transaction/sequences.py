"""Sequence numbers: by them a broker knows a batch that it has already, and one that came before its time.

A partition's records are numbered from 0 under one producer id and epoch. Batches under way are kept in the
order of their numbers, which they keep through retries; under a new epoch they are numbered anew. Numbers run
to 2³¹-1 and then start at 0 again. Owned by the transaction manager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.records.batch import MAX_INT32, add_sequence

NOTHING_ACKED = -1
_HALF = 1 << 30
_BATCHES_REMEMBERED = 5
"""A broker knows a batch that comes again among the last so many of a producer in a partition."""


class ProducerIdentity(NamedTuple):
    """The id and epoch under which a producer's batches are numbered."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NO_IDENTITY = ProducerIdentity()


def precedes(sequence: int, other: int) -> bool:
    """Whether ``sequence`` comes before ``other``; the two are never half the number range apart."""
    return sequence != other and (other - sequence & MAX_INT32) < _HALF


class PartitionSequences:
    """The numbers of one partition."""

    __slots__ = (
        "identity",
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "next_order",
        "next_sequence",
    )

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.next_order = 0
        self.last_acked_sequence = NOTHING_ACKED
        self.last_acked_offset = NO_OFFSET
        self.in_flight: list[ProducerBatch] = []
        """Batches that have numbers and have not ended, in their order."""

    def assign(self, batch: ProducerBatch, transactional: bool) -> None:
        """Number a batch that goes out for the first time."""
        batch.set_producer_state(*self.identity, self.next_sequence, transactional)
        batch.order = self.next_order
        self.next_order += 1
        self.next_sequence = add_sequence(self.next_sequence, batch.record_count)
        self.in_flight.append(batch)

    @property
    def may_forget(self) -> bool:
        """Whether one more batch could make the broker forget the oldest that is not acknowledged.

        It may have been written although its answer was lost or an error; sent again it must be recognized.
        """
        return bool(self.in_flight) and self.next_order - self.in_flight[0].order >= _BATCHES_REMEMBERED

    def is_next(self, sequence: int) -> bool:
        """Whether ``sequence`` follows what was acknowledged last."""
        return sequence == add_sequence(self.last_acked_sequence, 1)

    def acked(self, batch: ProducerBatch, base_offset: int) -> None:
        """A broker has the batch."""
        last = batch.last_sequence
        if self.last_acked_sequence == NOTHING_ACKED or precedes(self.last_acked_sequence, last):
            self.last_acked_sequence = last
        if base_offset != NO_OFFSET:
            self.last_acked_offset = max(self.last_acked_offset, base_offset + batch.record_count - 1)
        self.remove(batch)

    def remove(self, batch: ProducerBatch) -> None:
        """The batch has ended, however it did."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """``parts`` share the numbers of the batch that was split into them."""
        sequence = batch.base_sequence
        for part in parts:
            part.set_producer_state(batch.producer_id, batch.producer_epoch, sequence, batch.is_transactional)
            part.order = batch.order
            sequence = add_sequence(sequence, part.record_count)
        at = self.in_flight.index(batch) if batch in self.in_flight else len(self.in_flight)
        self.in_flight[at : at + 1] = parts

    def start_at_beginning(self, identity: ProducerIdentity) -> None:
        """Number from 0 under ``identity``, beginning with what is under way."""
        sequence = 0
        for order, batch in enumerate(self.in_flight):
            batch.reset_producer_state(*identity, sequence)
            batch.order = order
            sequence = add_sequence(sequence, batch.record_count)
        self.identity = identity
        self.next_sequence = sequence
        self.next_order = len(self.in_flight)
        self.last_acked_sequence = NOTHING_ACKED

    def close_gap(self, failed: ProducerBatch) -> None:
        """The numbers of a batch that was refused are free: those behind it move up."""
        count = failed.record_count
        self.next_sequence = (self.next_sequence - count) & MAX_INT32
        for batch in self.in_flight:
            if precedes(failed.base_sequence, batch.base_sequence):
                moved = (batch.base_sequence - count) & MAX_INT32
                batch.reset_producer_state(batch.producer_id, batch.producer_epoch, moved)
