"""``tidelog zookeeper start``: a real ZooKeeper for development and tests, from PySpark's jars."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.failure import Failure
from tidelog.cli.foreground import ZOOKEEPER_PORT, StopRequests, done_before, make_directory, require_free
from tidelog.cli.output import complain, examples, remark

if TYPE_CHECKING:
    from tidelog.processes.zookeeper import ZooKeeperEnsemble, ZooKeeperProcess

app = typer.Typer()

_POLL_S = 0.5


@app.callback()
def _group() -> None:
    """A group of one command: typer would make the group itself that command."""


@app.command(
    epilog=examples(
        "tidelog zookeeper start",
        "tidelog zookeeper start --servers 3 --data-dir data/zookeeper",
        "tidelog start --set zookeeper.connect=127.0.0.1:2181 --set broker.id=1",
    )
)
def start(
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=65533,
            help="The client port; further servers use the following ports; 0: any free port.",
        ),
    ] = ZOOKEEPER_PORT,
    servers: Annotated[
        int, typer.Option("--servers", help="The number of servers: 1, or 3 as an ensemble.")
    ] = 1,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="DIR", help="The data directory; the next start continues with it."
        ),
    ] = Path("data/zookeeper"),
) -> int:
    """Run ZooKeeper on this machine until Ctrl-C, for trying clusters out.

    The servers are those that PySpark brings (`pip install 'tidelog[spark]'`) and need Java 17. They listen
    on 127.0.0.1 only. In production, point zookeeper.connect at an ensemble of your own.
    """
    if servers not in (1, 3):
        raise typer.BadParameter(f"got {servers}: use 1 or 3", param_hint="--servers")
    from tidelog.processes.zookeeper import ZooKeeperEnsemble

    if port:
        require_free(range(port, port + servers), "--port")
    directory = make_directory(data_dir, "--data-dir")
    ports = range(port, port + servers) if port else None
    return asyncio.run(_serve(ZooKeeperEnsemble(directory, servers=servers, ports=ports)))


async def _serve(ensemble: ZooKeeperEnsemble) -> int:
    requests = StopRequests()
    try:
        if await done_before(requests.stop, start_ensemble(ensemble)):
            print(f"zookeeper.connect={ensemble.connect}\nready", flush=True)
            remark("Ctrl-C stops it")
            await done_before(requests.stop, _watch(ensemble))
    finally:
        await asyncio.to_thread(ensemble.stop)
    return 0


async def start_ensemble(ensemble: ZooKeeperEnsemble) -> None:
    """Start the servers and wait until they serve; cancelled, it stops them."""
    starting = asyncio.create_task(asyncio.to_thread(ensemble.start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A thread cannot be cancelled; without its servers it gives up by itself.
        await asyncio.to_thread(ensemble.stop)
        await asyncio.gather(starting, return_exceptions=True)
        raise


async def _watch(ensemble: ZooKeeperEnsemble) -> None:
    """Say which server has ended; fails when none is left."""
    async for server in ended_servers(ensemble):
        complain(f"the ZooKeeper server at {server.address} exited; its log is {server.log_file}")
    raise Failure("no ZooKeeper server is running: start it again; its data is kept")


async def ended_servers(ensemble: ZooKeeperEnsemble) -> AsyncIterator[ZooKeeperProcess]:
    """Each server as it ends, until none is left."""
    alive = list(ensemble.servers)
    while alive:
        for server in [each for each in alive if not each.alive]:
            alive.remove(server)
            yield server
        await asyncio.sleep(_POLL_S)
