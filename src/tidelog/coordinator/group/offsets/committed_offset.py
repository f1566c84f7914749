"""One committed offset, and the records that say so.

Offsets are written as Kafka 4.3 writes them: version 4 of the value, which has the topic's id, or version 1
where an old client asked for a retention of its own. All versions, and the legacy key, are read.
"""

from __future__ import annotations

import msgspec

from tidelog.coordinator.stored_record import StoredRecord
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire.internal_topics.consumer_offsets import (
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

NO_EXPIRY = -1
"""For ``expires_at_ms``: the offset lives by the broker's ``offsets.retention.minutes``."""
_VALUE_VERSION = 4
_VALUE_VERSION_WITH_EXPIRY = 1


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """What a group has committed for one partition. There may be millions: no instance dictionary, no GC."""

    offset: int
    leader_epoch: int
    """The epoch of the last record read; -1 if the client did not tell."""
    metadata: str
    committed_at_ms: int
    expires_at_ms: int
    topic_id: Uuid
    """Zero if the offset was committed in a transaction or by an old client."""
    record_offset: int
    """Where in the log the commit stands: of two commits the later one counts, whichever ended first."""


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


def commit_record(
    group_id: str,
    topic: str,
    partition: int,
    *,
    offset: int,
    leader_epoch: int,
    metadata: str,
    committed_at_ms: int,
    topic_id: Uuid = ZERO_UUID,
    expires_at_ms: int | None = None,
) -> StoredRecord:
    """The record of one commit. Version 1 has no room for the leader epoch and the topic's id."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    if expires_at_ms is None:
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=committed_at_ms,
            topic_id=topic_id,
        )
        return StoredRecord(key, value, _VALUE_VERSION)
    value = OffsetCommitValue(
        offset=offset, metadata=metadata, commit_timestamp=committed_at_ms, expire_timestamp=expires_at_ms
    )
    return StoredRecord(key, value, _VALUE_VERSION_WITH_EXPIRY)


def tombstone(group_id: str, topic: str, partition: int) -> StoredRecord:
    """The record that makes the log forget an offset."""
    return StoredRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
