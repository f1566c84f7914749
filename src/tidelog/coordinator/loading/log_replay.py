"""From the bytes of a log to a shard: what loading is made of.

``open`` takes a chunk, ``walk`` goes over it, on any thread, and ``apply`` brings what it found into the
shard, in small steps between which others may have their turn; ``finish`` does the last of them. Records go
to ``replay`` of the shard, decoded, and markers that end transactions to ``replay_marker``, in the order of
the log. Two fast paths are there for records of which there are millions: a shard that has ``new_fold`` gets
records folded (``record_fold``), and one that has ``replay_raw`` is offered every other record as it is in
the log and returns whether it took it.

What nobody can read does not keep the rest of a partition from being loaded: records and batches are stepped
over, and one line in the log says which. (Kafka refuses to load such a partition, but for unknown types.)

Called by ``runtime``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from tidelog.coordinator.loading.log_walker import FOLDED, MARKER, RECORD, LogWalker
from tidelog.coordinator.loading.record_fold import RecordFold
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord
from tidelog.errors import CorruptRecordError, TidelogError
from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

logger = logging.getLogger(__name__)

FOLDED_AT_ONCE = 512
"""So many folded records are brought into a shard in one step."""
_NAMED_AT_MOST = 10


class Producer(NamedTuple):
    """Who writes a transactional batch."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

RawReplay = Callable[[int, Producer, bytes, bytes | None], bool]
"""Takes offset, producer, key and value of a record; False if the general way has to be gone."""
Drain = Callable[[int, int], bool]
"""Brings folded records up to an entry into the shard, a number at most; True when all are there."""


class ShardFold(NamedTuple):
    """Where records of a shard are folded, and how they come from there into the shard."""

    fold: RecordFold
    drain: Drain


NewFold = Callable[[], ShardFold]


class Replayed(Protocol):
    """What a log is replayed into; a shard may have ``replay_raw`` and ``new_fold``, too."""

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        """Take in one record, live or at loading; producer id -1 unless it is part of a transaction."""

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """The transaction of ``producer`` has ended in this partition."""


class Unreadable:
    """What was stepped over: how much, and the first places of it."""

    def __init__(self) -> None:
        self.records = 0
        self.batches = 0
        self._named: list[str] = []
        self._last_offset = -1

    def __bool__(self) -> bool:
        return bool(self.records or self.batches)

    def add_record(self, offset: int, why: str) -> None:
        """A record."""
        self.records += 1
        self._name(f"offset {offset} ({why})", offset)

    def add_records(self, count: int, first_offset: int, last_offset: int, what: str) -> None:
        """Records of one kind among others."""
        self.records += count
        self._name(f"{count} {what} at {_places(first_offset, last_offset)}", last_offset)

    def add_batch(self, first_offset: int, last_offset: int, why: str) -> None:
        """A whole batch."""
        self.batches += 1
        self._name(f"{_places(first_offset, last_offset)} ({why})", last_offset)

    def _name(self, text: str, offset: int) -> None:
        if len(self._named) < _NAMED_AT_MOST:
            self._named.append(text)
        else:
            self._last_offset = max(offset, self._last_offset)

    def __str__(self) -> str:
        counts = [
            f"{count} {one if count == 1 else many}"
            for count, one, many in ((self.records, "record", "records"), (self.batches, "batch", "batches"))
            if count
        ]
        more = "" if self._last_offset < 0 else f"; and others up to offset {self._last_offset}"
        return f"{' and '.join(counts)} cannot be read, {'; '.join(self._named)}{more}"


class LogReplay:
    """Replays one log into one shard."""

    def __init__(self, name: str, schemas: RecordSchemas, shard: Replayed) -> None:
        self.unreadable = Unreadable()
        self._name = name
        self._schemas = schemas
        self._shard = shard
        self._raw: RawReplay = getattr(shard, "replay_raw", _no_short_way)
        new_fold: NewFold = getattr(shard, "new_fold", _no_fold)
        fold, self._drain = new_fold()
        self._walker = LogWalker(schemas.types, fold)
        self._size = 0

    @property
    def next_offset(self) -> int:
        """The offset that follows what was walked over; raises if the chunk has no whole batch."""
        if self._walker.next_offset < 0:
            raise CorruptRecordError(f"a batch is cut short: {self._size} bytes of it are there")
        return self._walker.next_offset

    def open(self, chunk: bytes) -> None:
        """Begin with the whole batches in ``chunk``."""
        self._size = len(chunk)
        self._walker.open(chunk)

    def walk(self) -> bool:
        """Go on to what has to be applied; True if that is the last of the chunk. Not on the loop."""
        return self._walker.walk()

    def apply(self) -> Iterator[None]:
        """Bring what was walked over into the shard, in steps."""
        while (event := self._walker.next_event()) is not None:
            kind = event[0]
            if kind == RECORD:
                _, offset, producer_id, epoch, key, value = event
                producer = NO_PRODUCER if producer_id < 0 else Producer(producer_id, epoch)
                if not self._raw(offset, producer, key, value):
                    self._replay_record(offset, producer, key, value)
            elif kind == FOLDED:
                yield from self._drain_fold(event[1])
            elif kind == MARKER:
                _, _, producer_id, epoch, committed = event
                self._shard.replay_marker(Producer(producer_id, epoch), committed)
            else:
                _, first_offset, last_offset, why = event
                self.unreadable.add_batch(first_offset, last_offset, why)
            yield
        if self._walker.fold_is_full:
            yield from self._drain_fold(self._walker.end_fold())

    def finish(self) -> Iterator[None]:
        """The whole log has been walked over: apply what is left, and tell of what could not be read."""
        yield from self._drain_fold(self._walker.end_fold())
        for each in self._walker.passed_over():
            self.unreadable.add_records(each.records, each.first_offset, each.last_offset, each.what)
        if self.unreadable:
            logger.warning("%s: %s; the rest is loaded", self._name, self.unreadable)

    def _drain_fold(self, upto: int) -> Iterator[None]:
        while not self._drain(upto, FOLDED_AT_ONCE):
            yield

    def _replay_record(self, offset: int, producer: Producer, key: bytes, value: bytes | None) -> None:
        try:
            decoded = self._schemas.decode_key(key)
            record = StoredRecord(decoded, self._schemas.decode_value(decoded, value))
            self._shard.replay(offset, producer, record)
        except TidelogError as error:
            self.unreadable.add_record(offset, str(error))


def _places(first_offset: int, last_offset: int) -> str:
    if first_offset == last_offset:
        return f"offset {first_offset}"
    return f"offsets {first_offset} to {last_offset}"


def _no_short_way(offset: int, producer: Producer, key: bytes, value: bytes | None) -> bool:
    return False


def _no_fold() -> ShardFold:
    return ShardFold(RecordFold(), lambda upto, limit: True)
