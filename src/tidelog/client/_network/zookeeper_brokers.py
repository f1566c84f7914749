"""The brokers that are registered in ZooKeeper, for clients that are configured with ``zookeeper.connect``.

Consumers before Kafka 0.9 found their brokers there. This module only reads ``/brokers/ids``; from then on
the client works with brokers alone. Called by ``client._network.node_connections``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from kazoo.exceptions import NoNodeError

from tidelog.client._address import Address
from tidelog.client._network.zookeeper_session import ZooKeeperUnreachableError, zookeeper_session
from tidelog.client.errors import BrokerUnreachableError
from tidelog.decode_errors import DECODE_ERRORS

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_BROKERS = "/brokers/ids"
_MOST_BROKERS = 16
"""How many registrations are read: any broker names all others."""


class Registration(msgspec.Struct):
    """What a broker has registered; brokers before 0.9 have no endpoints, but a host and a port."""

    host: str | None = None
    port: int = -1
    endpoints: list[str] = []
    listener_security_protocol_map: dict[str, str] = {}

    def addresses(self, protocol: str) -> list[Address]:
        """Where this broker listens with ``protocol``."""
        if not self.endpoints and protocol == "PLAINTEXT" and self.host and self.port > 0:
            return [Address(self.host, self.port)]
        found = []
        for endpoint in self.endpoints:
            listener, _, place = endpoint.partition("://")
            host, _, port = place.rpartition(":")
            if self.listener_security_protocol_map.get(listener, listener) == protocol and port.isdecimal():
                found.append(Address(host.strip("[]"), int(port)))
        return found


def find_brokers(connect: str, protocol: str, timeout_s: float) -> list[Address]:
    """Addresses of brokers in the ZooKeeper of ``connect`` that listen with ``protocol``. Blocks.

    Raises ``BrokerUnreachableError`` where ZooKeeper does not answer or has no such broker.
    """
    try:
        with zookeeper_session(connect, timeout_s) as client:
            registrations = list(_registrations(client))
    except ZooKeeperUnreachableError as error:
        raise BrokerUnreachableError(str(error)) from error
    if not registrations:
        raise BrokerUnreachableError(
            f"no broker is registered in ZooKeeper at {connect}: start one, or correct the address or its "
            "chroot"
        )
    listeners = [each.addresses(protocol) for each in registrations]
    # A broker's first listener is for clients; others may be for brokers alone.
    first = [addresses[0] for addresses in listeners if addresses]
    others = [address for addresses in listeners for address in addresses[1:]]
    if not first:
        raise BrokerUnreachableError(
            f"no broker in ZooKeeper at {connect} has a {protocol} listener: set security.protocol"
        )
    return list(dict.fromkeys([*first, *others]))


def _registrations(client: KazooClient) -> Iterable[Registration]:
    try:
        ids = client.get_children(_BROKERS)
    except NoNodeError:
        return
    for broker in sorted(ids)[:_MOST_BROKERS]:
        try:
            data, _ = client.get(f"{_BROKERS}/{broker}")
            yield msgspec.json.decode(data, type=Registration)
        except NoNodeError:
            continue  # It has just left.
        except DECODE_ERRORS as error:
            raise BrokerUnreachableError(
                f"the registration of broker {broker} in ZooKeeper cannot be read: {error}"
            ) from None
