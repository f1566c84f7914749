"""``tidelog groups``: list, describe and delete groups, show their lag, reset, delete and import offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from tidelog.cli.asking import confirm
from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.groups import import_offsets, reset
from tidelog.cli.groups.members import members_json, print_members
from tidelog.cli.groups.offsets import lag_json, print_lag
from tidelog.cli.groups.state import print_states, state_json
from tidelog.cli.groups.topics import resolve_partitions
from tidelog.cli.output import Changes, counted, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, Yes, grouped
from tidelog.cli.values import parse_choices
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.group_resources import (
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupState,
    GroupType,
    PartitionResult,
)
from tidelog.errors import ErrorCode, KafkaError, TidelogError

app = typer.Typer()

_Names = Callable[[AsyncAdmin], Awaitable[list[str]]]
Internal = Annotated[
    bool,
    typer.Option("--internal", help="Include Tidelog's internal groups, named __tidelog-…."),
]

INTERNAL_PREFIX = "__tidelog-"
"""Exactly-once sinks store their progress in these groups, which have no members (decision 0007)."""

_NO_GROUPS = "there are no groups yet: a consumer with a group.id creates one when it joins or commits"
_LIST_EXAMPLES = ("tidelog groups list --state stable,empty", "tidelog groups list --type consumer --members")
_DESCRIBE_EXAMPLES = (
    "tidelog groups describe billing",
    "tidelog groups describe billing --members --verbose",
    "tidelog groups describe --all --state",
)


@app.command("list", epilog=examples(*_LIST_EXAMPLES))
@grouped
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="STATE[,…]", help="Only groups in these states."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE[,…]",
            help="Only groups of this type: classic, consumer, share or streams.",
        ),
    ] = None,
    members: Annotated[bool, typer.Option("--members", "-m", help="Include the number of members.")] = False,
    internal: Internal = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List the groups of all brokers."""
    states = parse_choices(state, (each for each in GroupState if each is not GroupState.UNKNOWN), "--state")
    types = parse_choices(type_, (each for each in GroupType if each is not GroupType.UNKNOWN), "--type")

    async def action(
        cluster: Cluster,
    ) -> tuple[list[GroupListing], dict[str, GroupDescription], tuple[TidelogError, ...]]:
        admin = AsyncAdmin.of(cluster)
        listed = await admin.list_groups(states=states, types=types)
        groups = _shown(listed.groups, internal)
        names = [group.group_id for group in groups] if members else []
        return groups, await admin.describe_groups(names), listed.errors

    groups, described, errors = with_cluster(connection, action)
    counts = {name: None if each.error else len(each.members) for name, each in described.items()}
    if json:
        print_json([_listing_json(group, counts) for group in groups])
    elif not groups and not errors and is_terminal():
        remark("no groups match these states and types" if states or types else _NO_GROUPS)
    else:
        _print_listings(groups, counts)
    report_failures(errors)


def _shown(groups: tuple[GroupListing, ...], internal: bool) -> list[GroupListing]:
    """The groups that people ask for; on a terminal they are told how many others there are."""
    shown = [group for group in groups if internal or not group.group_id.startswith(INTERNAL_PREFIX)]
    hidden = len(groups) - len(shown)
    if hidden and is_terminal():
        remark(f"{counted(hidden, 'internal group')} not shown; use --internal to show them")
    return shown


def _listing_json(group: GroupListing, counts: dict[str, int | None]) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type,
        "coordinator": group.coordinator.id,
        **({"members": counts.get(group.group_id)} if counts else {}),
    }


def _print_listings(groups: list[GroupListing], counts: dict[str, int | None]) -> None:
    rows = [
        (
            group.group_id,
            group.type,
            group.state,
            group.protocol_type or None,
            *((counts.get(group.group_id),) if counts else ()),
        )
        for group in groups
    ]
    columns = ("group", "type", "state", "protocol", *(("members",) if counts else ()))
    print_table(columns, rows, right=("members",))


