"""Static members: who holds an instance id, and how the next holder takes the place of the last."""

from __future__ import annotations

import msgspec

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember
from tidelog.coordinator.group.consumer.records import (
    assignment_record,
    member_tombstones,
    subscription_record,
    target_record,
)
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError


def require_instance(group: ConsumerGroup, instance_id: str, member_id: str | None) -> ConsumerMember:
    """The member that has an instance id; raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.

    Without a ``member_id`` anybody will do: administrators name instances only.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member_id is not None and member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def replace_static(
    group: ConsumerGroup, existing: ConsumerMember, member_id: str, records: list[StoredRecord]
) -> ConsumerMember:
    """The next holder of an instance id, with all that the last one had."""
    member = msgspec.structs.replace(
        existing, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH
    )
    group_id = group.group_id
    records += member_tombstones(group_id, existing.member_id)
    records.append(subscription_record(group_id, member))
    records.append(target_record(group_id, member_id, group.targets.get(existing.member_id, {})))
    records.append(assignment_record(group_id, member))
    return member
