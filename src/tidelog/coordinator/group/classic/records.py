"""Classic groups as records: one ``GroupMetadataValue`` holds a whole generation, with its assignment.

Written in version 3, as Kafka does; read in all versions. What a record does not hold (protocols other than
the chosen one, who waits) is gone after a restart, and members that rejoin bring it back.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.clock import Clock
from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState, Generation
from tidelog.coordinator.group.classic.member import EMPTY_ASSIGNMENT, ClassicMember, MemberProtocol
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_TIMESTAMP
from tidelog.wire.internal_topics.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

VALUE_VERSION = 3
_NO_REBALANCE_TIMEOUT = -1


def metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> StoredRecord:
    """The group's generation with ``assignments`` by member id, or with those that its members have."""
    return _record(
        group,
        GroupMetadataValue(
            protocol_type=group.protocol_type,
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.members.leader_id,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name),
                    assignment=member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, EMPTY_ASSIGNMENT),
                )
                for member in group.members.values()
            ],
        ),
    )


def new_group_record(group: ClassicGroup) -> StoredRecord:
    """A group that has only just begun."""
    return _record(group, GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None))


def _record(group: ClassicGroup, value: GroupMetadataValue) -> StoredRecord:
    value.current_state_timestamp = NO_TIMESTAMP if group.state_since_ms is None else group.state_since_ms
    return StoredRecord(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def group_of(group_id: str, value: GroupMetadataValue, clock: Clock) -> ClassicGroup:
    """The group that a record describes: stable if it has members."""
    group = ClassicGroup(
        group_id,
        clock,
        Generation(value.generation, value.protocol_type, value.protocol, value.leader or None),
        state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
        state_since_ms=None
        if value.current_state_timestamp == NO_TIMESTAMP
        else value.current_state_timestamp,
    )
    for each in value.members:
        if each.member_id in group.members or each.group_instance_id in group.members.by_instance_id:
            raise CorruptRecordError(f"group {group_id!r} has the member {each.member_id!r} twice")
        group.add(
            ClassicMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.session_timeout
                if each.rebalance_timeout == _NO_REBALANCE_TIMEOUT
                else each.rebalance_timeout,
                session_timeout_ms=each.session_timeout,
                protocol_type=value.protocol_type,
                protocols=(MemberProtocol(value.protocol or "", each.subscription),),
                assignment=each.assignment,
            )
        )
    group.subscribed_topics = group.find_subscribed_topics()
    return group
