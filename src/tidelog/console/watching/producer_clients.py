"""Whose producer ids are: the clients to which brokers of Tidelog have given them.

A broker tells of each connection which producer ids it has given out there (``/clients``). Connections come
and go while a producer writes on, so what was seen is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

_REMEMBERED = 20_000


class ProducerClient(NamedTuple):
    """A program that writes; the same wherever it is connected to."""

    client_id: str
    software: str
    """With its version; empty if the client has not said."""
    host: str


class _Connection(msgspec.Struct, frozen=True):
    host: str
    client_id: str | None = None
    software: str | None = None
    software_version: str | None = None
    producer_ids: list[int] = []


class _Page(msgspec.Struct, frozen=True):
    connections: list[_Connection] = []


class ProducerClients:
    """What was seen of one cluster."""

    def __init__(self) -> None:
        self._clients: dict[int, ProducerClient] = {}

    def note(self, pages: Mapping[int, object]) -> None:
        """Take in what brokers tell of connections; pages of other forms tell nothing."""
        for page in pages.values():
            try:
                found = msgspec.convert(page, _Page)
            except msgspec.ValidationError:
                continue
            for each in found.connections:
                software = " ".join(part for part in (each.software, each.software_version) if part)
                client = ProducerClient(each.client_id or "", software, each.host)
                for producer_id in each.producer_ids:
                    self._clients.pop(producer_id, None)
                    self._clients[producer_id] = client
        while len(self._clients) > _REMEMBERED:
            del self._clients[next(iter(self._clients))]

    def get(self, producer_id: int) -> ProducerClient | None:
        """Who has been given an id; None if nobody has told."""
        return self._clients.get(producer_id)
