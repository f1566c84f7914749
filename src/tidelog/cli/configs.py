"""``tidelog configs``: describe and alter the dynamic configs of topics, brokers, groups and the rest.

What users and clients may use is not among them: those are quotas, with an API of their own.
"""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from tidelog.cli.connect import parse_assignments, with_cluster
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.output import Changes, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, DryRun, JsonOutput, grouped
from tidelog.cli.suggest import unknown_names, with_suggestion
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    ResourceType,
)
from tidelog.errors import KafkaError

app = typer.Typer()

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="A topic; may be repeated.")
]
Brokers = Annotated[
    list[int] | None, typer.Option("--broker", "-B", metavar="ID", help="A broker id; may be repeated.")
]
BrokerDefaults = Annotated[
    bool, typer.Option("--broker-defaults", help="The dynamic cluster-wide defaults of all brokers.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="A group; may be repeated.")
]
BrokerLoggers = Annotated[
    list[int] | None,
    typer.Option("--broker-logger", metavar="ID", help="The loggers of a broker; may be repeated."),
]
ClientMetrics = Annotated[
    list[str] | None,
    typer.Option("--client-metrics", metavar="NAME", help="A client metrics subscription; may be repeated."),
]


class Kind(enum.StrEnum):
    """What can have configs, as people name it."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    BROKER_LOGGER = "broker-logger"
    CLIENT_METRICS = "client-metrics"

    @property
    def resource_type(self) -> ResourceType:
        return ResourceType[self.name]


_DESCRIBE_EXAMPLES = ("tidelog configs describe --topic orders --all", "tidelog configs describe --broker 1")
_LIST_EXAMPLES = ("tidelog configs list", "tidelog configs list --type group --json")
_ALTER_EXAMPLES = (
    "tidelog configs alter --topic orders --set retention.ms=3600000 --delete segment.bytes",
    "tidelog configs alter --topic orders --append cleanup.policy=compact",
    "tidelog configs alter --broker-defaults --set log.cleaner.threads=2",
    "tidelog configs alter --group billing --set consumer.session.timeout.ms=60000",
)


@app.command("list", epilog=examples(*_LIST_EXAMPLES))
@grouped
def list_resources(
    types: Annotated[
        list[Kind] | None, typer.Option("--type", help="Only this type; may be repeated.", show_default="all")
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List what has configs of its own, or can have; of groups those that have. Needs Kafka 4.1."""
    wanted = [each.resource_type for each in types or ()]
    found = with_cluster(connection, lambda cluster: AsyncAdmin.of(cluster).list_config_resources(wanted))
    found.sort(key=lambda each: (each.type, each.name))
    if json:
        print_json([{"type": _type(each), "name": each.name} for each in found])
    elif not found and is_terminal():
        remark("no resources of this type have configs")
    else:
        rows = [(_type(each), each.name or "defaults") for each in found]
        print_table(("type", "name"), rows)


def _type(resource: ConfigResource) -> str:
    return resource.type.name.lower().replace("_", "-")


@app.command(epilog=examples(*_DESCRIBE_EXAMPLES))
@grouped
def describe(
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    group: Groups = None,
    broker_logger: BrokerLoggers = None,
    client_metrics: ClientMetrics = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="CONFIG", help="Only this config; may be repeated."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Include configs that have their default value.")
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Include the documentation of each config.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show configs and where their values come from; by default those that somebody has set."""
    resources = _resources(topic, broker, broker_defaults, group, broker_logger, client_metrics)

    async def action(cluster: Cluster) -> tuple[list[ConfigResult], list[KafkaError]]:
        admin = AsyncAdmin.of(cluster)
        results = await admin.describe_configs(resources, names=name, include_documentation=docs)
        return results, await unknown_names(admin, results, name or ())

    results, unknown = with_cluster(connection, action)
    good = [result for result in results if result.error is None]
    everything = show_all or bool(name)
    if json:
        print_json([_resource_json(result, everything) for result in good])
    else:
        for result in good:
            _print_configs(result, everything, docs)
    report_failures([result.error for result in results if result.error is not None] + unknown)


@app.command(epilog=examples(*_ALTER_EXAMPLES))
@grouped
def alter(
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    group: Groups = None,
    broker_logger: BrokerLoggers = None,
    client_metrics: ClientMetrics = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a config.")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="NAME", help="Reset a config to its default.")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="NAME=VALUE", help="Append to a list config.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="NAME=VALUE", help="Remove from a list config.")
    ] = None,
    dry_run: DryRun = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Change configs; those not named stay as they are. All options may be repeated."""
    resources = _resources(topic, broker, broker_defaults, group, broker_logger, client_metrics)
    ops = [
        AlterConfigOp(name, value, kind)
        for texts, option, kind in (
            (set_, "--set", AlterConfigOpType.SET),
            (append, "--append", AlterConfigOpType.APPEND),
            (subtract, "--subtract", AlterConfigOpType.SUBTRACT),
        )
        for name, value in parse_assignments(texts, option)
    ]
    ops += [AlterConfigOp(name, None, AlterConfigOpType.DELETE) for name in delete or []]
    if not ops:
        raise WrongUsage("nothing to change: specify --set, --delete, --append or --subtract")

    async def action(cluster: Cluster) -> tuple[list[ConfigResult], list[KafkaError]]:
        admin = AsyncAdmin.of(cluster)
        results = await admin.alter_configs(dict.fromkeys(resources, ops), validate_only=dry_run)
        names = [op.name for op in ops]
        errors = [
            await with_suggestion(admin, result.error, result.resource, names)
            for result in results
            if result.error
        ]
        return [result for result in results if result.error is None], errors

    changed, failed = with_cluster(connection, action)
    with Changes(json=json) as done:
        for result in changed:
            done.add(
                f"{'could change' if dry_run else 'changed'} {result.resource}",
                type=_type(result.resource),
                name=result.resource.name,
                changed=not dry_run,
                remark=result.remark,
            )
            if result.remark is not None:
                remark(f"{result.resource}: {result.remark}")
    report_failures(failed)


def _resources(
    topics: list[str] | None,
    brokers: list[int] | None,
    broker_defaults: bool,
    groups: list[str] | None,
    broker_loggers: list[int] | None,
    client_metrics: list[str] | None,
) -> list[ConfigResource]:
    named = (
        (ResourceType.TOPIC, topics),
        (ResourceType.BROKER, brokers),
        (ResourceType.BROKER, [""] if broker_defaults else []),
        (ResourceType.GROUP, groups),
        (ResourceType.BROKER_LOGGER, broker_loggers),
        (ResourceType.CLIENT_METRICS, client_metrics),
    )
    resources = [ConfigResource(kind, str(name)) for kind, names in named for name in names or ()]
    if not resources:
        raise WrongUsage(
            "specify a resource: --topic NAME, --broker ID, --broker-defaults, --group NAME, "
            "--broker-logger ID or --client-metrics NAME"
        )
    return resources


def _shown(result: ConfigResult, everything: bool) -> list[ConfigEntry]:
    return [
        entry for entry in result.entries if everything or entry.source is not ConfigSource.DEFAULT_CONFIG
    ]


def _value(entry: ConfigEntry) -> str | None:
    return "(secret)" if entry.is_sensitive else entry.value


def _source(entry: ConfigEntry) -> str:
    return entry.source.name.removesuffix("_CONFIG").lower().replace("_", " ")


def _resource_json(result: ConfigResult, everything: bool) -> dict[str, object]:
    return {
        "type": _type(result.resource),
        "name": result.resource.name,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source.name,
                "type": entry.type.name,
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
                "synonyms": [
                    {"name": each.name, "value": each.value, "source": each.source.name}
                    for each in entry.synonyms
                ],
                **({"documentation": entry.documentation} if entry.documentation else {}),
            }
            for entry in _shown(result, everything)
        ],
    }


def _print_configs(result: ConfigResult, everything: bool, docs: bool) -> None:
    entries = _shown(result, everything)
    if not entries and is_terminal():
        remark(f"{result.resource}: all configs have their default; use --all to show them")
        return
    columns = ("config", "value", "source", *(("documentation",) if docs else ()))
    rows = [
        (entry.name, _value(entry), _source(entry), *((entry.documentation,) if docs else ()))
        for entry in entries
    ]
    if is_terminal():
        print_table(columns, rows, title=str(result.resource))
    else:
        named = [(result.resource.name or "defaults", *row) for row in rows]
        print_table((_type(result.resource), *columns), named)
