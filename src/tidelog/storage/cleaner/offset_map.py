"""Keys and the last offset of each, in a fixed amount of memory: what compaction decides by.

An open-addressed table in two flat arrays, 24 bytes to a slot as in Kafka: the MD5 of the key (16) and its
offset (8). Python's own dict would take eight times as much, and ``log.cleaner.dedupe.buffer.size`` is a
promise. As in Kafka, keys are told apart by their MD5 alone.

Invariant: a lookup finds the offset that was put last for the key; memory stays as it was allocated.
Used by ``compaction`` in the cleaner's process.
"""

from __future__ import annotations

from hashlib import md5
from typing import Final

from tidelog.ids import NO_OFFSET

SLOT_BYTES: Final = 24
_DIGEST_BYTES: Final = 16
_EMPTY: Final = bytes(_DIGEST_BYTES)


class OffsetMap:
    """A map of key → last offset that takes at most ``capacity`` keys."""

    def __init__(self, memory_bytes: int, load_factor: float = 0.9, expected_keys: int | None = None) -> None:
        """At most ``memory_bytes``; less where ``expected_keys`` will do, which may be an overestimate."""
        slots = max(memory_bytes // SLOT_BYTES, 2)
        if expected_keys is not None:
            # Half full a probe finds its slot at once; at the load factor it takes five steps.
            slots = min(slots, max(2 * expected_keys, 2))
        self.slots = slots
        self.capacity = max(min(int(slots * load_factor), slots - 1), 1)
        self._digests = bytearray(self.slots * _DIGEST_BYTES)
        self._offsets = memoryview(bytearray(self.slots * 8)).cast("q")
        self.size = 0
        self.latest_offset = NO_OFFSET

    @property
    def is_full(self) -> bool:
        return self.size >= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Note that ``key`` was last seen at ``offset``; False, and nothing noted, if the map is full."""
        digest = md5(key, usedforsecurity=False).digest()
        digests = self._digests
        slots = self.slots
        slot = hash(key) % slots
        while True:
            at = slot * _DIGEST_BYTES
            found = digests[at : at + _DIGEST_BYTES]
            if found == digest:
                break
            if found == _EMPTY:
                if self.size >= self.capacity:
                    return False
                digests[at : at + _DIGEST_BYTES] = digest
                self.size += 1
                break
            slot = slot + 1 if slot + 1 < slots else 0
        self._offsets[slot] = offset
        return True

    def get(self, key: bytes) -> int:
        """The last offset of ``key``, ``NO_OFFSET`` if it was never seen."""
        digest = md5(key, usedforsecurity=False).digest()
        digests = self._digests
        slots = self.slots
        slot = hash(key) % slots
        while True:
            at = slot * _DIGEST_BYTES
            found = digests[at : at + _DIGEST_BYTES]
            if found == digest:
                return self._offsets[slot]
            if found == _EMPTY:
                return NO_OFFSET
            slot = slot + 1 if slot + 1 < slots else 0

    def clear(self) -> None:
        """Forget every key, in the same memory."""
        # Let go of before it is allocated again.
        self._digests = bytearray()
        self._digests = bytearray(self.slots * _DIGEST_BYTES)
        self.size = 0

    def seen_up_to(self, offset: int) -> None:
        """Note that every record up to ``offset`` has been put, whether it had a key or not."""
        self.latest_offset = max(self.latest_offset, offset)
