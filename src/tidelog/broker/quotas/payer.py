"""Who pays for a request: its user and its client id, by which quotas are found.

A client may call itself by 32 thousand bytes, and by others the next time: what is remembered of thousands of
them goes by the first thousand characters, which are more than anybody names in a quota. They are the same
ones for every request, whichever way it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.broker.network.connection import Connection

LONGEST_CLIENT_ID = 1024


class Payer(NamedTuple):
    """A user, and a client id, which may be empty."""

    user: str
    client_id: str


def payer_of(connection: Connection, frame: memoryview) -> Payer:
    """Who has sent a frame."""
    length = int.from_bytes(frame[8:10], "big", signed=True)
    client_id = str(frame[10 : 10 + length], "utf-8", "replace") if length > 0 else ""
    return payer_called(connection, client_id)


def payer_called(connection: Connection, client_id: str) -> Payer:
    """Who has sent a request in which it calls itself so."""
    return Payer(connection.session.principal.name, client_id[:LONGEST_CLIENT_ID])
