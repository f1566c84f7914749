"""``tidelog groups reset-offsets``: show where a group's offsets would go, and with ``--execute`` move them.

The semantics are those of kafka-consumer-groups --reset-offsets: the group must have no members, offsets are
clamped into the log, nothing happens without ``--execute``. Unlike there, committed partitions of deleted
topics are passed over with ``--all-topics`` instead of failing the whole plan.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import Failure, WrongUsage, report_failures
from tidelog.cli.groups.plan import plan_json, print_plan, read_plan, write_plan
from tidelog.cli.groups.topics import resolve_partitions
from tidelog.cli.output import counted, examples, print_json, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, Execute, JsonOutput, grouped
from tidelog.cli.values import parse_duration_ms, parse_time_ms
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.group_resources import GroupState, PartitionResult
from tidelog.client.admin.offset_reset import (
    ResetPlan,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToOffset,
    ToOffsets,
    ToPlace,
    ToTime,
)
from tidelog.client.resources import OffsetSpec
from tidelog.errors import ErrorCode

EPILOG = examples(
    "tidelog groups reset-offsets billing --topic orders --to-earliest",
    "tidelog groups reset-offsets billing --topic orders:0,3 --shift-by -100 --execute",
    "tidelog groups reset-offsets billing --all-topics --to-datetime 2024-05-01T12:00:00Z --execute",
    "tidelog groups reset-offsets billing --all-topics --to-current --export backup.csv",
    "tidelog groups reset-offsets billing --from-file backup.csv --execute",
)


@grouped
def command(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of a group.", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="The partitions, as TOPIC or TOPIC:0,1; may be repeated.",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions with committed offsets of the group.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the earliest offset.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the latest offset.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="Reset to this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", metavar="TIME", help="Reset to the first record at or after this time."
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", metavar="P1DT2H", help="Reset to the first record newer than this age."
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="Shift by this number of offsets; negative: back."),
    ] = None,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current",
            help="Reset to the committed offset; partitions without one: to the latest offset.",
        ),
    ] = False,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="CSV",
            help="Reset to the offsets in a file, which also lists the partitions.",
        ),
    ] = None,
    execute: Execute = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="CSV", help="Write the plan to a file (-: stdout)."),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Move the committed offsets of a group that nobody is in. Shows a plan; --execute carries it out."""
    target = _only_target(
        {
            "--to-earliest": ToPlace(OffsetSpec.EARLIEST) if to_earliest else None,
            "--to-latest": ToPlace(OffsetSpec.LATEST) if to_latest else None,
            "--to-offset": None if to_offset is None else ToOffset(to_offset),
            "--to-datetime": None
            if to_datetime is None
            else ToTime(parse_time_ms(to_datetime, "--to-datetime")),
            "--by-duration": None if by_duration is None else ToTime(_ago(by_duration)),
            "--shift-by": None if shift_by is None else ShiftBy(shift_by),
            "--to-current": ToCurrent() if to_current else None,
            "--from-file": None if from_file is None else ToOffsets(read_plan(from_file, group)),
        }
    )
    _check_scope(topic, all_topics, isinstance(target, ToOffsets))

    async def action(cluster: Cluster) -> tuple[ResetPlan, bool, list[PartitionResult]]:
        admin = AsyncAdmin.of(cluster)
        exists = await require_inactive(admin, group)
        partitions = await resolve_partitions(admin, topic, "--topic") if topic else None
        plan = await admin.plan_offset_reset(group, partitions, target)
        if export is not None:
            write_plan(plan, export)
        _show(plan, json=json, exported=export)
        if not execute or not plan.offsets:
            return plan, exists, []
        new = {each.partition: each.new for each in plan.offsets}
        return plan, exists, await admin.alter_group_offsets(group, new)

    _conclude(*with_cluster(connection, action))


def _only_target(targets: dict[str, ResetTarget | None]) -> ResetTarget:
    given = {option: target for option, target in targets.items() if target is not None}
    if len(given) > 1:
        raise WrongUsage(f"conflicting targets: use either {' or '.join(given)}")
    for target in given.values():
        return target
    raise WrongUsage(f"specify a target: {', '.join(targets)}")


def _ago(text: str) -> int:
    return round(time.time() * 1000) - parse_duration_ms(text, "--by-duration")


def _check_scope(topics: list[str] | None, all_topics: bool, from_file: bool) -> None:
    if from_file and (topics or all_topics):
        raise WrongUsage("--from-file already lists the partitions: omit --topic and --all-topics")
    if not from_file and bool(topics) is all_topics:
        raise WrongUsage("specify --topic TOPIC[:0,1] (may be repeated) or --all-topics")


async def require_inactive(admin: AsyncAdmin, group: str) -> bool:
    """Whether the group exists; fails if somebody is in it, who would commit over the new offsets."""
    described = (await admin.describe_groups([group]))[group]
    if described.error is not None:
        if described.error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise described.error
    if described.is_active:
        raise Failure(
            f"group {group!r} is {described.state.value} with {counted(len(described.members), 'member')}: "
            f"stop its consumers, wait until `tidelog groups describe {group} --state` says Empty, "
            "and try again"
        )
    return described.state is not GroupState.DEAD


def _show(plan: ResetPlan, *, json: bool, exported: Path | None) -> None:
    if json:
        print_json(plan_json(plan))
    elif exported is None or str(exported) != "-":
        print_plan(plan)


def _conclude(plan: ResetPlan, exists: bool, results: list[PartitionResult]) -> None:
    for partition in plan.gone:
        remark(f"skipped {partition}: it no longer exists")
    if not plan.offsets:
        raise Failure(
            f"group {plan.group_id!r} has no offsets to reset: specify --topic, or run `tidelog "
            "groups list` to see the groups"
        )
    done = [result for result in results if result.error is None]
    if done:
        remark(f"reset {counted(len(done), 'offset')} of group {plan.group_id}")
    elif not results:
        creation = "" if exists else f"; group {plan.group_id!r} does not exist and would be created"
        remark(f"nothing was changed: add --execute to apply{creation}")
    report_failures([result.error for result in results if result.error is not None])
