"""``tidelog log-dirs``: what is in the log directories of brokers, and moving replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import report_failures
from tidelog.cli.groups.topics import check_exist, resolve_partitions
from tidelog.cli.log_dirs import move
from tidelog.cli.output import bytes_text, examples, is_terminal, print_json, print_table
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import BrokerLogDirs, LogDirDescription, ReplicaInfo
from tidelog.errors import KafkaError

app = typer.Typer()

_DIRECTORIES = ("broker", "directory", "replicas", "size", "free", "total", "state")
_REPLICAS = ("broker", "directory", "topic", "partition", "size", "lag", "moving here")

app.command("move", epilog=move.EPILOG, no_args_is_help=True)(move.command)


@app.command(
    epilog=examples(
        "tidelog log-dirs describe",
        "tidelog log-dirs describe --broker 1 --topic orders",
        "tidelog log-dirs describe --replicas --json",
    )
)
@grouped
def describe(
    broker: Annotated[
        list[int] | None, typer.Option("--broker", "-B", metavar="ID", help="A broker; may be repeated.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Count only this topic; may be repeated."),
    ] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="List the replicas, largest first.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show the log directories of brokers: how much is in them, and what is left of their disks."""

    async def action(cluster: Cluster) -> dict[int, BrokerLogDirs]:
        admin = AsyncAdmin.of(cluster)
        partitions = await resolve_partitions(admin, topic, "--topic") if topic else None
        await check_exist(admin, partitions or ())
        return await admin.describe_log_dirs(broker or None, partitions=partitions)

    described = list(with_cluster(connection, action).values())
    if json:
        print_json([_broker_json(each) for each in described if each.error is None])
    elif replicas:
        print_table(_REPLICAS, _replica_rows(described), right=("broker", "partition", "size", "lag"))
    else:
        print_table(
            _DIRECTORIES,
            _directory_rows(described),
            right=("broker", "replicas", "size", "free", "total"),
            optional=("total", "replicas"),
        )
    report_failures(list(_errors(described)))


def _directories(described: Iterable[BrokerLogDirs]) -> Iterator[tuple[int, LogDirDescription]]:
    return ((each.broker_id, directory) for each in described for directory in each.log_dirs)


def _directory_rows(described: Iterable[BrokerLogDirs]) -> list[Sequence[object]]:
    return [
        (
            broker_id,
            directory.path,
            None if directory.error else len(directory.replicas),
            None if directory.error else _bytes(sum(each.size_bytes for each in directory.replicas)),
            _bytes(directory.usable_bytes),
            _bytes(directory.total_bytes),
            "OFFLINE" if directory.error else "online",
        )
        for broker_id, directory in _directories(described)
    ]


def _replica_rows(described: Iterable[BrokerLogDirs]) -> list[Sequence[object]]:
    found = [
        (each, broker_id, directory.path)
        for broker_id, directory in _directories(described)
        for each in directory.replicas
    ]
    found.sort(key=lambda row: (-row[0].size_bytes, row[0].partition, row[1]))
    return [
        (
            broker_id,
            path,
            each.partition.topic,
            each.partition.partition,
            _bytes(each.size_bytes),
            each.offset_lag,
            each.is_future,
        )
        for each, broker_id, path in found
    ]


def _bytes(size: int | None) -> object:
    """For people in units, for programs as it is."""
    return size if size is None or not is_terminal() else bytes_text(size)


def _broker_json(each: BrokerLogDirs) -> dict[str, object]:
    return {"broker": each.broker_id, "log_dirs": [_directory_json(one) for one in each.log_dirs]}


def _directory_json(directory: LogDirDescription) -> dict[str, object]:
    return {
        "path": directory.path,
        "online": directory.error is None,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "replicas": [_replica_json(each) for each in directory.replicas],
    }


def _replica_json(each: ReplicaInfo) -> dict[str, object]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "size_bytes": each.size_bytes,
        "offset_lag": each.offset_lag,
        "future": each.is_future,
    }


def _errors(described: Iterable[BrokerLogDirs]) -> Iterator[KafkaError]:
    for each in described:
        if each.error is not None:
            yield each.error
        for directory in each.log_dirs:
            if directory.error is not None:
                yield KafkaError(
                    directory.error.code, f"log directory {directory.path} of broker {each.broker_id}"
                )
