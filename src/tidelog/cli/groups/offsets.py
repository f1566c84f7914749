"""``tidelog groups describe``: how far groups are behind, partition by partition and in all."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cli.groups.state import headline, short_member_id, state_json
from tidelog.cli.output import counted, is_terminal, print_table, printable
from tidelog.client.admin.group_resources import GroupLag, PartitionLag
from tidelog.errors import ErrorCode

_COLUMNS = ("topic", "partition", "committed", "end", "lag", "client id", "host", "member")
_NUMBERS = ("partition", "committed", "end", "lag", "leader epoch")


def print_lag(groups: Sequence[GroupLag], *, verbose: bool) -> None:
    """A table per group with the total below; in a pipe one table of all."""
    columns = (*_COLUMNS, *(("leader epoch",) if verbose else ()))
    if not is_terminal():
        rows = ((each.group.group_id, *_row(row, verbose)) for each in groups for row in each.partitions)
        print_table(("group", *columns), rows)
        return
    for number, each in enumerate(groups):
        if number:
            print()
        print(headline(each.group))
        if each.partitions:
            shown = [_row(row, verbose, short=True) for row in each.partitions]
            assigned = any(row.member for row in each.partitions)
            unneeded = () if assigned else ("client id", "host", "member")
            print_table(*_without(columns, shown, unneeded), right=_NUMBERS, optional=("member", "host"))
        for sentence in _remarks(each):
            print(printable(sentence))


def _without(
    columns: tuple[str, ...], rows: list[tuple[object, ...]], unneeded: tuple[str, ...]
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    kept = [at for at, name in enumerate(columns) if name not in unneeded]
    return tuple(columns[at] for at in kept), [tuple(row[at] for at in kept) for row in rows]


def _row(row: PartitionLag, verbose: bool, *, short: bool = False) -> tuple[object, ...]:
    member = row.member
    return (
        row.partition.topic,
        row.partition.partition,
        row.committed,
        row.end_offset,
        row.lag,
        member and member.client_id,
        member and member.host,
        member and (short_member_id(member) if short else member.member_id),
        *((row.leader_epoch,) if verbose else ()),
    )


def _remarks(each: GroupLag) -> list[str]:
    if not each.partitions:
        return ["the group has no committed offsets and no assigned partitions"]
    sentences = [f"total lag {each.total} in {counted(len(each.partitions), 'partition')}"]
    uncommitted = [row for row in each.partitions if row.committed is None]
    if uncommitted:
        sentences[0] += f", not counting {len(uncommitted)} without a committed offset"
    gone = {
        row.partition.topic
        for row in each.partitions
        if row.problem is not None and row.problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    sentences += [f"topic {name} no longer exists" for name in sorted(gone)]
    sentences += [
        f"{row.partition}: {row.problem.message}"
        for row in each.partitions
        if row.problem is not None and row.problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    if each.group.state.is_rebalancing:
        sentences.append("the group is rebalancing: assignments may change")
    return sentences


def lag_json(each: GroupLag) -> dict[str, object]:
    """A group with its offsets, for programs."""
    return {
        **state_json(each.group),
        "total_lag": each.total,
        "partitions": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "committed_offset": row.committed,
                "leader_epoch": row.leader_epoch,
                "end_offset": row.end_offset,
                "lag": row.lag,
                "member": row.member and row.member.member_id,
                "client_id": row.member and row.member.client_id,
                "host": row.member and row.member.host,
                "problem": row.problem and row.problem.message,
            }
            for row in each.partitions
        ],
    }
