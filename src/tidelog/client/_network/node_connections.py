"""All connections of one client: one per broker address and channel, and the choice between them.

Owns the peers. ``client._network.cluster`` says which brokers there are and asks for one of them, or for any.
Bootstrap servers are asked first of all, and again when no known broker can be reached (KIP-899); their
names are resolved anew each time, and so are the brokers registered in ZooKeeper where that is the bootstrap.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping

from tidelog.client._address import Address, canonical_addresses
from tidelog.client._network.connection import Connection
from tidelog.client._network.node_connection import NodeConnection
from tidelog.client._network.ongoing_errors import ConnectionFailures
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client._network.traffic import Traffic
from tidelog.client.errors import BrokerUnreachableError, ClientClosedError, RequestTimeoutError
from tidelog.client.metadata import Node

MAIN = ""
"""The channel that everything uses that names no other."""


class NodeConnections:
    """The brokers that a client is or could be connected to."""

    def __init__(
        self, bootstrap: list[Address], settings: NetworkSettings, zookeeper: str | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self._settings = settings
        self.failures = ConnectionFailures()
        self._zookeeper = zookeeper
        """Where to find the bootstrap servers; None: they are given."""
        self.traffic: dict[Address, Traffic] = {}
        """What went to and fro, by broker; kept when a connection is not."""
        self._peers: dict[tuple[str, int, str], NodeConnection] = {}
        self._closed = False

    def __iter__(self) -> Iterator[NodeConnection]:
        return iter(list(self._peers.values()))

    def at(self, host: str, port: int, channel: str = MAIN) -> NodeConnection:
        """The peer at an address; made on first use."""
        peer = self._peers.get((host, port, channel))
        if peer is None:
            if self._closed:
                raise ClientClosedError("this client is closed")
            address = Address(host, port)
            traffic = self.traffic.setdefault(address, Traffic())
            peer = self._peers[host, port, channel] = NodeConnection(
                address,
                self._settings,
                traffic,
                self.failures,
                is_advertised=address not in self.bootstrap,
            )
        return peer

    def least_loaded(self, nodes: Mapping[int, Node]) -> Node | None:
        """The broker to ask when any will do: connected and least busy, else connecting, else free to try.

        None where every known broker is in its back-off.
        """
        found: tuple[int, float, Node] | None = None
        for node in _shuffled(nodes.values()):
            peer = self.at(node.host, node.port)
            if peer.connection is not None:
                rank, load = 0, float(peer.in_flight)
            elif peer.is_opening:
                rank, load = 1, 0.0
            elif not peer.delay_ms:
                rank, load = 2, peer.last_attempt_at
            else:
                continue
            if found is None or (rank, load) < found[:2]:
                found = (rank, load, node)
        return None if found is None else found[2]

    async def any(self, nodes: Mapping[int, Node], deadline: Deadline) -> Connection:
        """A connection to whichever broker can be reached."""
        idlest = min(
            (peer.connection for peer in self._peers.values() if peer.connection and not peer.delay_ms),
            key=lambda connection: connection.in_flight,
            default=None,
        )
        if idlest is not None:
            return idlest
        problem: Exception | None = None
        for _ in nodes:
            node = self.least_loaded(nodes)
            if node is None:
                break
            try:
                return await self.at(node.host, node.port).connected(deadline)
            except (BrokerUnreachableError, RequestTimeoutError) as error:
                problem = error
        if nodes and self._settings.metadata_recovery_strategy == "none":
            raise problem or self._all_in_back_off(nodes)
        return await self.bootstrapped(deadline)

    async def bootstrapped(self, deadline: Deadline) -> Connection:
        """A connection to the first bootstrap server that answers."""
        problems: list[Exception] = []
        if self._zookeeper is not None:
            self.bootstrap = await self._registered(self._zookeeper, deadline)
        addresses = self.bootstrap
        if self._settings.client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
            addresses = await canonical_addresses(addresses)
        for address in addresses:
            try:
                return await self.at(*address).connected(deadline)
            except (BrokerUnreachableError, RequestTimeoutError) as error:
                problems.append(error)
        if len(problems) == 1:
            raise problems[0]
        raise BrokerUnreachableError(
            f"none of {len(problems)} bootstrap servers can be reached; the last one: {problems[-1]}"
        )

    async def _registered(self, zookeeper: str, deadline: Deadline) -> list[Address]:
        """The brokers in ZooKeeper, asked in a thread."""
        # Only clients with the options of old ones need kazoo.
        from tidelog.client._network.zookeeper_brokers import find_brokers

        security = self._settings.security
        return await asyncio.to_thread(
            find_brokers,
            zookeeper,
            "PLAINTEXT" if security is None else security.protocol,
            min(deadline.remaining, self._settings.connect_timeout_ms / 1000),
        )

    async def disconnect(self) -> None:
        """Close all connections; they are opened again when they are wanted."""
        peers = list(self._peers.values())
        self._peers.clear()
        await asyncio.gather(*(peer.close() for peer in peers))

    async def close(self) -> None:
        """Close all connections for good."""
        self._closed = True
        await self.disconnect()

    def _all_in_back_off(self, nodes: Mapping[int, Node]) -> BrokerUnreachableError:
        errors = [
            peer.last_error for node in nodes.values() if (peer := self.at(node.host, node.port)).last_error
        ]
        last = f"; the last one: {errors[-1]}" if errors else ""
        return BrokerUnreachableError(f"none of {len(nodes)} brokers can be reached{last}")


def _shuffled(nodes: Iterable[Node]) -> list[Node]:
    mixed = list(nodes)
    random.shuffle(mixed)
    return mixed
