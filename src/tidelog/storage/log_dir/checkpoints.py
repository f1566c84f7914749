"""Offset checkpoints: one number per partition, in a small text file at the top of a log directory.

Four files have this form, each replaced as a whole::

    0                      version
    2                      number of entries
    orders 0 1042          topic, partition, offset
    orders 1 980

- ``recovery-point-offset-checkpoint``  everything below was flushed: recovery starts here
- ``log-start-offset-checkpoint``       records below are deleted (DeleteRecords), their segment not yet
- ``replication-offset-checkpoint``     high watermarks
- ``cleaner-offset-checkpoint``         compacted up to here

A crash leaves the old file or the new one, and perhaps a ``.tmp`` that nobody reads. What a broken file
means is its reader's business: only the recovery point may safely be taken as 0.
Used by ``log_dir`` and ``cleaner``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.storage.disk import REAL_DISK, Disk

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"

_VERSION: Final = "0"


class OffsetCheckpoint:
    """One checkpoint file. Writing what it already holds does nothing. May be used from any thread."""

    __slots__ = ("_disk", "_lock", "_offsets", "_underway", "path")

    def __init__(self, path: Path, disk: Disk = REAL_DISK) -> None:
        self.path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._offsets: dict[TopicPartition, int] | None = None
        self._underway: Mapping[TopicPartition, int] = {}

    def read(self) -> dict[TopicPartition, int]:
        """The offsets in the file, none if it does not exist; :class:`StorageError` if it is malformed."""
        with self._lock:
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return {}
            offsets = self._parse(data)
            self._offsets = dict(offsets)
        return offsets

    def _parse(self, data: bytes) -> dict[TopicPartition, int]:
        try:
            lines = data.decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise self._malformed("it is no text") from error
        if len(lines) < 2:
            # Kafka makes the file empty before it first fills it.
            return {}
        if lines[0] != _VERSION:
            raise self._malformed(f"it has the unknown version {lines[0]!r}")
        offsets: dict[TopicPartition, int] = {}
        for line in lines[2:]:
            fields = line.split()
            try:
                topic, partition, offset = fields
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError:
                raise self._malformed(f"the line {line!r} is no 'topic partition offset'") from None
        if lines[1] != str(len(lines) - 2):
            raise self._malformed(f"it promises {lines[1]} entries and has {len(lines) - 2}")
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file; on disk when this returns."""
        with self._lock:
            self._replace(offsets)

    def forget(self, partition: TopicPartition) -> None:
        """Take one partition out of the file, if it is in there.

        That is seldom so: a partition that is deleted is soon left out by the next write. Only a write that
        is under way and has it must be waited for, so that a new partition does not wait for the disk.
        """
        if partition not in self._underway and partition not in (self._offsets or ()):
            return
        with self._lock:
            offsets = self._offsets
            if offsets is not None and partition in offsets:
                self._replace({other: offset for other, offset in offsets.items() if other != partition})

    def _replace(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets == self._offsets:
            return
        self._underway = offsets
        try:
            lines = [_VERSION, str(len(offsets))]
            lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
            self._disk.write_atomically(self.path, ("\n".join(lines) + "\n").encode("utf-8"))
            self._offsets = dict(offsets)
        finally:
            self._underway = {}

    def _malformed(self, why: str) -> StorageError:
        return StorageError(
            f"the checkpoint {self.path} cannot be used: {why}; restore it or delete it to go on without"
        )
