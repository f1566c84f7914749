"""ConsumerGroupHeartbeat: members join, tell what they own, learn what they get, and leave.

The checks and their order are Kafka's: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
FENCED_MEMBER_EPOCH; for static members UNRELEASED_INSTANCE_ID when the instance is in use, FENCED_INSTANCE_ID
when another member has taken it over. A member that comes with its previous epoch has missed an answer: it
is let in as long as it owns nothing but what it was given, and is told again what that is.
"""

from __future__ import annotations

import logging

import msgspec

from tidelog.coordinator.group.consumer.fencing import Fencing
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    OwnedPartitions,
    TopicIdPartitions,
    reported,
)
from tidelog.coordinator.group.consumer.member_update import MemberUpdate, UpdateTools
from tidelog.coordinator.group.consumer.migration import Migration
from tidelog.coordinator.group.consumer.records import assignment_record
from tidelog.coordinator.group.consumer.regexes import RegexChange
from tidelog.coordinator.group.consumer.static_members import replace_static, require_instance
from tidelog.coordinator.group.group import Caller
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.runtime import Result
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import uuid_to_text
from tidelog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

logger = logging.getLogger(__name__)


class Heartbeats:
    """Serves the heartbeats of one shard."""

    def __init__(
        self,
        support: GroupSupport,
        groups: Groups,
        tools: UpdateTools,
        fencing: Fencing,
        migration: Migration,
    ) -> None:
        self._support = support
        self._groups = groups
        self._tools = tools
        self._fencing = fencing
        self._migration = migration

    def heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """One heartbeat, which has been found well-formed."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request)
        records: list[StoredRecord] = []
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group(request.group_id, records, create=joins)
        self._require_room(group, request.member_id)
        owned = reported(request.topic_partitions)
        member = self._member(group, request, owned, records)
        updated = _updated(member, request, caller)

        update = MemberUpdate(self._tools, group, member, updated, records, caller.may_describe)
        update.subscribe()
        update.bump_group_epoch(needed=update.topics_changed or update.regex_change is RegexChange.RESOLVED)
        update.reconcile(update.assign(), owned)
        updated = update.updated

        self._tools.timers.expect_heartbeat(group.group_id, updated)
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._support.group_configs.int(
                group.group_id, "consumer.heartbeat.interval.ms"
            ),
        )
        missed_an_answer = request.member_epoch < member.epoch
        if joins or missed_an_answer or _is_full(request) or updated.assigned != member.assigned:
            response.assignment = _assignment(updated.assigned)
        return Result(records, response, self._migration.after_upgrade(group))

    # Who calls

    def _group(self, group_id: str, records: list[StoredRecord], *, create: bool) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not create:
            known = f"Group {group_id} is not a consumer group."
            unknown = f"Consumer group {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, unknown if group is None else known)
        if group is None:
            return ConsumerGroup(group_id)
        return self._migration.upgrade(group, records)

    def _require_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._support.config.int("group.consumer.max.size")
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _member(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        owned: TopicIdPartitions | None,
        records: list[StoredRecord],
    ) -> ConsumerMember:
        """The member as it has been up to now; a new one if it joins."""
        member_id = request.member_id or uuid_to_text(self._support.new_member_uuid())
        if request.member_epoch != JOIN_EPOCH:
            if request.instance_id is None:
                member = group.member(member_id)
            else:
                member = require_instance(group, request.instance_id, member_id)
            _check_epoch(member, request.member_epoch, owned)
            return member
        existing = group.static_member(request.instance_id)
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        if not existing.uses_classic_protocol and existing.epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {existing.member_id} member.",
            )
        return replace_static(group, existing, member_id, records)

    # Leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> Result[ConsumerGroupHeartbeatResponse]:
        self._groups.require(request.group_id)
        group = self._group(request.group_id, [], create=False)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            return self._fencing.fence(group, [group.member(request.member_id)], response)
        member = require_instance(group, request.instance_id, request.member_id)
        if request.member_epoch == LEAVE_EPOCH:
            return self._fencing.fence(group, [member], response)
        # It will be back within its session timeout, under another id, and find its partitions. Their epochs
        # are reset, so that a commit of the old id is fenced (KIP-1251).
        away = msgspec.structs.replace(
            member,
            epoch=STATIC_LEAVE_EPOCH,
            revoking={},
            assigned={
                topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()
            },
        )
        return Result([assignment_record(group.group_id, away)], response)


def _check_epoch(member: ConsumerMember, epoch: int, owned: TopicIdPartitions | None) -> None:
    if epoch == member.epoch:
        return
    if epoch == member.previous_epoch and epoch < member.epoch and _is_part_of(owned, member.assigned):
        return
    how = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part_of(owned: TopicIdPartitions | None, assigned: OwnedPartitions) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """The member with what the request says; what it leaves out is as before."""
    changes: dict[str, object] = {
        "client_id": caller.client_id,
        "client_host": caller.client_host,
        "classic": None,
    }
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        changes["assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        changes["topics"] = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        changes["regex"] = request.subscribed_topic_regex
    if all(getattr(member, name) == value for name, value in changes.items()):
        return member
    return msgspec.structs.replace(member, **changes)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member tells everything, because it joins or does not know what was heard of it."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(assigned: OwnedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )
