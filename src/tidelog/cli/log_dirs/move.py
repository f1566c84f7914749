"""``tidelog log-dirs move``: move the replicas of one broker to another of its log directories.

The broker copies beside its work and swaps the logs at the end; DescribeLogDirs shows the copy as a future
log meanwhile. Called by ``cli/log_dirs/command``.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from tidelog.cli.connect import with_cluster
from tidelog.cli.failure import Failure, report_failures
from tidelog.cli.groups.topics import resolve_partitions
from tidelog.cli.output import counted, examples, print_json, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import BrokerLogDirs
from tidelog.ids import TopicPartition

EPILOG = examples(
    "tidelog log-dirs move orders:0,3 --to /disk2/tidelog",
    "tidelog log-dirs move orders --broker 2 --to /disk2/tidelog --no-wait",
)

_POLL_S = 0.25
_NEWS_S = 20.0


@grouped
def command(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC[:0,1]", help="Topics, or partitions as TOPIC:0,1.", show_default=False),
    ],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The target log directory of the broker.")],
    broker: Annotated[
        int | None,
        typer.Option("--broker", "-B", metavar="ID", help="The broker id; optional with a single broker."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the replicas have moved.")
    ] = True,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Move replicas to another log directory of the same broker. Ctrl-C leaves them moving."""

    async def action(cluster: Cluster) -> None:
        admin = AsyncAdmin.of(cluster)
        broker_id = await _one_broker(admin) if broker is None else broker
        wanted = await resolve_partitions(admin, topics, "TOPIC")
        held = await _checked(admin, broker_id, wanted, to)
        moves = await admin.alter_replica_log_dirs({(broker_id, each): to for each in held})
        begun = [each.partition for each in moves if each.error is None]
        if wait and begun:
            await _wait_moved(admin, broker_id, begun, to)
        if json:
            print_json([_move_json(broker_id, each, to, moved=wait) for each in begun])
        elif begun:
            done = "moved" if wait else "started to move"
            print(f"{done} {counted(len(begun), 'replica')} of broker {broker_id} to {to}")
        report_failures([each.error for each in moves if each.error is not None])

    with_cluster(connection, action)


def _move_json(broker_id: int, replica: TopicPartition, to: str, *, moved: bool) -> dict[str, object]:
    return {
        "broker": broker_id,
        "topic": replica.topic,
        "partition": replica.partition,
        "to": to,
        "moved": moved,
    }


async def _one_broker(admin: AsyncAdmin) -> int:
    nodes = (await admin.describe_cluster()).nodes
    if len(nodes) != 1:
        ids = ", ".join(str(node.id) for node in nodes)
        raise Failure(f"specify --broker, one of {ids}")
    return nodes[0].id


async def _checked(
    admin: AsyncAdmin, broker_id: int, wanted: list[TopicPartition], to: str
) -> list[TopicPartition]:
    """The partitions that the broker holds; a broker would keep the wish for those that it does not."""
    described = await _describe(admin, broker_id, wanted)
    paths = [each.path for each in described.log_dirs]
    if to not in paths:
        raise Failure(f"broker {broker_id} has no log directory {to}, only {', '.join(paths)}")
    held = {replica.partition for each in described.log_dirs for replica in each.replicas}
    missing = [each for each in wanted if each not in held]
    if missing:
        names = ", ".join(map(str, missing))
        raise Failure(
            f"broker {broker_id} has no replica of {names}: run `tidelog topics describe` to see the brokers"
        )
    return wanted


async def _wait_moved(admin: AsyncAdmin, broker_id: int, partitions: list[TopicPartition], to: str) -> None:
    told_at = time.monotonic()
    while True:
        described = await _describe(admin, broker_id, partitions)
        there = {
            replica.partition
            for each in described.log_dirs
            if each.path == to
            for replica in each.replicas
            if not replica.is_future
        }
        left = [each for each in partitions if each not in there]
        if not left:
            return
        offline = next((each.error for each in described.log_dirs if each.path == to and each.error), None)
        if offline is not None:
            raise Failure(f"{to} went offline while {counted(len(left), 'replica')} were moving there")
        if time.monotonic() - told_at >= _NEWS_S:
            told_at = time.monotonic()
            remark(f"{counted(len(left), 'replica')} still moving")
        await asyncio.sleep(_POLL_S)


async def _describe(admin: AsyncAdmin, broker_id: int, partitions: list[TopicPartition]) -> BrokerLogDirs:
    described = (await admin.describe_log_dirs([broker_id], partitions=partitions))[broker_id]
    described.raise_for_error()
    return described
