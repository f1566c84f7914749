"""The memory that a producer may fill with records that are not yet acknowledged (``buffer.memory``).

Owns a budget in bytes, part of which is kept in pieces of one size (``batch.size``) that go from batch to
batch. An allocation meets one of four cases:

1. the usual size, and a free piece is there: it is taken;
2. the usual size, no piece is free, the rest of the budget suffices: a new piece is cut from it;
3. another size, the rest of the budget suffices: it is taken from there, and returns there;
4. another size, the rest suffices only together with free pieces: as many as needed are given up for it.

Else the caller waits, at most as long as it says. Waiters are served strictly in order: whatever becomes free
goes to the first one until it has enough, piece by piece, so that a large request does not starve behind
small ones. Threads and tasks wait in the same line.

What is handed out is the right to so many bytes; for a piece of the usual size ``take_buffer`` gives the
memory too, used again and again, for fresh memory costs more than filling it.

Invariant: ``available_bytes`` plus what is handed out plus what waiters have gathered is ``total_bytes``.
Called by the accumulator; every method may be called from any thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from tidelog.client.errors import ClientError
from tidelog.client.producer.errors import BufferExhaustedError


class PoolClosedError(ClientError):
    """The producer was closed while a record waited for memory."""


class _Waiter:
    """One place in the line."""

    __slots__ = ("gathered_bytes", "served", "size_bytes", "wake")

    def __init__(self, size_bytes: int, wake: Callable[[], object]) -> None:
        self.size_bytes = size_bytes
        self.wake = wake
        self.gathered_bytes = 0
        self.served = False


class BufferPool:
    """Hands out memory within a budget; what ``allocate`` granted goes back by ``deallocate``."""

    def __init__(self, total_bytes: int, poolable_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.poolable_bytes = poolable_bytes
        self.wait_seconds = 0.0
        self.exhausted_count = 0
        self._lock = threading.Lock()
        self._free_pieces = 0
        self._buffers: list[bytearray] = []
        self._unpooled_bytes = total_bytes
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def available_bytes(self) -> int:
        """What could be handed out now."""
        return self._unpooled_bytes + self._free_pieces * self.poolable_bytes

    @property
    def waiter_count(self) -> int:
        """How many wait for memory; batches leave early while somebody does."""
        return len(self._waiters)

    def allocate_nowait(self, size_bytes: int) -> bool:
        """Take ``size_bytes`` if they can be had without waiting and without overtaking anybody."""
        with self._lock:
            self._check(size_bytes)
            return not self._waiters and self._take(size_bytes)

    def allocate(self, size_bytes: int, max_block_s: float) -> None:
        """Take ``size_bytes``; blocks this thread, at most ``max_block_s``, while they are not there."""
        if self.allocate_nowait(size_bytes):
            return
        event = threading.Event()
        waiter = _Waiter(size_bytes, event.set)
        started = time.monotonic()
        if not self._enqueue(waiter):
            event.wait(max_block_s)
        self._finish(waiter, time.monotonic() - started)

    async def wait_allocate(self, size_bytes: int, max_block_s: float) -> None:
        """Take ``size_bytes``; suspends this task, at most ``max_block_s``, while they are not there."""
        if self.allocate_nowait(size_bytes):
            return
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        waiter = _Waiter(size_bytes, lambda: loop.call_soon_threadsafe(event.set))
        started = time.monotonic()
        if not self._enqueue(waiter):
            try:
                async with asyncio.timeout(max_block_s):
                    await event.wait()
            except TimeoutError:
                # It may have been served in the same moment: _finish looks again, under the lock.
                pass
            except BaseException:
                self._abandon(waiter)
                raise
        self._finish(waiter, time.monotonic() - started)

    def take_buffer(self) -> bytearray:
        """Memory for a piece of the usual size that the caller has been granted."""
        with self._lock:
            if self._buffers:
                return self._buffers.pop()
        return bytearray(self.poolable_bytes)

    def deallocate(self, size_bytes: int, buffer: bytearray | None = None) -> None:
        """Give ``size_bytes`` back, as they were taken; whoever waits first gets them.

        ``buffer`` is the memory, where nobody looks at it any more.
        """
        with self._lock:
            self._put_back(size_bytes)
            if buffer is not None and len(buffer) == self.poolable_bytes == size_bytes:
                self._buffers.append(buffer)
            self._serve()

    def close(self) -> None:
        """Nobody gets memory any more; those who wait are told so."""
        with self._lock:
            self._closed = True
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.wake()

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self.total_bytes:
            raise BufferExhaustedError(
                f"a batch of {size_bytes} bytes is larger than buffer.memory={self.total_bytes}; raise it"
            )
        if self._closed:
            raise PoolClosedError("the producer was closed while a record waited for memory")

    def _take(self, size_bytes: int) -> bool:
        if size_bytes == self.poolable_bytes and self._free_pieces:
            self._free_pieces -= 1
            return True
        if self.available_bytes < size_bytes:
            return False
        self._free_up(size_bytes)
        self._unpooled_bytes -= size_bytes
        return True

    def _free_up(self, size_bytes: int) -> None:
        while self._unpooled_bytes < size_bytes and self._free_pieces:
            self._free_pieces -= 1
            self._unpooled_bytes += self.poolable_bytes
            if len(self._buffers) > self._free_pieces:
                self._buffers.pop()

    def _put_back(self, size_bytes: int) -> None:
        if size_bytes == self.poolable_bytes:
            self._free_pieces += 1
        else:
            self._unpooled_bytes += size_bytes

    def _serve(self) -> None:
        """Give what is free to the first waiters."""
        while self._waiters:
            waiter = self._waiters[0]
            if not waiter.gathered_bytes and self._take(waiter.size_bytes):
                waiter.gathered_bytes = waiter.size_bytes
            else:
                missing = waiter.size_bytes - waiter.gathered_bytes
                self._free_up(missing)
                got = min(missing, self._unpooled_bytes)
                self._unpooled_bytes -= got
                waiter.gathered_bytes += got
                if got < missing:
                    return
            waiter.served = True
            self._waiters.popleft()
            waiter.wake()

    def _enqueue(self, waiter: _Waiter) -> bool:
        """Get in line; True where memory has come free since the first look."""
        with self._lock:
            self._check(waiter.size_bytes)
            self._waiters.append(waiter)
            self._serve()
            return waiter.served

    def _finish(self, waiter: _Waiter, waited_s: float) -> None:
        with self._lock:
            self.wait_seconds += waited_s
            if waiter.served and not self._closed:
                return
            self._give_up(waiter)
            if self._closed:
                raise PoolClosedError("the producer was closed while a record waited for memory")
            self.exhausted_count += 1
            raise BufferExhaustedError(
                f"no {waiter.size_bytes} bytes of buffer.memory={self.total_bytes} came free within "
                f"{waited_s * 1000:.0f} ms (max.block.ms): brokers take records more slowly than they come"
            )

    def _abandon(self, waiter: _Waiter) -> None:
        with self._lock:
            self._give_up(waiter)

    def _give_up(self, waiter: _Waiter) -> None:
        """Return what ``waiter`` has, whole or in part, and let the next one have it."""
        if waiter.served:
            self._put_back(waiter.size_bytes)
        else:
            self._unpooled_bytes += waiter.gathered_bytes
            self._waiters.remove(waiter)
        self._serve()
