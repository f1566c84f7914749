"""``tidelog groups import-zookeeper``: carry offsets of old consumers from ZooKeeper over into a group."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import Failure, report_failures
from tidelog.cli.groups.reset import require_inactive
from tidelog.cli.output import counted, examples, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.group_resources import PartitionResult
from tidelog.client.resources import OffsetSpec
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client._old_offsets import OldGroup

EPILOG = examples(
    "tidelog groups import-zookeeper --zookeeper zk1:2181/kafka --group billing --dry-run",
    "tidelog groups import-zookeeper --zookeeper zk1:2181/kafka --group billing",
)


class Note(enum.StrEnum):
    """What is to be said of an offset."""

    NONE = ""
    GONE = "skipped: no such partition"
    COMMITTED = "skipped: already committed"
    BEYOND_THE_END = "beyond the end of the log"


@dataclass(frozen=True)
class OldOffset:
    """One offset on its way; ``committed`` is what the group has committed in the cluster."""

    partition: TopicPartition
    offset: int
    committed: int | None
    note: Note

    @property
    def is_wanted(self) -> bool:
        return self.note in (Note.NONE, Note.BEYOND_THE_END)


def plan_import(
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int | None],
    committed: Mapping[TopicPartition, int],
    *,
    overwrite: bool,
) -> list[OldOffset]:
    """What becomes of each offset; ``ends`` has the partitions that exist (None: the end is not known)."""
    plan = []
    for partition, offset in sorted(offsets.items()):
        end = ends.get(partition)
        if partition not in ends:
            note = Note.GONE
        elif partition in committed and not overwrite:
            note = Note.COMMITTED
        elif end is not None and offset > end:
            note = Note.BEYOND_THE_END
        else:
            note = Note.NONE
        plan.append(OldOffset(partition, offset, committed.get(partition), note))
    return plan


@grouped
def command(
    zookeeper: Annotated[
        str,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[,…][/CHROOT]",
            help="The ZooKeeper with the old consumers' offsets.",
        ),
    ],
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The group name.")],
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Also overwrite offsets that the group has already committed in the cluster."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Carry offsets under /consumers/GROUP/offsets in ZooKeeper over into a group that nobody is in.

    ZooKeeper is only read. Consumers of the new kind then go on where the old ones stopped.
    """
    # The other commands about groups do without kazoo.
    from tidelog.client._old_offsets import read_old_group

    old = read_old_group(zookeeper, group)
    _require_readable(old)

    async def action(cluster: Cluster) -> tuple[list[OldOffset], list[PartitionResult]]:
        admin = AsyncAdmin.of(cluster)
        await require_inactive(admin, group)
        committed = (await admin.list_group_offsets([group]))[group]
        committed.raise_for_error()
        plan = plan_import(
            old.offsets,
            await _ends(admin, old.offsets),
            {partition: each.offset for partition, each in committed.offsets.items()},
            overwrite=overwrite,
        )
        wanted = {each.partition: each.offset for each in plan if each.is_wanted}
        if dry_run or not wanted:
            return plan, []
        return plan, await admin.alter_group_offsets(group, wanted)

    plan, results = with_cluster(connection, action)
    if json:
        print_json(_plan_json(group, plan))
    else:
        _print_plan(plan)
    _conclude(old, plan, results, dry_run=dry_run)


def _require_readable(old: OldGroup) -> None:
    if old.consumers:
        raise Failure(
            f"group {old.group_id!r} has {counted(len(old.consumers), 'old consumer')} still running "
            f"({', '.join(old.consumers[:3])}): stop them first"
        )
    for path in old.unreadable:
        remark(f"skipped {path}: it contains no offset")
    if not old.offsets:
        raise Failure(f"group {old.group_id!r} has no offsets in ZooKeeper: nothing to import")


async def _ends(admin: AsyncAdmin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """The partitions that exist, with the ends of their logs where a leader tells them."""
    topics = await admin.describe_topics({partition.topic for partition in offsets})
    existing = {
        TopicPartition(topic.name, each.partition) for topic in topics.values() for each in topic.partitions
    }
    wanted = [partition for partition in offsets if partition in existing]
    found = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST)) if wanted else {}
    return {partition: None if each.error else each.offset for partition, each in found.items()}


def _print_plan(plan: list[OldOffset]) -> None:
    rows = [
        (each.partition.topic, each.partition.partition, each.offset, each.committed, each.note.value or None)
        for each in plan
    ]
    columns = ("topic", "partition", "zookeeper", "committed", "note")
    print_table(columns, rows, right=columns[1:4])


def _plan_json(group: str, plan: list[OldOffset]) -> dict[str, object]:
    return {
        "group": group,
        "offsets": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "zookeeper_offset": each.offset,
                "committed_offset": each.committed,
                "wanted": each.is_wanted,
                "note": each.note.value or None,
            }
            for each in plan
        ],
    }


def _conclude(old: OldGroup, plan: list[OldOffset], results: list[PartitionResult], *, dry_run: bool) -> None:
    wanted = sum(each.is_wanted for each in plan)
    done = sum(result.error is None for result in results)
    if dry_run:
        remark(f"nothing was changed: without --dry-run, {counted(wanted, 'offset')} would be imported")
    elif not wanted:
        remark("nothing was changed: every offset was skipped (use --overwrite to replace committed offsets)")
    elif done:
        remark(f"imported {counted(done, 'offset')} into group {old.group_id}")
    report_failures([result.error for result in results if result.error is not None])
