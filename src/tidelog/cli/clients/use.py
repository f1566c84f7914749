"""Connections as brokers tell of them (``/clients``), twice, and what each client does between the two.

A client is what calls itself the same, comes from the same host with the same software and login, to the same
listener: of any of its connections nobody can say what program it belongs to. Pure; ``command`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """One connection as its broker tells of it; numbers are since it began."""

    host: str
    port: int
    listener: str
    security_protocol: str
    principal: str
    follower: bool
    idle_ms: int
    requests: int
    received_bytes: int
    sent_bytes: int
    pauses: int
    pause_left_ms: int
    client_id: str | None = None
    software: str | None = None
    software_version: str | None = None
    age_ms: int | None = None


@dataclass(frozen=True)
class OpenConnection:
    """One connection of one broker, with rates."""

    broker: int
    told: Usage
    requests_per_second: float
    received_bytes_per_second: float
    sent_bytes_per_second: float
    pauses_per_second: float

    @property
    def address(self) -> str:
        """Host and port of the client."""
        host = f"[{self.told.host}]" if ":" in self.told.host else self.told.host
        return f"{host}:{self.told.port}"


@dataclass
class Client:
    """One client; rates and numbers are of all its connections."""

    client_id: str | None
    software: str | None
    software_version: str | None
    host: str
    listener: str
    principal: str
    connections: int = 0
    brokers: list[int] = field(default_factory=list)
    requests_per_second: float = 0.0
    received_bytes_per_second: float = 0.0
    sent_bytes_per_second: float = 0.0
    pauses: int = 0
    pauses_per_second: float = 0.0
    pause_left_ms: int = 0
    idle_ms: int = 0

    @property
    def is_throttled(self) -> bool:
        """Whether quotas hold it back."""
        return self.pause_left_ms > 0 or self.pauses_per_second > 0


def told(page: Mapping[str, Any]) -> list[Usage]:
    """The connections of one page."""
    return msgspec.convert(page["connections"], list[Usage])


def connections_between(
    before: Mapping[int, Iterable[Usage]], now: Mapping[int, Iterable[Usage]], seconds: float
) -> list[OpenConnection]:
    """Those that are there now, with what came of them since the earlier look."""
    earlier = {(broker, *_where(each)): each for broker, found in before.items() for each in found}
    return [
        _connection(broker, earlier.get((broker, *_where(each))), each, seconds)
        for broker, found in now.items()
        for each in found
    ]


def _where(connection: Usage) -> tuple[str, str, int]:
    return connection.listener, connection.host, connection.port


def _connection(broker: int, before: Usage | None, now: Usage, seconds: float) -> OpenConnection:
    if before is None or before.requests > now.requests:
        # It has come since: all that it did, it did in this time.
        return OpenConnection(broker, now, *(each / seconds for each in _counts(now)))
    grown = (new - old for new, old in zip(_counts(now), _counts(before), strict=True))
    return OpenConnection(broker, now, *(max(each, 0) / seconds for each in grown))


def _counts(connection: Usage) -> tuple[int, int, int, int]:
    return connection.requests, connection.received_bytes, connection.sent_bytes, connection.pauses


def clients_of(connections: Iterable[OpenConnection]) -> list[Client]:
    """The clients that the connections belong to, those that move most first."""
    found: dict[tuple[object, ...], Client] = {}
    for each in connections:
        told = each.told
        who = (
            told.client_id,
            told.software,
            told.software_version,
            told.host,
            told.listener,
            told.principal,
        )
        client = found.get(who)
        if client is None:
            client = found[who] = Client(*who, idle_ms=told.idle_ms)
        client.connections += 1
        if each.broker not in client.brokers:
            client.brokers.append(each.broker)
        client.requests_per_second += each.requests_per_second
        client.received_bytes_per_second += each.received_bytes_per_second
        client.sent_bytes_per_second += each.sent_bytes_per_second
        client.pauses += told.pauses
        client.pauses_per_second += each.pauses_per_second
        client.pause_left_ms = max(client.pause_left_ms, told.pause_left_ms)
        client.idle_ms = min(client.idle_ms, told.idle_ms)
    return sorted(found.values(), key=_order)


def _order(client: Client) -> tuple[float, float, str, str]:
    moved = client.received_bytes_per_second + client.sent_bytes_per_second
    return -moved, -client.requests_per_second, client.client_id or "", client.host


def left_out(pages: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Brokers that have more connections than they tell of, and how many more."""
    for broker, page in pages.items():
        if page.get("left_out"):
            yield broker, int(page["left_out"])
