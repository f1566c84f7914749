"""``tidelog topics delete-records``: delete the records of partitions up to an offset or a time.

Offsets are found first and shown; what is deleted is what was shown, whatever is written meanwhile. A file is
in the form of kafka-delete-records:

    {"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}], "version": 1}
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tidelog.cli.asking import confirm
from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import Failure, WrongUsage, report_failures
from tidelog.cli.groups.topics import resolve_partitions
from tidelog.cli.output import counted, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, Yes, grouped
from tidelog.cli.values import parse_duration_ms, parse_time_ms
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import DeletedRecords, OffsetSpec
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.ids import NO_OFFSET, TopicPartition

EPILOG = examples(
    "tidelog topics delete-records orders:0 --before-offset 1000",
    "tidelog topics delete-records orders --before 2024-05-01T12:00:00Z --dry-run",
    "tidelog topics delete-records orders payments --older-than P7D --yes",
    "tidelog topics delete-records --from-file offsets.json",
)

_COLUMNS = ("topic", "partition", "start", "delete before", "end", "records")
_ALL = -1
_VERSION = 1
_FORM = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}], "version": 1}'


class _Entry(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class _File(msgspec.Struct):
    partitions: list[_Entry]
    version: int = _VERSION


@dataclass(frozen=True)
class Target:
    """Up to where: an offset (-1: the end), or a time in ms."""

    offset: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True)
class PlannedDeletion:
    """One partition: what it has, and the offset that shall be its first."""

    partition: TopicPartition
    start: int
    before: int
    end: int

    @property
    def offsets(self) -> int:
        """How many offsets go; compacted topics have fewer records than that."""
        return max(self.before - self.start, 0)


@grouped
def command(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]", help="Topics, or some of their partitions.", show_default=False
        ),
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, help="Delete records before this offset.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="TIME", help="Delete records before this time; ISO format or milliseconds."
        ),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="P7D", help="Delete records older than this.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Delete all current records.")] = False,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", help="A file with offsets, in the format of kafka-delete-records."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted.")] = False,
    yes: Yes = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Delete the oldest records of partitions, up to an offset or a time. Asks first on a terminal."""
    named = None if from_file is None else read_offsets(from_file)
    target = _target(before_offset, before, older_than, everything)
    if (named is None) is (target is None) or (named is None) is not bool(topics):
        raise WrongUsage(
            "specify topics with one of --before-offset, --before, --older-than and --all, or "
            "--from-file alone"
        )

    async def action(cluster: Cluster) -> None:
        admin = AsyncAdmin.of(cluster)
        if named is not None:
            plan = await plan_deletion(admin, named)
        else:
            assert target is not None
            wanted = await resolve_partitions(admin, topics or [], "TOPIC")
            plan = await plan_deletion(admin, dict.fromkeys(wanted, target))
        if not json:
            _print_plan(plan)
        if dry_run:
            _conclude_dry_run(plan, json=json)
            return
        await _carry_out(admin, plan, ask=not yes and is_terminal(), json=json)

    with_cluster(connection, action)


def _target(
    before_offset: int | None, before: str | None, older_than: str | None, everything: bool
) -> Target | None:
    if sum((before_offset is not None, before is not None, older_than is not None, everything)) > 1:
        raise WrongUsage("use only one of --before-offset, --before, --older-than and --all")
    if before_offset is not None:
        return Target(offset=before_offset)
    if before is not None:
        return Target(time_ms=parse_time_ms(before, "--before"))
    if older_than is not None:
        return Target(time_ms=round(time.time() * 1000) - parse_duration_ms(older_than, "--older-than"))
    return Target(offset=_ALL) if everything else None


def read_offsets(path: Path) -> dict[TopicPartition, Target]:
    """The offsets that a file names."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except DECODE_ERRORS as error:
        raise WrongUsage(f"{path} is not a valid list of offsets ({error}): the format is {_FORM}") from None
    if file.version != _VERSION:
        raise WrongUsage(f"{path} has version {file.version}; only version {_VERSION} is supported")
    offsets: dict[TopicPartition, Target] = {}
    for entry in file.partitions:
        partition = TopicPartition(entry.topic, entry.partition)
        if partition in offsets:
            raise WrongUsage(f"{path} lists {partition} twice: remove one of them")
        if entry.offset < _ALL:
            raise WrongUsage(
                f"{path} has offset {entry.offset} for {partition}: use 0 or above, or -1 for the end"
            )
        offsets[partition] = Target(offset=entry.offset)
    if not offsets:
        raise WrongUsage(f"{path} lists no partitions: the format is {_FORM}")
    return offsets


async def plan_deletion(admin: AsyncAdmin, targets: Mapping[TopicPartition, Target]) -> list[PlannedDeletion]:
    """What each partition has, and what of it goes; an offset past the end is refused."""
    times = {each: target.time_ms for each, target in targets.items() if target.time_ms is not None}
    starts, ends, found = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(targets, OffsetSpec.EARLIEST)),
        admin.list_offsets(dict.fromkeys(targets, OffsetSpec.LATEST)),
        admin.list_offsets(times),
    )
    plan: list[PlannedDeletion] = []
    for partition, target in sorted(targets.items()):
        for answer in (starts, ends, found):
            if partition in answer:
                answer[partition].raise_for_error()
        start, end = starts[partition].offset, ends[partition].offset
        before = found[partition].offset if partition in found else target.offset
        if before is None or before == NO_OFFSET:
            # All of it is older than the time, or all was asked for.
            before = end
        if before > end:
            raise Failure(f"{partition} ends at offset {end}: {before} is past it; --all deletes all of it")
        plan.append(PlannedDeletion(partition, start, before, end))
    return plan


async def _carry_out(admin: AsyncAdmin, plan: list[PlannedDeletion], *, ask: bool, json: bool) -> None:
    doomed = [each for each in plan if each.offsets]
    if not doomed:
        if json:
            print_json([])
        remark("nothing to delete: no records before that point")
        return
    question = f"Permanently delete these records of {counted(len(doomed), 'partition')}?"
    if ask:
        confirm(question)
    results = await admin.delete_records({each.partition: each.before for each in doomed})
    done = [result for result in results.values() if result.error is None]
    if json:
        print_json([_as_json(each, results[each.partition]) for each in doomed])
    total = sum(each.offsets for each in doomed if results[each.partition].error is None)
    if done:
        remark(f"deleted {counted(total, 'record')} of {counted(len(done), 'partition')}")
    report_failures([result.error for result in results.values() if result.error is not None])


def _print_plan(plan: list[PlannedDeletion]) -> None:
    rows = [
        (each.partition.topic, each.partition.partition, each.start, each.before, each.end, each.offsets)
        for each in plan
    ]
    print_table(_COLUMNS, rows, right=_COLUMNS[1:])


def _conclude_dry_run(plan: list[PlannedDeletion], *, json: bool) -> None:
    if json:
        print_json([_as_json(each, None) for each in plan])
    remark("nothing was deleted: omit --dry-run to apply")


def _as_json(each: PlannedDeletion, result: DeletedRecords | None) -> dict[str, object]:
    error = None if result is None else result.error
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start_offset": each.start,
        "before_offset": each.before,
        "end_offset": each.end,
        "offsets": each.offsets,
        **({} if result is None else {"low_watermark": result.low_watermark}),
        **({} if error is None else {"error": error.code.name}),
    }
