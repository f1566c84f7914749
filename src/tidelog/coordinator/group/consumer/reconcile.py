"""The next step of a member towards its target: give partitions up first, then get new ones.

A member that owns what its new target does not have stays in its epoch until it no longer reports those
partitions; then it goes to the epoch of the target and gets the partitions that are free; those that others
still hold follow as they are released. Thereby no partition is owned by two members at once, while each keeps
working on what it keeps. Pure functions, called by ``member_update``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tidelog.coordinator.group.consumer.member import (
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    TopicIdPartitions,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid


class Goal(NamedTuple):
    """Where a member is to go."""

    epoch: int
    target: TopicIdPartitions
    subscribed: frozenset[Uuid] | set[Uuid]
    """Ids of the topics that it subscribes to at this moment: a target may be older than that."""
    is_taken: Callable[[Uuid, int], bool]
    """Whether anybody owns a partition."""


def next_step(
    member: ConsumerMember, goal: Goal, owned: TopicIdPartitions | None, *, subscription_changed: bool
) -> ConsumerMember:
    """The member after one step; the same object if there is none to take.

    ``owned`` is what it reports to own; None if it reports nothing, whereupon it may own anything.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == goal.epoch:
            return _drop_unsubscribed(member, goal, owned) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, member.revoking):
            return _drop_unsubscribed(member, goal, owned) if subscription_changed else member
        case MemberState.UNKNOWN if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The member is in a state that this release does not know; it must give up all its "
                "partitions and rejoin.",
            )
    return _towards(member, goal, owned)


def _towards(member: ConsumerMember, goal: Goal, owned: TopicIdPartitions | None) -> ConsumerMember:
    """Split what the member has and is to have into kept, given up and got."""
    kept: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    got: dict[Uuid, list[int]] = {}
    waits = False
    for topic_id in goal.target.keys() | member.assigned.keys():
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset()
        assigned = member.assigned.get(topic_id, {})
        keep = {partition: epoch for partition, epoch in assigned.items() if partition in target}
        revoke = {partition: epoch for partition, epoch in assigned.items() if partition not in target}
        # What the member itself is giving up is not held by anybody else.
        own = member.revoking.get(topic_id, {})
        free = [
            partition
            for partition in sorted(target - assigned.keys())
            if partition in own or not goal.is_taken(topic_id, partition)
        ]
        waits = waits or len(keep) + len(free) < len(target)
        if keep:
            kept[topic_id] = keep
        if revoke:
            revoking[topic_id] = revoke
        if free:
            got[topic_id] = free
    if revoking and _owns_any(owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    for topic_id, partitions in got.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, goal.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, goal.epoch, state, kept, {})


def _drop_unsubscribed(member: ConsumerMember, goal: Goal, owned: TopicIdPartitions | None) -> ConsumerMember:
    """Take away only the topics that the member has just unsubscribed from, whatever its target says."""
    gone = member.assigned.keys() - goal.subscribed
    if not gone:
        return member
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in gone}
    revoking = {topic_id: dict(epochs) for topic_id, epochs in member.revoking.items()}
    for topic_id in gone:
        revoking.setdefault(topic_id, {}).update(member.assigned[topic_id])
    if _owns_any(owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return _moved(member, member.epoch, member.state, kept, member.revoking)


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: OwnedPartitions,
    revoking: OwnedPartitions,
) -> ConsumerMember:
    return msgspec.structs.replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


def _owns_any(owned: TopicIdPartitions | None, revoked: OwnedPartitions) -> bool:
    """Whether the member reports any of these partitions, or might own them without saying so."""
    if owned is None:
        return True
    return any(
        partition in revoked.get(topic_id, {})
        for topic_id, partitions in owned.items()
        for partition in partitions
    )
