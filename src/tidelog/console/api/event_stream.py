"""Server-sent events: a response that goes on, made of small JSON objects."""

from __future__ import annotations

from collections.abc import AsyncIterable

import msgspec
from starlette.responses import StreamingResponse


class EventStream(StreamingResponse):
    """An endless response; proxies are told not to hold it back."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterable[bytes]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


def event(name: str, data: object) -> bytes:
    """One event; JSON has no line ends, so it is a single line."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
