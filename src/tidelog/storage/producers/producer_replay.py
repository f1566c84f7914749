"""Bringing a producer state up to date with batches that are already in a log.

Followers do it with what they fetch, recovery and loading with what they read back: nothing is refused, the
leader has judged it. Only control batches need their bytes. Called by ``log_appender`` and ``recovery``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import BatchHeader, Buffer, parse_header
from tidelog.records.control import ControlType, EndTxnMarker, parse_control_type, parse_end_txn_marker
from tidelog.records.record import decode_batch
from tidelog.storage.producers.producer_snapshots import sequenced
from tidelog.storage.producers.producer_state import AppendOrigin, CompletedTxn, ProducerState
from tidelog.storage.segment.transaction_index import AbortedTxn

# A marker takes a few bytes.
_MAX_MARKER_BYTES: Final = 64 * 1024
logger = logging.getLogger(__name__)

_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


def read_marker(batch: Buffer) -> EndTxnMarker | None:
    """The end of a transaction in a control batch, None for other control records and emptied batches.

    And for one that cannot be read: it is in the log already, and must not keep the rest from being loaded.
    """
    try:
        records = decode_batch(batch, verify_crc=False, max_size=_MAX_MARKER_BYTES)
        if not records or parse_control_type(records[0].key) not in _ENDS:
            return None
        return parse_end_txn_marker(records[0])
    except CorruptRecordError as error:
        header = parse_header(batch)
        logger.warning(
            "the control batch at offset %d, of producer %d, is passed over: %s",
            header.base_offset,
            header.producer_id,
            error,
        )
        return None


def replay_batch(
    state: ProducerState, header: BatchHeader, read: Callable[[], Buffer]
) -> CompletedTxn | None:
    """Stage a batch that has a producer id; gives back a transaction that it ends, as ``stage_marker``."""
    if not header.is_control:
        batch = sequenced(
            header.base_sequence, header.last_offset_delta, header.base_offset, header.max_timestamp
        )
        origin = AppendOrigin.REPLICATION
        state.stage_batch(header.producer_id, header.producer_epoch, batch, header.is_transactional, origin)
        return None
    marker = read_marker(read())
    if marker is None:
        return None
    return state.stage_marker(
        header.producer_id,
        header.producer_epoch,
        marker,
        header.base_offset,
        header.max_timestamp,
        AppendOrigin.REPLICATION,
    )


def aborted_entry(completed: CompletedTxn) -> AbortedTxn:
    """The entry of the transaction index for a transaction that was aborted."""
    return AbortedTxn(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )
