"""``max.connections.per.ip.overrides`` as the network has it: by address, where the option may name hosts.

Names are looked up by the system, which may take long: before anybody is served at once, later beside the
loop. A host that cannot be resolved keeps the addresses that it had, and one line says so; it is looked up
again with the next change of a limit. A broker does not start with such a host in its own file, as in Kafka,
but does with one that has been set since: nobody could take that back otherwise.

Made by ``broker/app``, which tells it of changes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.broker.network.connection_quotas import ConnectionQuotas, is_ip, plain_ip
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import parse_map
from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

OPTION = "max.connections.per.ip.overrides"


class IpOverrides:
    """Keeps the limits of single addresses as the option has them."""

    def __init__(self, quotas: ConnectionQuotas) -> None:
        self._quotas = quotas
        self._known: dict[str, frozenset[str]] = {}
        """The addresses of hosts, as they were found last."""
        self._looking_up: asyncio.Task[None] | None = None

    def start(self, config: BrokerConfig) -> None:
        """These hold at start; raises ``ConfigError`` for what the broker's own file names in vain."""
        overrides = config.max_connections_per_ip_overrides
        own = parse_map(OPTION, config.raw.get(OPTION, ""))
        for host in _names(overrides):
            try:
                self._known[host] = _addresses(socket.getaddrinfo(host, None))
            except (OSError, UnicodeError) as error:
                if host in own:
                    raise ConfigError(
                        f"{OPTION} names {host}, which cannot be resolved: use an IP address"
                    ) from error
                self._warn(host, error)
        self._limit(overrides)

    def apply(self, config: BrokerConfig) -> None:
        """These hold from now on; those of hosts that are new as soon as they are found."""
        overrides = config.max_connections_per_ip_overrides
        self.close()
        self._known = {host: found for host, found in self._known.items() if host in overrides}
        self._limit(overrides)
        if any(True for _ in _names(overrides)):
            self._looking_up = asyncio.get_running_loop().create_task(self._look_up(overrides))

    def close(self) -> None:
        """Look up no more."""
        if self._looking_up is not None:
            self._looking_up.cancel()
            self._looking_up = None

    async def _look_up(self, overrides: Mapping[str, int]) -> None:
        for host in _names(overrides):
            try:
                found = await asyncio.get_running_loop().getaddrinfo(host, None)
            except (OSError, UnicodeError) as error:
                self._warn(host, error)
            else:
                self._known[host] = _addresses(found)
                self._limit(overrides)

    def _limit(self, overrides: Mapping[str, int]) -> None:
        limits = {ip: overrides[host] for host in _names(overrides) for ip in self._known.get(host, ())}
        # What is set for an address itself goes before.
        limits |= {plain_ip(host): limit for host, limit in overrides.items() if is_ip(host)}
        self._quotas.per_ip_overrides = limits

    def _warn(self, host: str, error: OSError | UnicodeError) -> None:
        holds = "holds for its former addresses" if host in self._known else "does not hold"
        logger.warning(
            "%s of host %s %s, as it cannot be resolved (%s): name an address", OPTION, host, holds, error
        )


def _names(overrides: Mapping[str, int]) -> Iterable[str]:
    return (host for host in overrides if not is_ip(host))


def _addresses(found: Iterable[tuple[Any, ...]]) -> frozenset[str]:
    return frozenset(str(info[4][0]) for info in found)
