from __future__ import annotations

import errno
import tempfile
from bisect import bisect_right
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.storage.disk import REAL_DISK
from tidelog.storage.segment import transaction_index
from tidelog.storage.segment.mapped_index import CorruptIndexError, MappedIndex
from tidelog.storage.segment.offset_index import OffsetIndex, OffsetPosition
from tidelog.storage.segment.time_index import TimeIndex, TimestampOffset
from tidelog.storage.segment.transaction_index import AbortedTxn, TransactionIndex

BASE = 1000


def offset_index(path: Path, max_bytes: int = 8000) -> OffsetIndex:
    if not path.exists():
        MappedIndex.create(path, REAL_DISK)
    return OffsetIndex(path, BASE, max_bytes, REAL_DISK)


def time_index(path: Path, max_bytes: int = 12000) -> TimeIndex:
    if not path.exists():
        MappedIndex.create(path, REAL_DISK)
    return TimeIndex(path, BASE, max_bytes, REAL_DISK)


def filled(index: OffsetIndex, entries: list[tuple[int, int]]) -> OffsetIndex:
    for offset, position in entries:
        index.reserve(1)
        index.append(offset, position)
    return index


def test_an_offset_index_is_pairs_of_relative_offset_and_position(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001000.index"
    index = filled(offset_index(path), [(1007, 4200), (1300, 70_000)])
    index.trim()
    assert path.read_bytes() == bytes.fromhex("00000007 00001068  0000012c 00011170")


def test_an_index_has_its_full_size_while_it_is_written_and_is_cut_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    index = offset_index(path, max_bytes=8003)
    assert path.stat().st_size == 0
    filled(index, [(1001, 1)])
    assert path.stat().st_size == 8000
    index.trim()
    assert path.stat().st_size == 8
    filled(index, [(1002, 2)])
    assert path.stat().st_size == 8000
    assert [index.entry(slot) for slot in range(2)] == [(1001, 1), (1002, 2)]


def test_a_lookup_finds_the_entry_at_or_below_an_offset(tmp_path: Path) -> None:
    entries = [(BASE + 10 * slot, 100 * slot) for slot in range(1, 3000)]
    index = filled(offset_index(tmp_path / "x.index", max_bytes=80_000), entries)
    assert index.lookup(BASE) == OffsetPosition(BASE, 0)
    assert index.lookup(BASE + 9) == OffsetPosition(BASE, 0)
    for offset, position in entries[::97]:
        assert index.lookup(offset - 1).offset <= offset - 10 or offset == BASE + 10
        assert index.lookup(offset) == (offset, position)
        assert index.lookup(offset + 9) == (offset, position)
    assert index.lookup(10**9) == entries[-1]


@given(
    offsets=st.lists(st.integers(1, 10**9), min_size=1, max_size=300, unique=True).map(sorted),
    wanted=st.lists(st.integers(0, 1_100_000_000), max_size=30),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_lookups_agree_with_a_plain_search_however_uneven_the_entries(
    offsets: list[int], wanted: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        index = offset_index(Path(directory) / "x.index", max_bytes=8 * len(offsets))
        filled(index, [(BASE + offset, 3 * slot + 1) for slot, offset in enumerate(offsets)])
        for target in (*wanted, *offsets[:20], *(offset - 1 for offset in offsets[-20:])):
            below = bisect_right(offsets, target) - 1
            expected = (BASE + offsets[below], 3 * below + 1) if below >= 0 else (BASE, 0)
            assert index.lookup(BASE + target) == expected
        for position in range(0, 3 * len(offsets) + 2, 5):
            above = -(-(position - 1) // 3) if position else 0
            expected_offset = BASE + offsets[above] if above < len(offsets) else None
            assert index.upper_bound(position) == expected_offset
        index.close()


def test_the_upper_bound_is_the_first_entry_at_or_behind_a_position(tmp_path: Path) -> None:
    index = filled(offset_index(tmp_path / "x.index"), [(1010, 100), (1020, 200), (1030, 300)])
    assert [index.upper_bound(position) for position in (0, 100, 101, 200, 300, 301)] == [
        1010,
        1010,
        1020,
        1020,
        1030,
        None,
    ]


@pytest.mark.parametrize(
    ("offset", "left"), [(1005, 0), (1010, 0), (1011, 1), (1020, 1), (1025, 2), (2000, 3)]
)
def test_truncating_an_offset_index_drops_entries_at_or_behind_the_offset(
    tmp_path: Path, offset: int, left: int
) -> None:
    index = filled(offset_index(tmp_path / "x.index"), [(1010, 100), (1020, 200), (1030, 300)])
    index.truncate_to(offset)
    assert index.entries == left
    assert index.last_offset == BASE + 10 * left
    filled(index, [(5000, 400)])
    assert index.lookup(9999) == (5000, 400)


def test_an_index_refuses_an_offset_that_does_not_ascend(tmp_path: Path) -> None:
    index = filled(offset_index(tmp_path / "x.index"), [(1010, 100)])
    index.reserve(1)
    with pytest.raises(CorruptIndexError, match="1010 cannot follow"):
        index.append(1010, 200)


def test_an_index_with_less_than_two_entries_has_room_for_two(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "x.index", max_bytes=4)
    assert index.max_entries == 2
    assert not time_index(tmp_path / "y.timeindex", max_bytes=4).is_full


@pytest.mark.parametrize(
    ("content", "log_bytes"),
    [
        (bytes.fromhex("00000007 00001068 00000000 00000000"), 10_000),  # zeros behind the last entry
        (bytes.fromhex("00000007 00001068"), 4200),  # points behind the end of the log
        (bytes.fromhex("ffffffff 00001068"), 10_000),  # before the segment's first offset
        (bytes.fromhex("00000007 ffffffff"), 10_000),
    ],
)
def test_an_index_that_cannot_belong_to_its_log_is_corrupt(
    tmp_path: Path, content: bytes, log_bytes: int
) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(content)
    with pytest.raises(CorruptIndexError, match=r"x\.index"):
        offset_index(path).check(log_bytes)


def test_an_index_of_a_broken_size_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(bytes(13))
    with pytest.raises(CorruptIndexError, match="13 bytes"):
        offset_index(path)


def test_room_on_a_full_disk_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    MappedIndex.create(path, REAL_DISK)
    disk = FaultyDisk()
    index = OffsetIndex(path, BASE, 100_000, disk)
    index.reserve(1)
    disk.free_bytes = 0
    index.reserve(500)
    with pytest.raises(OSError, match="space") as full:
        index.reserve(513)
    assert full.value.errno == errno.ENOSPC


def test_a_time_index_is_pairs_of_timestamp_and_relative_offset(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    index = time_index(path)
    index.reserve(2)
    index.maybe_append(1_700_000_000_000, 1005)
    index.maybe_append(1_700_000_000_000, 1009)
    index.maybe_append(1_699_999_999_999, 1010)
    index.maybe_append(1_700_000_000_001, 1255)
    index.trim()
    assert path.read_bytes() == bytes.fromhex("0000018bcfe56800 00000005 0000018bcfe56801 000000ff")
    assert time_index(path).last == TimestampOffset(1_700_000_000_001, 1255)


def test_a_time_lookup_finds_the_entry_at_or_before_a_timestamp(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex")
    index.reserve(3)
    for slot in range(3):
        index.maybe_append(100 + 10 * slot, 1000 + slot)
    found = [index.lookup(timestamp) for timestamp in (99, 100, 115, 120, 999)]
    assert found == [(-1, 1000), (100, 1000), (110, 1001), (120, 1002), (120, 1002)]
    index.truncate_to(1002)
    assert index.last == (110, 1001)
    index.truncate_to(1000)
    assert index.entries == 0
    assert index.last == (-1, 1000)


def test_a_time_index_keeps_its_last_slot_for_the_end_of_the_segment(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex", max_bytes=36)
    index.reserve(3)
    for slot in range(2):
        assert not index.is_full
        index.maybe_append(slot, 1000 + slot)
    assert index.is_full


def test_a_time_index_that_goes_back_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    path.write_bytes(bytes.fromhex("000000000000000a 00000001 0000000000000009 00000002"))
    with pytest.raises(CorruptIndexError, match="timestamp 9"):
        time_index(path).check()


ABORTED = [
    AbortedTxn(7, 1000, 1010, 1011),
    AbortedTxn(8, 1005, 1020, 1005),
    AbortedTxn(7, 1015, 1030, 1031),
]


def test_a_transaction_index_is_entries_of_34_bytes_and_is_made_with_the_first(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(path, BASE, REAL_DISK)
    assert not index.exists
    assert not path.exists()
    index.append(ABORTED[:1])
    assert path.read_bytes() == bytes.fromhex(
        "0000 0000000000000007 00000000000003e8 00000000000003f2 00000000000003f3"
    )
    assert TransactionIndex(path, BASE, REAL_DISK).entries == ABORTED[:1]


def test_aborted_transactions_are_found_where_they_overlap(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "x.txnindex", BASE, REAL_DISK)
    index.append(ABORTED[:2])
    index.append(ABORTED[2:])
    assert index.collect(1000, 1003) == (ABORTED[:1], True)
    assert index.collect(1011, 1012) == (ABORTED[1:2], True)
    assert index.collect(1000, 1025) == (ABORTED, True)
    assert index.collect(1025, 1100) == (ABORTED[2:], False)
    assert index.collect(1031, 1100) == ([], False)


def test_of_very_many_aborted_transactions_those_are_unpacked_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txnindex"
    many = [AbortedTxn(7, offset, offset + 1, offset + 2) for offset in range(BASE, BASE + 20_000, 2)]
    path.write_bytes(b"".join(entry.encode() for entry in many) + b"half an entry")
    unpacked: list[int] = []

    class Counting:
        def unpack_from(self, buffer: bytes, position: int) -> tuple[int, ...]:
            unpacked.append(position)
            return entry_format.unpack_from(buffer, position)

    entry_format = transaction_index._ENTRY
    monkeypatch.setattr(transaction_index, "_ENTRY", Counting())
    index = TransactionIndex(path, BASE, REAL_DISK)
    assert index.collect(BASE + 9000, BASE + 9004) == (many[4500:4502], True)
    index.truncate_to(BASE + 10_001)
    assert path.stat().st_size == 5000 * 34
    assert len(unpacked) < 50
    monkeypatch.undo()
    assert index.entries == many[:5000]


def test_truncating_a_transaction_index_drops_markers_at_or_behind_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(path, BASE, REAL_DISK)
    index.append(ABORTED)
    index.truncate_to(1020)
    assert index.entries == ABORTED[:1]
    assert path.stat().st_size == 34
    index.append([AbortedTxn(9, 1012, 1013, 1014)])
    assert TransactionIndex(path, BASE, REAL_DISK).entries[-1].producer_id == 9
    index.reset()
    assert path.stat().st_size == 0


def test_a_failed_write_leaves_the_transaction_index_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    disk = FaultyDisk()
    index = TransactionIndex(path, BASE, disk)
    index.append(ABORTED[:1])
    disk.free_bytes = 20
    with pytest.raises(OSError, match="space"):
        index.append(ABORTED[1:])
    disk.free_bytes = None
    assert path.stat().st_size == 34
    assert index.entries == ABORTED[:1]


def test_a_transaction_index_refuses_what_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(path, BASE, REAL_DISK)
    index.append(ABORTED[1:2])
    with pytest.raises(CorruptIndexError, match="cannot follow"):
        index.append(ABORTED[:1])
    with pytest.raises(CorruptIndexError, match="before the segment begins"):
        TransactionIndex(path, 5000, REAL_DISK).check()
    path.write_bytes(b"\x00\x01" + path.read_bytes()[2:])
    with pytest.raises(CorruptIndexError, match="version 1"):
        TransactionIndex(path, BASE, REAL_DISK).check()
