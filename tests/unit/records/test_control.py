"""Control records: markers round trip, are read by foreign clients, and strange ones are passed over."""

from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from kafka.record.default_records import DefaultRecordBatch

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import parse_header
from tidelog.records.control import (
    ControlType,
    EndTxnMarker,
    encode_end_txn_marker,
    parse_control_type,
    parse_end_txn_marker,
)
from tidelog.records.record import Record, decode_batch


@pytest.mark.parametrize(
    ("control_type", "foreign"), [(ControlType.ABORT, ABORT_MARKER), (ControlType.COMMIT, COMMIT_MARKER)]
)
def test_markers_are_transactional_control_batches_that_foreign_clients_understand(
    control_type: ControlType, foreign: object
) -> None:
    marker = EndTxnMarker(control_type, 12)
    batch = encode_end_txn_marker(
        marker, producer_id=9, producer_epoch=2, timestamp=1_700_000_000_000, base_offset=5
    )
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    (record,) = decode_batch(batch)
    assert record.offset == 5
    assert parse_end_txn_marker(record) == marker
    assert record.key is not None
    assert ControlRecord.parse(record.key) == foreign
    (seen,) = list(DefaultRecordBatch(batch))
    assert (seen.abort, seen.commit) == (
        control_type is ControlType.ABORT,
        control_type is ControlType.COMMIT,
    )


def test_only_abort_and_commit_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        encode_end_txn_marker(
            EndTxnMarker(ControlType.LEADER_CHANGE, 0), producer_id=1, producer_epoch=0, timestamp=0
        )
    with pytest.raises(CorruptRecordError, match="no end of a transaction"):
        parse_end_txn_marker(Record(offset=3, key=b"\0\0\0\2", value=b"\0\0\0\0\0\1"))


def test_later_versions_and_types_are_readable() -> None:
    assert parse_control_type(b"\0\1\0\1") is ControlType.COMMIT
    assert parse_control_type(b"\0\0\0\x63") is ControlType.UNKNOWN


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_broken_control_keys_are_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        parse_control_type(key)


@pytest.mark.parametrize("value", [None, b"\0\0\0", b"\xff\xff\0\0\0\0"])
def test_broken_marker_values_are_corrupt(value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        parse_end_txn_marker(Record(offset=3, key=b"\0\0\0\1", value=value))
