"""``tidelog groups describe --members``: who is in a group and what each one reads."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cli.groups.state import headline, short_member_id, state_json
from tidelog.cli.groups.topics import assignment_text
from tidelog.cli.output import is_terminal, print_table, printable, remark
from tidelog.client.admin.group_resources import GroupDescription, MemberDescription

_COLUMNS = ("client id", "member", "host", "instance id", "partitions", "assignment")
_VERBOSE = ("epoch", "target", "subscription", "rack", "protocol")


def print_members(groups: Sequence[GroupDescription], *, verbose: bool) -> None:
    """A table per group, or with ``verbose`` a block per member; in a pipe one table of all."""
    if not is_terminal():
        columns = ("group", *_COLUMNS, *(_VERBOSE if verbose else ()))
        rows = ((group.group_id, *_row(member, verbose)) for group in groups for member in group.members)
        print_table(columns, rows)
        return
    for number, group in enumerate(groups):
        if number:
            print()
        print(headline(group))
        if verbose:
            for member in group.members:
                _print_block(member)
        elif group.members:
            _print_table(group)
        if group.state.is_rebalancing:
            remark("the group is rebalancing: assignments may change")


def _print_table(group: GroupDescription) -> None:
    has_instances = any(member.instance_id for member in group.members)
    columns = tuple(name for name in _COLUMNS if has_instances or name != "instance id")
    rows = (
        tuple(
            cell
            for name, cell in zip(_COLUMNS, _row(member, False, short=True), strict=True)
            if name in columns
        )
        for member in group.members
    )
    print_table(columns, rows, right=("partitions",), optional=("member", "host"))


def _print_block(member: MemberDescription) -> None:
    print(f"\n  {printable(member.member_id)}")
    for name, value in zip((*_COLUMNS, *_VERBOSE), _row(member, True), strict=True):
        if value is not None and name != "member":
            print(f"    {name:<13} {printable(str(value))}")


def _row(member: MemberDescription, verbose: bool, *, short: bool = False) -> tuple[object, ...]:
    row = (
        member.client_id,
        short_member_id(member) if short else member.member_id,
        member.host,
        member.instance_id,
        None if member.assignment is None else len(member.assignment),
        assignment_text(member.assignment),
    )
    if not verbose:
        return row
    protocol = {True: "consumer", False: "classic", None: None}[member.upgraded]
    return (
        *row,
        member.epoch,
        assignment_text(member.target),
        member.topic_regex or ",".join(member.topics or ()) or None,
        member.rack_id,
        protocol,
    )


def members_json(group: GroupDescription) -> dict[str, object]:
    """A group with its members, for programs."""
    return {**state_json(group), "members": [_member_json(member) for member in group.members]}


def _member_json(member: MemberDescription) -> dict[str, object]:
    return {
        "member": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "rack": member.rack_id,
        "topics": member.topics,
        "topic_regex": member.topic_regex,
        "assignment": _partitions_json(member.assignment),
        "target": _partitions_json(member.target),
        "epoch": member.epoch,
        "upgraded": member.upgraded,
    }


def _partitions_json(partitions: Sequence[tuple[str, int]] | None) -> list[dict[str, object]] | None:
    if partitions is None:
        return None
    return [{"topic": topic, "partition": index} for topic, index in partitions]
