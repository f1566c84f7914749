"""What one connection receives: bytes in, whole frames out.

All connections of a broker share one receive buffer. A readable event receives into it, whole frames are
handed out as views of it, a few at a time, and only an unfinished tail is copied. A frame too large for that
gets a buffer of its own (``memory_pool``) that takes memory as bytes arrive, never as they were announced,
after its announced size was reserved in the broker's request memory; a peer that sends as fast as we receive
has a megabyte of it at once, for the kernel would go on until the frame is whole. In a crowd of such frames
there is no room to grow into: then what has arrived is kept in pieces of just its size, until it is whole or
large. What cannot be handled in the event it arrived in is put back, as one copy. Peers that send and do not
let their requests be answered are read from in smaller portions when there are many of them, so that what
they have put back stays bounded.

A large frame has a limit that depends on its API and its client (``broker/access/request_sizes``): once its
first bytes have come, it is refused before the others are received.

So views are good until the loop turns; whoever wants to keep something copies it. Used by ``connection``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from mmap import mmap
from struct import Struct
from typing import NamedTuple, Protocol

from tidelog.broker.network.memory_pool import FrameBuffer, FrameBuffers, RequestMemory
from tidelog.broker.network.tls_socket import TlsSocket
from tidelog.security.session import Session

RECEIVE_BUFFER_BYTES = 256 * 1024

_SMALL_FRAME_BYTES = 64 * 1024
_FRAMES_AT_ONCE = 64
_RECEIVED_AT_ONCE_BYTES = 1024 * 1024
# When so much is put back, no connection adds more than a little.
_MUCH_PUT_BACK_BYTES = 64 * 1024 * 1024
_LITTLE_BYTES = 16 * 1024
# Below so many bytes, what has arrived of a frame in a crowd is kept in pieces, each filled at least so far.
_KEPT_IN_PIECES_BYTES = 1024 * 1024
_PIECE_BYTES = 16 * 1024
_MAX_REQUEST = "socket.request.max.bytes"
# A handshake record, of version 3 point something: what the first bytes are when they come from a TLS client.
_TLS_BEGINS = 0x1603
_unpack_size = Struct(">i").unpack_from
_unpack_key = Struct(">h").unpack_from
_KEY_BYTES = 2


class FrameLimits(Protocol):
    """How long frames may be, by what they begin with."""

    def limit_of(self, session: Session, key: int, /) -> tuple[int, str]:
        """How many bytes a client's frame with an API key may have, and why."""


class ReceivingSide(Protocol):
    """What all inboxes of a network share."""

    frame_limits: FrameLimits | None

    receive_buffer: memoryview
    frame_buffers: FrameBuffers
    memory: RequestMemory
    max_request_bytes: int
    put_back_bytes: int


class KeptFrame(NamedTuple):
    """A frame that outlives the turn of the loop in which it came."""

    view: memoryview
    release: Callable[[], None]


