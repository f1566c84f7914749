"""How commands reach a cluster: the options they share, and one event loop per command.

``produce`` and ``consume`` run a client of their own, whose options people may set in Kafka's names
(:func:`client_options`); the others need a :class:`Cluster` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tidelog.cli.failure import WrongUsage

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
API_TIMEOUT_MS = 30_000

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
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A properties file with options of the client (TLS, SASL, …).",
    ),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def with_cluster(
    bootstrap: str, action: Callable[[Cluster], Awaitable[T]], *, api_timeout_ms: int = API_TIMEOUT_MS
) -> T:
    """Connect, run ``action``, disconnect."""
    from tidelog.client.cluster import Cluster

    async def main() -> T:
        async with Cluster(bootstrap, client_id="tidelog-cli", api_timeout_ms=api_timeout_ms) as cluster:
            return await action(cluster)

    return asyncio.run(main())


def client_options(
    defaults: Mapping[str, object],
    file: Path | None,
    properties: Mapping[str, str],
    chosen: Mapping[str, object],
    bootstrap: str,
) -> dict[str, object]:
    """The options of a command's client: what it is called with wins over ``properties``, then the file.

    ``defaults`` are the command's own, which suit a person at a terminal better than Kafka's. The brokers of
    the file count where the command line names none.
    """
    from tidelog.properties import read_properties

    given: dict[str, object] = {} if file is None else dict(read_properties(file))
    given.update(properties)
    given.update({name: value for name, value in chosen.items() if value is not None})
    if bootstrap != DEFAULT_BOOTSTRAP or "bootstrap.servers" not in given:
        given["bootstrap.servers"] = bootstrap
    return {"client.id": "tidelog-cli", **defaults, **given}


def parse_assignments(texts: list[str] | None, option: str) -> list[tuple[str, str]]:
    """``["retention.ms=1000"]`` as pairs; a value may contain ``=``."""
    pairs: list[tuple[str, str]] = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise WrongUsage(f"{option} {text!r} is not of the form NAME=VALUE")
        pairs.append((name.strip(), value))
    return pairs
