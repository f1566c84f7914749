"""Plans for moving a group's committed offsets: from where to where, in each partition.

A plan changes nothing; ``AsyncAdmin.alter_group_offsets`` carries it out. The rules are those of Kafka's
kafka-consumer-groups --reset-offsets: offsets outside the log are moved to its nearest end; a time later than
all records means the end; the current offset of a partition without a commit means the end; a partition
without a commit cannot be shifted. Called by ``AsyncAdmin``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.leaders import split_by_leader
from tidelog.client._spec_names import also_called
from tidelog.client.admin._group_lag import log_offsets
from tidelog.client.admin._group_offsets import list_group_offsets
from tidelog.client.errors import ClientError
from tidelog.client.resources import OffsetSpec
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition


@also_called()
@dataclass(frozen=True, slots=True)
class ToPlace:
    """The beginning or the end of each log."""

    spec: OffsetSpec


@also_called()
@dataclass(frozen=True, slots=True)
class ToOffset:
    """The same offset in every partition."""

    offset: int


@also_called()
@dataclass(frozen=True, slots=True)
class ToOffsets:
    """An offset for each partition; also says which partitions."""

    offsets: Mapping[TopicPartition, int]


@also_called()
@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is at least as young as this."""

    timestamp_ms: int


@also_called()
@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many records later than the committed offset, or earlier if negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset itself; a plan of these is a backup."""


ResetTarget = ToPlace | ToOffset | ToOffsets | ToTime | ShiftBy | ToCurrent


class Adjustment(enum.StrEnum):
    """Why a plan's offset is not the one asked for."""

    NONE = ""
    TO_START = "clamped to the start"
    TO_END = "clamped to the end"
    NO_YOUNGER_RECORD = "no record that young: the end"
    NO_COMMIT = "no commit: the end"


class NothingCommittedError(ClientError):
    """A partition whose offset cannot be shifted because the group has committed none."""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """What would happen to one partition; ``current`` is None where nothing is committed."""

    partition: TopicPartition
    current: int | None
    new: int
    adjustment: Adjustment = Adjustment.NONE

    @property
    def change(self) -> int | None:
        """By how much the offset moves; None where there was none."""
        return None if self.current is None else self.new - self.current


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The new offsets, by partition; ``gone`` are committed partitions that do not exist any more."""

    group_id: str
    offsets: tuple[PlannedOffset, ...]
    gone: tuple[TopicPartition, ...] = ()


async def plan_offset_reset(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition] | None, target: ResetTarget
) -> ResetPlan:
    """See :meth:`AsyncAdmin.plan_offset_reset`."""
    committed = (await list_group_offsets(cluster, [group_id]))[group_id]
    committed.raise_for_error()
    current = {each.partition: each.offset for each in committed.offsets.values() if each.error is None}
    gone: tuple[TopicPartition, ...] = ()
    if isinstance(target, ToOffsets):
        wanted = await _require_leaders(cluster, target.offsets)
    elif partitions is not None:
        wanted = await _require_leaders(cluster, partitions)
    else:
        _, problems = await split_by_leader(cluster, sorted(current))
        gone = tuple(
            partition
            for partition, error in problems.items()
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        wanted = await _require_leaders(cluster, current.keys() - set(gone))
    found = await _resolve(cluster, wanted, current, target)
    planned = (PlannedOffset(each, current.get(each), *found[each]) for each in wanted)
    return ResetPlan(group_id, tuple(planned), gone)


async def _require_leaders(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    wanted, problems = await split_by_leader(cluster, sorted(partitions))
    for error in problems.values():
        raise error
    return wanted


Found = tuple[int, Adjustment]


async def _resolve(
    cluster: Cluster,
    wanted: list[TopicPartition],
    current: Mapping[TopicPartition, int],
    target: ResetTarget,
) -> dict[TopicPartition, Found]:
    match target:
        case ToPlace(spec):
            places = await _offsets_at(cluster, wanted, spec)
            return {partition: (offset, Adjustment.NONE) for partition, offset in places.items()}
        case ToTime(timestamp_ms):
            return await _at_time(cluster, wanted, timestamp_ms)
        case ToCurrent():
            uncommitted = [each for each in wanted if each not in current]
            ends = await _offsets_at(cluster, uncommitted, OffsetSpec.LATEST)
            return {each: (current[each], Adjustment.NONE) for each in wanted if each in current} | {
                each: (end, Adjustment.NO_COMMIT) for each, end in ends.items()
            }
        case ToOffset(offset):
            asked: Mapping[TopicPartition, int] = dict.fromkeys(wanted, offset)
        case ToOffsets(offsets):
            asked = offsets
        case ShiftBy(count):
            asked = {partition: _require_commit(current, partition) + count for partition in wanted}
    return await _clamped(cluster, asked)


def _require_commit(current: Mapping[TopicPartition, int], partition: TopicPartition) -> int:
    if partition not in current:
        raise NothingCommittedError(
            f"the offset of {partition} cannot be shifted: the group has committed none; "
            "name the partitions that have one, or choose an offset, a time, the beginning or the end"
        )
    return current[partition]


async def _at_time(
    cluster: Cluster, wanted: list[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, Found]:
    found = await _offsets_at(cluster, wanted, timestamp_ms)
    ends = await _offsets_at(cluster, [each for each in wanted if found[each] < 0], OffsetSpec.LATEST)
    return {each: (offset, Adjustment.NONE) for each, offset in found.items()} | {
        each: (end, Adjustment.NO_YOUNGER_RECORD) for each, end in ends.items()
    }


async def _clamped(cluster: Cluster, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, Found]:
    starts = await _offsets_at(cluster, list(asked), OffsetSpec.EARLIEST)
    ends = await _offsets_at(cluster, list(asked), OffsetSpec.LATEST)
    return {each: _clamp(offset, starts[each], ends[each]) for each, offset in asked.items()}


def _clamp(offset: int, start: int, end: int) -> Found:
    if offset > end:
        return end, Adjustment.TO_END
    if offset < start:
        return start, Adjustment.TO_START
    return offset, Adjustment.NONE


async def _offsets_at(
    cluster: Cluster, partitions: list[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    found = await log_offsets(cluster, partitions, timestamp) if partitions else {}
    for result in found.values():
        if result.error is not None:
            raise KafkaError(result.error.code, result.error.message)
    return {partition: result.offset for partition, result in found.items()}
