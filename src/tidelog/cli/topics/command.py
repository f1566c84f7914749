"""``tidelog topics``: create, list, describe, alter and delete topics, and delete their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from tidelog.cli.asking import confirm
from tidelog.cli.connect import parse_assignments, with_cluster
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.output import Changes, counted, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, Yes, grouped
from tidelog.cli.suggest import with_suggestion
from tidelog.cli.topics import delete_records
from tidelog.cli.topics.description import describe_topics, print_description
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicResult,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import uuid_to_text

app = typer.Typer()

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topic names.", show_default=False)]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic config; may be repeated."),
]


@app.command(
    epilog=examples(
        "tidelog topics create orders --partitions 6 -c retention.ms=86400000 -c cleanup.policy=compact"
    )
)
@grouped
def create(
    topics: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            max=2**31 - 1,
            help="The number of partitions; default: the broker's num.partitions.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            help="The replication factor; default: default.replication.factor.",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Ignore topics that already exist.")
    ] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Create topics."""
    configs = dict(parse_assignments(config, "--config"))
    wanted = [NewTopic(name, partitions or -1, replication_factor or -1, configs=configs) for name in topics]
    created, failed = with_cluster(connection, lambda cluster: _create(cluster, wanted, configs))
    if json:
        print_json(
            [
                {
                    "name": result.name,
                    "topic_id": result.topic_id and uuid_to_text(result.topic_id),
                    "partitions": result.partitions,
                    "replication_factor": result.replication_factor,
                }
                for result in created
            ]
        )
    else:
        for result in created:
            known = result.partitions > 0
            detail = f" with {counted(result.partitions, 'partition')}" if known else ""
            print(f"created topic {result.name}{detail}")
    if if_not_exists:
        failed = [error for error in failed if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS]
    report_failures(failed)


async def _create(
    cluster: Cluster, wanted: list[NewTopic], configs: Mapping[str, str]
) -> tuple[list[TopicResult], list[KafkaError]]:
    admin = AsyncAdmin.of(cluster)
    results = await admin.create_topics(wanted)
    errors = [await with_suggestion(admin, result.error, None, configs) for result in results if result.error]
    return [result for result in results if result.error is None], errors


@app.command("list", epilog=examples("tidelog topics list --json"))
@grouped
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List topics."""
    topics = with_cluster(
        connection, lambda cluster: AsyncAdmin.of(cluster).list_topics(include_internal=internal)
    )
    if json:
        print_json(
            [
                {
                    "name": topic.name,
                    "topic_id": uuid_to_text(topic.topic_id),
                    "internal": topic.is_internal,
                    "partitions": len(topic.partitions),
                    "replication_factor": topic.replication_factor,
                }
                for topic in topics
            ]
        )
    elif not topics and is_terminal():
        remark("there are no topics yet: create one with `tidelog topics create NAME`")
    else:
        print_table(
            ("topic", "partitions", "replicas"),
            [(topic.name, len(topic.partitions), topic.replication_factor) for topic in topics],
            right=("partitions", "replicas"),
        )


@app.command(epilog=examples("tidelog topics describe orders"))
@grouped
def describe(
    topics: Names,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Describe topics: partitions, leaders, replicas, offsets and configs that differ from the defaults."""
    described, errors = with_cluster(connection, lambda cluster: describe_topics(cluster, topics))
    if json:
        print_json(described)
    else:
        for each in described:
            print_description(each)
    report_failures(errors)


@app.command(epilog=examples("tidelog topics alter orders --partitions 12 -c retention.ms=3600000"))
@grouped
def alter(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic name.", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", min=1, max=2**31 - 1, help="The new number of partitions; it can only increase."
        ),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="NAME", help="Reset a config to its default; may be repeated."
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Add partitions to a topic, or change its configs."""
    ops = [AlterConfigOp(name, value) for name, value in parse_assignments(config, "--config")]
    ops += [AlterConfigOp(name, None, AlterConfigOpType.DELETE) for name in delete_config or []]
    if partitions is None and not ops:
        raise WrongUsage("nothing to alter: specify --partitions, --config or --delete-config")

    async def action(cluster: Cluster) -> None:
        admin = AsyncAdmin.of(cluster)
        if ops:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            for change in await admin.alter_configs({resource: ops}):
                if change.error is not None:
                    raise await with_suggestion(admin, change.error, resource, [op.name for op in ops])
            done.add(
                f"changed {counted(len(ops), 'config')} of topic {topic}",
                topic=topic,
                configs={op.name: op.value for op in ops},
            )
        if partitions is not None:
            for result in await admin.create_partitions({topic: partitions}):
                result.raise_for_error()
            done.add(
                f"topic {topic} now has {counted(partitions, 'partition')}",
                topic=topic,
                partitions=partitions,
            )

    with Changes(json=json) as done:
        with_cluster(connection, action)


@app.command(epilog=examples("tidelog topics delete orders payments --yes"))
@grouped
def delete(
    topics: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")] = False,
    yes: Yes = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Delete topics with everything in them. Asks first on a terminal."""
    if not yes and is_terminal():
        question = f"Delete {', '.join(topics)} and all their records?"
        confirm(question)
    results = with_cluster(connection, lambda cluster: AsyncAdmin.of(cluster).delete_topics(topics))
    with Changes(json=json) as done:
        for result in results:
            if result.error is None:
                done.add(f"deleted topic {result.name}", topic=result.name)
    failed = [result.error for result in results if result.error is not None]
    if if_exists:
        failed = [error for error in failed if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    report_failures(failed)


app.command("delete-records", epilog=delete_records.EPILOG, no_args_is_help=True)(delete_records.command)
