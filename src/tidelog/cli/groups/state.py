"""``tidelog groups describe --state``, and the headline that all descriptions of a group share."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cli.output import counted, is_terminal, print_table, printable
from tidelog.client.admin.group_resources import GroupDescription, MemberDescription

_COLUMNS = ("group", "type", "state", "assignor", "members", "coordinator")
_NUMBERS = ("members", "epoch", "target epoch")
_SHORT_ID = 8


def headline(group: GroupDescription) -> str:
    """One line that says what a group is and does."""
    members = counted(len(group.members), "member") if group.members else "no members"
    parts = [group.type.value, group.state.value, members]
    if group.assignor:
        parts.append(f"assignor {group.assignor}")
    if group.protocol_type not in ("", "consumer"):
        parts.append(f"protocol {group.protocol_type}")
    return printable(f"{group.group_id}  ({', '.join(parts)})")


def short_member_id(member: MemberDescription) -> str:
    """The part of a member id that tells it from others; ids of classic members begin with the client id."""
    own = member.member_id.removeprefix(f"{member.client_id}-")
    return own if len(own) <= _SHORT_ID + 1 else f"{own[:_SHORT_ID]}…"


def print_states(groups: Sequence[GroupDescription], *, verbose: bool) -> None:
    """One row per group."""
    rows = [
        (
            group.group_id,
            group.type,
            group.state,
            group.assignor or None,
            len(group.members),
            None if group.coordinator is None else f"{group.coordinator} ({group.coordinator.id})",
            *((group.epoch, group.assignment_epoch) if verbose else ()),
        )
        for group in groups
    ]
    if rows or not is_terminal():
        columns = (*_COLUMNS, *(("epoch", "target epoch") if verbose else ()))
        print_table(columns, rows, right=_NUMBERS)


def state_json(group: GroupDescription) -> dict[str, object]:
    """A group without its members, for programs."""
    coordinator = group.coordinator
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type,
        "assignor": group.assignor or None,
        "members": len(group.members),
        "coordinator": coordinator
        and {"id": coordinator.id, "host": coordinator.host, "port": coordinator.port},
        "epoch": group.epoch,
        "target_epoch": group.assignment_epoch,
    }
