"""The quotas of IP addresses, as the network has them: by address, where the metadata may name hosts.

Names are looked up by the system, which may take long, so that it is done beside the loop: for that long the
quota does not hold yet. A host that cannot be found has no quota, and one line says so; it is looked up again
with the next change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from tidelog.broker.network.connection_quotas import ConnectionQuotas, is_ip
from tidelog.metadata.client_quotas import CONNECTION_CREATION_RATE, IP, QuotaEntity

logger = logging.getLogger(__name__)


class AddressQuotas:
    """Keeps the limits of addresses as the metadata have them."""

    def __init__(self, connections: ConnectionQuotas) -> None:
        self._connections = connections
        self._looking_up: asyncio.Task[None] | None = None

    def apply(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These quotas are in force from now on."""
        limits: dict[str, float] = {}
        names: dict[str, float] = {}
        default: float | None = None
        for entity, values in quotas.items():
            for kind, host in entity:
                limit = values.get(CONNECTION_CREATION_RATE)
                if kind != IP or limit is None:
                    continue
                if host is None:
                    default = limit
                elif is_ip(host):
                    limits[host] = limit
                else:
                    names[host] = limit
        self._connections.limit_ips(limits, default)
        self.close()
        if names:
            self._looking_up = asyncio.get_running_loop().create_task(self._look_up(names, limits, default))

    def close(self) -> None:
        """Look up no more."""
        if self._looking_up is not None:
            self._looking_up.cancel()
            self._looking_up = None

    async def _look_up(
        self, names: Mapping[str, float], limits: Mapping[str, float], default: float | None
    ) -> None:
        found = dict(limits)
        for host, limit in names.items():
            try:
                infos = await asyncio.get_running_loop().getaddrinfo(host, None)
            except (OSError, UnicodeError) as error:
                logger.warning(
                    "The quota of host %s does not hold, as it cannot be resolved (%s): name an address",
                    host,
                    error,
                )
            else:
                # What is set for an address itself goes before.
                found = {**{str(info[4][0]): limit for info in infos}, **found}
        self._connections.limit_ips(found, default)
