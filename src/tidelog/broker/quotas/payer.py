"""Who pays for a request: its user and its client id, by which quotas are found.

A client may call itself by 32 thousand bytes, and by others the next time: what is remembered of thousands of
them goes by the first thousand characters, which are more than anybody names in a quota. They are the same
ones for every request, whichever way it takes.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
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
    session = connection.session
    known = session.known_payer
    if known is not None:
        # What nearly every request has in common with the one before it, behind its correlation id.
        payer: Payer
        named_in, named, payer, _, _ = known
        try:
            if named_in(frame) == named and payer[0] == session.principal[0]:
                return payer
        except struct_error:
            # It is shorter.
            pass
    length = int.from_bytes(frame[8:10], "big", signed=True)
    end = 10 + max(length, 0)
    payer = payer_called(connection, str(frame[10:end], "utf-8", "replace"))
    if length <= LONGEST_CLIENT_ID and len(frame) >= end:
        named_in = Struct(f"8x{end - 8}s").unpack_from
        named = named_in(frame)
        session.known_payer = named_in, named, payer, named[0], end
    return payer


def payer_called(connection: Connection, client_id: str) -> Payer:
    """Who has sent a request in which it calls itself so."""
    return Payer(connection.session.principal.name, client_id[:LONGEST_CLIENT_ID])
