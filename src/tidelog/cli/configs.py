"""``tidelog configs``: describe and alter the dynamic configs of topics and brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.connect import DEFAULT_BOOTSTRAP, Bootstrap, JsonOutput, parse_assignments, with_cluster
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.output import examples, is_terminal, print_json, print_table, remark
from tidelog.cli.suggest import with_suggestion
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.cluster import Cluster
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
    list[int] | None, typer.Option("--broker", "-B", metavar="ID", help="A broker; may be repeated.")
]
BrokerDefaults = Annotated[
    bool, typer.Option("--broker-defaults", help="What all brokers share (dynamic cluster-wide defaults).")
]

_DESCRIBE_EXAMPLES = ("tidelog configs describe --topic orders --all", "tidelog configs describe --broker 1")
_ALTER_EXAMPLES = (
    "tidelog configs alter --topic orders --set retention.ms=3600000 --delete segment.bytes",
    "tidelog configs alter --topic orders --append cleanup.policy=compact",
    "tidelog configs alter --broker-defaults --set log.cleaner.threads=2",
)


@app.command(epilog=examples(*_DESCRIBE_EXAMPLES))
def describe(
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", "-n", metavar="CONFIG", help="Only this config; may be repeated."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Show configs that have their default, too.")
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Show what each config is for.")] = False,
    json: JsonOutput = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show configs and where their values come from; by default those that somebody has set."""
    resources = _resources(topic, broker, broker_defaults)
    results = with_cluster(
        bootstrap,
        lambda cluster: AsyncAdmin.of(cluster).describe_configs(
            resources, names=name, include_documentation=docs
        ),
    )
    good = [result for result in results if result.error is None]
    everything = show_all or bool(name)
    if json:
        print_json([_resource_json(result, everything) for result in good])
    else:
        for result in good:
            _print_configs(result, everything, docs)
    report_failures([result.error for result in results if result.error is not None])


@app.command(epilog=examples(*_ALTER_EXAMPLES))
def alter(
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="Give a config a value.")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", "-d", metavar="NAME", help="Back to the default.")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="NAME=VALUE", help="Add to a list.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="NAME=VALUE", help="Take from a list.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether it could be done.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change configs; those not named stay as they are. All options may be repeated."""
    resources = _resources(topic, broker, broker_defaults)
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
        raise WrongUsage("nothing to change: give --set, --delete, --append or --subtract")

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

    changed, failed = with_cluster(bootstrap, action)
    for result in changed:
        print(f"{'could change' if dry_run else 'changed'} {result.resource}")
    report_failures(failed)


def _resources(
    topics: list[str] | None, brokers: list[int] | None, broker_defaults: bool
) -> list[ConfigResource]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics or []]
    resources += [ConfigResource(ResourceType.BROKER, str(number)) for number in brokers or []]
    if broker_defaults:
        resources.append(ConfigResource(ResourceType.BROKER, ""))
    if not resources:
        raise WrongUsage("say whose configs: --topic NAME, --broker ID or --broker-defaults")
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
        "type": result.resource.type.name.lower(),
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
        remark(f"{result.resource}: everything has its default; --all shows it")
        return
    columns = ("config", "value", "source", *(("what it is for",) if docs else ()))
    rows = [
        (entry.name, _value(entry), _source(entry), *((entry.documentation,) if docs else ()))
        for entry in entries
    ]
    if is_terminal():
        print_table(columns, rows, title=str(result.resource))
    else:
        named = [(result.resource.name or "defaults", *row) for row in rows]
        print_table((result.resource.type.name.lower(), *columns), named)
