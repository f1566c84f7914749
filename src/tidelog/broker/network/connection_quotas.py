"""How many connections there may be: in all, per listener and per IP address, and how many a second.

As in Kafka, a full broker or listener stops accepting until a slot is free (nobody is turned away), while
an address that has too many is turned away at once. The listener between brokers, where it is not the only
one, is never kept waiting by ``max.connections``: the connection that was idle longest elsewhere makes room
for it.

Rates are measured over the windows of quotas (``metrics/sampled_rate``). Where the broker or a listener has
accepted too many, it waits with the next, for a window at most; the listener between brokers has its own rate
only. An address that makes connections faster than its quota (``connection_creation_rate``) finds them
accepted, not served, and closed when the time is up by which it was too early: so that it does not come back
at once.

Used by ``broker/network/acceptor``; the limits may change while the broker runs (they are dynamic options,
and quotas).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.metrics.sampled_rate import SampledRate

NO_LIMIT = 2**31 - 1
_MAX_ADDRESSES = 20_000


class CreationRate:
    """How fast connections are made, and may be."""

    def __init__(self, limit: float, windows: int, window_ms: float) -> None:
        # Not before: few brokers limit it.
        from tidelog.metrics.sampled_rate import SampledRate

        self.limit = limit
        self.last_ms = 0.0
        self._rate: SampledRate = SampledRate(windows, window_ms)
        self._window_ms = window_ms

    def record(self, now_ms: float) -> float:
        """One more: how long to wait because of it, in milliseconds; a window at most."""
        from tidelog.metrics.sampled_rate import throttle_time_ms

        self.last_ms = now_ms
        self._rate.record(1.0, now_ms)
        rate, span_ms = self._rate.measure(now_ms), self._rate.span_ms(now_ms)
        if rate <= self.limit:
            return 0.0
        return min(throttle_time_ms(rate, self.limit, span_ms) if self.limit else NO_LIMIT, self._window_ms)

    def take_back(self, now_ms: float) -> None:
        """The last one does not count: it was not accepted."""
        self._rate.record(-1.0, now_ms)


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
        windows: int = 11,
        window_ms: float = 1000.0,
    ) -> None:
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        self.per_ip_overrides = dict(per_ip_overrides or {})
        self.max_per_listener = dict(max_per_listener or {})
        self.total = 0
        self._protected = inter_broker_listener
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._listeners: set[str] = set()
        self._windows = windows, window_ms
        self._broker_rate: CreationRate | None = None
        self._listener_rates: dict[str, CreationRate] = {}
        self._ip_rates: dict[str, CreationRate] = {}
        self._ip_limits: dict[str, float] = {}
        self._default_ip_limit: float | None = None
        self.limit_rates(max_creation_rate, {})

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

    def leave(self, listener: str, ip: str) -> None:
        """A connection that was admitted is gone."""
        self.total -= 1
        self._by_ip[ip] -= 1
        if self._by_ip[ip] <= 0:
            del self._by_ip[ip]
        self._by_listener[listener] -= 1

    # How many a second

    def limit_rates(self, of_broker: int, of_listeners: Mapping[str, int]) -> None:
        """``max.connection.creation.rate``, of all listeners and of single ones."""
        self._broker_rate = self._limited(self._broker_rate, of_broker)
        rates = {
            name: self._limited(self._listener_rates.get(name), limit) for name, limit in of_listeners.items()
        }
        self._listener_rates = {name: rate for name, rate in rates.items() if rate is not None}

    def _limited(self, rate: CreationRate | None, limit: float) -> CreationRate | None:
        if limit >= NO_LIMIT:
            return None
        rate = rate or CreationRate(limit, *self._windows)
        rate.limit = limit
        return rate

    def limit_ips(self, limits: Mapping[str, float], default: float | None) -> None:
        """The quotas of addresses, and of those that have none."""
        self._ip_limits = {plain_ip(ip): limit for ip, limit in limits.items()}
        self._default_ip_limit = default
        for ip, rate in list(self._ip_rates.items()):
            limit = self._ip_limits.get(ip, default)
            if limit is None:
                del self._ip_rates[ip]
            else:
                rate.limit = limit

    def count_creation(self, listener: str, now_s: float) -> float:
        """A connection is accepted: how many seconds to wait before the next one."""
        now_ms = now_s * 1000.0
        wait_ms = 0.0
        if self._broker_rate is not None and not self.is_protected(listener):
            wait_ms = self._broker_rate.record(now_ms)
        if listener in self._listener_rates:
            wait_ms = max(wait_ms, self._listener_rates[listener].record(now_ms))
        return wait_ms / 1000.0

    def too_early_s(self, listener: str, ip: str, now_s: float) -> float:
        """For how many seconds an address that makes too many connections is left with the one it has just
        made; 0 if it may."""
        limit = self._ip_limits.get(ip, self._default_ip_limit)
        if limit is None:
            return 0.0
        now_ms = now_s * 1000.0
        rate = self._ip_rates.get(ip)
        if rate is None:
            if len(self._ip_rates) >= _MAX_ADDRESSES:
                self._forget_addresses()
            rate = self._ip_rates[ip] = CreationRate(limit, *self._windows)
        wait_ms = rate.record(now_ms)
        if wait_ms > 0:
            # It is not accepted, so that it counts nowhere.
            rate.take_back(now_ms)
            if self._broker_rate is not None and not self.is_protected(listener):
                self._broker_rate.take_back(now_ms)
            if listener in self._listener_rates:
                self._listener_rates[listener].take_back(now_ms)
        return wait_ms / 1000.0

    def _forget_addresses(self) -> None:
        by_use = sorted(self._ip_rates, key=lambda ip: self._ip_rates[ip].last_ms)
        for ip in by_use[: len(by_use) // 4]:
            del self._ip_rates[ip]


def plain_ip(ip: str) -> str:
    """An address in the one form in which it is compared."""
    try:
        address = ipaddress.ip_address(ip.strip("[]"))
    except ValueError:
        return ip
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def is_ip(host: str) -> bool:
    """Whether a host is named by its address."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
