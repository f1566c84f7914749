"""AlterPartition: the leaders of partitions ask for other in-sync replicas, and the controller writes them
down.

:func:`judge` decides on one partition, purely, in Kafka's order: who knows more than this controller is
sent to its successor; an old epoch is fenced; what is so already is confirmed, so that a repeated request
does no harm; a stale version is refused; and only live brokers may come into sync (KIP-841), whose epochs
must be those they have now (KIP-903): one that has restarted since it caught up may have lost what it had.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.controller.cluster.context import ControllerContext, Leadership
from tidelog.controller.cluster.elections import RECOVERED, RECOVERING
from tidelog.controller.cluster.leadership_nodes import write_leaderships
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.metadata.store import SharedStore

UNKNOWN_BROKER_EPOCH = -1


class IsrChange(msgspec.Struct, frozen=True):
    """What a leader asks for."""

    leader: int
    leader_epoch: int
    isr: Mapping[int, int]
    """The in-sync replicas with the broker epochs in which they caught up, -1 where that is not said."""
    recovery_state: int
    partition_epoch: int


def judge(
    context: ControllerContext, partition: TopicPartition, change: IsrChange
) -> Leadership | ErrorCode | None:
    """The state to write, the refusal, or None if nothing need be written."""
    known = context.leaderships.get(partition)
    # A deletion that waits does not keep replicas from catching up.
    if known is None or partition.topic in context.deletion_started:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state = known.state
    if change.partition_epoch > known.version or change.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if change.leader != state.leader:
        return ErrorCode.INVALID_REQUEST
    if set(change.isr) == set(state.isr) and change.recovery_state == state.leader_recovery_state:
        return None
    if change.partition_epoch < known.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not change.isr or not set(change.isr) <= set(context.assignment(partition).replicas):
        return ErrorCode.INVALID_REQUEST
    if change.recovery_state == RECOVERING and (
        len(change.isr) > 1 or state.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if any(not _may_be_in_sync(context, broker, epoch) for broker, epoch in change.isr.items()):
        return ErrorCode.INELIGIBLE_REPLICA
    return Leadership(
        msgspec.structs.replace(
            state,
            isr=tuple(change.isr),
            leader_recovery_state=change.recovery_state,
            controller_epoch=context.epoch,
        ),
        known.version,
    )


def _may_be_in_sync(context: ControllerContext, broker: int, epoch: int) -> bool:
    if broker not in context.live_ids:
        return False
    return epoch == UNKNOWN_BROKER_EPOCH or epoch == context.brokers[broker].epoch


async def change_isrs(
    context: ControllerContext, store: SharedStore, changes: Mapping[TopicPartition, IsrChange]
) -> dict[TopicPartition, Leadership | ErrorCode]:
    """Write what leaders ask for, where it is right; the state that holds now, or the refusal, of each."""
    outcomes: dict[TopicPartition, Leadership | ErrorCode] = {}
    accepted: dict[TopicPartition, Leadership] = {}
    for partition, change in changes.items():
        judged = judge(context, partition, change)
        if judged is None:
            outcomes[partition] = context.leaderships[partition]
        elif isinstance(judged, Leadership):
            accepted[partition] = judged
        else:
            outcomes[partition] = judged
    written = await write_leaderships(store, context, accepted)
    for partition, leadership in written.done.items():
        outcomes[partition] = context.leaderships[partition] = leadership
    for partition in written.stale:
        outcomes[partition] = ErrorCode.INVALID_UPDATE_VERSION
    for partition in written.failed:
        outcomes[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
    return outcomes
