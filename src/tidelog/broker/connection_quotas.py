"""How many connections there may be: in all, per listener and per IP address, and how many a second.

As in Kafka, a full broker or listener stops accepting until a slot is free (nobody is turned away), while
an address that has too many is turned away at once. The listener between brokers, where it is not the only
one, is never kept waiting by ``max.connections``: the connection that was idle longest elsewhere makes room
for it.

Used by ``broker/acceptor``; the limits may change while the broker runs (they are dynamic options).
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping

from tidelog.errors import ConfigError

NO_LIMIT = 2**31 - 1


class ConnectionQuotas:
    """Counts connections and knows the limits."""

    def __init__(
        self,
        *,
        max_connections: int = NO_LIMIT,
        max_per_ip: int = NO_LIMIT,
        per_ip_overrides: Mapping[str, int] | None = None,
        max_per_listener: Mapping[str, int] | None = None,
        max_creation_rate: int = NO_LIMIT,
        inter_broker_listener: str | None = None,
    ) -> None:
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        self.per_ip_overrides = dict(per_ip_overrides or {})
        self.max_per_listener = dict(max_per_listener or {})
        self.max_creation_rate = max_creation_rate
        self.total = 0
        self._protected = inter_broker_listener
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._listeners: set[str] = set()
        self._second = 0
        self._created = 0

    def add_listener(self, listener: str) -> None:
        """Another listener shares the limits."""
        self._listeners.add(listener)

    def has_room(self, listener: str) -> bool:
        """Whether ``listener`` may accept another connection now."""
        if self._by_listener[listener] >= self.max_per_listener.get(listener, NO_LIMIT):
            return False
        return self.is_protected(listener) or self.total < self.max_connections

    def is_protected(self, listener: str) -> bool:
        """Whether ``listener`` serves other brokers and has listeners beside it that can make room."""
        return listener == self._protected and len(self._listeners) > 1

    def is_overdrawn(self) -> bool:
        """Whether the protected listener took more connections than there may be in all."""
        return self.total > self.max_connections

    def ip_limit(self, ip: str) -> int:
        """How many connections ``ip`` may have."""
        return self.per_ip_overrides.get(ip, self.max_per_ip)

    def admit(self, listener: str, ip: str) -> bool:
        """Count a new connection, unless its address has too many already."""
        if self._by_ip[ip] >= self.ip_limit(ip):
            return False
        self.total += 1
        self._by_ip[ip] += 1
        self._by_listener[listener] += 1
        return True

    def rate_delay_s(self, now_s: float) -> float:
        """How long to wait before the next connection, so that ``max.connection.creation.rate`` holds."""
        second = int(now_s)
        if second != self._second:
            self._second = second
            self._created = 0
        return second + 1 - now_s if self._created >= self.max_creation_rate else 0.0

    def count_creation(self) -> None:
        """A connection was accepted, admitted or not."""
        self._created += 1

    def leave(self, listener: str, ip: str) -> None:
        """A connection that was admitted is gone."""
        self.total -= 1
        self._by_ip[ip] -= 1
        if self._by_ip[ip] <= 0:
            del self._by_ip[ip]
        self._by_listener[listener] -= 1


def resolve_ip_overrides(overrides: Mapping[str, int]) -> dict[str, int]:
    """``max.connections.per.ip.overrides`` with host names replaced by their addresses."""
    return {ip: limit for host, limit in overrides.items() for ip in _addresses(host)}


def _addresses(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError as error:
        raise ConfigError(
            f"max.connections.per.ip.overrides names {host}, which cannot be resolved: use an IP address"
        ) from error
