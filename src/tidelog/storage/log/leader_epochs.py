"""Which leader wrote from which offset on: the leader epochs of one partition.

File ``leader-epoch-checkpoint``, text, replaced atomically::

    0                    version
    2                    number of entries
    0 0                  epoch, its first offset
    3 1042

Invariant: epochs and offsets ascend together, and the newest epoch is in the file before the first batch
that carries it. It is synced with the log's next flush: whatever lies behind the recovery point is scanned
after a crash, and the epochs are in the batches. Truncations reach the file only with the next flush, so a
crash can leave entries behind the end of the log or before its start; loading a log drops them. Clients
that fetch with an epoch, and followers, find out here where histories part. Called by ``log`` and
``log_appender``.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.ids import NO_LEADER_EPOCH, NO_OFFSET
from tidelog.storage.disk import Disk

_VERSION = "0"


class EpochEntry(NamedTuple):
    """An epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """An epoch and the offset behind the last that was written in it."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """The epochs of one partition, in memory and in their file."""

    __slots__ = ("_dirty", "_disk", "_flushing", "_lock", "entries", "latest_epoch", "path")

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self.entries: list[EpochEntry] = []
        self.latest_epoch = NO_LEADER_EPOCH
        self._dirty = False
        # The file is written by the loop and by flushes in threads; these wait for each other alone.
        self._lock = threading.Lock()
        self._flushing = threading.Lock()

    @classmethod
    def load(cls, path: Path, disk: Disk) -> LeaderEpochCache:
        """Read the file; a missing or empty one is a partition without epochs."""
        cache = cls(path, disk)
        try:
            text = path.read_text("ascii")
        except FileNotFoundError:
            return cache
        except UnicodeDecodeError as error:
            raise _malformed(path, "it is no text") from error
        cache._set(_parse(path, text))
        return cache

    def _set(self, entries: list[EpochEntry]) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that ``epoch`` begins at ``start_offset``; in the file before this returns."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot begin at offset {start_offset}")
        latest = self.entries[-1] if self.entries else None
        if latest is not None and latest.epoch == epoch and start_offset >= latest.start_offset:
            return
        kept = [entry for entry in self.entries if entry.epoch < epoch and entry.start_offset < start_offset]
        with self._lock:
            before = self.entries
            self._set([*kept, EpochEntry(epoch, start_offset)])
            try:
                self._write()
            except OSError:
                self._set(before)
                raise

    def flush(self) -> None:
        """Write and sync the file if it may be behind; may run in a thread."""
        with self._flushing:
            while self._dirty and not self._flushed():
                continue

    def _flushed(self) -> bool:
        """Sync the entries as they are now, and put them into place if they are still the same then.

        Without the lock that appends take: they would wait for the disk.
        """
        entries = self.entries
        path = self.path
        temporary = path.with_name(path.name + ".flush.tmp")
        fd = self._disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self._disk.write_all(fd, _encode(entries), 0)
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)
        with self._lock:
            if self.entries is not entries:
                return False
            self._disk.replace(temporary, path)
            self._dirty = False
        self._disk.sync_path(path.parent)
        return True

    def _write(self) -> None:
        self._disk.write_atomically(self.path, _encode(self.entries), sync=False)
        self._dirty = True

    def restore(self, entries: list[EpochEntry]) -> None:
        """Go back to entries taken from :attr:`entries` earlier, after the append they were for failed."""
        self._set(entries)
        self._dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch up to ``epoch`` and where it ends; ``(-1, -1)`` if that cannot be known."""
        if epoch == NO_LEADER_EPOCH:
            return EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        higher = bisect_right(self.entries, epoch, key=_epoch_of)
        if higher == len(self.entries):
            return EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)
        floor = self.entries[higher - 1].epoch if higher else epoch
        return EpochEnd(floor, self.entries[higher].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which ``offset`` was written, None where it is older than every entry."""
        slot = bisect_right(self.entries, offset, key=_start_of) - 1
        return self.entries[slot].epoch if slot >= 0 else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at ``end_offset`` or later."""
        kept = self.entries[: bisect_left(self.entries, end_offset, key=_start_of)]
        if len(kept) < len(self.entries):
            self._set(kept)
            self._dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that ended before ``start_offset``; the one it lies in now begins there."""
        first_kept = bisect_right(self.entries, start_offset, key=_start_of)
        if first_kept == 0:
            return
        current = EpochEntry(self.entries[first_kept - 1].epoch, start_offset)
        if self.entries[:first_kept] != [current]:
            self._set([current, *self.entries[first_kept:]])
            self._dirty = True

    def clear(self) -> None:
        """Forget every epoch, in the file as well; synced with the next flush."""
        with self._lock:
            self._set([])
            self._write()


def _encode(entries: list[EpochEntry]) -> bytes:
    lines = [_VERSION, str(len(entries)), *(f"{epoch} {offset}" for epoch, offset in entries)]
    return ("\n".join(lines) + "\n").encode("ascii")


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset


def _parse(path: Path, text: str) -> list[EpochEntry]:
    lines = text.splitlines()
    if not lines:
        return []
    if lines[0].strip() != _VERSION:
        raise _malformed(path, f"it has the version {lines[0]!r}")
    try:
        expected = int(lines[1])
        pairs = [line.split() for line in lines[2:] if line.strip()]
        entries = [EpochEntry(int(epoch), int(offset)) for epoch, offset in pairs]
    except (IndexError, ValueError) as error:
        raise _malformed(path, f"a line of it cannot be read ({error})") from error
    if len(entries) != expected:
        raise _malformed(path, f"it promises {expected} entries and has {len(entries)}")
    ascending: list[EpochEntry] = []
    for entry in entries:
        while ascending and (
            ascending[-1].epoch >= entry.epoch or ascending[-1].start_offset >= entry.start_offset
        ):
            ascending.pop()
        ascending.append(entry)
    return ascending


def _malformed(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} is no leader epoch checkpoint: {why}; delete the file to rebuild it from the log"
    )
