# cython: language_level=3
"""One committed offset, and the records that say so.

There may be millions of them, which loading makes one by one: compiled and interpreted from this one source
(see ``records/record_codec``), an offset is then one object without an instance dictionary, whose numbers are
no objects of their own and which the garbage collector does not follow.

Offsets are written as Kafka 4.3 writes them: version 4 of the value, which has the topic's id, or version 1
where an old client asked for a retention of its own. All versions, and the legacy key, are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.stored_record import StoredRecord
from tidelog.ids import NO_LEADER_EPOCH, ZERO_UUID, Uuid
from tidelog.wire.internal_topics.consumer_offsets import (
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

# Cython's compiler goes by the first branch, the interpreter and mypy by the second one.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

NO_EXPIRY = -1
"""For ``expires_at_ms``: the offset lives by the broker's ``offsets.retention.minutes``."""
_VALUE_VERSION = 4
_VALUE_VERSION_WITH_EXPIRY = 1


@cython.final
@cython.no_gc
@cython.cclass
class CommittedOffset:
    """What a group has committed for one partition; nobody changes it. Equal where all fields are."""

    __slots__ = (
        "committed_at_ms",
        "expires_at_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
        "topic_id",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        committed_at_ms: int,
        expires_at_ms: int,
        topic_id: Uuid,
        record_offset: int,
    ) -> None:
        """A leader epoch of -1 is one that the client did not tell.

        The topic's id is zero if the offset was committed in a transaction or by an old client. Of two
        commits the one with the higher ``record_offset``, its place in the log, counts, whichever ended
        first.
        """
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.committed_at_ms = committed_at_ms
        self.expires_at_ms = expires_at_ms
        self.topic_id = topic_id
        self.record_offset = record_offset

    def _fields(self) -> tuple[int, int, str, int, int, Uuid, int]:
        return (
            self.offset, self.leader_epoch, self.metadata, self.committed_at_ms, self.expires_at_ms,
            self.topic_id, self.record_offset,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedOffset) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return (
            f"CommittedOffset({self.offset}, leader_epoch={self.leader_epoch}, metadata={self.metadata!r}, "
            f"committed_at_ms={self.committed_at_ms}, expires_at_ms={self.expires_at_ms}, "
            f"topic_id={self.topic_id!r}, record_offset={self.record_offset})"
        )


def from_value(record_offset: int, value: OffsetCommitValue | LegacyOffsetCommitValue) -> CommittedOffset:
    """The offset that a record tells of."""
    if isinstance(value, LegacyOffsetCommitValue):
        return CommittedOffset(
            value.offset, -1, value.metadata, value.commit_timestamp, NO_EXPIRY, ZERO_UUID, record_offset
        )
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        record_offset,
    )


def commit_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> StoredRecord:
    """The record of one commit, in version 1 if it expires at a time of its own.

    That has no room for the leader epoch and the topic's id.
    """
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    if value.expire_timestamp == NO_EXPIRY:
        return StoredRecord(key, value, _VALUE_VERSION)
    value.leader_epoch = NO_LEADER_EPOCH
    value.topic_id = ZERO_UUID
    return StoredRecord(key, value, _VALUE_VERSION_WITH_EXPIRY)


def tombstone(group_id: str, topic: str, partition: int) -> StoredRecord:
    """The record that makes the log forget an offset."""
    return StoredRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
