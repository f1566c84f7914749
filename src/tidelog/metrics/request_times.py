# cython: language_level=3
# ruff: noqa: F821 (names of the .pxd, in branches for the compiler)
"""How often each API was asked for, and how long its answers took, in parts: for every request, and cheap.

Plain Python that Cython also compiles (see ``records/record_codec``): compiled, a wake-up of a connection
costs two looks at the clock and one call here, whatever the number of its requests. Everything is in two
blocks of plain numbers, whose pages take memory only where something was counted:

``cells``: for each API key and each of ``PARTS`` a row of ``ROW`` numbers: a histogram of fixed buckets, the
largest value, the sum and the count. Times are in microseconds, sizes in bytes. A value below 4 has a bucket
of its own; above, each power of two is cut into four, so that a bucket's ends differ by a quarter at most.

``versions``: for each API key how many requests came in each version.

Parts of a time, as Kafka names them: *queue* is the wait of a request for those that came with it or before
it on its connection, *local* the work on it, *remote* the wait for records, replicas, other members or
another thread, *throttle* what a quota imposes, *response queue* the wait for the answers before it, *send*
the way into the socket. Of requests that were handled together nobody looked at the clock in between: each is
said to have taken the same part of the time.

Called by ``broker/network/connection``; read by ``broker/metrics``.
"""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING, Protocol

# Cython's compiler goes by the first branch, which is never run; the interpreter and mypy go by the second.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

PARTS = ("total", "queue", "local", "remote", "throttle", "response_queue", "send", "bytes")
"""What is kept of every API, in the order of its rows; all but the last are times."""
TOTAL, QUEUE, LOCAL, REMOTE, THROTTLE, RESPONSE_QUEUE, SEND, BYTES = range(8)
MAX_KEY = 127
FOLLOWER_FETCH = 126
"""Stands for the key of fetches by followers; that of Fetch is for consumers alone."""
MAX_VERSION = 31
ROW = 112
MAX_AT, SUM_AT, COUNT_AT = 109, 110, 111
BUCKETS = 108
_PART_COUNT = 8
_LARGEST = (1 << 28) - 1


class Asking(Protocol):
    """What is to be known of a connection."""

    is_follower: bool


def bucket_of(value: int) -> int:
    """The bucket that a value falls into."""
    if value < 4:
        return max(value, 0)
    shift = min(value, _LARGEST).bit_length() - 3
    return (shift + 1) * 4 + ((min(value, _LARGEST) >> shift) & 3)


def bounds_of(bucket: int) -> tuple[int, int]:
    """The first value of a bucket, and the first behind it."""
    if bucket < 8:
        return bucket, bucket + 1
    shift = bucket // 4 - 1
    first = (4 + bucket % 4) << shift
    return first, first + (1 << shift)


