"""``tidelog partitions reassign``: move partitions to other brokers, from a file or to a list of brokers.

Nothing happens without ``--execute``; the plan is shown next to the present assignment, which is the file to
go back with. Called by ``cli/partitions/command``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import Failure, WrongUsage, report_failures
from tidelog.cli.output import counted, examples, print_json, remark
from tidelog.cli.partitions.file import (
    assignment_json,
    print_moves,
    print_reassignments,
    read_assignment,
    reassignment_json,
    write_assignment,
)
from tidelog.cli.partitions.throttle import VERIFY, parse_rate, remove_throttle, set_throttle
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, Execute, JsonOutput, grouped
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin._reassignment_plan import Assignment, current_assignment, plan_reassignment
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import PartitionReassignment
from tidelog.client.errors import ClientError
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition

EPILOG = examples(
    "tidelog partitions reassign --topics orders,payments --to 1,2,3,4",
    "tidelog partitions reassign --topics orders --to 1,2,3,4 --backup before.json --execute",
    "tidelog partitions reassign before.json --execute",
    "tidelog partitions reassign --topics orders --to 1,2,3 --replication-factor 3 --execute --no-wait",
    "tidelog partitions reassign plan.json --execute --throttle 50MB",
    "tidelog partitions reassign --verify",
    "tidelog partitions reassign --cancel",
)
_POLL_S = 0.5
_NEWS_S = 20.0


@grouped
def command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A plan in the form of kafka-reassign-partitions (-: stdin).",
            show_default=False,
        ),
    ] = None,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="TOPIC[,…]", help="The topics to reassign.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="ID[,…]", help="The target broker ids.")] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="The new replication factor; with --topics."),
    ] = None,
    execute: Execute = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan without changing anything; the default.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel reassignments in progress: of FILE, of --topics, or all.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Show what is still moving: of FILE, of --topics, or all; if nothing, remove the throttle.",
        ),
    ] = False,
    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle",
            metavar="BYTES",
            help="Limit the copy rate of each broker, such as 50MB per second, until the moves finish.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the reassignment completes.")
    ] = True,
    backup: Annotated[
        Path | None,
        typer.Option(
            "--backup", metavar="FILE", help="Write the current assignment to this file, for a rollback."
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the plan to this file.")
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Move partitions to other brokers. Shows a plan; --execute carries it out and waits for its end."""
    if sum((execute, dry_run, cancel, verify)) > 1:
        raise WrongUsage("use only one of --dry-run, --execute, --verify and --cancel")
    rate = None if throttle is None else parse_rate(throttle)
    if rate is not None and not execute:
        raise WrongUsage("--throttle requires --execute")
    if file is not None and (topics is not None or to is not None):
        raise WrongUsage("use either a FILE, or --topics and --to")
    named = None if file is None else read_assignment(file)
    names = _split(topics)
    if cancel:
        report_failures(
            with_cluster(connection, lambda cluster: _cancel(AsyncAdmin.of(cluster), named, names, json=json))
        )
        return
    if verify:
        report_failures(
            with_cluster(connection, lambda cluster: _verify(AsyncAdmin.of(cluster), named, names, json=json))
        )
        return
    if named is None and (not names or to is None):
        raise WrongUsage("specify a FILE, or --topics TOPIC[,…] with --to ID[,…]")
    if named is not None and replication_factor is not None:
        raise WrongUsage("--replication-factor requires --topics; in a FILE, list the replicas")
    brokers = _broker_ids(to)

    async def action(cluster: Cluster) -> list[TidelogError]:
        admin = AsyncAdmin.of(cluster)
        if named is not None:
            current, planned = await current_assignment(admin, {each.topic for each in named}), dict(named)
            _require_partitions(current, planned)
        else:
            current = await current_assignment(admin, names)
            racks = await _racks(admin, brokers)
            try:
                planned = plan_reassignment(current, racks, replication_factor)
            except ClientError as error:
                raise WrongUsage(f"--to, --replication-factor: {error}") from None
        before = {partition: current[partition] for partition in planned}
        _show(before, planned, json=json, backup=backup, export=export)
        changed = {each: replicas for each, replicas in planned.items() if replicas != before[each]}
        if not changed:
            remark("every partition is already in place")
        elif not execute:
            remark("nothing was changed: add --execute to apply")
        else:
            return await _execute(admin, before, changed, rate, wait=wait, kept=backup is not None)
        return []

    report_failures(with_cluster(connection, action))


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _broker_ids(text: str | None) -> list[int]:
    parts = _split(text)
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise WrongUsage(f"invalid --to {text!r}: write broker ids as 1,2,3")
    return list(dict.fromkeys(map(int, parts)))


