# cython: language_level=3
"""Commits of offsets folded before any object is made of them: of many for one partition the last is kept.

A log that is loaded is full of commits that later ones have made worthless. ``put`` takes a record as it lies
in the log into a table by its key, and ``drain`` makes :class:`CommittedOffset` of what the table holds in
the end. It takes what Kafka since 2.1 and this broker write, keys of type 1 and values of version 3 and 4::

    key      int16 1, string group, string topic, int32 partition
    value 3  int16 3, int64 offset, int32 leader epoch, string metadata, int64 commit timestamp
    value 4  the same with a compact string, and tagged fields: none, or 0 = the topic's id

and of these only ASCII, for other text has to be checked. Everything else is refused and is the caller's, who
must ``cut`` before: what was taken before the cut counts before what is taken after it.

Invariant: draining comes to the same as replaying the records one by one. A key that was committed makes its
group, even if a tombstone follows; a key that had a tombstone is forgotten by open transactions, even if a
commit follows; the last record says what is committed.

Compiled and interpreted from this one source, see ``records/record_codec``; ``commit_fold.pxd`` has the C
types. ``put`` needs no GIL. Filled by ``coordinator/loading/log_walker``, drained by ``offsets``.
"""

from __future__ import annotations

import os
import sys
from array import array
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.ids import ZERO_UUID, Uuid

# Cython's compiler goes by the first branches, the interpreter and mypy by the second ones.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

if cython.compiled:
    if not TYPE_CHECKING:
        from cython.cimports.libc.string import memcmp, memcpy
        from cython.cimports.tidelog.coordinator.group.offsets.committed_offset import CommittedOffset
        from cython.cimports.tidelog.coordinator.loading.big_endian import int16, int32, int64
        from cython.cimports.tidelog.coordinator.loading.record_fold import FULL, REFUSED, TAKEN, RecordFold
else:
    from tidelog.coordinator.group.offsets.committed_offset import CommittedOffset
    from tidelog.coordinator.loading.big_endian import int16, int32, int64
    from tidelog.coordinator.loading.record_fold import FULL, REFUSED, TAKEN, RecordFold
    from tidelog.records.cython_shim import memcmp, memcpy

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

FIRST_ENTRIES = 1 << 8
MAX_ENTRIES = 1 << 17
"""What a table holds at most, some 20 MB; whoever finds it full has it drained."""
_HEAP_BYTES_PER_ENTRY = 64
_MIN_HEAP_BYTES = 256 * 1024
_MAX_PROBES = 64
"""Keys that were chosen to collide make the table look full; they do not make it slow."""
_MAX_NAMES = 10_000
_NUMBERS = 2048
_SMALL_NUMBERS = list(range(2048))
_HASH_PRIME = 0x100000001B3

_KEY_TYPE = 1
_PARTITION_SIZE = 4

# The fields of an entry, in one array of numbers.
_WIDTH = 12
_KEY_AT = 0
_KEY_LENGTH = 1
_FLAGS = 2
_OFFSET = 3
_LEADER_EPOCH = 4
_COMMITTED_AT = 5
_RECORD_OFFSET = 6
_METADATA_AT = 7
_METADATA_LENGTH = 8
_ID_AT = 9
_METADATA_ROOM = 10
_HASH = 11

_NO_ID = -1
_ID_SIZE = 16

_COMMITTED = 1
_FORGOTTEN = 2
_PRESENT = 4


