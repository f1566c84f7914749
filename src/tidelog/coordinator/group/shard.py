"""One partition of ``__consumer_offsets``: its groups and their offsets.

A shard is made of parts that share the groups: ``classic`` (JoinGroup and what belongs to it), ``consumer``
(ConsumerGroupHeartbeat, KIP-848, and classic members of such groups), ``offsets``. Here records are handed to
the part that they belong to, and requests of the classic protocol to the part that has the group.

Owned by the runtime; handlers reach it through ``GroupCoordinator.write`` and ``read``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator

from tidelog.coordinator.group.classic.group import ClassicGroup
from tidelog.coordinator.group.classic.protocol import ClassicProtocol
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.protocol import ConsumerProtocol
from tidelog.coordinator.group.group import Caller, GroupType
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.group.offsets.offsets import Offsets, OffsetsPart
from tidelog.coordinator.loading.log_replay import ShardFold
from tidelog.coordinator.runtime import Producer, Result, ShardContext
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord
from tidelog.coordinator.sweep import Sweep
from tidelog.errors import KafkaError
from tidelog.metadata.feed import ImageDelta
from tidelog.scheduling.slices import Slices
from tidelog.wire.internal_topics import consumer_offsets as stored
from tidelog.wire.messages.delete_groups import DeletableGroupResult
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.list_groups import ListedGroup
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

DELETED_AT_ONCE = 256
"""So many tombstones of offsets DeleteGroups writes at most before others have their turn."""
_CLEAN_UP_RECORDS = 1000
"""After so many tombstones others have their turn before the clean-up goes on."""

SCHEMAS = RecordSchemas(
    [
        (stored.LegacyOffsetCommitKey, stored.LegacyOffsetCommitValue),
        (stored.OffsetCommitKey, stored.OffsetCommitValue),
        (stored.GroupMetadataKey, stored.GroupMetadataValue),
        (stored.ConsumerGroupMetadataKey, stored.ConsumerGroupMetadataValue),
        (stored.ConsumerGroupPartitionMetadataKey, stored.ConsumerGroupPartitionMetadataValue),
        (stored.ConsumerGroupMemberMetadataKey, stored.ConsumerGroupMemberMetadataValue),
        (stored.ConsumerGroupTargetAssignmentMetadataKey, stored.ConsumerGroupTargetAssignmentMetadataValue),
        (stored.ConsumerGroupTargetAssignmentMemberKey, stored.ConsumerGroupTargetAssignmentMemberValue),
        (stored.ConsumerGroupCurrentMemberAssignmentKey, stored.ConsumerGroupCurrentMemberAssignmentValue),
        (stored.ConsumerGroupRegularExpressionKey, stored.ConsumerGroupRegularExpressionValue),
    ]
)


class GroupShard:
    """The groups of one partition."""

    def __init__(self, context: ShardContext, support: GroupSupport) -> None:
        self.context = context
        self.support = support
        self.groups = Groups()
        self.offsets = Offsets(context, support, self.groups)
        self.classic = ClassicProtocol(context, support, self.groups)
        self.offsets.keep_session = self.classic.heard_of
        self.consumer = ConsumerProtocol(context, support, self.groups, self.classic)
        self._clean_up = Sweep(context.clock, self._parts_to_clean_up)

    # Records

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        """Take in one record."""
        key, value = record.key, record.value
        match key:
            case stored.OffsetCommitKey() | stored.LegacyOffsetCommitKey():
                self.offsets.replay(offset, producer, key, value)
            case stored.GroupMetadataKey():
                self.classic.replay(key, value)
            case _:
                self.consumer.replay(key, value)

    def replay_raw(self, offset: int, producer: Producer, key: bytes, value: bytes | None) -> bool:
        """Take in one record as it is in the log, if it is an offset of the usual form."""
        return self.offsets.replay_raw(offset, producer, key, value)

    def new_fold(self) -> ShardFold:
        """What folds commits of offsets at loading."""
        return self.offsets.new_fold()

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A transaction that has committed offsets, or has not, has ended."""
        self.offsets.replay_marker(producer, committed)

    def loaded(self) -> Iterator[None]:
        """Everything is known: members get their time to call."""
        self.offsets.loaded()
        self._schedule_clean_up()
        for group_id in list(self.groups.by_id):
            group = self.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                self.classic.loaded(group)
            elif isinstance(group, ConsumerGroup):
                self.consumer.loaded(group)
            yield

    def unloaded(self) -> Iterator[None]:
        """Led elsewhere. Whoever waits is answered before anything is let go of."""
        for group in self.groups:
            if isinstance(group, ClassicGroup):
                self.classic.unloaded(group)
            yield
        yield from self.offsets.unloaded()
        while self.groups.by_id:
            self.groups.by_id.popitem()
            yield

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Topics have changed."""
        self.consumer.metadata_changed(delta)
        self.offsets.metadata_changed(delta)

    # The classic protocol, in groups of either type

    def join(self, caller: Caller, request: JoinGroupRequest) -> Result[JoinGroupResponse]:
        """JoinGroup; an empty consumer group gives way to a classic one."""
        group = self.groups.get(request.group_id)
        if group is None or group.type is GroupType.CLASSIC:
            return self.classic.join(caller, request)
        if group.is_empty:
            return self.classic.join(caller, request, instead_of=group)
        return self.consumer.join(caller, request)

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """SyncGroup."""
        return self._protocol_of(request.group_id).sync(caller, request)

    def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Heartbeat."""
        return self._protocol_of(request.group_id).heartbeat(caller, request)

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """LeaveGroup."""
        return self._protocol_of(request.group_id).leave(caller, request)

    def _protocol_of(self, group_id: str) -> ClassicProtocol | ConsumerProtocol:
        group = self.groups.get(group_id)
        return self.consumer if group is not None and group.type is GroupType.CONSUMER else self.classic

    # Groups of any type

    def list_groups(
        self,
        states: Collection[str],
        types: Collection[str],
        is_visible: Callable[[str], bool] = lambda group_id: True,
    ) -> Slices[list[ListedGroup]]:
        """The groups in one of these states and of one of these types, in any case; nothing asks for all."""
        in_states = {state.lower().strip() for state in states}
        of_types = {each.lower() for each in types}
        listed: list[ListedGroup] = []
        for group_id in list(self.groups.by_id):
            group = self.groups.get(group_id)
            if (
                group is not None
                and (not in_states or group.state_name.lower() in in_states)
                and (not of_types or group.type.value in of_types)
                and is_visible(group_id)
            ):
                listed.append(group.listed())
            yield
        return listed

    def delete_groups(self, group_ids: Iterable[str]) -> Result[list[DeletableGroupResult]]:
        """Delete groups that have no members, with their offsets, as many of them as may be done at once.

        Those that are not in the answer are left. The first of them may have lost offsets already: a group
        goes with the last of its records.
        """
        records: list[StoredRecord] = []
        results: list[DeletableGroupResult] = []
        for group_id in group_ids:
            result = DeletableGroupResult(group_id=group_id)
            try:
                group = self.groups.require(group_id)
                group.check_delete()
            except KafkaError as error:
                result.error_code = error.code
            else:
                tombstones, all_of_them = self.offsets.delete_some(group_id, DELETED_AT_ONCE - len(records))
                records += tombstones
                if not all_of_them:
                    break
                records += group.tombstones()
            results.append(result)
            if len(records) >= DELETED_AT_ONCE or len(results) >= DELETED_AT_ONCE:
                break
        return Result(records, results)

    # Expiry

    def clean_up(self) -> Result[None]:
        """Forget expired offsets, and groups that have neither members nor offsets (KIP-211)."""
        self._schedule_clean_up()
        records: list[StoredRecord] = []
        for part in self._clean_up.slice():
            group = self.groups.get(part.group_id)
            if group is None:
                continue
            expired, all_gone = self.offsets.expire(part)
            records += expired
            if all_gone and group.is_empty:
                records += group.tombstones()
            if len(records) >= _CLEAN_UP_RECORDS:
                break
        if records:
            logger.info(
                "Partition %d: %d expired offsets and groups go", self.context.partition, len(records)
            )
        return Result(records, None, None if self._clean_up.is_done else self._clean_up_rest, atomic=False)

    def _clean_up_rest(self, error: KafkaError | None) -> None:
        if error is None:
            self.context.timers.schedule("clean up", 0, self.clean_up)
        else:
            self._clean_up.abandon()

    def _parts_to_clean_up(self) -> Iterator[OffsetsPart]:
        for group_id in list(self.groups.by_id):
            yield from self.offsets.parts_of(group_id)

    def _schedule_clean_up(self) -> None:
        interval_ms = self.support.config.int("offsets.retention.check.interval.ms")
        self.context.timers.schedule("clean up", interval_ms, self.clean_up)