def _require_partitions(current: Assignment, planned: Assignment) -> None:
    for partition in sorted(planned):
        if partition not in current:
            raise Failure(
                f"{partition} does not exist: run `tidelog topics describe {partition.topic}` to see "
                "its partitions"
            )


async def _racks(admin: AsyncAdmin, brokers: list[int]) -> dict[int, str | None]:
    nodes = {node.id: node for node in (await admin.describe_cluster()).nodes}
    for broker in brokers:
        if broker not in nodes:
            known = ", ".join(map(str, nodes))
            raise Failure(f"--to lists broker {broker}, which does not exist: the brokers are {known}")
    return {broker: nodes[broker].rack for broker in brokers}


def _show(
    current: Assignment, planned: Assignment, *, json: bool, backup: Path | None, export: Path | None
) -> None:
    if backup is not None:
        write_assignment(current, backup)
    if export is not None:
        write_assignment(planned, export)
    if json:
        print_json({"current": assignment_json(current), "planned": assignment_json(planned)})
    else:
        print_moves(current, planned)


async def _execute(
    admin: AsyncAdmin, before: Assignment, changed: Assignment, rate: int | None, *, wait: bool, kept: bool
) -> list[TidelogError]:
    """Move the partitions of ``changed``; returns why some cannot."""
    if not kept:
        way_back = msgspec.json.encode(assignment_json({each: before[each] for each in changed})).decode()
        remark(
            "to roll back, save this to a file and run `tidelog partitions reassign FILE "
            f"--execute`:\n{way_back}"
        )
    try:
        throttled = rate is not None and await set_throttle(admin, before, changed, rate)
    except TidelogError as error:
        # Some topics and brokers may have it, and nothing will move.
        return [error, *await remove_throttle(admin)]
    try:
        results = await admin.alter_partition_reassignments(changed)
    except BaseException:
        if throttled:
            # The moves may have begun all the same, and must not go on without it.
            remark(f"the throttle is still set: {VERIFY}")
        raise
    errors: list[TidelogError] = [result.error for result in results if result.error is not None]
    begun = {result.partition for result in results if result.error is None}
    if begun and not wait:
        remark(
            f"started to move {counted(len(begun), 'partition')}: run `tidelog partitions "
            "list-reassignments` to see progress"
        )
        if throttled:
            remark(f"the throttle is still set: {VERIFY}")
        return errors
    if begun:
        try:
            await _wait(admin, {each: changed[each] for each in begun})
            remark(f"moved {counted(len(begun), 'partition')}")
        except Failure as failure:
            errors.append(failure)
    if throttled:
        errors += await remove_throttle(admin)
    return errors


async def _wait(admin: AsyncAdmin, targets: Assignment) -> None:
    """Show progress until no partition is on its way any more; fails where one is not where it should be."""
    try:
        async for _ in _shown(_remaining(admin, targets), len(targets)):
            pass
        elsewhere = await _elsewhere(admin, targets)
    except BaseException:  # Ctrl-C, or nobody answers any more
        remark(
            "the reassignment continues: `tidelog partitions list-reassignments` shows it, `tidelog "
            "partitions reassign --cancel` cancels it, `--verify` removes the throttle afterwards"
        )
        raise
    for partition, found in elsewhere.items():
        raise Failure(
            f"{partition} is on {_ids(found)} and not on {_ids(targets[partition])}: its reassignment "
            "was cancelled or replaced"
        )


