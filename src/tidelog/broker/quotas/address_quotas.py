"""The quotas of IP addresses, as the network has them: by address, where the metadata may name hosts.

Names are looked up by the system, which may take long, so that it is done beside the loop, with every change.
For that long, and where a host cannot be found, its quota holds for the addresses that it had, if any; one
line says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from tidelog.broker.network.connection_quotas import ConnectionQuotas, is_ip, plain_ip
from tidelog.config.client_quotas import CONNECTION_CREATION_RATE, IP, QuotaEntity

logger = logging.getLogger(__name__)


class AddressQuotas:
    """Keeps the limits of addresses as the metadata have them."""

    def __init__(self, connections: ConnectionQuotas) -> None:
        self._connections = connections
        self._limits: dict[str, float] = {}
        self._names: dict[str, float] = {}
        self._default: float | None = None
        self._known: dict[str, frozenset[str]] = {}
        """The addresses of hosts, as they were found last."""
        self._looking_up: asyncio.Task[None] | None = None

    def apply(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These quotas are in force from now on; those of hosts that are new as soon as they are found."""
        self.close()
        self._limits, self._names, self._default = {}, {}, None
        for entity, values in quotas.items():
            for kind, host in entity:
                limit = values.get(CONNECTION_CREATION_RATE)
                if kind != IP or limit is None:
                    continue
                if host is None:
                    self._default = limit
                elif is_ip(host):
                    self._limits[plain_ip(host)] = limit
                else:
                    self._names[host] = limit
        self._known = {host: found for host, found in self._known.items() if host in self._names}
        self._limit()
        if self._names:
            self._looking_up = asyncio.get_running_loop().create_task(self._look_up())

    def close(self) -> None:
        """Look up no more."""
        if self._looking_up is not None:
            self._looking_up.cancel()
            self._looking_up = None

    async def _look_up(self) -> None:
        for host in self._names:
            try:
                infos = await asyncio.get_running_loop().getaddrinfo(host, None)
            except (OSError, UnicodeError) as error:
                holds = "holds for its former addresses" if host in self._known else "does not hold"
                logger.warning(
                    "The quota of host %s %s, as it cannot be resolved (%s): name an address",
                    host,
                    holds,
                    error,
                )
            else:
                self._known[host] = frozenset(str(info[4][0]) for info in infos)
                self._limit()

    def _limit(self) -> None:
        limits = {
            plain_ip(ip): limit for host, limit in self._names.items() for ip in self._known.get(host, ())
        }
        # What is set for an address itself goes before.
        self._connections.limit_ips(limits | self._limits, self._default)
