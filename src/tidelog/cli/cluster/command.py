"""``tidelog cluster``: start a whole cluster on this machine, and see how any cluster stands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.cluster.layout import ClusterSettings, check_options, check_ports, earlier_brokers
from tidelog.cli.cluster.state import ClusterState, print_state, state_of
from tidelog.cli.connect import parse_assignments, with_cluster
from tidelog.cli.foreground import make_directory
from tidelog.cli.output import examples, print_json, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import ConfigResource, ResourceType

app = typer.Typer()

_MIN_ISR = "min.insync.replicas"


@app.command(
    epilog=examples(
        "tidelog cluster start",
        "tidelog cluster start --brokers 5 --data-dir data/five --port 19092 --zookeeper-port 12181",
        "tidelog cluster start --zookeeper zk1:2181,zk2:2181/tidelog --set log.retention.hours=24",
    )
)
def start(
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=64, help="The number of brokers.")] = 3,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="DIR", help="The data directory; the next start continues with it."
        ),
    ] = Path("data/cluster"),
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=65000,
            help="The port of broker 1; the other brokers use the following ports; 0: any free port.",
        ),
    ] = 9092,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[,…][/CHROOT]",
            help="A running ZooKeeper to use instead of starting one.",
            show_default="starts its own",
        ),
    ] = None,
    zookeeper_port: Annotated[
        int | None,
        typer.Option(
            "--zookeeper-port",
            min=0,
            max=65535,
            help="The port of the ZooKeeper it starts; 0: any free port.",
            show_default="2181 if free, otherwise any",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A broker option for all brokers; may be repeated."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Enable TLS, authentication and ACLs, and show how clients connect."),
    ] = False,
) -> int:
    """Start a whole cluster on this machine: ZooKeeper and brokers, each a process of its own.

    With three brokers or more, topics get three replicas of which two must be in sync. Ctrl-C stops
    everything; the data stay. A broker that dies is reported, and the others go on.

    With --secure clients and brokers speak SASL_SSL and log in, and access rules decide who may do what. The
    first start makes certificates and the first user, admin, under DIR/security.
    """
    given = dict(parse_assignments(options, "--set"))
    check_options(given)
    settings = ClusterSettings(brokers, data_dir, port, zookeeper, zookeeper_port, given, secure)
    check_ports(settings)
    directory = make_directory(data_dir, "--data-dir")
    left_out = [each for each in earlier_brokers(directory) if each > brokers]
    if left_out:
        names = ", ".join(map(str, left_out))
        remark(f"{directory} also has data of broker {names}, which --brokers {brokers} does not start")
    from tidelog.cli.cluster.run import LocalCluster

    return asyncio.run(LocalCluster(replace(settings, directory=directory)).run())


@app.command(epilog=examples("tidelog cluster describe", "tidelog cluster describe --json"))
@grouped
def describe(json: JsonOutput = False, connection: Connection = DEFAULT_CONNECTION) -> None:
    """Show brokers, the controller, who leads how much, and partitions that lack replicas or a leader."""
    state = with_cluster(connection, _state)
    if json:
        print_json(state)
    else:
        print_state(state)


async def _state(cluster: Cluster) -> ClusterState:
    admin = AsyncAdmin.of(cluster)
    topics = await admin.list_topics(include_internal=True)
    described = await admin.describe_cluster()
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
    configs = await admin.describe_configs(resources, names=[_MIN_ISR]) if resources else []
    min_isr = {
        result.resource.name: int(entry.value)
        for result in configs
        for entry in result.entries
        if entry.value is not None
    }
    return state_of(described, topics, min_isr)
