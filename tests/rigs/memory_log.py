"""A coordinator's log in memory: the twin of ``broker/coordination/coordinator_log``, with planned failures.

``autocommit`` is a single replica, whose appends are committed at once; without it a test calls ``commit``.
``fail_next`` makes the next append raise. ``crash`` gives the log that another broker would find: without
what was not committed.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.batch import parse_header, set_base_offset


class MemoryLog:
    """Satisfies :class:`tidelog.coordinator.log.CoordinatorLog`."""

    def __init__(self, *, autocommit: bool = True, max_batch_bytes: int = 1_048_588) -> None:
        self.on_committed: Callable[[], None] = lambda: None
        self.autocommit = autocommit
        self.max_batch_bytes = max_batch_bytes
        self.fail_next: KafkaError | None = None
        self.start_offset = 0
        self.end_offset = 0
        self.committed_offset = 0
        self.batches: list[bytes] = []

    def append(self, batch: bytes | bytearray) -> int:
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        if len(batch) > self.max_batch_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {len(batch)} bytes is too large")
        offset = self.end_offset
        numbered = bytearray(batch)
        set_base_offset(numbered, 0, offset)
        self.batches.append(bytes(numbered))
        self.end_offset = parse_header(numbered).next_offset
        if self.autocommit:
            self.commit()
        return offset

    def commit(self, offset: int | None = None) -> None:
        """The replicas have everything before ``offset``, by default all there is."""
        self.committed_offset = self.end_offset if offset is None else offset
        self.on_committed()

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = bytearray()
        for batch in self.batches:
            if parse_header(batch).next_offset <= offset:
                continue
            if found and len(found) + len(batch) > max_bytes:
                break
            found += batch
        return bytes(found)

    def truncate_before(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        self.batches = [batch for batch in self.batches if parse_header(batch).next_offset > offset]

    def crash(self) -> MemoryLog:
        """What is left when the leader is lost with everything that was not committed."""
        left = MemoryLog(autocommit=self.autocommit, max_batch_bytes=self.max_batch_bytes)
        left.start_offset = self.start_offset
        left.batches = [
            batch for batch in self.batches if parse_header(batch).next_offset <= self.committed_offset
        ]
        left.end_offset = left.committed_offset = self.committed_offset
        return left
