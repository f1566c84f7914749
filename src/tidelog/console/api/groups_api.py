"""Groups: the list, one with its members and lag, its lag over time, and moving its offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

import msgspec

from tidelog.client.admin.group_resources import MemberDescription
from tidelog.client.admin.offset_reset import (
    ResetPlan,
    ResetTarget,
    ShiftBy,
    ToOffset,
    ToOffsets,
    ToPlace,
    ToTime,
)
from tidelog.client.resources import OffsetSpec
from tidelog.console.api.endpoint import Call, Nothing, changes, reads, sees_group
from tidelog.console.api.overview_api import HistoryQuery, since_s
from tidelog.console.api.shapes import Done, TypedName, raise_errors, require_typed
from tidelog.console.api.topics_api import described_topic
from tidelog.console.refusal import Refusal, forbidden, sentence
from tidelog.console.settings import Role
from tidelog.console.watching.changes import Event
from tidelog.console.watching.history import Point
from tidelog.console.watching.rebalances import topics_of
from tidelog.console.watching.snapshot import is_internal_group
from tidelog.ids import TopicPartition

_TIMES_READ = 20
"""Of so many partitions, at most, the time of a lag is read from a record."""
_FURTHEST = 5
_MOST_SERIES = 100


class GroupRow(msgspec.Struct, frozen=True):
    """One group in the list."""

    group: str
    state: str
    type: str
    coordinator: int
    topics: int
    partitions: int
    lag: int | None
    lag_seconds: float | None
    at_least: bool
    """It is behind for longer than anybody looked."""
    committed_per_second: float


class MemberRow(msgspec.Struct, frozen=True):
    """One member."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    topics: list[str]
    partitions: list[str]


class GroupPartition(msgspec.Struct, frozen=True):
    """Where a group stands in one partition; ``at_least``: it is behind for longer than anybody looked."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None
    at_least: bool
    member: str | None
    problem: str | None


class GroupDetail(msgspec.Struct, frozen=True):
    """One group."""

    group: str
    state: str
    type: str
    protocol: str
    assignor: str
    coordinator: int | None
    epoch: int | None
    lag: int
    members: list[MemberRow]
    partitions: list[GroupPartition]
    rebalances: list[Event]
    """The last ones, the newest first, with what happened before them."""


class PlannedReset(msgspec.Struct, frozen=True):
    """What happens to one partition."""

    topic: str
    partition: int
    current: int | None
    new: int
    remark: str = ""


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Where offsets go: of all that was committed, or of one topic; ``dry_run`` shows the plan only.

    A plan that was shown is carried out by sending it back. By how many records to ``shift`` is carried out
    in no other way: sent twice, it would move offsets twice.
    """

    to: Literal["earliest", "latest", "offset", "time", "shift"] | None = None
    topic: str | None = None
    partitions: list[int] | None = None
    number: int = 0
    """The offset, the time in ms since 1970, or the number of records to shift by."""
    plan: list[PlannedReset] | None = None
    """The ``offsets`` of a dry run, instead of ``to``; if one is not ``current`` any more nothing is done."""
    dry_run: bool = True


class ResetAnswer(msgspec.Struct, frozen=True):
    """The plan, and whether it was carried out."""

    dry_run: bool
    offsets: list[PlannedReset]


class PartitionLagQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Of which topic, how far back; one partition, or those that were furthest behind."""

    topic: str
    minutes: int = 60
    partition: int | None = None
    limit: int = _FURTHEST


class PartitionLagSeries(msgspec.Struct, frozen=True):
    """One partition: moments with records and seconds."""

    partition: int
    points: list[Point]


class PartitionLagPage(msgspec.Struct, frozen=True):
    """The partitions that were furthest behind, the furthest first, and how many others were, too."""

    partitions: list[PartitionLagSeries]
    left_out: int


class GroupQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to list groups, too, that only Tidelog itself uses."""

    internal: bool = False


@reads("/clusters/{cluster}/groups", "Groups, with lag in messages and seconds.", GroupQuery)
async def groups(call: Call, asked: GroupQuery) -> list[GroupRow]:
    """From the last look; all figures are those of topics that the person may see."""
    watched = call.cluster
    seen = await watched.seen()
    committed: dict[str, float] = {}
    for (group_, topic), rate in watched.rates.committed.items():
        if call.sees(topic):
            committed[group_] = committed.get(group_, 0.0) + rate
    rows = []
    for name, listing in sorted(seen.groups.items()):
        if (is_internal_group(name) and not asked.internal) or not sees_group(call, seen, name):
            continue
        lags = [each for each in watched.lag_by_topic(name) if call.sees(each.topic)]
        longest = max((each.time for each in lags if each.time is not None), default=None)
        rows.append(
            GroupRow(
                name,
                listing.state.value,
                listing.type.value,
                listing.coordinator.id,
                len(lags),
                sum(call.sees(each.topic) for each in seen.committed.get(name, {})),
                sum(each.records for each in lags) if lags else None,
                None if longest is None else round(longest.seconds, 1),
                longest is not None and longest.at_least,
                committed.get(name, 0.0),
            )
        )
    return rows