async def _elsewhere(admin: AsyncAdmin, targets: Assignment) -> Assignment:
    """Partitions that are not where they should be, even when brokers had time to hear that they are."""
    deadline = asyncio.get_running_loop().time() + _NEWS_S
    while True:
        found = await current_assignment(admin, {each.topic for each in targets})
        wrong = {each: found.get(each, ()) for each in sorted(targets) if found.get(each) != targets[each]}
        if not wrong or asyncio.get_running_loop().time() > deadline:
            return wrong
        await asyncio.sleep(_POLL_S)


def _ids(replicas: Collection[int]) -> str:
    return ",".join(map(str, replicas)) or "no broker"


async def _remaining(admin: AsyncAdmin, targets: Assignment) -> AsyncIterator[int]:
    """How many partitions are still on their way, until none is."""
    while True:
        remaining = len(await admin.list_partition_reassignments(list(targets)))
        yield remaining
        if not remaining:
            return
        await asyncio.sleep(_POLL_S)


async def _shown(remaining: AsyncIterator[int], total: int) -> AsyncIterator[int]:
    """The same, with a bar on a terminal."""
    if not sys.stderr.isatty():
        async for each in remaining:
            yield each
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("moving"), BarColumn(), MofNCompleteColumn(), TextColumn("partitions"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("moving", total=total)
        async for each in remaining:
            progress.update(task, completed=total - each)
            yield each


async def _under_way(
    admin: AsyncAdmin, named: Mapping[TopicPartition, object] | None, topics: Collection[str]
) -> dict[TopicPartition, PartitionReassignment]:
    """The moves of the partitions that are meant."""
    return {
        partition: move
        for partition, move in (await admin.list_partition_reassignments()).items()
        if (named is None or partition in named) and (not topics or partition.topic in topics)
    }


async def _verify(
    admin: AsyncAdmin, named: Assignment | None, topics: Collection[str], *, json: bool
) -> list[TidelogError]:
    """Say what is still moving, and what is not where a plan wants it; when all is done, remove throttles."""
    moving = await _under_way(admin, named, topics)
    if json:
        print_json([reassignment_json(move) for _, move in sorted(moving.items())])
    elif moving:
        print_reassignments([move for _, move in sorted(moving.items())])
    if moving:
        remark(f"{counted(len(moving), 'partition')} still moving")
        return []
    if named is not None:
        found = await current_assignment(admin, {each.topic for each in named})
        for partition, replicas in sorted(named.items()):
            if found.get(partition) != replicas:
                there = _ids(found.get(partition, ()))
                failure = Failure(
                    f"{partition} is on {there}, not on {_ids(replicas)}, and is not being moved: run "
                    "`tidelog partitions reassign FILE --execute`"
                )
                return [failure, *await remove_throttle(admin)]
    remark("every partition is already in place" if named is not None else "no reassignments are in progress")
    return await remove_throttle(admin)


async def _cancel(
    admin: AsyncAdmin,
    named: Mapping[TopicPartition, object] | None,
    topics: Collection[str],
    *,
    json: bool,
) -> list[TidelogError]:
    """Give up what is under way, and remove the throttle."""
    moving = await _under_way(admin, named, topics)
    results = await admin.alter_partition_reassignments(dict.fromkeys(moving)) if moving else []
    done = [result for result in results if result.error is None]
    errors = [result.error for result in results if result.error is not None]
    # A move may end between our look and our word.
    failed = [error for error in errors if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    if json:
        print_json([{"topic": each.partition.topic, "partition": each.partition.partition} for each in done])
    if done:
        remark(f"cancelled the reassignment of {counted(len(done), 'partition')}")
    elif not failed:
        remark("no reassignments are in progress")
    return [*failed, *await remove_throttle(admin)]
