from __future__ import annotations

from pathlib import Path

import pytest
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.storage.producers.producer_snapshots import (
    CorruptSnapshotError,
    ProducerEntry,
    ProducerSnapshots,
    SequencedBatch,
    decode_snapshot,
    encode_snapshot,
)

NAME = Path("00000000000000000042.snapshot")
ENTRY = ProducerEntry(
    producer_id=1000,
    epoch=3,
    last_sequence=17,
    batches=(SequencedBatch(13, 17, 96, 100, 1_700_000_000_000),),
    coordinator_epoch=2,
    last_timestamp=1_700_000_000_000,
    txn_first_offset=90,
)
LITERAL = bytes.fromhex(
    "0001"  # version
    "595efc8d"  # CRC-32C of the rest
    "00000001"  # one producer
    "00000000000003e8"  # producer id
    "0003"  # epoch
    "00000011"  # last sequence
    "0000000000000064"  # last offset
    "00000004"  # offset delta
    "0000018bcfe56800"  # timestamp
    "00000002"  # coordinator epoch
    "000000000000005a"  # first offset of the open transaction
)


def test_a_snapshot_has_kafkas_bytes() -> None:
    assert encode_snapshot([ENTRY]) == LITERAL
    assert decode_snapshot(LITERAL, NAME) == [ENTRY]


def test_an_empty_snapshot_is_ten_bytes() -> None:
    assert encode_snapshot([]) == bytes.fromhex("0001 48674bc7 00000000")
    assert decode_snapshot(encode_snapshot([]), NAME) == []


def test_only_the_last_batch_of_a_producer_is_kept() -> None:
    first = SequencedBatch(8, 12, 80, 84, 1)
    (loaded,) = decode_snapshot(encode_snapshot([ENTRY._replace(batches=(first, *ENTRY.batches))]), NAME)
    assert loaded == ENTRY


def test_a_producer_known_by_a_marker_alone_has_no_batch() -> None:
    marker_only = ProducerEntry(7, 1, -1, (), 4, 55, -1)
    assert decode_snapshot(encode_snapshot([marker_only]), NAME) == [marker_only]


def test_a_batch_whose_sequence_wrapped_is_restored() -> None:
    wrapped = SequencedBatch(0x7FFFFFFE, 2, 10, 14, 5)
    (loaded,) = decode_snapshot(encode_snapshot([ENTRY._replace(last_sequence=2, batches=(wrapped,))]), NAME)
    assert loaded.batches[0][:4] == wrapped[:4]


@pytest.mark.parametrize("cut", [0, 1, 9, 10, 30, len(LITERAL) - 1])
def test_a_torn_snapshot_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptSnapshotError, match=r"00000000000000000042\.snapshot"):
        decode_snapshot(LITERAL[:cut], NAME)


def test_a_changed_byte_or_another_version_is_corrupt() -> None:
    for position in range(len(LITERAL)):
        changed = bytearray(LITERAL)
        changed[position] ^= 0x10
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(changed), NAME)


def snapshots(directory: Path, *offsets: int) -> ProducerSnapshots:
    found = ProducerSnapshots(directory, FaultyDisk())
    for offset in offsets:
        found.write(offset, [ENTRY], sync=False)
    return found


def names(directory: Path) -> list[str]:
    return sorted(entry.name.lstrip("0") for entry in directory.iterdir())


def test_snapshots_of_a_directory_are_found_by_name(tmp_path: Path) -> None:
    snapshots(tmp_path, 20, 5, 100)
    found = ProducerSnapshots(tmp_path, FaultyDisk(), [entry.name for entry in tmp_path.iterdir()])
    assert found.offsets == [5, 20, 100]
    assert found.latest == 100
    assert found.read(20) == [ENTRY]


def test_strays_go_but_the_one_that_closing_left_stays(tmp_path: Path) -> None:
    found = snapshots(tmp_path, 5, 10, 15, 20, 33)
    found.delete_strays([0, 10, 20])
    assert found.offsets == [10, 20, 33]
    assert names(tmp_path) == ["10.snapshot", "20.snapshot", "33.snapshot"]


def test_a_stray_before_the_last_segment_goes(tmp_path: Path) -> None:
    found = snapshots(tmp_path, 15)
    found.delete_strays([0, 10, 20])
    assert found.offsets == []


def test_snapshots_outside_the_log_go(tmp_path: Path) -> None:
    found = snapshots(tmp_path, 5, 10, 15, 20)
    found.delete_outside(10, 15)
    assert found.offsets == [15]


def test_a_snapshot_waits_for_deletion_with_its_segment(tmp_path: Path) -> None:
    found = snapshots(tmp_path, 5, 10)
    assert found.take({5, 7}) == {5}
    assert found.rename_deleted(5) == tmp_path / "00000000000000000005.snapshot.deleted"
    assert found.rename_deleted(7) is None
    assert found.offsets == [10]
    assert names(tmp_path) == ["10.snapshot", "5.snapshot.deleted"]
