"""``tidelog partitions``: move partitions to other brokers, and elect their leaders."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.asking import confirm
from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.groups.topics import resolve_partitions
from tidelog.cli.output import counted, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.partitions import reassign
from tidelog.cli.partitions.file import print_reassignments, reassignment_json
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import ElectionType
from tidelog.client.admin.group_resources import PartitionResult
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition

app = typer.Typer()

_TOPIC = typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Which partitions; may be repeated.")

app.command("reassign", epilog=reassign.EPILOG, no_args_is_help=True)(reassign.command)


@app.command(
    "list-reassignments",
    epilog=examples(
        "tidelog partitions list-reassignments", "tidelog partitions list-reassignments -t orders"
    ),
)
@grouped
def list_reassignments(
    topic: Annotated[list[str] | None, _TOPIC] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List the partitions that are on their way to other brokers."""

    async def action(cluster: Cluster) -> list[dict[str, object]]:
        admin = AsyncAdmin.of(cluster)
        partitions = await resolve_partitions(admin, topic, "--topic") if topic else None
        found = [each for _, each in sorted((await admin.list_partition_reassignments(partitions)).items())]
        if not json and (found or not is_terminal()):
            print_reassignments(found)
        return [reassignment_json(each) for each in found]

    found = with_cluster(connection, action)
    if json:
        print_json(found)
    elif not found and is_terminal():
        remark("no reassignments are in progress")


@app.command(
    epilog=examples(
        "tidelog partitions elect --all-topics",
        "tidelog partitions elect --topic orders:0,3",
        "tidelog partitions elect --topic orders --partition 0 --unclean",
    ),
    no_args_is_help=True,
)
@grouped
def elect(
    topic: Annotated[list[str] | None, _TOPIC] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="A partition of the single --topic; may be repeated."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that need an election.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect an out-of-sync replica if no in-sync replica is left: records are lost.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation of --unclean.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Elect leaders: the preferred replicas, the first ones, again; or with --unclean any that is alive."""
    texts = _texts(topic, partition, all_topics)
    if unclean and not yes and is_terminal():
        question = (
            "An out-of-sync replica lacks records, and the other replicas truncate theirs to match. Continue?"
        )
        confirm(question)
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED

    async def action(cluster: Cluster) -> tuple[list[PartitionResult], dict[TopicPartition, int | None]]:
        admin = AsyncAdmin.of(cluster)
        wanted = await resolve_partitions(admin, texts, "--topic") if texts else None
        results = await admin.elect_leaders(wanted, kind)
        return results, await _leaders(admin, results, kind)

    _conclude(*with_cluster(connection, action), json=json)


def _texts(topics: list[str] | None, partitions: list[int] | None, all_topics: bool) -> list[str]:
    """The partitions as ``TOPIC[:0,1]``; none for all."""
    if bool(topics) is all_topics:
        raise WrongUsage("specify --topic TOPIC[:0,1] (may be repeated) or --all-topics")
    if not partitions:
        return topics or []
    if topics is None or len(topics) != 1 or ":" in topics[0]:
        raise WrongUsage(
            "--partition requires exactly one --topic; for several, use --topic orders:0,1 --topic payments:2"
        )
    return [f"{topics[0]}:{','.join(map(str, partitions))}"]


async def _leaders(
    admin: AsyncAdmin, results: list[PartitionResult], kind: ElectionType
) -> dict[TopicPartition, int | None]:
    """Who leads the partitions now, by the controller: other brokers hear of it a little later."""
    elected = {result.partition for result in results if result.error is None}
    leaders: dict[TopicPartition, int | None] = {}
    names = {result.partition.topic for result in results}
    for topic in (await admin.describe_topics(names, by_controller=True)).values() if names else ():
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition)
            preferred = kind is ElectionType.PREFERRED and partition in elected
            leaders[partition] = each.replicas[0] if preferred else each.leader
    return leaders


def _conclude(
    results: list[PartitionResult], leaders: dict[TopicPartition, int | None], *, json: bool
) -> None:
    results = sorted(results, key=lambda result: result.partition)
    elected = [result for result in results if result.error is None]
    idle = [
        result for result in results if result.error and result.error.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    if json:
        print_json(
            [
                {
                    "topic": result.partition.topic,
                    "partition": result.partition.partition,
                    "elected": result.error is None,
                    "leader": leaders.get(result.partition),
                    "error": result.error.code.name if result.error else None,
                }
                for result in results
            ]
        )
    elif elected:
        rows = [
            (each.partition.topic, each.partition.partition, leaders.get(each.partition)) for each in elected
        ]
        print_table(("topic", "partition", "leader"), rows, right=("partition", "leader"))
    if not results:
        remark("no partition needs an election")
        return
    spared = f"; {counted(len(idle), 'partition')} needed none" if idle else ""
    remark(f"elected leaders for {counted(len(elected), 'partition')}{spared}")
    failed = [result.error for result in results if result.error is not None and result not in idle]
    report_failures(failed)
