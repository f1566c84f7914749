"""Transactions as :class:`AsyncAdmin` hands them out, and the producers in partitions.

As in ``client.resources``, a result carries its own ``error``; with one, its other fields say nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidelog.client._spec_names import also_called
from tidelog.client.metadata import Node
from tidelog.client.resources import Outcome
from tidelog.errors import KafkaError, TidelogError
from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition


class TransactionState(enum.StrEnum):
    """Where a transactional id stands; the names are those on the wire."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    UNKNOWN = "Unknown"


def transaction_state(text: str) -> TransactionState:
    """The state that a broker names; later brokers' states read as ``UNKNOWN``."""
    return next((each for each in TransactionState if each == text), TransactionState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: Node


@dataclass(frozen=True, slots=True)
class ListedTransactions:
    """The transactional ids of all brokers that answered, and why the others did not."""

    transactions: tuple[TransactionListing, ...]
    errors: tuple[TidelogError, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionDescription(Outcome):
    """One transactional id; ``partitions`` are those of an open transaction that still wait for a marker."""

    transactional_id: str
    state: TransactionState = TransactionState.UNKNOWN
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    start_time_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    coordinator: Node | None = None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition knows of one producer; ``txn_start_offset`` is set while its transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    txn_start_offset: int | None


@dataclass(frozen=True, slots=True)
class PartitionProducers(Outcome):
    """The producers that a partition knows, by id."""

    partition: TopicPartition
    producers: tuple[ProducerState, ...] = ()
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in one partition."""

    partition: TopicPartition
    producer: ProducerState


@dataclass(frozen=True, slots=True)
class HangingTransactions:
    """What a search has found, how many partitions it looked at, and which it could not look at."""

    hanging: tuple[OpenTransaction, ...]
    searched: int
    errors: tuple[KafkaError, ...] = ()


@also_called(topic_partition="partition")
@dataclass(frozen=True, slots=True)
class AbortMarker:
    """The marker that ends a producer's transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0
