"""How commands reach a cluster: the options they share, and one event loop per command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from tidelog.cli.failure import WrongUsage
from tidelog.client.cluster import Cluster

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="TIDELOG_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="Brokers to ask first.",
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def with_cluster(
    bootstrap: str, action: Callable[[Cluster], Awaitable[T]], *, api_timeout_ms: int = 30_000
) -> T:
    """Connect, run ``action``, disconnect."""

    async def main() -> T:
        async with Cluster(bootstrap, client_id="tidelog-cli", api_timeout_ms=api_timeout_ms) as cluster:
            return await action(cluster)

    return asyncio.run(main())


def parse_assignments(texts: list[str] | None, option: str) -> list[tuple[str, str]]:
    """``["retention.ms=1000"]`` as pairs; a value may contain ``=``."""
    pairs: list[tuple[str, str]] = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise WrongUsage(f"{option} {text!r} is not of the form NAME=VALUE")
        pairs.append((name.strip(), value))
    return pairs
