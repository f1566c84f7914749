"""Memory for requests: how much may be promised, and the buffers that large frames are received into.

``RequestMemory`` is the promise (``queued.max.request.bytes``). A connection reserves a large frame's
declared size before it receives the body; while nothing is left, connections wait in line and are not read
from. As in Kafka a reservation may overdraw the pool once (so that a request larger than the rest of the pool
gets through), and small frames, which live in the shared receive buffer, are not counted.

``FrameBuffers`` is the memory itself: buffers in a few sizes that are used again, because a fresh megabyte
costs more page faults than receiving into it. Only a bounded number is kept; the rest goes back to the
system. The first megabyte of a frame is received into a bytearray that grows with what has arrived,
generously while few are lent, so that nothing is copied twice; when much is lent (a crowd of peers that send
half a request and wait) to twice as much. Of a frame that is larger, once that has come, the whole is mapped:
the system gives pages as they are written to, so that such a frame, too, takes what has arrived. (A
bytearray is filled with zeros when it is made, and copied when it grows: of sixty-four megabytes the one
takes 50 ms, the other 40, and everybody waits.)

Used by ``broker/network/connection`` only; all of it runs on the loop.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Callable

UNLIMITED = -1

_KEPT_BYTES = 16 * 1024 * 1024
_SMALLEST = 256 * 1024
_GROWTH = 4
_MAPPED_FROM_BYTES = 1024 * 1024

FrameBuffer = bytearray | mmap.mmap


class RequestMemory:
    """Counts the bytes reserved for large requests and queues those who must wait for some."""

    def __init__(self, limit_bytes: int = UNLIMITED) -> None:
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self._waiting: OrderedDict[object, Callable[[], None]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many connections wait for memory."""
        return len(self._waiting)

    def reserve(self, size: int) -> bool:
        """Take ``size`` bytes if any are left; the last taker may take more than the rest."""
        if self.limit_bytes != UNLIMITED and self.reserved_bytes >= self.limit_bytes:
            return False
        self.reserved_bytes += size
        return True

    def wait(self, owner: object, resume: Callable[[], None]) -> None:
        """Call ``resume`` once when memory is free again; ``owner`` identifies the wait."""
        self._waiting[owner] = resume

    def forget(self, owner: object) -> None:
        """``owner`` does not wait any longer."""
        self._waiting.pop(owner, None)

    def release(self, size: int) -> None:
        """Give ``size`` bytes back and let those resume, oldest first, for whom there is room."""
        self.reserved_bytes -= size
        while self._waiting and (self.limit_bytes == UNLIMITED or self.reserved_bytes < self.limit_bytes):
            _, resume = self._waiting.popitem(last=False)
            resume()


class FrameBuffers:
    """Reusable buffers of 256 KB, 1 MB, 4 MB … for frames that do not fit the shared receive buffer."""

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept_limit = kept_bytes
        self._kept = 0
        self._lent = 0
        self._free: dict[int, list[FrameBuffer]] = {}
        self._classes: set[int] = set()

    @property
    def are_many(self) -> bool:
        """Whether so much is lent that buffers have to be small."""
        return self._lent > self._kept_limit

    def take(self, size: int, have: int) -> FrameBuffer:
        """A buffer for a frame of ``size`` bytes of which ``have`` have arrived; its content is arbitrary."""
        buffer: FrameBuffer
        if have >= _MAPPED_FROM_BYTES:
            buffer = self._of_class(size)
        elif self.are_many:
            buffer = bytearray(min(size, 2 * have))
        else:
            buffer = self._of_class(min(size, max(_GROWTH * have, _SMALLEST), _MAPPED_FROM_BYTES))
        self._lent += len(buffer)
        return buffer

    def _of_class(self, size: int) -> FrameBuffer:
        capacity = _SMALLEST
        while capacity < size:
            capacity *= _GROWTH
        free = self._free.get(capacity)
        if free:
            self._kept -= capacity
            return free.pop()
        # Beyond the largest class that is ever kept, rounding up would only waste address space.
        if capacity > self._kept_limit:
            return _made(size)
        self._classes.add(capacity)
        return _made(capacity)

    def give_back(self, buffer: FrameBuffer) -> None:
        """The caller is done with ``buffer`` and holds no view of it."""
        capacity = len(buffer)
        self._lent -= capacity
        if capacity in self._classes and self._kept + capacity <= self._kept_limit:
            self._kept += capacity
            self._free.setdefault(capacity, []).append(buffer)


def _made(size: int) -> FrameBuffer:
    if size > _MAPPED_FROM_BYTES:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return bytearray(size)