@cython.final
@cython.cclass
class RequestTimes:
    """The requests of one broker."""

    if not cython.compiled:
        __slots__ = ("cells", "versions")

    def __init__(self) -> None:
        self.cells = memoryview(mmap.mmap(-1, (MAX_KEY + 1) * _PART_COUNT * ROW * 8)).cast("q")
        self.versions = memoryview(mmap.mmap(-1, (MAX_KEY + 1) * (MAX_VERSION + 1) * 8)).cast("q")
        if cython.compiled:
            buffer: Py_buffer  # type: ignore[name-defined]
            PyObject_GetBuffer(self.cells, cython.address(buffer), PyBUF_WRITABLE)  # type: ignore[name-defined]
            self._cells = cython.cast(cython.p_longlong, buffer.buf)  # type: ignore[misc]
            PyBuffer_Release(cython.address(buffer))  # type: ignore[name-defined]
            PyObject_GetBuffer(self.versions, cython.address(buffer), PyBUF_WRITABLE)  # type: ignore[name-defined]
            self._versions = cython.cast(cython.p_longlong, buffer.buf)  # type: ignore[misc]
            PyBuffer_Release(cython.address(buffer))  # type: ignore[name-defined]

    def row(self, key: int, part: int) -> memoryview:
        """The numbers of one part of one API."""
        start = (key * _PART_COUNT + part) * ROW
        return self.cells[start : start + ROW]

    def answered(
        self,
        connection: Asking | None,
        frames: list[memoryview],
        done: cython.Py_ssize_t,
        later: list[int] | None,
        arrived_s: cython.double,
        began_s: cython.double,
        handled_s: cython.double,
    ) -> None:
        """The first ``done`` of ``frames`` were handled and the answers sent, a moment ago.

        Of as many requests of each API as ``later`` names the answer is not out yet; ``waited`` tells of it.
        """
        total_us: cython.longlong
        now_s: cython.double = self._now()
        total_us = self._us(now_s - arrived_s)
        send_us: cython.longlong = self._us(now_s - handled_s)
        local_us: cython.longlong = self._us((handled_s - began_s) / done) if done > 0 else 0
        queue_us: cython.longlong = self._us(began_s - arrived_s)
        left: list[int] = [] if not later else later.copy()
        key: cython.longlong
        version: cython.longlong
        size: cython.longlong
        at: cython.Py_ssize_t
        for at in range(done):
            frame = frames[at]
            if cython.compiled:
                if not PyMemoryView_Check(frame) or PyMemoryView_GET_BUFFER(frame).len < 4:  # type: ignore[name-defined]
                    continue
                view = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(frame).buf)  # type: ignore[name-defined]
                size = PyMemoryView_GET_BUFFER(frame).len  # type: ignore[name-defined]
                key = view[0] << 8 | view[1]
                version = view[2] << 8 | view[3]
            else:
                size = len(frame)
                if size < 4:
                    continue
                key = frame[0] << 8 | frame[1]
                version = frame[2] << 8 | frame[3]
            if key > 127 or version > 31:
                # No request: a token of a login that has no header, say.
                continue
            if key == 1 and connection is not None and connection.is_follower:
                # FOLLOWER_FETCH
                key = 126
            self._count(key, version)
            self._add(key * 8 + 7, size)
            if left and (1 if key == 126 else key) in left:
                left.remove(1 if key == 126 else key)
                continue
            self._add(key * 8, total_us)
            self._add(key * 8 + 2, local_us)
            self._add(key * 8 + 6, send_us)
            if at or queue_us:
                self._add(key * 8 + 1, queue_us + at * local_us)

    def waited(
        self,
        connection: Asking | None,
        key: cython.longlong,
        arrived_s: cython.double,
        began_s: cython.double,
        taken_s: cython.double,
        settled_s: cython.double,
        ready_s: cython.double,
    ) -> None:
        """The answer to a request that was taken at ``taken_s`` is out, a moment ago.

        It was known at ``settled_s`` and its turn came at ``ready_s``.
        """
        if not 0 <= key <= 127:
            return
        if key == 1 and connection is not None and connection.is_follower:
            key = 126
        now_s: cython.double = self._now()
        self._add(key * 8, self._us(now_s - arrived_s))
        self._add(key * 8 + 1, self._us(began_s - arrived_s))
        self._add(key * 8 + 2, self._us(taken_s - began_s))
        self._add(key * 8 + 3, self._us(settled_s - taken_s))
        self._add(key * 8 + 5, self._us(ready_s - settled_s))
        self._add(key * 8 + 6, self._us(now_s - ready_s))

    def throttled(self, connection: Asking | None, key: cython.longlong, throttle_ms: cython.double) -> None:
        """A quota has the sender of a request wait for so long."""
        if 0 <= key <= 127:
            self._add(key * 8 + 4, self._us(throttle_ms / 1000))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _now(self) -> cython.double:
        if cython.compiled:
            now: timespec  # type: ignore[name-defined]
            clock_gettime(CLOCK_MONOTONIC, cython.address(now))  # type: ignore[name-defined]
            return now.tv_sec + now.tv_nsec * 1e-9  # type: ignore[no-any-return]
        return time.monotonic()

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _us(self, seconds: cython.double) -> cython.longlong:
        if cython.compiled:
            return cython.cast(cython.longlong, seconds * 1_000_000) if seconds > 0 else 0
        return int(seconds * 1_000_000) if seconds > 0 else 0

    @cython.cfunc
    @cython.inline
    def _count(self, key: cython.longlong, version: cython.longlong) -> None:
        if cython.compiled:
            self._versions[key * 32 + version] += 1
        else:
            self.versions[key * 32 + version] += 1

    @cython.cfunc
    @cython.inline
    def _add(self, row: cython.longlong, value: cython.longlong) -> None:
        start: cython.longlong = row * 112
        shift: cython.longlong
        capped: cython.longlong
        if cython.compiled:
            if value < 4:
                self._cells[start + value] += 1
            else:
                capped = value if value < 268435455 else 268435455
                shift = 61 - __builtin_clzll(capped)  # type: ignore[name-defined]
                self._cells[start + (shift + 1) * 4 + ((capped >> shift) & 3)] += 1
            if value > self._cells[start + 109]:
                self._cells[start + 109] = value
            self._cells[start + 110] += value
            self._cells[start + 111] += 1
        else:
            self.cells[start + bucket_of(value)] += 1
            if value > self.cells[start + 109]:
                self.cells[start + 109] = value
            self.cells[start + 110] += value
            self.cells[start + 111] += 1