@reads("/clusters/{cluster}/groups/{group}", "One group: members, assignments, lag by partition.", Nothing)
async def group(call: Call, asked: Nothing) -> GroupDetail:
    """Asked of the cluster; where nobody saw a record being written its time is read from it."""
    name = call.path["group"]
    watched = call.cluster
    await watched.seen()
    found = (await watched.admin.describe_group_lag([name]))[name]
    described = found.group
    described.raise_for_error()
    rows: list[GroupPartition] = []
    read = 0
    for each in found.partitions:
        if not call.sees(each.partition.topic):
            continue
        seconds, at_least = None, False
        if each.lag == 0:
            seconds = 0.0
        elif each.committed is not None and each.lag:
            lag_time = watched.lag_time(each.partition, each.committed)
            if (lag_time is None or lag_time.at_least) and read < _TIMES_READ:
                read += 1
                seconds = await _read_age_s(call, each.partition, each.committed)
            if seconds is None and lag_time is not None:
                seconds, at_least = lag_time.seconds, lag_time.at_least
        rows.append(
            GroupPartition(
                each.partition.topic,
                each.partition.partition,
                each.committed,
                each.end_offset,
                each.lag,
                None if seconds is None else round(seconds, 1),
                at_least,
                each.member.client_id if each.member else None,
                None if each.problem is None else sentence(each.problem),
            )
        )
    if not rows and not call.person.sees_all_topics(watched.name):
        raise forbidden(f"{call.person.name} has no access to any topic of group {name}")
    return GroupDetail(
        name,
        described.state.value,
        described.type.value,
        described.protocol_type,
        described.assignor,
        None if described.coordinator is None else described.coordinator.id,
        described.epoch,
        sum(max(each.lag or 0, 0) for each in rows),
        [_member(call, each) for each in described.members],
        rows,
        [each for each in await watched.rebalances(name) if all(map(call.sees, topics_of(each)))],
    )


@reads(
    "/clusters/{cluster}/groups/{group}/lag", "Lag over time by topic, in messages and seconds.", HistoryQuery
)
async def group_lag(call: Call, asked: HistoryQuery) -> dict[str, list[Point]]:
    """From the history."""
    found = await call.cluster.history.lag(call.cluster.name, call.path["group"], since_s(asked.minutes))
    return {topic: points for topic, points in found.items() if call.sees(topic)}


@reads(
    "/clusters/{cluster}/groups/{group}/lag/partitions",
    "Lag over time by partition of a topic, in messages and seconds.",
    PartitionLagQuery,
)
async def group_partition_lag(call: Call, asked: PartitionLagQuery) -> PartitionLagPage:
    """From the history, which has partitions while they are behind."""
    call.require(Role.VIEWER, asked.topic)
    found = await call.cluster.history.partition_lag(
        call.cluster.name, call.path["group"], asked.topic, since_s(asked.minutes)
    )
    if asked.partition is not None:
        found = {each: points for each, points in found.items() if each == asked.partition}
    order = sorted(found, key=lambda each: (-max(point.records for point in found[each]), each))
    shown = order[: max(1, min(asked.limit, _MOST_SERIES))]
    return PartitionLagPage(
        [
            PartitionLagSeries(
                each, [Point(point.at_s, (point.records, point.seconds)) for point in found[each]]
            )
            for each in shown
        ],
        len(order) - len(shown),
    )


@changes(
    "POST",
    "/clusters/{cluster}/groups/{group}/reset",
    "Reset committed offsets; a dry run returns the plan.",
    ResetRequest,
    action="reset offsets",
    role=Role.VIEWER,
)
async def reset(call: Call, asked: ResetRequest) -> ResetAnswer:
    """Needs the role operator on each topic; the group must have no members.

    A plan that is sent back is carried out as it is, or, where offsets have moved since, not at all.
    """
    name = call.path["group"]
    call.details |= {"to": asked.to, "number": asked.number, "topic": asked.topic, "dry_run": asked.dry_run}
    needed = Role.VIEWER if asked.dry_run else Role.OPERATOR
    target = _target(asked)
    names_topics = asked.plan is not None or asked.topic is not None
    seen = await call.cluster.seen()
    # One that is not there yet may be prepared where the cluster lets it be, for topics that are named.
    if not sees_group(call, seen, name) and (name in seen.groups or not names_topics):
        raise forbidden(f"{call.person.name} has no access to any topic of group {name}")
    if asked.plan is not None:
        for topic in sorted({each.topic for each in asked.plan}):
            call.require(needed, topic)
        call.details["plan"] = {str(_place(each)): each.new for each in asked.plan}
    elif asked.topic is not None:
        call.require(needed, asked.topic)
    else:
        # Before a plan is made, for what is wrong with a topic is said with its name.
        committed = (await call.cluster.admin.list_group_offsets([name]))[name]
        committed.raise_for_error()
        _require_sight(call, {each.topic for each in committed.offsets})
    described = (await call.cluster.admin.describe_groups([name]))[name]
    described.raise_for_error()
    if described.is_active:
        raise Refusal(
            f"group {name} is {described.state.value} with {len(described.members)} members: stop its "
            "consumers, wait until its state is Empty, and try again",
            409,
            "GROUP_ACTIVE",
        )
    plan = await call.cluster.admin.plan_offset_reset(name, await _partitions(call, asked), target)
    topics = {each.partition.topic for each in plan.offsets}
    _require_sight(call, topics)
    for topic in sorted(topics):
        call.require(needed, topic)
    if not plan.offsets:
        raise Refusal("the group has no committed offsets to reset: specify a topic")
    _require_as_shown(asked.plan or (), plan)
    if not asked.dry_run:
        new = {each.partition: each.new for each in plan.offsets}
        raise_errors(await call.cluster.admin.alter_group_offsets(name, new))
        await call.cluster.look_again()
    return ResetAnswer(
        asked.dry_run,
        [
            PlannedReset(
                each.partition.topic, each.partition.partition, each.current, each.new, each.adjustment.value
            )
            for each in plan.offsets
        ],
    )


