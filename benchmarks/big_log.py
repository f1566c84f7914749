"""Partitions of any size, made in a moment: valid segments and indexes, their records zeros in holes.

A batch holds one record of 64 KB of zeros. All batches of a log differ in their base offset alone, which the
checksum does not cover, so one batch is computed and its first bytes are written again and again; a page per
batch is all the disk that 10 GB take (640 MB). Of a log of 1 TB only those batches are written that will be
read; the rest of its files is a hole, and its indexes are whole.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Collection
from pathlib import Path

from benchmarks import wire

BATCH_BYTES = 64 << 10
SEGMENT_BYTES = 1 << 30  # Kafka's default
# What precedes the value in a batch of one record of that size: batch header, record header.
_RECORD_OVERHEAD = len(wire.batch(1, BATCH_BYTES - 200)) - (BATCH_BYTES - 200)
_HEAD_BYTES = wire.HEADER_SIZE + 16


def end_offset(size_bytes: int) -> int:
    """How many batches, and so offsets, a log of about `size_bytes` has."""
    return max(1, size_bytes // BATCH_BYTES)


def write(directory: Path, size_bytes: int, offsets: Collection[int] | None = None) -> int:
    """Put a log of about `size_bytes` into a partition's directory, which stays that topic's.

    Only the batches at `offsets`, if given, and the last one of each segment can be read. Returns the log's
    end offset.
    """
    identity = (directory / "partition.metadata").read_bytes()
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "partition.metadata").write_bytes(identity)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    template = wire.batch(1, BATCH_BYTES - _RECORD_OVERHEAD)
    per_segment = SEGMENT_BYTES // len(template)
    total = end_offset(size_bytes)
    readable = None if offsets is None else set(offsets)
    for base in range(0, total, per_segment):
        _write_segment(directory, base, min(per_segment, total - base), template, readable)
    return total


def _write_segment(
    directory: Path, base_offset: int, batches: int, template: bytearray, readable: set[int] | None
) -> None:
    stem = directory / f"{base_offset:020d}"
    head, size = bytes(template[8:_HEAD_BYTES]), len(template)
    log = os.open(f"{stem}.log", os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.ftruncate(log, batches * size)
        last = base_offset + batches - 1
        offsets = range(base_offset, last + 1)
        for index in range(batches) if readable is None else _slots(readable, offsets):
            os.pwrite(log, struct.pack(">q", base_offset + index) + head, index * size)
    finally:
        os.close(log)
    entries = b"".join(struct.pack(">ii", index, index * size) for index in range(1, batches))
    Path(f"{stem}.index").write_bytes(entries)
    (timestamp,) = struct.unpack_from(">q", template, 35)
    Path(f"{stem}.timeindex").write_bytes(struct.pack(">qi", timestamp, 0))


def _slots(readable: set[int], offsets: range) -> list[int]:
    """Which batches of a segment are written: those to be read, the first and the last."""
    return sorted({0, len(offsets) - 1} | {offset - offsets[0] for offset in readable if offset in offsets})
