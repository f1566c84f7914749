"""Partition states in ZooKeeper, as the controller reads and writes them.

Every write checks ``/controller_epoch``'s version in the same transaction: a controller that was succeeded
cannot change anything, whatever it believes (:class:`ControllerMoved`). Writes are conditional on the state
node's version too, because the leader of a partition changes its in-sync replicas through whoever was
controller a moment ago: a stale one is read again by the caller. Many partitions are read and written side
by side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.controller.cluster.context import ControllerContext, Leadership
from tidelog.errors import StorageError, TidelogError
from tidelog.ids import TopicPartition
from tidelog.metadata.store import (
    BadVersion,
    Check,
    Create,
    NodeExists,
    NoNode,
    Op,
    Result,
    SessionExpired,
    Set,
    SharedStore,
    StoreClosed,
    StoreError,
)
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import PartitionState

logger = logging.getLogger(__name__)

MAX_OPS = 500
"""As many nodes as one transaction may touch, lest it becomes larger than servers take (1 MB)."""


class ControllerMoved(TidelogError):
    """Another broker has become the controller; this one must stop at once."""

    def __init__(self) -> None:
        super().__init__("another broker is the controller now")


@dataclass(slots=True)
class Written:
    """What became of the writes of several states."""

    done: dict[TopicPartition, Leadership] = field(default_factory=dict)
    stale: list[TopicPartition] = field(default_factory=list)
    """Those that somebody else changed meanwhile: read them and decide again."""
    failed: dict[TopicPartition, StoreError] = field(default_factory=dict)


async def read_leaderships(
    store: SharedStore, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Leadership]:
    """What the state nodes hold; those without one are missing, and so are those that cannot be read."""

    async def read(partition: TopicPartition) -> Leadership | None:
        try:
            raw, version = await store.get(znodes.partition_state_path(partition))
            return Leadership(PartitionState.decode(partition, raw), version)
        except NoNode:
            return None
        except StorageError as error:
            logger.error("The state of %s is passed over: %s", partition, error)
            return None

    wanted = list(partitions)
    found = await asyncio.gather(*map(read, wanted))
    return {partition: each for partition, each in zip(wanted, found, strict=True) if each is not None}


async def write_leaderships(
    store: SharedStore,
    context: ControllerContext,
    changes: Mapping[TopicPartition, Leadership],
) -> Written:
    """Replace states; each change says what to write and which version it was decided on."""
    written = Written()

    async def write(partition: TopicPartition, change: Leadership) -> None:
        path = znodes.partition_state_path(partition)
        try:
            results = await controller_write(
                store, context, [Set(path, change.state.encode(), change.version)]
            )
        except BadVersion:
            written.stale.append(partition)
        except (SessionExpired, StoreClosed):
            raise
        except StoreError as error:
            written.failed[partition] = error
        else:
            version = results[0]
            assert isinstance(version, int)
            written.done[partition] = Leadership(change.state, version)

    await asyncio.gather(*(write(partition, change) for partition, change in changes.items()))
    return written


async def create_leaderships(
    store: SharedStore, context: ControllerContext, states: Mapping[TopicPartition, PartitionState]
) -> Written:
    """Write the first states of new partitions, with the nodes above them."""
    written = Written()
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in states:
        by_topic.setdefault(partition.topic, []).append(partition)

    async def create_all(topic: str, partitions: Sequence[TopicPartition]) -> None:
        for begin in range(0, len(partitions), MAX_OPS):
            await create(topic, partitions[begin : begin + MAX_OPS])

    async def create(topic: str, partitions: Sequence[TopicPartition]) -> None:
        ops: list[Op] = []
        created: list[TopicPartition] = []
        if not await store.exists(znodes.partitions_path(topic)):
            ops.append(Create(znodes.partitions_path(topic)))
        for partition in partitions:
            state_path = znodes.partition_state_path(partition)
            if not await store.exists(znodes.partition_path(partition)):
                ops.append(Create(znodes.partition_path(partition)))
            elif await store.exists(state_path):
                # One that cannot be read: it stays as it is, and keeps no other partition from its state.
                written.failed[partition] = NodeExists(state_path)
                continue
            ops.append(Create(state_path, states[partition].encode()))
            created.append(partition)
        try:
            await controller_write(store, context, ops)
        except (SessionExpired, StoreClosed):
            raise
        except StoreError as error:
            written.failed.update(dict.fromkeys(created, error))
        else:
            written.done.update({each: Leadership(states[each], 0) for each in created})

    await asyncio.gather(*(create_all(topic, partitions) for topic, partitions in by_topic.items()))
    return written


async def controller_write(store: SharedStore, context: ControllerContext, ops: Sequence[Op]) -> list[Result]:
    """Carry out ``ops`` if this is still the controller; raises :class:`ControllerMoved` if not."""
    fence = Check(znodes.CONTROLLER_EPOCH, context.epoch_version)
    try:
        results = await store.multi([fence, *ops])
    except StoreError as error:
        if error.op_index == 0:
            raise ControllerMoved from error
        if error.op_index is not None:
            error.op_index -= 1
        raise
    return results[1:]
