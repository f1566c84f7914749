"""What one partition knows of its producers: duplicates, gaps, fencing and open transactions.

Invariant: ``entries`` describes exactly the batches before ``end_offset``, plus those that are staged for
the write that is about to happen. Staging notes what it replaces; when the write fails,
:meth:`ProducerState.rollback` puts everything back. Entries are immutable, so noting one costs a reference.

The last five batches of each producer are remembered, enough for five requests in flight. After a restart
only the last one is known for producers that have written nothing since the newest snapshot, unless
``producer_tail`` finds the others in the log. Memory only;
``producer_snapshots`` has the files. Called by ``log`` (append), ``recovery`` (replay) and DescribeProducers.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TopicPartition
from tidelog.records.batch import MAX_INT32
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.storage.producers.producer_snapshots import (
    CorruptSnapshotError,
    ProducerEntry,
    ProducerSnapshots,
    SequencedBatch,
)
from tidelog.storage.producers.producer_verification import Verification, Verifications

REMEMBERED_BATCHES = 5
_LAST_EPOCH = 0x7FFF
_EPOCH_PER_TRANSACTION = 2
_LOOKED_AT_A_TIME = 5000
_WRITTEN_AT_ONCE = 500
logger = logging.getLogger(__name__)
_new_tuple = tuple.__new__


class AppendOrigin(Enum):
    """Who appends, which decides what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class CompletedTxn(NamedTuple):
    """A transaction whose marker has been written."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int
    """The last stable offset behind it."""


class ProducerState:
    """The producers of one partition."""

    __slots__ = (
        "_later",
        "_ongoing",
        "_undo",
        "_undo_transactions",
        "_unreplicated",
        "end_offset",
        "entries",
        "expiration_ms",
        "partition",
        "snapshot_offset",
        "snapshots",
        "verifications",
    )

    def __init__(
        self, partition: TopicPartition, snapshots: ProducerSnapshots, *, expiration_ms: int = 86_400_000
    ) -> None:
        self.partition = partition
        self.snapshots = snapshots
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self.snapshot_offset = 0
        # Both ascend by first offset: with the producer, and with the offset of the marker.
        self._ongoing: dict[int, int] = {}
        self._unreplicated: list[tuple[int, int]] = []
        self._undo: list[tuple[int, ProducerEntry | None]] = []
        # First offset, producer, and the offset of the marker if it was ended and not begun.
        self._undo_transactions: list[tuple[int, int, int | None]] = []
        self.verifications = Verifications()
        self._later: tuple[int, list[ProducerEntry]] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self._unreplicated

    # -- appending ------------------------------------------------------------------------------------

    def stage_batch(
        self,
        producer_id: int,
        epoch: int,
        batch: SequencedBatch,
        transactional: bool,
        origin: AppendOrigin,
    ) -> SequencedBatch | None:
        """Take in a batch of records; gives back the earlier one if this is a client's repetition of it."""
        entry = self.entries.get(producer_id)
        if (
            entry is not None
            and not transactional
            and entry.epoch == epoch
            and batch.first_sequence == entry.last_sequence + 1
            and entry.txn_first_offset < 0
        ):
            # The common case, in line: the next batch of a known producer without a transaction.
            self._undo.append((producer_id, entry))
            self.entries[producer_id] = _new_tuple(
                ProducerEntry,
                (
                    producer_id,
                    epoch,
                    batch.last_sequence,
                    entry.batches[-4:] + (batch,),  # noqa: RUF005 (a third faster)
                    entry.coordinator_epoch,
                    batch.timestamp,
                    NO_OFFSET,
                ),
            )
            return None
        return self._stage_unusual(entry, producer_id, epoch, batch, transactional, origin)

    def _stage_unusual(
        self,
        entry: ProducerEntry | None,
        producer_id: int,
        epoch: int,
        batch: SequencedBatch,
        transactional: bool,
        origin: AppendOrigin,
    ) -> SequencedBatch | None:
        if entry is None:
            entry = _unknown(producer_id)
        elif origin is AppendOrigin.CLIENT and entry.epoch == epoch:
            for known in entry.batches:
                if known[:2] == batch[:2]:
                    return known
        self._check_epoch(entry, epoch, batch.first_offset, origin)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(entry, epoch, batch.first_sequence, batch.first_offset)
        if transactional and self.verifications:
            self.verifications.written(producer_id)
        txn_first_offset = entry.txn_first_offset
        if txn_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id} at offset {batch.first_offset} "
                f"in partition {self.partition}",
            )
        if txn_first_offset < 0 and transactional:
            txn_first_offset = batch.first_offset
            self._ongoing[txn_first_offset] = producer_id
            self._undo_transactions.append((txn_first_offset, producer_id, None))
        known_batches = entry.batches[1 - REMEMBERED_BATCHES :] if entry.epoch == epoch else ()
        self._put(
            ProducerEntry(
                producer_id,
                epoch,
                batch.last_sequence,
                (*known_batches, batch),
                entry.coordinator_epoch,
                batch.timestamp,
                txn_first_offset,
            )
        )
        return None

    def stage_marker(
        self,
        producer_id: int,
        epoch: int,
        marker: EndTxnMarker,
        offset: int,
        timestamp: int,
        origin: AppendOrigin,
    ) -> CompletedTxn | None:
        """Take in the end of a transaction; None for one that wrote nothing here."""
        entry = self.entries.get(producer_id) or _unknown(producer_id)
        self._check_epoch(entry, epoch, offset, origin)
        self._check_coordinator(entry, marker, offset, origin)
        self.verifications.ended(producer_id, epoch)
        self._put(
            ProducerEntry(
                producer_id,
                epoch,
                entry.last_sequence if entry.epoch == epoch else NO_SEQUENCE,
                entry.batches if entry.epoch == epoch else (),
                marker.coordinator_epoch,
                timestamp,
                NO_OFFSET,
            )
        )
        first_offset = entry.txn_first_offset
        if first_offset < 0:
            return None
        others = (first for first, owner in self._ongoing.items() if owner != producer_id)
        last_stable_offset = next(others, offset + 1)
        self._ongoing.pop(first_offset, None)
        insort(self._unreplicated, (first_offset, offset))
        self._undo_transactions.append((first_offset, producer_id, offset))
        aborted = marker.control_type is ControlType.ABORT
        return CompletedTxn(producer_id, first_offset, offset, aborted, last_stable_offset)

    def commit(self, end_offset: int) -> None:
        """Everything staged has been written; the log now ends at ``end_offset``."""
        self._undo.clear()
        self._undo_transactions.clear()
        self.end_offset = end_offset

    def rollback(self) -> None:
        """Nothing of what was staged has been written: be as before."""
        for producer_id, entry in reversed(self._undo):
            if entry is None:
                self.entries.pop(producer_id, None)
            else:
                self.entries[producer_id] = entry
        self._undo.clear()
        if self._undo_transactions:
            self._roll_transactions_back()

    def _roll_transactions_back(self) -> None:
        for first_offset, producer_id, marker_offset in reversed(self._undo_transactions):
            if marker_offset is None:
                self._ongoing.pop(first_offset, None)
            else:
                self._unreplicated.remove((first_offset, marker_offset))
                self._ongoing[first_offset] = producer_id
        self._undo_transactions.clear()
        self._ongoing = dict(sorted(self._ongoing.items()))

    def _put(self, entry: ProducerEntry) -> None:
        self._undo.append((entry.producer_id, self.entries.get(entry.producer_id)))
        self.entries[entry.producer_id] = entry

    def _check_epoch(self, entry: ProducerEntry, epoch: int, offset: int, origin: AppendOrigin) -> None:
        if epoch >= entry.epoch:
            return
        message = (
            f"Epoch of producer {entry.producer_id} at offset {offset} in {self.partition} is {epoch}, "
            f"which is smaller than the last seen epoch {entry.epoch}"
        )
        if origin is not AppendOrigin.REPLICATION:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        logger.warning(message)

    def _check_sequence(self, entry: ProducerEntry, epoch: int, first_sequence: int, offset: int) -> None:
        where = f"producer {entry.producer_id} at offset {offset} in partition {self.partition}"
        if self.verifications:
            self.verifications.check_sequence(entry.producer_id, first_sequence, bool(entry.batches), where)
        if entry.epoch == NO_PRODUCER_EPOCH:
            # Nothing is known of it, perhaps because its records were deleted: any sequence may follow.
            return
        if epoch != entry.epoch:
            if first_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of {where}: {epoch} (request epoch), "
                    f"{first_sequence} (seq. number), {entry.epoch} (current producer epoch)",
                )
            return
        wrapped = first_sequence == 0 and entry.last_sequence == MAX_INT32
        if first_sequence != entry.last_sequence + 1 and not wrapped:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for {where}: {first_sequence} (incoming seq. number), "
                f"{entry.last_sequence} (current end sequence number)",
            )

    def _check_coordinator(
        self, entry: ProducerEntry, marker: EndTxnMarker, offset: int, origin: AppendOrigin
    ) -> None:
        if entry.coordinator_epoch <= marker.coordinator_epoch:
            return
        message = (
            f"Invalid coordinator epoch for producerId {entry.producer_id} at offset {offset} in partition "
            f"{self.partition}: {marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)"
        )
        if origin is not AppendOrigin.REPLICATION:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
        logger.info(message)

    # -- asking the transaction coordinator -----------------------------------------------------------

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, adds_partitions: bool, now_ms: int
    ) -> Verification | None:
        """What the coordinator has to vouch for before the batch is appended; None in an open transaction."""
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch "
                f"{entry.epoch}",
            )
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        return self.verifications.begin(
            producer_id, sequence, epoch, adds_partitions=adds_partitions, now_ms=now_ms
        )

    def is_verified(self, producer_id: int, epoch: int, verification: Verification) -> bool:
        """Whether what the coordinator said about ``verification`` still lets a batch in."""
        return (
            self.has_ongoing_transaction(producer_id, epoch)
            or self.verifications.get(producer_id) is verification
        )

    def check_marker(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """Refuse a late marker of a transaction version that gives every transaction an epoch (KIP-890).

        Its markers have an epoch greater than the records before them; one with the same epoch is the
        repetition of one that is here, unless a transaction has begun in that epoch: then it is not of that
        one. Called before the marker is staged, in the same turn of the loop.
        """
        entry = self.entries.get(producer_id)
        if entry is None or transaction_version < _EPOCH_PER_TRANSACTION or epoch > entry.epoch:
            return
        repeated = epoch == entry.epoch and (entry.txn_first_offset < 0 or epoch == _LAST_EPOCH)
        if not repeated:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} in {self.partition} is {epoch}, which is <= the last seen "
                f"epoch {entry.epoch} (TV{transaction_version})",
            )

    # -- what readers may see -------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the oldest transaction that is open, or decided but not yet replicated."""
        ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return ongoing
        unreplicated, _ = self._unreplicated[0]
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    @property
    def first_undecided_offset(self) -> int | None:
        """The start of the oldest open transaction."""
        return next(iter(self._ongoing), None)

    @property
    def has_transactions(self) -> bool:
        """Whether any transaction keeps readers of committed records waiting."""
        return bool(self._ongoing or self._unreplicated)

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether records of that epoch's transaction are here and no marker has ended it."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def on_high_watermark(self, offset: int) -> None:
        """Decided transactions whose marker lies before ``offset`` no longer hold readers back."""
        if self._unreplicated:
            self._unreplicated = [decided for decided in self._unreplicated if decided[1] >= offset]

    def on_log_start_offset(self, offset: int) -> None:
        """The log now starts at ``offset``."""
        self.on_high_watermark(offset)
        self.end_offset = max(self.end_offset, offset)
        latest = self.snapshots.latest
        self.snapshot_offset = offset if latest is None else latest

    # -- keeping and losing ---------------------------------------------------------------------------

    def is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that have been silent too long; gives back how many."""
        return sum(self.expiry_steps(now_ms))

    def expiry_steps(self, now_ms: int) -> Iterator[int]:
        """The same in short steps, between which others may run; each gives how many are forgotten."""
        self.verifications.remove_expired(now_ms - self.expiration_ms)
        known = iter(list(self.entries))
        while looked_at := list(islice(known, _LOOKED_AT_A_TIME)):
            expired = 0
            for producer_id in looked_at:
                entry = self.entries.get(producer_id)
                if entry is not None and self.is_expired(entry, now_ms):
                    del self.entries[producer_id]
                    expired += 1
            if expired or len(looked_at) == _LOOKED_AT_A_TIME:
                yield expired

    def take_snapshot(self, *, sync: bool = True) -> int | None:
        """Write a snapshot at the end of the log, if it has grown since the last; gives back its offset."""
        if self.end_offset <= self.snapshot_offset:
            return None
        self.snapshots.write(self.end_offset, self.entries.values(), sync=sync)
        self.snapshot_offset = self.end_offset
        return self.end_offset

    def snapshot_later(self) -> None:
        """Keep a snapshot of the end of the log, to be written by :meth:`write_later` in a thread.

        A few producers are written here and now; what goes wrong with that is for the caller.
        """
        if len(self.entries) <= _WRITTEN_AT_ONCE or self.end_offset <= self.snapshot_offset:
            self.take_snapshot(sync=False)
            return
        self._later = self.end_offset, list(self.entries.values())
        self.snapshot_offset = self.end_offset

    def write_later(self) -> None:
        """Write the snapshot that :meth:`snapshot_later` has left to this thread, if there is one."""
        later = self._later
        if later is None or not self.snapshots.writing.acquire(blocking=False):
            # Another thread is at it; a recovery that comes before it is there reads a little more.
            return
        try:
            self.snapshots.write_in_thread(*later, lambda: self._later is later)
        finally:
            self.snapshots.writing.release()
        if self._later is later:
            self._later = None

    def reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest snapshot inside the log; what follows it must be replayed."""
        self._forget_later()
        self.snapshots.delete_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        while (latest := self.snapshots.latest) is not None:
            try:
                entries = self.snapshots.read(latest)
            except CorruptSnapshotError as error:
                logger.warning("%s: %s; it is deleted and an older one taken", self.partition, error)
                self.snapshots.delete(latest)
                continue
            self._load(entries, now_ms)
            self.end_offset = self.snapshot_offset = latest
            return
        self.end_offset = self.snapshot_offset = log_start_offset

    def _load(self, entries: list[ProducerEntry], now_ms: int) -> None:
        self.entries = {entry.producer_id: entry for entry in entries if not self.is_expired(entry, now_ms)}
        open_transactions = sorted(
            (entry.txn_first_offset, entry.producer_id)
            for entry in self.entries.values()
            if entry.txn_first_offset >= 0
        )
        self._ongoing = dict(open_transactions)

    def restart_at(self, offset: int) -> None:
        """Forget everything, snapshots included: the log starts anew at ``offset``."""
        self._forget_later()
        self._clear()
        for taken in list(self.snapshots.offsets):
            self.snapshots.delete(taken)
        self.snapshot_offset = 0
        self.end_offset = offset

    def _forget_later(self) -> None:
        """The log is cut: a snapshot that a thread is writing may be of records that are gone."""
        if self._later is not None:
            with self.snapshots.lock:
                self._later = None

    def _clear(self) -> None:
        self.entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()


def _unknown(producer_id: int) -> ProducerEntry:
    return ProducerEntry(producer_id, NO_PRODUCER_EPOCH, NO_SEQUENCE, (), -1, NO_TIMESTAMP, NO_OFFSET)
