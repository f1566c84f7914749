# cython: language_level=3
# ruff: noqa: F821 (names of the .pxd, in branches for the compiler)
"""The short way from an offset to its batch: the index and the headers behind it, in one compiled step.

Plain Python that Cython also compiles (see ``records/record_codec``). A fetch at a random offset of a large
log is mostly this search, so where it is compiled it makes no objects but its result, and reads with the C
library's own ``pread``. It gives what ``segment`` gives, or ``None`` wherever something is out of the
ordinary (an index that leads astray, a batch that makes no sense, a read that fails or falls short):
``segment`` then goes the long way, which knows what to say. Messages of formats 0 and 1 are ordinary: an
index that an old broker wrote may leave thousands of them between two entries. Interpreted it gives the
same, slower than the long way, and is not used.

Invariant: no read leaves the index's entries or the bytes that were read. Called by ``segment`` alone.
"""

from __future__ import annotations

import os
from mmap import mmap
from typing import TYPE_CHECKING

# Cython's compiler goes by the first branch, which is never run; the interpreter and mypy go by the second.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

_CHUNK = 4096
_HEAD = 27
_OLD_HEAD = 18
_OVERHEAD = 12
_MIN_LENGTH = 49
_OLD_MIN_LENGTH = 14
_MAGIC = 2
_CODEC_MASK = 7


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(source: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = source[at]
    value = value << 8 | source[at + 1]
    value = value << 8 | source[at + 2]
    value = value << 8 | source[at + 3]
    return value - 0x100000000 if value >= 0x80000000 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(source: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = _int32(source, at)
    low: cython.longlong = _int32(source, at + 4)
    return high * 0x100000000 + (low + 0x100000000 if low < 0 else low)


@cython.cfunc
@cython.exceptval(check=False)
def _floor_slot(
    source: cython.p_const_uchar, entries: cython.Py_ssize_t, target: cython.longlong
) -> cython.Py_ssize_t:
    """The last slot whose offset is at most ``target``; -1 where all are larger.

    As ``offset_index`` does it: a guess by even distances, steps that double, then steps that halve.
    """
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = entries - 1
    step: cython.Py_ssize_t = 1
    other: cython.Py_ssize_t = 0
    first: cython.longlong
    last: cython.longlong
    if entries == 0:
        return -1
    first = _int32(source, 0)
    last = _int32(source, high * 8)
    if target < first:
        return -1
    if target >= last:
        return high
    low = (target - first) * high // (last - first)
    if _int32(source, low * 8) <= target:
        other = low + step
        while other < high and _int32(source, other * 8) <= target:
            low = other
            step *= 2
            other = low + step
        high = (other if other < high else high) - 1
    else:
        high = low - 1
        other = high - step
        while other > 0 and _int32(source, other * 8) > target:
            high = other - 1
            step *= 2
            other = high - step
        low = other if other > 0 else 0
    while low < high:
        other = (low + high + 1) >> 1
        if _int32(source, other * 8) <= target:
            low = other
        else:
            high = other - 1
    return low


@cython.cfunc
def _read(fd: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong) -> bytes | bytearray:
    """Up to ``size`` bytes at ``position``; none where that fails."""
    if not cython.compiled:
        return os.pread(fd, size, position)
    chunk = bytearray(size)
    into: cython.p_uchar = chunk
    have: cython.Py_ssize_t
    with cython.nogil:
        have = pread(fd, into, size, position)  # type: ignore[name-defined]
    if have < size:
        del chunk[max(have, 0) :]
    return chunk


@cython.cfunc
def _scan(
    fd: cython.Py_ssize_t, start: cython.longlong, offset: cython.longlong, end: cython.longlong
) -> tuple[int, int] | None:
    """The first batch from ``start`` on that ends at ``offset`` or later."""
    position: cython.longlong = start
    base: cython.longlong
    last: cython.longlong
    size: cython.longlong
    at: cython.longlong = 0
    have: cython.Py_ssize_t = 0
    source: cython.p_const_uchar = b""
    chunk: object = b""
    while position < end:
        if at + _HEAD > have:
            chunk = _read(fd, _CHUNK if end - position > _CHUNK else end - position, position)
            source = chunk
            have = len(chunk)
            at = 0
            if have < _OLD_HEAD:
                return None
        base = last = _int64(source, at)
        size = _int32(source, at + 8) + _OVERHEAD
        if source[at + 16] == _MAGIC:
            if size < _MIN_LENGTH + _OVERHEAD or have - at < _HEAD:
                return None
            last += _int32(source, at + 23)
        elif source[at + 16] > _MAGIC or size < _OLD_MIN_LENGTH + 8 * source[at + 16] + _OVERHEAD:
            # Format 1 has a timestamp more than format 0.
            return None
        elif source[at + 17] & _CODEC_MASK:
            # The first offset in a compressed message is known only once it is unpacked.
            base = 0
        if last >= offset:
            if position == start > 0 and base > offset:
                return None
            return position, size
        at += size
        position += size
    return None


@cython.cfunc
def _holding(
    fd: cython.Py_ssize_t, position: cython.longlong, offset: cython.longlong, end: cython.longlong
) -> cython.longlong:
    """The size of the batch at ``position`` if it holds ``offset``, 0 if it does not."""
    chunk = _read(fd, _HEAD, position)
    source: cython.p_const_uchar = chunk
    base: cython.longlong
    size: cython.longlong
    if len(chunk) < _HEAD or source[16] != _MAGIC:
        return 0
    base = _int64(source, 0)
    size = _int32(source, 8) + _OVERHEAD
    if size < _MIN_LENGTH + _OVERHEAD or position + size > end:
        return 0
    return size if base <= offset <= base + _int32(source, 23) else 0


def find(
    fd: cython.Py_ssize_t,
    index: mmap | None,
    entries: cython.Py_ssize_t,
    relative: cython.longlong,
    offset: cython.longlong,
    end: cython.longlong,
    interval: cython.longlong,
) -> tuple[int, int] | None:
    """Position and size of the first batch before ``end`` that ends at ``offset`` or later.

    ``index`` has ``entries`` entries and ``relative`` is the offset as they have it; ``interval`` is the
    distance that they have where batches are small.
    """
    start: cython.longlong = 0
    behind: cython.longlong = -1
    size: cython.longlong
    slot: cython.Py_ssize_t = -1
    if entries:
        if cython.compiled:
            view: Py_buffer  # type: ignore[name-defined]
            PyObject_GetBuffer(index, cython.address(view), PyBUF_SIMPLE)  # type: ignore[name-defined]
            source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, view.buf)
            have: cython.Py_ssize_t = view.len
        else:
            assert index is not None
            source = index
            have = len(index)
        if have >= entries * 8:
            slot = _floor_slot(source, entries, relative)
            if slot >= 0:
                start = _int32(source, slot * 8 + 4)
            if slot + 1 < entries:
                behind = _int32(source, slot * 8 + 12)
        else:
            start = -1
        if cython.compiled:
            PyBuffer_Release(cython.address(view))  # type: ignore[name-defined]
    if not 0 <= start < end:
        return None
    if behind - start > 2 * interval:
        # Batches so large have an entry each, by their ends: the one behind is the one to be read next.
        size = _holding(fd, behind, offset, end)
        if size:
            return behind, size
    return _scan(fd, start, offset, end)
