"""What one connection receives: bytes in, whole frames out.

All connections of a broker share one receive buffer. A readable event receives into it, every whole frame is
handed out as a view of it, and only an unfinished tail is copied. A frame too large for that gets a buffer
of its own (``memory_pool``) that grows with what has arrived, never with what was announced, after its
announced size was reserved in the broker's request memory. Frames that cannot be handled in the event they
arrived in are put back, as copies.

So views are good until the loop turns; whoever wants to keep something copies it. Used by ``connection``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.broker.network import Network

RECEIVE_BUFFER_BYTES = 256 * 1024

_SMALL_FRAME_BYTES = 64 * 1024
_GROWTH = 4
_unpack_size = Struct(">i").unpack_from


class KeptFrame(NamedTuple):
    """A frame that outlives the turn of the loop in which it came."""

    view: memoryview
    release: Callable[[], None]


class Inbox:
    """The receiving side of one connection."""

    __slots__ = (
        "_buffer",
        "_have",
        "_held",
        "_large",
        "_lent",
        "_network",
        "_recv_into",
        "_reserved_bytes",
        "_size",
        "awaits_memory",
        "refusal",
        "waiting",
    )

    def __init__(self, sock: socket.socket, network: Network) -> None:
        self.waiting: list[memoryview] = []
        """Whole frames that were put back."""
        self.awaits_memory = False
        """Whether the next frame is too large for the request memory that is free now."""
        self.refusal: str | None = None
        """What was wrong behind the frames handed out; there will be no more."""
        self._network = network
        self._buffer = network.receive_buffer
        self._recv_into = sock.recv_into
        self._held = b""
        self._large: bytearray | None = None
        self._lent: bytearray | None = None
        self._have = 0
        self._size = 0
        self._reserved_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Memory that the unfinished frame takes."""
        return len(self._held) + (len(self._large) if self._large is not None else 0)

    def receive(self) -> list[memoryview] | None:
        """The frames that have become whole; ``None`` when the peer has closed. ``OSError`` as a socket's."""
        if self._large is not None:
            return self._receive_large(self._large)
        buffer = self._buffer
        have = len(self._held)
        if have:
            buffer[:have] = self._held
            received = self._recv_into(buffer[have:])
        else:
            received = self._recv_into(buffer)
        if not received:
            return None
        return self._split(have + received)

    def put_back(self, frames: list[memoryview]) -> None:
        """Keep frames of the shared buffer that have to wait."""
        self.waiting = [memoryview(bytes(frame)) for frame in frames]

    def keep(self, frame: memoryview) -> KeptFrame:
        """A frame that was handed out, for as long as it takes to read it; the caller releases it."""
        if self._lent is None or frame.obj is not self._lent:
            return KeptFrame(memoryview(bytes(frame)), lambda: None)
        buffer, self._lent = self._lent, None
        size, self._reserved_bytes = self._reserved_bytes, 0
        network = self._network

        def release() -> None:
            network.frame_buffers.give_back(buffer)
            network.memory.release(size)

        return KeptFrame(frame, release)

    def release(self) -> None:
        """The frames handed out are done with: a large frame's buffer can be used for others."""
        if self._lent is not None:
            self._network.frame_buffers.give_back(self._lent)
            self._lent = None
            self._release_memory()

    def retry(self, resume: Callable[[], None]) -> None:
        """There may be memory for the frame that waits for it; if not, ``resume`` is called again."""
        held = self._held
        self.awaits_memory = False
        self._buffer[: len(held)] = held
        self._keep(0, len(held))
        if self.awaits_memory:
            self.wait_for_memory(resume)

    def wait_for_memory(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` when request memory is free."""
        self._network.memory.wait(self, resume)

    def close(self) -> None:
        """Give all memory back."""
        self._network.memory.forget(self)
        if self._large is not None:
            self._network.frame_buffers.give_back(self._large)
            self._large = None
        self.release()
        self._release_memory()
        self._held = b""
        self.waiting = []

    def _split(self, end: int) -> list[memoryview]:
        buffer = self._buffer
        limit = self._network.max_request_bytes
        frames: list[memoryview] = []
        pos = 0
        while end - pos >= 4:
            (size,) = _unpack_size(buffer, pos)
            stop = pos + 4 + size
            if stop > end or size < 0 or size > limit:
                break
            frames.append(buffer[pos + 4 : stop])
            pos = stop
        if pos < end:
            self._keep(pos, end)
        elif self._held:
            self._held = b""
        return frames

    def _keep(self, pos: int, end: int) -> None:
        """Keep the beginning of a frame that is not whole yet."""
        buffer = self._buffer
        have = end - pos - 4
        if have >= 0:
            (size,) = _unpack_size(buffer, pos)
            limit = self._network.max_request_bytes
            if size < 0 or size > limit:
                self.refusal = f"it announced a request of {size} bytes"
                if size > 0:
                    self.refusal += f", and socket.request.max.bytes allows {limit}"
                return
            if size > _SMALL_FRAME_BYTES:
                if self._begin_large(size, buffer[pos + 4 : end]):
                    self._held = b""
                    return
                self.awaits_memory = True
        self._held = bytes(buffer[pos:end])

    def _begin_large(self, size: int, begun: memoryview) -> bool:
        if not self._network.memory.reserve(size):
            return False
        have = len(begun)
        self._reserved_bytes = size
        self._large = self._network.frame_buffers.take(min(size, max(have * _GROWTH, RECEIVE_BUFFER_BYTES)))
        self._large[:have] = begun
        self._have = have
        self._size = size
        return True

    def _receive_large(self, buffer: bytearray) -> list[memoryview] | None:
        size = self._size
        received = self._recv_into(memoryview(buffer)[self._have : size])
        if not received:
            return None
        self._have = have = self._have + received
        if have == size:
            self._large = None
            self._lent = buffer
            return [memoryview(buffer)[:size]]
        if have == len(buffer):
            self._large = self._network.frame_buffers.take(min(size, have * _GROWTH))
            self._large[:have] = buffer
            self._network.frame_buffers.give_back(buffer)
        return []

    def _release_memory(self) -> None:
        size, self._reserved_bytes = self._reserved_bytes, 0
        if size:
            self._network.memory.release(size)
