"""Which transactions a cleaning pass has walked through, and so which markers it may drop.

Records of an aborted transaction go at once. A marker stays until every batch of its transaction is gone,
and then for another ``delete.retention.ms``, so that a consumer in the middle of the transaction still
learns how it ended. Abort markers that stay keep their entry in the transaction index of the new segment.

Invariant: batches are shown in the order of the log. Used by ``compaction``, once for the offset map and
once for the rewriting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import BatchHeader, Buffer
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.record import batch_body, scan_records
from tidelog.storage.segment.transaction_index import AbortedTxn

# A marker takes a few bytes.
_MAX_MARKER_BYTES: Final = 64 * 1024


class CleanedTransactions:
    """The open transactions at one point of a walk through a log."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        # Popped from the end, so the transaction that began first comes last.
        self._ahead = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTxn] = {}
        self._observed: set[int] = set()
        self._ongoing_committed: set[int] = set()
        self.kept_aborts: list[AbortedTxn] = []
        """Aborted transactions whose marker must stay; the writer of a segment takes and clears them."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a batch of records; whether it belongs to a transaction that was aborted."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._ongoing_aborted:
            self._observed.add(header.producer_id)
            return True
        self._ongoing_committed.add(header.producer_id)
        return False

    def is_droppable_marker(self, buf: Buffer, pos: int, header: BatchHeader) -> bool:
        """Note a control batch; whether nothing is left of the transaction it ends."""
        self._open_up_to(header.last_offset)
        if not header.record_count:
            # An earlier pass has emptied it and kept it for its producer's sake only.
            return True
        try:
            body = batch_body(buf, header, pos, max_size=_MAX_MARKER_BYTES)
            span = next(scan_records(body, header.record_count))
            control_type = parse_control_type(body[span.key_at : span.key_at + max(span.key_length, 0)])
        except CorruptRecordError:
            # Whatever it ends stays open; the batch is kept, and named, as any other that cannot be read.
            return False
        if control_type is ControlType.COMMIT:
            seen = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return not seen
        if control_type is ControlType.ABORT:
            aborted = self._ongoing_aborted.pop(header.producer_id, None)
            if aborted is not None and header.producer_id in self._observed:
                self._observed.discard(header.producer_id)
                self.kept_aborts.append(aborted)
                return False
            return True
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            aborted = self._ahead.pop()
            self._ongoing_aborted.setdefault(aborted.producer_id, aborted)