@app.command(epilog=examples(*_DESCRIBE_EXAMPLES))
@grouped
def describe(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="The group names.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="All groups.")] = False,
    internal: Internal = False,
    members: Annotated[
        bool, typer.Option("--members", "-m", help="Show members and their assignments.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", "-s", help="Show the state, assignor and coordinator.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Show epochs, target assignments, subscriptions and full member ids."
        ),
    ] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Describe groups: committed offsets and lag, or with an option their members or their state."""
    if bool(groups) is every:
        raise WrongUsage("specify group names, or use --all")
    if members and state:
        raise WrongUsage("use either --members or --state, not both")

    async def names(admin: AsyncAdmin) -> list[str]:
        if groups:
            return list(dict.fromkeys(groups))
        listed = await admin.list_groups(types=(GroupType.CLASSIC, GroupType.CONSUMER))
        for error in listed.errors:
            raise error
        shown = _shown(listed.groups, internal)
        if not listed.groups and is_terminal():
            remark(_NO_GROUPS)
        return [group.group_id for group in shown]

    if members or state:
        described = with_cluster(connection, lambda cluster: _described(AsyncAdmin.of(cluster), names))
        found = [group for group in described if group.error is None]
        if json:
            print_json([members_json(group) if members else state_json(group) for group in found])
        elif members:
            print_members(found, verbose=verbose)
        else:
            print_states(found, verbose=verbose)
        errors = [group.error for group in described if group.error is not None]
    else:
        errors = _describe_lag(connection, names, verbose=verbose, json=json)
    report_failures(errors)


async def _described(admin: AsyncAdmin, names: _Names) -> list[GroupDescription]:
    described = await admin.describe_groups(await names(admin))
    return [_require_living(group) for group in described.values()]


def _describe_lag(connection: Connection, names: _Names, *, verbose: bool, json: bool) -> list[KafkaError]:
    async def action(cluster: Cluster) -> list[GroupLag]:
        admin = AsyncAdmin.of(cluster)
        return list((await admin.describe_group_lag(await names(admin))).values())

    lags = [
        GroupLag(_require_living(each.group), each.partitions) for each in with_cluster(connection, action)
    ]
    found = [each for each in lags if each.group.error is None]
    if json:
        print_json([lag_json(each) for each in found])
    else:
        print_lag(found, verbose=verbose)
    return [each.group.error for each in lags if each.group.error is not None]


def _require_living(group: GroupDescription) -> GroupDescription:
    """``group``, with an error where the broker calls a group dead that is not there."""
    if group.error is None and group.state is GroupState.DEAD:
        missing = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} does not exist")
        return GroupDescription(group.group_id, error=missing)
    return group


app.command("reset-offsets", epilog=reset.EPILOG, no_args_is_help=True)(reset.command)
app.command("import-zookeeper", epilog=import_offsets.EPILOG, no_args_is_help=True)(import_offsets.command)


@app.command(epilog=examples("tidelog groups delete billing reports --yes"))
@grouped
def delete(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP", help="The group names.", show_default=False)
    ],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore groups that do not exist.")] = False,
    yes: Yes = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Delete groups that nobody is in, with their committed offsets. Asks first on a terminal."""
    if not yes and is_terminal():
        question = f"Delete {', '.join(groups)} and all committed offsets?"
        confirm(question)
    results = with_cluster(connection, lambda cluster: AsyncAdmin.of(cluster).delete_groups(groups))
    with Changes(json=json) as done:
        for result in results:
            if result.error is None:
                done.add(f"deleted group {result.group_id}", group=result.group_id)
    failed = [result.error for result in results if result.error is not None]
    if if_exists:
        failed = [error for error in failed if error.code is not ErrorCode.GROUP_ID_NOT_FOUND]
    report_failures(failed)


@app.command(
    "delete-offsets", epilog=examples("tidelog groups delete-offsets billing --topic orders:0,1 --yes")
)
@grouped
def delete_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group name.", show_default=False)],
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="The offsets to delete; may be repeated."),
    ],
    yes: Yes = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Forget what a group has committed for topics that it no longer reads. Asks first on a terminal."""
    if not yes and is_terminal():
        question = f"Delete the offsets of {group} for {', '.join(topic)}?"
        confirm(question)

    async def action(cluster: Cluster) -> list[PartitionResult]:
        admin = AsyncAdmin.of(cluster)
        return await admin.delete_group_offsets(group, await resolve_partitions(admin, topic, "--topic"))

    results = with_cluster(connection, action)
    deleted = [result.partition for result in results if result.error is None]
    if json:
        print_json([{"group": group, "topic": each.topic, "partition": each.partition} for each in deleted])
    elif deleted:
        print(f"deleted the committed offsets of group {group} for {counted(len(deleted), 'partition')}")
    report_failures([result.error for result in results if result.error is not None])
