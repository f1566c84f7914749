"""From the socket's bytes to response frames, with one copy at most.

Short frames are received many at a time into a buffer that the connection keeps; whoever takes one copies
what it wants of it. A long frame is received straight into memory of its own, which then belongs to whoever
takes it, and serves for another frame once no view of it is left (``records/reused_memory``). A size that no
response can have is refused before memory is set aside for it, and memory for a very long frame grows only as
its bytes come in. ``client._network.connection`` is the only user.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from tidelog.client._network.traffic import Traffic
from tidelog.errors import WireError
from tidelog.records.reused_memory import take_memory

MAX_RESPONSE_BYTES = 1 << 30
# No broker answers the first requests with more than this; TLS alerts and HTTP would read as more.
MAX_GREETING_BYTES = 1 << 20

_BUFFER_BYTES = 64 * 1024
_OWN_MEMORY_BYTES = 16 * 1024
_TRUSTED_BYTES = 64 << 20
# The first three bytes of an alert or a handshake message, read as those of a size: content type, version.
_TLS_RECORDS = frozenset({content << 16 | 0x0300 | minor for content in (0x15, 0x16) for minor in range(5)})
_SIZE = struct.Struct(">i")

FrameTaker = Callable[[memoryview, int, int, bool], None]
"""Called with ``(view, start, stop, owned)``: unless it is owned, the view lasts for this call only."""


class TlsRecordError(WireError):
    """The other side answers in TLS to what was sent without."""


class FrameReceiver(asyncio.BufferedProtocol):
    """Cuts what a transport receives into frames."""

    def __init__(self, traffic: Traffic | None = None) -> None:
        self.traffic = traffic or Traffic()
        self.max_frame_bytes = MAX_GREETING_BYTES
        self.on_frame: FrameTaker = discard
        self.on_close: Callable[[Exception | None], None] = _nobody_listens
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shared = memoryview(bytearray(_BUFFER_BYTES))
        self._received = 0
        self._frame: memoryview | None = None
        self._frame_bytes = 0
        self._filled = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is None:
            return self._shared[self._received :]
        if self._filled == len(frame):
            frame = self._grown(frame)
        return frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.traffic.bytes_received += nbytes
        frame = self._frame
        if frame is None:
            self._received += nbytes
            try:
                self._take_short_frames()
            except WireError as error:
                self._received = 0
                self.on_close(error)
            return
        self._filled += nbytes
        if self._filled == self._frame_bytes:
            self._frame = None
            self.on_frame(frame, 0, self._frame_bytes, True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_close(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def _take_short_frames(self) -> None:
        shared = self._shared
        position, end = 0, self._received
        size = 0
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(shared, position)
            if not 0 <= size <= self.max_frame_bytes:
                if size >> 8 in _TLS_RECORDS:
                    raise TlsRecordError("it sent a TLS record")
                raise WireError(
                    f"it announces a response of {size} bytes, where {self.max_frame_bytes} are the most"
                )
            stop = position + 4 + size
            if stop > end:
                break
            self.on_frame(shared, position + 4, stop, False)
            position = stop
        rest = end - position
        if rest >= 4 and size >= _OWN_MEMORY_BYTES:
            self._begin_long_frame(shared[position + 4 : end], size)
            rest = 0
        elif rest and position:
            shared[:rest] = bytes(shared[position:end])
        self._received = rest

    def _begin_long_frame(self, head: memoryview, size: int) -> None:
        frame = take_memory(min(size, _TRUSTED_BYTES))
        frame[: len(head)] = head
        self._frame, self._frame_bytes, self._filled = frame, size, len(head)

    def _grown(self, frame: memoryview) -> memoryview:
        longer = take_memory(min(self._frame_bytes, 2 * len(frame)))
        longer[: len(frame)] = frame
        self._frame = longer
        return longer


def discard(view: memoryview, start: int, stop: int, owned: bool) -> None:
    """Before the connection is there, nobody has asked for anything."""


def _nobody_listens(error: Exception | None) -> None:
    """Before the connection is there, ``closed`` alone says it."""
