"""What an Apache Kafka in KRaft mode wrote about its cluster, read from its own metadata log.

A data directory that Kafka wrote holds ``__cluster_metadata-0``: a log of metadata records, and now and then
a snapshot (``<end offset>-<epoch>.checkpoint``) that replaces everything before its end offset. Both are
plain record batches. Each record's value is a frame::

    frame version   unsigned varint   1
    record type     unsigned varint   2 topic, 3 partition, 4 config, 9 removed topic, 12 feature level,
                                      15 producer ids; others are passed over
    type's version  unsigned varint
    fields                            compact strings, UUIDs, big-endian integers

Only the leading fields of those types are read, which no version has moved. The files are never written.
Called once, by ``controller/adopt.py``, so that adopted topics keep their configs (a compacted topic that
became one with a retention of seven days would lose its data), features their levels, and no producer gets
an id that another one has written with.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.errors import CorruptRecordError, StorageError
from tidelog.ids import Uuid
from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch

logger = logging.getLogger(__name__)

METADATA_DIRECTORY = "__cluster_metadata-0"

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_SEGMENT = re.compile(r"\d{20}\.log")

_TOPIC_RECORD, _PARTITION_RECORD, _CONFIG_RECORD, _REMOVE_TOPIC_RECORD = 2, 3, 4, 9
_FEATURE_LEVEL_RECORD, _PRODUCER_IDS_RECORD = 12, 15


@dataclass(slots=True)
class KraftMetadata:
    """Topics by id, partition ids by topic id, configs by resource type and name, features by name."""

    topics: dict[Uuid, str] = field(default_factory=dict)
    partitions: dict[Uuid, set[int]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    """Finalized levels; 0 where one was taken back."""
    next_producer_id: int = 0
    """Smaller ids have been handed to brokers."""

    def apply(self, value: bytes) -> None:
        """Take one metadata record into account."""
        frame = _Frame(value)
        if frame.varint() != 1:
            raise StorageError("a KRaft metadata record has a frame version other than 1")
        kind = frame.varint()
        frame.varint()
        if kind == _TOPIC_RECORD:
            name = frame.string()
            self.topics[frame.uuid()] = name
        elif kind == _PARTITION_RECORD:
            partition = frame.int32()
            self.partitions.setdefault(frame.uuid(), set()).add(partition)
        elif kind == _CONFIG_RECORD:
            self._apply_config(frame)
        elif kind == _REMOVE_TOPIC_RECORD:
            removed = frame.uuid()
            self.partitions.pop(removed, None)
            self.configs.pop((TOPIC_RESOURCE, self.topics.pop(removed, "")), None)
        elif kind == _FEATURE_LEVEL_RECORD:
            name = frame.string()
            self.features[name] = frame.int16()
        elif kind == _PRODUCER_IDS_RECORD:
            frame.int32()
            frame.int64()
            self.next_producer_id = frame.int64()

    def _apply_config(self, frame: _Frame) -> None:
        resource = (frame.int8(), frame.string())
        name, value = frame.string(), frame.nullable_string()
        entries = self.configs.setdefault(resource, {})
        if value is None:
            entries.pop(name, None)
        else:
            entries[name] = value


def read_kraft_metadata(directory: Path) -> KraftMetadata:
    """Everything in one ``__cluster_metadata-0`` directory, up to a torn end; raises StorageError.

    A loss of power leaves half a batch at the end, or zeros, or a batch with zeros in it, which Kafka cuts
    off. Damage anywhere else is none that a crash leaves: what is behind it would be missed.
    """
    metadata = KraftMetadata()
    snapshots = sorted(path for path in directory.iterdir() if _SNAPSHOT.fullmatch(path.name))
    start = 0
    if snapshots:
        for value in _values(snapshots[-1], 0, may_be_torn=False):
            metadata.apply(value)
        start = int(snapshots[-1].name[:20])
    segments = sorted(path for path in directory.iterdir() if _SEGMENT.fullmatch(path.name))
    for segment in segments:
        for value in _values(segment, start, may_be_torn=segment is segments[-1]):
            metadata.apply(value)
    if metadata == KraftMetadata():
        raise StorageError(f"{directory} holds no KRaft metadata")
    return metadata


def holds_kraft_metadata(directory: Path) -> bool:
    """Whether a ``__cluster_metadata-0`` directory is there with anything to read in it."""
    files = directory.iterdir() if directory.is_dir() else ()
    return any(_SNAPSHOT.fullmatch(path.name) or _SEGMENT.fullmatch(path.name) for path in files)


def _values(path: Path, start_offset: int, *, may_be_torn: bool) -> Iterator[bytes]:
    data = path.read_bytes()
    batches = iter_batches(data)
    damage: CorruptRecordError | None = None
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                break
            position, header = batch
            records = decode_batch(data[position : position + header.size_bytes])
        except CorruptRecordError as error:
            damage = damage or error
            continue
        if damage is not None:
            # It has something whole behind it.
            may_be_torn = False
            break
        for record in records if not header.is_control else ():
            if record.value is not None and record.offset >= start_offset:
                yield record.value
    if damage is None:
        return
    if not may_be_torn:
        raise StorageError(f"{path} is no readable KRaft metadata log: {damage}") from damage
    logger.warning("the KRaft metadata in %s is read up to its torn end: %s", path, damage)


class _Frame:
    """Reads the fields of one metadata record in order."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise StorageError("a KRaft metadata record ends in the middle of a field")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def uuid(self) -> Uuid:
        return Uuid(self._take(16))

    def nullable_string(self) -> str | None:
        length = self.varint()
        return None if length == 0 else self._take(length - 1).decode("utf-8")

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise StorageError("a KRaft metadata record has null where a name must be")
        return text
