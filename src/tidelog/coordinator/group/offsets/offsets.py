"""The committed offsets of one shard: what records say of them, and what becomes of them in time.

Offsets live in two places: what is committed, and what open transactions are going to commit. A record with
a producer goes to the second, and its transaction's marker moves it to the first or drops it. Of two commits
of one partition the one that stands later in the log counts, whenever its transaction ends: compaction keeps
that one, and replay must come to the same. A tombstone forgets both.

A group that has only offsets is a classic group without members; it comes into being here, with its first
offset. Requests are in ``requests``; owned by ``GroupShard``, which also asks for expiry and deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from tidelog.coordinator.group.classic.group import ClassicGroup
from tidelog.coordinator.group.group import Group
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.group.offsets.commit_fold import CommitFold
from tidelog.coordinator.group.offsets.committed_offset import (
    NO_EXPIRY,
    CommittedOffset,
    from_value,
    tombstone,
)
from tidelog.coordinator.group.offsets.offset_table import OffsetTable
from tidelog.coordinator.group.offsets.pending import PendingOffsets
from tidelog.coordinator.group.offsets.raw_commit import RawCommits
from tidelog.coordinator.loading.log_replay import ShardFold
from tidelog.coordinator.runtime import Producer, Result, ShardContext
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.coordinator.sweep import Sweep
from tidelog.errors import KafkaError
from tidelog.ids import ZERO_UUID
from tidelog.metadata.feed import ImageDelta
from tidelog.wire.internal_topics.consumer_offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

_MS_PER_MINUTE = 60_000
_TOPICS_DELETED = "offsets of deleted topics"
_EXPIRED_AT_ONCE = 1000
_DELETED_AT_ONCE = 1000


class OffsetsPart(NamedTuple):
    """Some of a group's offsets."""

    group_id: str
    topics: tuple[str, ...] | None
    """Those of these topics; None for all there are."""