@changes(
    "DELETE",
    "/clusters/{cluster}/groups/{group}",
    "Delete a group and its offsets.",
    TypedName,
    action="delete group",
    role=Role.ADMIN,
)
async def delete_group(call: Call, asked: TypedName) -> Done:
    """It must have no members; the name has to be typed again."""
    name = call.path["group"]
    require_typed(asked.name, name, "the group's whole name", "to delete it")
    (result,) = await call.cluster.admin.delete_groups([name])
    result.raise_for_error()
    await call.cluster.look_again()
    return Done()


async def _read_age_s(call: Call, partition: TopicPartition, offset: int) -> float | None:
    """How long ago the record at an offset was written, by its own time."""
    time_ms = await call.cluster.record_time_ms(partition, offset)
    return None if time_ms is None else max(time.time() - time_ms / 1000, 0.0)


async def _partitions(call: Call, asked: ResetRequest) -> list[TopicPartition] | None:
    if asked.topic is None:
        return None
    if asked.partitions:
        return [TopicPartition(asked.topic, each) for each in asked.partitions]
    described = await described_topic(call, asked.topic)
    return [TopicPartition(asked.topic, each.partition) for each in described.partitions]


def _require_sight(call: Call, topics: Iterable[str]) -> None:
    """Raise a refusal where a group reads topics that the person may not see, without their names."""
    if not all(map(call.sees, topics)):
        name, person = call.path["group"], call.person.name
        raise forbidden(f"group {name} also reads topics that {person} has no access to: specify one topic")


def _require_as_shown(shown: Iterable[PlannedReset], plan: ResetPlan) -> None:
    """Raise a refusal where a plan that was shown is not what would happen now."""
    planned = {each.partition: each for each in plan.offsets}
    for each in shown:
        found = planned[_place(each)]
        if found.current != each.current:
            now, then = _committed(found.current), _committed(each.current)
            raise _outdated(
                f"{found.partition} is at {now} now and was at {then} in the plan; the plan may "
                "already have been applied"
            )
        if found.new != each.new:
            raise _outdated(f"offset {each.new} of {found.partition} is no longer in the log")


def _outdated(text: str) -> Refusal:
    return Refusal(f"{text}: check the group, and create a new plan", 409, "PLAN_OUTDATED")


def _committed(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"


def _place(planned: PlannedReset) -> TopicPartition:
    return TopicPartition(planned.topic, planned.partition)


def _target(asked: ResetRequest) -> ResetTarget:
    if (asked.to is None) == (asked.plan is None):
        raise Refusal("specify either to or plan, not both")
    if asked.to == "shift" and not asked.dry_run:
        raise Refusal(
            "a shift requires a plan, so that a retry does not shift the offsets twice: send the "
            "offsets of a dry run as plan",
            400,
            "PLAN_NEEDED",
        )
    match asked.to:
        case None:
            offsets = {_place(each): each.new for each in asked.plan or ()}
            if not offsets or len(offsets) < len(asked.plan or ()):
                raise Refusal("a plan needs at least one partition, and each partition only once")
            return ToOffsets(offsets)
        case "earliest":
            return ToPlace(OffsetSpec.EARLIEST)
        case "latest":
            return ToPlace(OffsetSpec.LATEST)
        case "offset":
            return ToOffset(asked.number)
        case "time":
            return ToTime(asked.number)
        case "shift":
            return ShiftBy(asked.number)


def _member(call: Call, member: MemberDescription) -> MemberRow:
    return MemberRow(
        member.member_id,
        member.client_id,
        member.host,
        member.instance_id,
        [each for each in member.topics or () if call.sees(each)],
        [str(each) for each in member.assignment or () if call.sees(each.topic)],
    )


ENDPOINTS = (groups, group, group_lag, group_partition_lag, reset, delete_group)