class Inbox:
    """The receiving side of one connection."""

    __slots__ = (
        "_buffer",
        "_end",
        "_have",
        "_held",
        "_large",
        "_lent",
        "_limit_bytes",
        "_limited_by",
        "_network",
        "_next",
        "_pieces",
        "_put_back",
        "_recv_into",
        "_reserved_bytes",
        "_session",
        "_size",
        "_source",
        "_starts",
        "awaits_memory",
        "refusal",
    )

    def __init__(self, sock: socket.socket | TlsSocket, network: ReceivingSide, session: Session) -> None:
        self.awaits_memory = False
        """Whether the next frame is too large for the request memory that is free now."""
        self.refusal: str | None = None
        """What was wrong behind the frames handed out; there will be no more."""
        self._network = network
        self._session = session
        self._limit_bytes = network.max_request_bytes
        self._limited_by = _MAX_REQUEST
        self._buffer = network.receive_buffer
        self._recv_into = sock.recv_into
        self._held = b""
        self._large: FrameBuffer | None = None
        self._pieces: list[bytearray] = []
        self._lent: FrameBuffer | None = None
        self._have = 0
        self._size = 0
        self._reserved_bytes = 0
        self._put_back: memoryview | None = None
        # Where the frames that were last handed out begin, and the bytes behind them that were not looked at.
        self._source = self._buffer
        self._starts: list[int] = []
        self._next = 0
        self._end = 0

    @property
    def waiting(self) -> bool:
        """Whether there are frames that were put back."""
        return self._put_back is not None

    @property
    def is_filling(self) -> bool:
        """Whether what comes next belongs to a large frame."""
        return self._large is not None or bool(self._pieces)

    @property
    def arrived_bytes(self) -> int:
        """How much of the unfinished frame has arrived."""
        return max(len(self._held) - 4, 0) + (self._have if self.is_filling else 0)

    @property
    def buffered_bytes(self) -> int:
        """Memory that the unfinished frame takes."""
        if self._large is None:
            return len(self._held) + sum(map(len, self._pieces))
        return self._have if isinstance(self._large, mmap) else len(self._large)

    def receive(self) -> list[memoryview] | None:
        """The frames that have become whole; ``None`` when the peer has closed. ``OSError`` as a socket's."""
        if self._large is not None:
            return self._receive_large(self._large)
        if self._pieces:
            return self._receive_piece()
        buffer = self._buffer
        have = len(self._held)
        if self._network.put_back_bytes > _MUCH_PUT_BACK_BYTES:
            buffer = buffer[: have + _LITTLE_BYTES]
        if have:
            buffer[:have] = self._held
            received = self._recv_into(buffer[have:])
        else:
            received = self._recv_into(buffer)
        if not received:
            return None
        self._held = b""
        return self._split(buffer, have + received)

    def limit_frames(self, max_bytes: int | None, option: str) -> None:
        """Refuse longer frames than ``max_bytes``; ``None`` for what all connections may send."""
        all_may_send = self._network.max_request_bytes
        self._limit_bytes = all_may_send if max_bytes is None else min(max_bytes, all_may_send)
        self._limited_by = _MAX_REQUEST if max_bytes is None else option

    def has_more(self, done: int) -> bool:
        """Whether there are frames behind the first ``done`` of those that were last handed out."""
        if done < len(self._starts) or self._next < self._end:
            return True
        self._source = self._buffer
        return False

    def put_back(self, done: int) -> None:
        """Keep what is behind the first ``done`` of the frames that were last handed out."""
        start = self._starts[done] if done < len(self._starts) else self._next
        rest = self._source[start : self._end]
        # Views of the shared buffer are good for this turn only; what was put back before is a copy already.
        self._put_back = memoryview(bytes(rest)) if self._source.obj is self._buffer.obj else rest
        self._network.put_back_bytes += len(rest)

    def take_back(self) -> list[memoryview]:
        """The first frames of what was put back."""
        source = self._take_put_back()
        return self._split(source, len(source))

    def _take_put_back(self) -> memoryview:
        source, self._put_back = self._put_back or memoryview(b""), None
        self._network.put_back_bytes -= len(source)
        return source

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
        self._keep(memoryview(held), 0, len(held))
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
        self._pieces = []
        self.release()
        self._release_memory()
        self._held = b""
        self._take_put_back()

    def _split(self, source: memoryview, end: int) -> list[memoryview]:
        limit = self._limit_bytes
        frames: list[memoryview] = []
        starts: list[int] = []
        pos = 0
        self._source = source
        self._starts = starts
        while end - pos >= 4:
            (size,) = _unpack_size(source, pos)
            stop = pos + 4 + size
            if stop > end or size < 0 or size > limit:
                break
            if len(starts) == _FRAMES_AT_ONCE:
                self._next = pos
                self._end = end
                return frames
            if self._reserved_bytes and not self.is_filling:
                # It was begun as a large one, and came to its end in the shared buffer.
                self._release_memory()
            frames.append(source[pos + 4 : stop])
            starts.append(pos)
            pos = stop
        self._next = self._end = pos
        if pos < end:
            self._keep(source, pos, end)
        return frames

    def _keep(self, buffer: memoryview, pos: int, end: int) -> None:
        """Keep the beginning of a frame that is not whole yet."""
        have = end - pos - 4
        if have >= 0:
            (size,) = _unpack_size(buffer, pos)
            limit = self._limit_bytes
            if size < 0 or size > limit:
                self.refusal = f"it announced a request of {size} bytes"
                if size >> 16 == _TLS_BEGINS:
                    self.refusal = "it began a TLS handshake, and this listener has no TLS"
                elif size > 0:
                    self.refusal += f", and {self._limited_by} allows {limit}"
                return
            if size > _SMALL_FRAME_BYTES and have >= _KEY_BYTES:
                if self._network.frame_limits is not None and not self._reserved_bytes:
                    (key,) = _unpack_key(buffer, pos + 4)
                    allowed, reason = self._network.frame_limits.limit_of(self._session, key)
                    if size > allowed:
                        self.refusal = (
                            f"it announced a request of {size} bytes with API key {key}, and {reason}"
                        )
                        return
                if not self._reserved_bytes and not self._network.memory.reserve(size):
                    self.awaits_memory = True
                else:
                    self._reserved_bytes = size
                    # One of which little has come is not worth a piece of its own.
                    if have > _PIECE_BYTES or not self._network.frame_buffers.are_many:
                        self._begin_large(size, buffer[pos + 4 : end])
                        return
        self._held = bytes(buffer[pos:end])

    def _begin_large(self, size: int, begun: memoryview) -> None:
        self._have = have = len(begun)
        self._size = size
        self._held = b""
        if self._network.frame_buffers.are_many and have < _KEPT_IN_PIECES_BYTES:
            self._pieces = [bytearray(begun)]
            return
        self._large = self._network.frame_buffers.take(size, have)
        self._large[:have] = begun

    def _receive_large(self, buffer: FrameBuffer) -> list[memoryview] | None:
        size = self._size
        received = self._recv_into(
            memoryview(buffer)[self._have : min(size, self._have + _RECEIVED_AT_ONCE_BYTES)]
        )
        if not received:
            return None
        self._have = have = self._have + received
        self._starts = []
        self._next = self._end = 0
        if have == size:
            self._large = None
            self._lent = buffer
            return [memoryview(buffer)[:size]]
        if have == len(buffer):
            self._large = None
            self._begin_large(size, memoryview(buffer))
            self._network.frame_buffers.give_back(buffer)
        return []

    def _receive_piece(self) -> list[memoryview] | None:
        size, pieces = self._size, self._pieces
        received = self._recv_into(self._buffer[: size - self._have])
        if not received:
            return None
        self._have = have = self._have + received
        self._starts = []
        self._next = self._end = 0
        piece = self._buffer[:received]
        if len(pieces[-1]) < _PIECE_BYTES:
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))
        if have < size and have < _KEPT_IN_PIECES_BYTES:
            return []
        buffer = self._network.frame_buffers.take(size, have)
        buffer[:have] = b"".join(pieces)
        self._pieces = []
        if have < size:
            self._large = buffer
            return []
        self._lent = buffer
        return [memoryview(buffer)[:size]]

    def _release_memory(self) -> None:
        size, self._reserved_bytes = self._reserved_bytes, 0
        if size:
            self._network.memory.release(size)