class Offsets:
    """Offsets by group and partition."""

    def __init__(self, context: ShardContext, support: GroupSupport, groups: Groups) -> None:
        self.context = context
        self.support = support
        self.groups = groups
        self.committed = OffsetTable()
        self.pending = PendingOffsets()
        self.keep_session: Callable[[Group, str], object] = lambda group, member_id: None
        """Told of every member that commits: in a classic group that is as good as a heartbeat."""
        self._raw = RawCommits()
        self._changed_topics: set[str] = set()
        self._looked_for: frozenset[str] = frozenset()
        self._deletion = Sweep(context.clock, self._tables_and_groups)

    # Records

    def replay(
        self,
        offset: int,
        producer: Producer,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: Payload | None,
    ) -> None:
        """Take in one record."""
        if isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue):
            self._keep(producer.producer_id, key.group, key.topic, key.partition, from_value(offset, value))
        else:
            self._forget(key.group, key.topic, key.partition)

    def replay_raw(self, offset: int, producer: Producer, key: bytes, value: bytes | None) -> bool:
        """Take in one record as it is in the log; False if ``replay`` has to do it.

        The same as ``replay`` in half the time, for the records that a busy log is full of.
        """
        found = self._raw.key(key)
        if found is None:
            return False
        group_id, topic, partition = found
        if value is None:
            self._forget(group_id, topic, partition)
            return True
        committed = self._raw.value(offset, value)
        if committed is None:
            return False
        self._keep(producer.producer_id, group_id, topic, partition, committed)
        return True

    def new_fold(self) -> ShardFold:
        """A fold of commits, and how they are taken in from there."""
        fold = CommitFold()

        def drain(upto: int, limit: int) -> bool:
            return fold.drain(upto, limit, self.committed.groups, self.groups.by_id, self)

        return ShardFold(fold, drain)

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A transaction has ended: its offsets count from now on, or never did."""
        ended = self.pending.end(producer.producer_id)
        if not committed:
            return
        for group_id, topic, partition, offset in ended:
            present = self.committed.get(group_id, topic, partition)
            if present is None or offset.record_offset > present.record_offset:
                self.committed.put(group_id, topic, partition, offset)

    def loaded(self) -> None:
        """Everything is known: what loading kept for itself can go."""
        self._raw = RawCommits()

    def unloaded(self) -> Iterator[None]:
        """Led elsewhere: let go of all offsets, in steps."""
        yield from self.committed.let_go()
        for table in list(self.pending.tables):
            yield from table.let_go()

    def _keep(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        if group_id not in self.groups:
            self.begin_group(group_id)
        if producer_id < 0:
            self.committed.put(group_id, topic, partition, committed)
        else:
            self.pending.add(producer_id, group_id, topic, partition, committed)

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        self.remove(group_id, topic, partition)
        self.forget_pending(group_id, topic, partition)

    # The steps of which replaying is made; a fold takes them by itself

    def begin_group(self, group_id: str) -> None:
        """A group without members begins, with its first offset."""
        self.groups.put(ClassicGroup.new(group_id, self.context.clock))

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Nothing is committed here any more."""
        self.committed.remove(group_id, topic, partition)

    def forget_pending(self, group_id: str, topic: str, partition: int) -> None:
        """No open transaction commits this offset any more."""
        self.pending.forget(group_id, topic, partition)

    # What becomes of them

    def delete_some(self, group_id: str, limit: int) -> tuple[list[StoredRecord], bool]:
        """Tombstones for what a group has committed or is about to, and whether these are all."""
        topics = self.committed.of_group(group_id)
        committed = ((topic, partition) for topic in topics for partition in topics[topic])
        pending = (
            (topic, partition)
            for topic, partition in self.pending.partitions_of(group_id)
            if partition not in topics.get(topic, ())
        )
        found = [tombstone(group_id, *each) for each in islice(chain(committed, pending), limit + 1)]
        return found[:limit], len(found) <= limit

    def parts_of(self, group_id: str) -> list[OffsetsPart]:
        """What ``expire`` looks at in one go: all of a group, or some topics of one that has many offsets."""
        topics = self.committed.of_group(group_id)
        if len(topics) <= 1 or sum(map(len, topics.values())) <= _EXPIRED_AT_ONCE:
            return [OffsetsPart(group_id, None)]
        parts: list[OffsetsPart] = []
        names: list[str] = []
        count = 0
        for topic, offsets in topics.items():
            names.append(topic)
            count += len(offsets)
            if count >= _EXPIRED_AT_ONCE:
                parts.append(OffsetsPart(group_id, tuple(names)))
                names, count = [], 0
        return [*parts, OffsetsPart(group_id, tuple(names))]

    def expire(self, part: OffsetsPart) -> tuple[list[StoredRecord], bool]:
        """Tombstones for expired offsets (KIP-211), and whether the group is known to have none left then."""
        group_id = part.group_id
        expired: list[StoredRecord] = []
        topics = self.committed.of_group(group_id)
        # A group that was looked at in parts is forgotten when the next round finds nothing in it.
        all_gone = not self.pending.has_group(group_id) and (part.topics is None or not topics)
        if not topics:
            return expired, all_gone
        group = self.groups.require(group_id)
        now_ms = self.context.clock.time_ms()
        retention_ms = self.support.config.int("offsets.retention.minutes") * _MS_PER_MINUTE
        for topic in topics if part.topics is None else part.topics:
            if group.is_subscribed_to(topic):
                all_gone = False
                continue
            for partition, committed in topics.get(topic, {}).items():
                counts_from = group.offsets_expire_from(committed.committed_at_ms)
                if (
                    counts_from is not None
                    and _is_expired(committed, counts_from, now_ms, retention_ms)
                    and not self.pending.is_open(group_id, topic, partition)
                ):
                    expired.append(tombstone(group_id, topic, partition))
                else:
                    all_gone = False
        return expired, all_gone

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Offsets of a topic that is gone go too, also if another of the same name is there already."""
        if not self.committed.groups and not self.pending:
            return
        self._changed_topics |= delta.topics
        if self._changed_topics and self._deletion.is_done:
            self.context.timers.schedule(_TOPICS_DELETED, 0, self._delete_for_changed)

    def _delete_for_changed(self) -> Result[None] | None:
        if self._deletion.is_done:
            self._looked_for, self._changed_topics = frozenset(self._changed_topics), set()
        stale: dict[tuple[str, str, int], None] = {}
        for table, group_id in self._deletion.slice():
            stale.update(dict.fromkeys(self._of_deleted(table, group_id)))
            if len(stale) >= _DELETED_AT_ONCE:
                break
        if stale:
            records = [tombstone(*each) for each in stale]
            return Result(records, None, self._deleted, atomic=False)
        self._deleted(None)
        return None

    def _deleted(self, error: KafkaError | None) -> None:
        if error is not None:
            self._deletion.abandon()
            logger.warning("Offsets of deleted topics stay until they expire: %s", error)
        elif not self._deletion.is_done or self._changed_topics:
            self.context.timers.schedule(_TOPICS_DELETED, 0, self._delete_for_changed)

    def _tables_and_groups(self) -> Iterator[tuple[OffsetTable, str]]:
        for table in (self.committed, *list(self.pending.tables)):
            for group_id in list(table.groups):
                yield table, group_id

    def _of_deleted(self, table: OffsetTable, group_id: str) -> Iterator[tuple[str, str, int]]:
        """Whose topic has been deleted: those of an unknown topic, or of another id than it has now."""
        by_topic = table.of_group(group_id)
        if self._looked_for.isdisjoint(by_topic):
            return
        present = self.support.image.topics
        for topic in self._looked_for & by_topic.keys():
            fitting = (ZERO_UUID, present[topic].id) if topic in present else ()
            for partition, committed in by_topic[topic].items():
                if committed.topic_id not in fitting:
                    yield group_id, topic, partition


def _is_expired(committed: CommittedOffset, counts_from: int, now_ms: int, retention_ms: int) -> bool:
    """A retention that the client asked for goes before the broker's."""
    if committed.expires_at_ms != NO_EXPIRY:
        return now_ms >= committed.expires_at_ms
    return now_ms - counts_from >= retention_ms
