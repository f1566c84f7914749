"""Partitions of any size, made in a moment: valid segments and indexes, their records zeros in holes.

A batch holds one record of 64 KB of zeros. All batches of a log differ in their base offset alone, which the
checksum does not cover, so one batch is computed and its first bytes are written again and again; a page per
batch is all the disk that 10 GB take (640 MB). A log that would take too many pages has only some of its
batches written: every one of the newest segment and some of each older one, evenly spread. Its indexes know
all of them, so that a look-up costs what it costs in a whole log; only what was written may be fetched.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import crc32c

from benchmarks import wire

BATCH_BYTES = 64 << 10
SEGMENT_BYTES = 1 << 30  # Kafka's default
WHOLE_BYTES = 20_000_000_000
"""Up to this size every batch is written."""
SAMPLES = 64
"""How many batches of an older segment are written in a larger log."""
# What precedes the value in a batch of one record of that size: batch header, record header.
_RECORD_OVERHEAD = len(wire.batch(1, BATCH_BYTES - 200)) - (BATCH_BYTES - 200)
_HEAD_BYTES = wire.HEADER_SIZE + 16


def write(directory: Path, size_bytes: int) -> Sequence[int]:
    """Put a log of about `size_bytes` into a partition's directory, which stays that topic's.

    Returns the offsets that may be fetched; each is a batch.
    """
    identity = (directory / "partition.metadata").read_bytes()
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "partition.metadata").write_bytes(identity)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    template = wire.batch(1, BATCH_BYTES - _RECORD_OVERHEAD)
    per_segment = SEGMENT_BYTES // len(template)
    total = max(1, size_bytes // len(template))
    written: list[int] = []
    for base in range(0, total, per_segment):
        batches = min(per_segment, total - base)
        whole = size_bytes <= WHOLE_BYTES or base + batches == total
        chosen = range(0, batches, 1 if whole else per_segment // SAMPLES)
        _write_segment(directory, base, batches, chosen, template)
        written += (base + index for index in chosen)
    # No producers, as of the end: what a stop in good order leaves, so that no start reads the log.
    entries = struct.pack(">i", 0)
    snapshot = struct.pack(">hI", 1, crc32c.crc32c(entries)) + entries
    (directory / f"{total:020d}.snapshot").write_bytes(snapshot)
    return written


def _write_segment(
    directory: Path, base_offset: int, batches: int, chosen: range, template: bytearray
) -> None:
    stem = directory / f"{base_offset:020d}"
    head, size = bytes(template[8:_HEAD_BYTES]), len(template)
    log = os.open(f"{stem}.log", os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.ftruncate(log, batches * size)
        for index in chosen:
            os.pwrite(log, struct.pack(">q", base_offset + index) + head, index * size)
    finally:
        os.close(log)
    Path(f"{stem}.index").write_bytes(_index(batches, size))
    (timestamp,) = struct.unpack_from(">q", template, 35)
    Path(f"{stem}.timeindex").write_bytes(struct.pack(">qi", timestamp, 0))


@lru_cache(maxsize=2)
def _index(batches: int, size: int) -> bytes:
    """An entry for each batch but the first; all full segments have the same."""
    return b"".join(struct.pack(">ii", index, index * size) for index in range(1, batches))
