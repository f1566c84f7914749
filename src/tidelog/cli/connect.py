"""How commands reach a cluster: the options of their clients, and one event loop per command.

``produce`` and ``consume`` run a client of their own, with options in Kafka's names (:func:`client_options`);
the others need a :class:`Cluster` only. Options that all commands share, such as TLS and a login, come from
the file of ``--command-config``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tidelog.cli.failure import WrongUsage
from tidelog.cli.shared_options import DEFAULT_BOOTSTRAP, Connection

if TYPE_CHECKING:
    from tidelog.client._network.cluster import Cluster
    from tidelog.client.admin.async_admin import AsyncAdmin

T = TypeVar("T")

API_TIMEOUT_MS = 30_000


def with_cluster(
    connection: Connection,
    action: Callable[[Cluster], Awaitable[T]],
    *,
    api_timeout_ms: int = API_TIMEOUT_MS,
) -> T:
    """Connect, run ``action``, disconnect."""
    from tidelog.client._network.cluster import Cluster
    from tidelog.client._network.from_options import network_settings
    from tidelog.client.options import ADMIN, ClientConfig

    options = client_options(connection)
    servers = str(options["bootstrap.servers"])
    settings = network_settings(ClientConfig.parse(ADMIN, options))

    async def main() -> T:
        async with Cluster(
            servers, settings, client_id="tidelog-cli", api_timeout_ms=api_timeout_ms
        ) as cluster:
            return await action(cluster)

    return asyncio.run(main())


def with_admin(connection: Connection, action: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """Connect as the properties file says (TLS, a login), run ``action``, disconnect."""
    from tidelog.client.admin.async_admin import AsyncAdmin

    options = client_options(connection)

    async def main() -> T:
        async with AsyncAdmin(options) as admin:
            # What is out of reach is said at once, not when the time for an answer is over.
            await admin.cluster.connect()
            return await action(admin)

    return asyncio.run(main())


def client_options(
    connection: Connection,
    defaults: Mapping[str, object] | None = None,
    properties: Mapping[str, object] | None = None,
    chosen: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """The options of a command's client: what it is called with wins over ``properties``, then the file.

    ``defaults`` are the command's own, which suit a person at a terminal better than Kafka's. The brokers of
    the file count where the command line names none.
    """
    from tidelog.client.options.old_names import current_brokers, overlaid
    from tidelog.properties import read_properties

    bootstrap, file = connection.bootstrap, connection.command_config
    layers: list[Mapping[str, object]] = [
        {"bootstrap.servers": DEFAULT_BOOTSTRAP, "client.id": "tidelog-cli", **(defaults or {})},
        {} if file is None else read_properties(file),
        properties or {},
        {name: value for name, value in (chosen or {}).items() if value is not None},
        {} if bootstrap is None else {"bootstrap.servers": bootstrap},
    ]
    return current_brokers(functools.reduce(overlaid, layers, {}))


def reached_options(
    connection: Connection, defaults: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The options, for a client of which many start in silence: that no broker answers is said at once."""

    async def nothing(_: AsyncAdmin) -> None:
        pass

    with_admin(connection, nothing)
    return client_options(connection, defaults)


def parse_assignments(texts: list[str] | None, option: str) -> list[tuple[str, str]]:
    """``["retention.ms=1000"]`` as pairs; a value may contain ``=``."""
    pairs: list[tuple[str, str]] = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise WrongUsage(f"{option} {text!r} is not of the form NAME=VALUE")
        pairs.append((name.strip(), value))
    return pairs