class FoldTarget(Protocol):
    """What a fold is drained into."""

    def begin_group(self, group_id: str) -> None:
        """A group has committed for the first time."""

    def forget_pending(self, group_id: str, topic: str, partition: int) -> None:
        """No open transaction commits this offset any more."""

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Nothing is committed here."""


@cython.final
@cython.cclass
class CommitFold(RecordFold):
    """The last commit of each group, topic and partition, for as long as nothing else comes between."""

    __slots__ = (
        "_capacity",
        "_count",
        "_drained",
        "_entry_memory",
        "_entry_view",
        "_heap_memory",
        "_heap_used",
        "_heap_view",
        "_names",
        "_numbers",
        "_run_start",
        "_seed",
        "_slot_memory",
        "_slot_view",
        "_slots_by_key",
        "_topic_ids",
        "entries",
        "heap",
        "heap_size",
        "slot_mask",
        "slots",
    )

    def __init__(self) -> None:
        self._seed = int.from_bytes(os.urandom(7), "big")
        self._names: dict[bytes, tuple[str, str]] = {}
        self._numbers = _SMALL_NUMBERS
        self._topic_ids: dict[bytes, Uuid] = {}
        self._slots_by_key: dict[bytes, int] = {}
        self._capacity = 0
        self._entry_memory = array("q")
        self._heap_memory = bytearray()
        self._count = self._drained = self._run_start = 0
        self._heap_used = 0
        self._resize(FIRST_ENTRIES)

    def __len__(self) -> int:
        """How many entries wait to be drained."""
        return self._count - self._drained

    @property
    def can_grow(self) -> bool:
        """Whether a full table may become larger instead of being drained."""
        return self._capacity < MAX_ENTRIES

    def grow(self) -> None:
        """Make room for more."""
        self._resize(min(self._capacity * 4, MAX_ENTRIES))

    @cython.cfunc
    def _resize(self, capacity: cython.Py_ssize_t) -> object:
        entries = array("q", [0]) * (capacity * _WIDTH)
        heap = bytearray(max(capacity * _HEAP_BYTES_PER_ENTRY, _MIN_HEAP_BYTES))
        if self._capacity:
            entries[: self._count * _WIDTH] = self._entry_memory[: self._count * _WIDTH]
            heap[: self._heap_used] = self._heap_memory[: self._heap_used]
        self._entry_memory = entries
        self._heap_memory = heap
        self.heap_size = len(heap)
        self._capacity = capacity
        if cython.compiled:
            self._entry_view = entries
            self._heap_view = heap
            self.entries = cython.address(self._entry_view[0])
            self.heap = cython.address(self._heap_view[0])
            self._slot_memory = array("i", bytes(capacity * 2 * 4))
            self._slot_view = self._slot_memory
            self.slots = cython.address(self._slot_view[0])
            self.slot_mask = capacity * 2 - 1
            number: cython.Py_ssize_t
            slot: cython.ulonglong
            for number in range(self._run_start, self._count):
                slot = self.entries[number * _WIDTH + _HASH] & self.slot_mask
                while self.slots[slot]:
                    slot = (slot + 1) & self.slot_mask
                self.slots[slot] = number + 1
        else:
            self.entries = entries
            self.heap = heap
        return None

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def cut(self) -> cython.Py_ssize_t:
        """What follows counts later than what was put: gives the number of entries to drain before it."""
        self._run_start = self._count
        if not cython.compiled:
            self._slots_by_key.clear()
        return self._count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def has_run(self) -> cython.bint:
        """Whether anything was put since the last cut."""
        return self._count > self._run_start

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put(
        self,
        source: cython.p_const_uchar,
        key_at: cython.Py_ssize_t,
        key_length: cython.Py_ssize_t,
        value_at: cython.Py_ssize_t,
        value_length: cython.Py_ssize_t,
        record_offset: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Take one record: TAKEN, REFUSED if it is not of the usual form, or FULL."""
        version: cython.longlong = 0
        metadata_at: cython.Py_ssize_t = 0
        metadata_length: cython.Py_ssize_t = 0
        times_at: cython.Py_ssize_t = 0
        id_at: cython.Py_ssize_t = _NO_ID
        end: cython.Py_ssize_t = value_at + value_length
        at: cython.Py_ssize_t
        if not _is_usual_key(source, key_at, key_length):
            return REFUSED
        if value_length >= 0:
            # Version, offset, leader epoch, the shortest metadata, commit timestamp.
            if value_length < 2 + 8 + 4 + 1 + 8:
                return REFUSED
            version = int16(source, value_at)
            if version == 4:
                metadata_length = source[value_at + 14] - 1
                metadata_at = value_at + 15
                # A second byte of the length means a long string, and a length of -1 that there is none.
                if metadata_length < 0 or metadata_length >= 0x7F:
                    return REFUSED
            elif version == 3:
                metadata_length = int16(source, value_at + 14)
                metadata_at = value_at + 16
                if metadata_length < 0:
                    return REFUSED
            else:
                return REFUSED
            times_at = metadata_at + metadata_length
            at = times_at + 8
            if at > end or not _is_ascii(source, metadata_at, metadata_length):
                return REFUSED
            if version == 4:
                if at + 19 == end and source[at] == 1 and source[at + 1] == 0 and source[at + 2] == _ID_SIZE:
                    id_at = at + 3
                elif at + 1 != end or source[at] != 0:
                    return REFUSED
            elif at != end:
                return REFUSED
        number: cython.Py_ssize_t = self._find(source, key_at, key_length)
        # A new entry needs room for its key as well as for what its value has.
        if number < 0 or self.heap_size - self._heap_used < metadata_length + _ID_SIZE:
            return FULL
        entries: cython.p_longlong = self.entries
        base: cython.Py_ssize_t = number * _WIDTH
        if value_length < 0:
            entries[base + _FLAGS] = (entries[base + _FLAGS] | _FORGOTTEN) & ~_PRESENT
            return TAKEN
        entries[base + _FLAGS] |= _COMMITTED | _PRESENT
        entries[base + _OFFSET] = int64(source, value_at + 2)
        entries[base + _LEADER_EPOCH] = int32(source, value_at + 10)
        entries[base + _COMMITTED_AT] = int64(source, times_at)
        entries[base + _RECORD_OFFSET] = record_offset
        entries[base + _METADATA_LENGTH] = metadata_length
        if metadata_length > entries[base + _METADATA_ROOM]:
            entries[base + _METADATA_AT] = self._keep(source, metadata_at, metadata_length)
            entries[base + _METADATA_ROOM] = metadata_length
        elif metadata_length:
            self._copy(entries[base + _METADATA_AT], source, metadata_at, metadata_length)
        if id_at < 0:
            entries[base + _ID_AT] = _NO_ID
        elif entries[base + _ID_AT] < 0:
            entries[base + _ID_AT] = self._keep(source, id_at, _ID_SIZE)
        else:
            self._copy(entries[base + _ID_AT], source, id_at, _ID_SIZE)
        return TAKEN

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(
        self, source: cython.p_const_uchar, key_at: cython.Py_ssize_t, key_length: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """The number of the entry of a key, which is made if it is not there; -1 if there is no room."""
        number: cython.Py_ssize_t
        if not cython.compiled:
            key = bytes(source[key_at : key_at + key_length])
            found = self._slots_by_key.get(key)
            if found is not None:
                return found
            number = self._add(source, key_at, key_length, 0)
            if number >= 0:
                self._slots_by_key[key] = number
            return number
        code: cython.ulonglong = self._seed
        at: cython.Py_ssize_t
        for at in range(key_at, key_at + key_length):
            code = (code ^ source[at]) * _HASH_PRIME
        code ^= code >> 29
        slot: cython.ulonglong = code & self.slot_mask
        probes: cython.Py_ssize_t = 0
        base: cython.Py_ssize_t
        while probes < _MAX_PROBES:
            probes += 1
            number = self.slots[slot] - 1
            if number < self._run_start:
                number = self._add(source, key_at, key_length, code)
                if number >= 0:
                    self.slots[slot] = number + 1
                return number
            base = number * _WIDTH
            if self.entries[base + _KEY_LENGTH] == key_length and not memcmp(
                self.heap + self.entries[base + _KEY_AT], source + key_at, key_length
            ):
                return number
            slot = (slot + 1) & self.slot_mask
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(
        self,
        source: cython.p_const_uchar,
        key_at: cython.Py_ssize_t,
        key_length: cython.Py_ssize_t,
        code: cython.ulonglong,
    ) -> cython.Py_ssize_t:
        # Beside the key, its value's metadata (of 32767 bytes at most) and topic id must have room.
        if self._count == self._capacity or self.heap_size - self._heap_used < key_length + 0x8000 + _ID_SIZE:
            return -1
        number: cython.Py_ssize_t = self._count
        base: cython.Py_ssize_t = number * _WIDTH
        entries: cython.p_longlong = self.entries
        entries[base + _KEY_AT] = self._keep(source, key_at, key_length)
        entries[base + _KEY_LENGTH] = key_length
        entries[base + _FLAGS] = 0
        entries[base + _METADATA_AT] = entries[base + _METADATA_LENGTH] = entries[base + _METADATA_ROOM] = 0
        entries[base + _ID_AT] = _NO_ID
        if cython.compiled:
            entries[base + _HASH] = code
        self._count = number + 1
        return number

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Copy bytes to the heap, which has room for them, and give their place there."""
        place: cython.Py_ssize_t = self._heap_used
        self._copy(place, source, at, length)
        self._heap_used = place + length
        return place

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _copy(
        self,
        place: cython.Py_ssize_t,
        source: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        if cython.compiled:
            memcpy(self.heap + place, source + at, length)
        else:
            self.heap[place : place + length] = source[at : at + length]
        return length

    def drain(
        self, upto: int, limit: int, table: dict[str, Any], groups: dict[str, Any], target: FoldTarget
    ) -> bool:
        """Bring up to ``limit`` entries into ``table``; whether all before entry ``upto`` are there now.

        ``table`` is that of ``OffsetTable``, ``groups`` has all groups by id. Once everything is drained the
        memory is used again.
        """
        stop: cython.Py_ssize_t = min(upto, self._drained + limit)
        number: cython.Py_ssize_t
        base: cython.Py_ssize_t
        flags: cython.longlong
        key_at: cython.Py_ssize_t
        key_end: cython.Py_ssize_t
        index: cython.longlong
        for number in range(self._drained, stop):
            base = number * _WIDTH
            key_at = self.entries[base + _KEY_AT]
            key_end = key_at + self.entries[base + _KEY_LENGTH]
            flags = self.entries[base + _FLAGS]
            prefix: bytes = self._bytes(key_at, key_end - _PARTITION_SIZE)
            names = self._names.get(prefix)
            if names is None:
                names = self._read_names(prefix)
            group_id: str = names[0]
            topic: str = names[1]
            index = int32(self.heap, key_end - _PARTITION_SIZE)
            # Thousands of groups have the same partitions: one number serves all of them.
            partition: int = self._numbers[index] if 0 <= index < _NUMBERS else index
            if flags & _COMMITTED and group_id not in groups:
                target.begin_group(group_id)
            if flags & _FORGOTTEN:
                target.forget_pending(group_id, topic, partition)
            if not flags & _PRESENT:
                target.remove(group_id, topic, partition)
                continue
            topics: dict[str, Any] | None = table.get(group_id)
            if topics is None:
                topics = table[group_id] = {}
            by_partition: dict[int, Any] | None = topics.get(topic)
            if by_partition is None:
                by_partition = topics[topic] = {}
            by_partition[partition] = self._made(base)
        self._drained = stop
        if self._drained == self._count:
            self._reset()
        return stop == upto

    @cython.cfunc
    @cython.inline
    def _bytes(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
        if not cython.compiled:
            return bytes(self.heap[at:end])
        found: bytes = self.heap[at:end]
        return found

    @cython.cfunc
    def _made(self, base: cython.Py_ssize_t) -> CommittedOffset:
        at: cython.Py_ssize_t = self.entries[base + _METADATA_AT]
        length: cython.Py_ssize_t = self.entries[base + _METADATA_LENGTH]
        metadata: str = ""
        if length:
            metadata = self._bytes(at, at + length).decode("ascii")
        at = self.entries[base + _ID_AT]
        topic_id: Uuid = ZERO_UUID
        if at >= 0:
            raw: bytes = self._bytes(at, at + _ID_SIZE)
            topic_id = self._topic_ids.setdefault(raw, raw)  # type: ignore[arg-type]
        if not cython.compiled:
            return CommittedOffset(
                self.entries[base + _OFFSET],
                self.entries[base + _LEADER_EPOCH],
                metadata,
                self.entries[base + _COMMITTED_AT],
                -1,
                topic_id,
                self.entries[base + _RECORD_OFFSET],
            )
        # Past __init__, whose arguments a compiled call would have to pack into a tuple.
        made: CommittedOffset = CommittedOffset.__new__(CommittedOffset)
        made.offset = self.entries[base + _OFFSET]
        made.leader_epoch = self.entries[base + _LEADER_EPOCH]
        made.metadata = metadata
        made.committed_at_ms = self.entries[base + _COMMITTED_AT]
        made.expires_at_ms = -1
        made.topic_id = topic_id
        made.record_offset = self.entries[base + _RECORD_OFFSET]
        return made

    @cython.cfunc
    def _read_names(self, prefix: bytes) -> Any:
        """Group and topic of a key that ``put`` has checked; thousands of groups share a topic's name."""
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        length: cython.Py_ssize_t = int.from_bytes(prefix[2:4], "big")
        names = prefix[4 : 4 + length].decode("ascii"), sys.intern(prefix[6 + length :].decode("ascii"))
        self._names[prefix] = names
        return names

    @cython.cfunc
    def _reset(self) -> object:
        self._count = self._drained = self._run_start = 0
        self._heap_used = 0
        if cython.compiled:
            slot: cython.Py_ssize_t
            for slot in range(self.slot_mask + 1):
                self.slots[slot] = 0
        else:
            self._slots_by_key.clear()
        return None


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_ascii(source: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.bint:
    if not cython.compiled:
        text: bytes = source[at : at + length]
        return text.isascii()
    bits: cython.uint = 0
    place: cython.Py_ssize_t
    for place in range(at, at + length):
        bits |= source[place]
    return bits < 0x80


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_usual_key(
    source: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t
) -> cython.bint:
    """Whether a key is one of type 1 whose names are ASCII and which ends where it should."""
    if length < 2 + 2 + 2 + _PARTITION_SIZE or int16(source, at) != _KEY_TYPE:
        return False
    group_length: cython.Py_ssize_t = int16(source, at + 2)
    if group_length < 0 or group_length > length - (2 + 2 + 2 + _PARTITION_SIZE):
        return False
    topic_length: cython.Py_ssize_t = int16(source, at + 4 + group_length)
    if topic_length < 0 or group_length + topic_length != length - (2 + 2 + 2 + _PARTITION_SIZE):
        return False
    return _is_ascii(source, at + 4, group_length) and _is_ascii(source, at + 6 + group_length, topic_length)
