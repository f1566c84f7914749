"""Snapshots of a partition's producers, so that loading a log need not read it from the beginning.

File ``<offset>.snapshot``: what the producers had written before ``offset``. Big-endian::

    0  version   int16    1
    2  CRC-32C   uint32   over everything behind it
    6  count     int32
   10  entries of 46 bytes: producer id int64 · epoch int16 · last sequence int32 · last offset int64 ·
       offset delta int32 (last batch's last offset minus its first) · timestamp int64 ·
       coordinator epoch int32 · first offset of the open transaction int64 (-1: none)

Only the last batch of each producer is kept. Taken when a segment is rolled, at the new base offset, and
when a log is closed. A crash can leave a torn file, which its CRC gives away: it is deleted and the next
older one taken. Called by ``producer_state``.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from tidelog.checksum import crc32c
from tidelog.errors import StorageError
from tidelog.ids import NO_OFFSET, NO_SEQUENCE
from tidelog.records.batch import MAX_INT32
from tidelog.storage.disk import Disk
from tidelog.storage.files import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name, offset_of

_new_tuple = tuple.__new__

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_END = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_PACKED_AT_A_TIME = 500


class CorruptSnapshotError(StorageError):
    """A snapshot that is torn or of an unknown version; an older one or the log itself replaces it."""


class SequencedBatch(NamedTuple):
    """A batch that a producer has written, remembered to recognise it when it is sent again."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


def sequenced(first_sequence: int, offset_delta: int, first_offset: int, timestamp: int) -> SequencedBatch:
    """A batch of ``offset_delta`` + 1 records; sequences go on at 0 behind the highest."""
    last_sequence = (first_sequence + offset_delta) & MAX_INT32 if first_sequence >= 0 else NO_SEQUENCE
    return _new_tuple(
        SequencedBatch,
        (first_sequence, last_sequence, first_offset, first_offset + offset_delta, timestamp),
    )


