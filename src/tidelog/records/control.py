"""Control records: the markers that end a transaction in a partition.

A marker is a batch of its own, transactional and control, with one record and no sequence number::

    key    int16 version (0), int16 type: 0 abort, 1 commit, others belong to the KRaft log
    value  int16 version (0), int32 coordinator epoch

Clients never see these records; offsets they take stay visible as gaps. Written by the transaction
coordinator through WriteTxnMarkers; read by the append path, recovery, the cleaner and tools.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_LEADER_EPOCH
from tidelog.records.record import Record, encode_batch

_VERSION = 0
_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")


class ControlType(enum.IntEnum):
    """What a control record says; types of later Kafkas are read as ``UNKNOWN`` and passed over."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The end of a transaction: ``ABORT`` or ``COMMIT``, and the epoch of the coordinator that wrote it."""

    control_type: ControlType
    coordinator_epoch: int


def encode_end_txn_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends the open transaction of ``producer_id``."""
    if marker.control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"{marker.control_type.name} does not end a transaction")
    record = Record(
        timestamp=timestamp,
        key=_KEY.pack(_VERSION, marker.control_type),
        value=_END_TXN_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def parse_control_type(key: bytes | None) -> ControlType:
    """What kind of control record has this key."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(f"a control record's key needs {_KEY.size} bytes, it has {len(key or b'')}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(f"a control record's key has the impossible version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def parse_end_txn_marker(record: Record) -> EndTxnMarker:
    """The marker in a control record; raises ``CorruptRecordError`` if it is none."""
    control_type = parse_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise CorruptRecordError(f"the control record at {record.offset} is no end of a transaction")
    value = record.value
    if value is None or len(value) < _END_TXN_VALUE.size:
        raise CorruptRecordError(f"the marker at offset {record.offset} is shorter than its fields")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecordError(f"the marker at {record.offset} has the impossible version {version}")
    return EndTxnMarker(control_type, coordinator_epoch)
