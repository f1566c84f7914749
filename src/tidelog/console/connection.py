"""One connection of a browser: uvicorn's, with bounds on how long a peer may let us wait.

Whoever begins a request has to end it, and whoever asks for something has to read it; uvicorn waits for both
for ever, and a few hundred such connections would keep everybody else out. Connections beyond what is served
are cut at once: an answer, even a refusal, would need a request first.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""How long the head of a request may take, from the connection or the last answer on."""
BODY_S = 120.0
"""How long a body may take, also one that nobody reads any more."""
UNREAD_S = 60.0
"""How long a peer may leave unread what was sent."""
_BEYOND = 100
"""So many connections more than are served get an answer that says so."""


class BrowserConnection(H11Protocol):
    """HTTP/1.1 with deadlines."""

    _waits_for: object = None
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency + _BEYOND:
            transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self._reading, self._writing):
            if each is not None:
                each.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(UNREAD_S, self._cut)

    def resume_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def _watch(self) -> None:
        """Have a deadline while the peer owes us the head or the body of a request."""
        owed = self.conn.their_state if not self.transport.is_closing() else None
        if owed is self._waits_for:
            return
        self._waits_for = owed
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if owed is h11.IDLE or owed is h11.SEND_BODY:
            self._reading = self.loop.call_later(HEAD_S if owed is h11.IDLE else BODY_S, self._cut)

    def _cut(self) -> None:
        self.transport.abort()