class ProducerEntry(NamedTuple):
    """What a partition knows of one producer; replaced, never changed."""

    producer_id: int
    epoch: int
    last_sequence: int
    batches: tuple[SequencedBatch, ...]
    coordinator_epoch: int
    last_timestamp: int
    txn_first_offset: int

    @property
    def last_offset(self) -> int:
        """The offset of its last record, -1 where only markers are known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerSnapshots:
    """The snapshot files of one partition directory."""

    __slots__ = ("_directory", "disk", "lock", "offsets", "writing")

    def __init__(self, directory: Path, disk: Disk, names: Iterable[str] = ()) -> None:
        self._directory = directory
        self.disk = disk
        self.offsets: list[int] = []
        # Held while a snapshot written in a thread appears, or is found to be of no use any more.
        self.lock = threading.Lock()
        self.writing = threading.Lock()
        self.scan(names)

    def scan(self, names: Iterable[str]) -> None:
        """Take over the snapshots among a directory's file names."""
        found = (offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self.offsets = sorted(offset for offset in found if offset is not None)

    def path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def write(self, offset: int, entries: Iterable[ProducerEntry], *, sync: bool) -> None:
        """Write the snapshot of ``offset``; without ``sync`` the caller sees to it later."""
        self._write(self.path(offset), encode_snapshot(entries), sync=sync)
        self._note(offset)

    def write_in_thread(
        self, offset: int, entries: Sequence[ProducerEntry], still_wanted: Callable[[], bool]
    ) -> None:
        """Write a large one and sync it, beside the loop; unless it is ``still_wanted`` then, it goes again.

        The interpreter lock is let go of now and then: a loop that waits for it waits for little.
        """
        path = self.path(offset)
        temporary = path.with_name(path.name + ".tmp")
        packed: list[bytes] = []
        for start in range(0, len(entries), _PACKED_AT_A_TIME):
            packed.append(_pack(entries[start : start + _PACKED_AT_A_TIME]))
            time.sleep(0)
        self._write(temporary, _with_head(len(entries), packed), sync=True)
        with self.lock:
            if still_wanted():
                self.disk.replace(temporary, path)
                self._note(offset)
            else:
                self.disk.unlink(temporary)

    def _write(self, path: Path, data: bytes, *, sync: bool) -> None:
        fd = self.disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self.disk.write_all(fd, data, 0)
            if sync:
                self.disk.fsync(fd)
        finally:
            self.disk.close(fd)

    def _note(self, offset: int) -> None:
        if offset not in self.offsets:
            # Replaced and not changed: a flush in a thread may be looking.
            self.offsets = sorted([*self.offsets, offset])

    def read(self, offset: int) -> list[ProducerEntry]:
        """The entries of one snapshot; raises ``CorruptSnapshotError``."""
        path = self.path(offset)
        return decode_snapshot(path.read_bytes(), path)

    def delete(self, offset: int) -> None:
        """Remove one snapshot, if it is there."""
        if offset in self.offsets:
            self.offsets.remove(offset)
            self.path(offset).unlink(missing_ok=True)

    def delete_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove those that say nothing of the log any more."""
        for offset in [one for one in self.offsets if not log_start_offset < one <= log_end_offset]:
            self.delete(offset)

    def delete_strays(self, base_offsets: Iterable[int]) -> None:
        """Remove those that belong to no segment, but keep the newest if it is newer than every segment.

        The newest is the one that closing the log has left.
        """
        bases = set(base_offsets)
        newest_base = max(bases, default=-1)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and strays[-1] >= newest_base:
            strays.pop()
        for offset in strays:
            self.delete(offset)

    def take(self, offsets: Set[int]) -> set[int]:
        """Know some no more, whose files are about to be renamed; gives back those that there were."""
        taken = offsets & set(self.offsets)
        if taken:
            self.offsets = [offset for offset in self.offsets if offset not in taken]
        return set(taken)

    def rename_deleted(self, offset: int) -> Path | None:
        """Rename the file of one that was taken, so that it waits for deletion; None if it is gone."""
        target = self._directory / file_name(offset, SNAPSHOT_SUFFIX, DELETED_SUFFIX)
        try:
            self.disk.rename(self.path(offset), target)
        except FileNotFoundError:
            return None
        return target

    def move_to(self, directory: Path) -> None:
        """Follow the partition's directory, which has been renamed."""
        self._directory = directory


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a snapshot file."""
    every = list(entries)
    return _with_head(len(every), [_pack(every)])


def _pack(entries: Iterable[ProducerEntry]) -> bytes:
    return b"".join(
        _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.batches[-1].last_offset - entry.batches[-1].first_offset if entry.batches else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        for entry in entries
    )


def _with_head(count: int, packed: Iterable[bytes]) -> bytes:
    raw = bytearray(_HEAD.pack(_VERSION, 0, count))
    for part in packed:
        raw += part
    struct.pack_into(">I", raw, 2, crc32c(memoryview(raw)[_CRC_END:]))
    return bytes(raw)


def decode_snapshot(raw: bytes, path: Path) -> list[ProducerEntry]:
    """The entries in the bytes of a snapshot file."""
    try:
        version, crc, count = _HEAD.unpack_from(raw)
    except struct.error as error:
        raise CorruptSnapshotError(f"{path} is only {len(raw)} bytes long") from error
    if version != _VERSION:
        raise CorruptSnapshotError(f"{path} has the unknown version {version}")
    if crc != crc32c(memoryview(raw)[_CRC_END:]):
        raise CorruptSnapshotError(f"{path} fails its checksum")
    if count < 0 or len(raw) < _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{path} promises {count} producers and is {len(raw)} bytes long")
    return [_decode_entry(raw, _HEAD.size + slot * _ENTRY.size) for slot in range(count)]


def _decode_entry(raw: bytes, at: int) -> ProducerEntry:
    (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        delta,
        timestamp,
        coordinator_epoch,
        txn_first,
    ) = _ENTRY.unpack_from(raw, at)
    batches: tuple[SequencedBatch, ...] = ()
    if last_offset >= 0:
        first_sequence = (last_sequence - delta) & MAX_INT32 if last_sequence >= 0 else NO_SEQUENCE
        batches = (
            SequencedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp),
        )
    return ProducerEntry(
        producer_id,
        epoch,
        last_sequence if batches else NO_SEQUENCE,
        batches,
        coordinator_epoch,
        timestamp,
        txn_first if txn_first >= 0 else NO_OFFSET,
    )
