"""The compiled way from an offset to its batch finds what the long way finds, or leaves it to that."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rigs.old_formats import EVERY_FORMAT, in_sets, numbered_records

from tidelog.clock import SystemClock
from tidelog.errors import CorruptRecordError, StorageError
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment import batch_search
from tidelog.storage.segment.segment import Segment

BASE = 1_000
HEADER = struct.Struct(">qiibIhi")


def interpreted() -> ModuleType:
    path = Path(batch_search.__file__ or "").parent / "batch_search.py"
    spec = spec_from_file_location("interpreted_batch_search", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


VARIANTS = [interpreted(), *([batch_search] if batch_search.COMPILED else [])]

# Body bytes, offsets that the batch spans, offsets that compaction has left out before it.
Shape = tuple[int, int, int]
shapes = st.lists(
    st.tuples(
        st.one_of(st.integers(49, 200), st.integers(3_000, 20_000)), st.integers(1, 5), st.integers(0, 3)
    ),
    min_size=1,
    max_size=60,
)
intervals = st.sampled_from([1, 200, 4096])


def build(batches: list[Shape], interval: int) -> tuple[bytearray, bytearray, int]:
    """A log, its offset index and the offset behind its end."""
    log, index = bytearray(), bytearray()
    offset, since_entry = BASE, 0
    for body, span, gap in batches:
        offset += gap
        if since_entry > interval:
            index += struct.pack(">ii", offset + span - 1 - BASE, len(log))
            since_entry = 0
        log += HEADER.pack(offset, body, 0, 2, 0, 0, span - 1) + bytes(body + 12 - HEADER.size)
        since_entry += body + 12
        offset += span
    return log, index, offset


@contextmanager
def segment_of(log: bytes | bytearray, index: bytes | bytearray, interval: int) -> Iterator[Segment]:
    with tempfile.TemporaryDirectory() as directory:
        stem = Path(directory, f"{BASE:020d}")
        stem.with_suffix(".log").write_bytes(log)
        stem.with_suffix(".index").write_bytes(index)
        stem.with_suffix(".timeindex").write_bytes(b"")
        config = LogConfig(index_interval_bytes=interval)
        segment = Segment.open(Path(directory), BASE, config, clock=SystemClock())
        yield segment
        segment.close_handles()


def short_way(variant: ModuleType, segment: Segment, offset: int) -> tuple[int, int] | None:
    index = segment.offset_index
    found: tuple[int, int] | None = variant.find(
        segment.files.log_file.fd,
        index.raw,
        index.entries,
        offset - BASE,
        offset,
        segment.size,
        segment.index_interval,
    )
    return found


def long_way(segment: Segment, offset: int) -> tuple[int, int] | None:
    segment.forget_positions()
    position = segment._search_closely(offset)
    return None if position is None else (segment._found_position, segment._found_size)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: "compiled" if each.COMPILED else "interpreted")
@settings(deadline=None)
@given(batches=shapes, interval=intervals)
def test_every_offset_is_found_where_the_long_way_finds_it(
    variant: ModuleType, batches: list[Shape], interval: int
) -> None:
    log, index, end = build(batches, interval)
    with segment_of(log, index, interval) as segment:
        for offset in range(BASE, end + 2):
            assert short_way(variant, segment, offset) == long_way(segment, offset)
            assert segment.position_of(offset) == (long_way(segment, offset) or (None,))[0]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: "compiled" if each.COMPILED else "interpreted")
@pytest.mark.parametrize(("magic", "codec"), EVERY_FORMAT)
@pytest.mark.parametrize("interval", [100, 1000, 1 << 20])
def test_offsets_in_old_messages_are_found_where_the_long_way_finds_them(
    variant: ModuleType, magic: int, codec: Codec, interval: int
) -> None:
    sets = list(in_sets(numbered_records(60, first=BASE), magic, codec, each=5))
    sets += [encode_batch([Record(timestamp=1)], base_offset=BASE + 60 + slot) for slot in range(9)]
    log, index, since_entry = b"", b"", 0
    for slot, data in enumerate(sets):
        if since_entry > interval:
            # As old brokers did it: the first offset of what was written at once.
            first = BASE + (5 * slot if slot < 12 else 48 + slot)
            index += struct.pack(">ii", first - BASE, len(log))
            since_entry = 0
        log += data
        since_entry += len(data)
    with segment_of(log, index, interval) as segment:
        for offset in range(BASE, BASE + 70):
            found = short_way(variant, segment, offset)
            assert found == long_way(segment, offset)
            assert (found is None) == (offset == BASE + 69)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: "compiled" if each.COMPILED else "interpreted")
@settings(deadline=None)
@given(
    batches=shapes,
    interval=intervals,
    damage=st.lists(
        st.tuples(st.booleans(), st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4
    ),
    cut=st.integers(0, 60),
    offset=st.integers(BASE - 1, BASE + 400),
)
def test_what_is_damaged_is_left_to_the_long_way_or_read_alike(
    variant: ModuleType,
    batches: list[Shape],
    interval: int,
    damage: list[tuple[bool, float, int]],
    cut: int,
    offset: int,
) -> None:
    log, index, _ = build(batches, interval)
    for in_index, place, byte in damage:
        target = index if in_index and index else log
        target[int(place * len(target))] = byte
    with segment_of(log, index, interval) as segment:
        # The file may be shorter than the segment believes.
        os.truncate(segment.files.log_file.fd, max(len(log) - cut, 0))
        try:
            found = short_way(variant, segment, offset)
        except StorageError:
            # The index cannot be used, nor be made anew from a log that is damaged, too: nothing is found.
            found = None
        if found is not None:
            try:
                assert found == long_way(segment, offset)
            except (CorruptRecordError, StorageError):
                pytest.fail("the short way has found what the long way refuses")


def test_a_disk_of_the_tests_own_is_read_through_its_own_calls(tmp_path: Path) -> None:
    from tests.rigs.faulty_disk import FaultyDisk

    class Counting(FaultyDisk):
        reads = 0

        def pread(self, fd: int, size: int, position: int) -> bytes:
            self.reads += 1
            return os.pread(fd, size, position)

    log, index, _ = build([(5_000, 1, 0)] * 10, 1)
    (tmp_path / f"{BASE:020d}.log").write_bytes(log)
    (tmp_path / f"{BASE:020d}.index").write_bytes(index)
    (tmp_path / f"{BASE:020d}.timeindex").write_bytes(b"")
    disk = Counting()
    segment = Segment.open(tmp_path, BASE, LogConfig(), clock=SystemClock(), disk=disk)
    before = disk.reads
    assert segment.position_of(BASE + 5) == 5 * 5_012
    assert disk.reads > before
    segment.close_handles()
