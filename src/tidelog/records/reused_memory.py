"""Long stretches of memory that are used again: received answers and the columns that are made of them.

Fresh memory costs more than filling it does: the system hands it out page by page, each with a fault, and
takes it back when it is freed. So what is taken here is kept, and is taken again once nobody looks into it
any more. Its bytearray tells: it refuses to change its length as long as a view of it is alive. Nothing has
to be given back, and whoever keeps a view for ever keeps that stretch alone.

Invariant: what :func:`take_memory` returns is seen by nobody else. At most ``_KEPT_BYTES`` are kept by a
process while nobody uses them. Any thread may call, also after a fork: a deque alone is shared, and a stretch
is off it while it is looked at. Called by the clients' receiver and by ``records/column_reader``.
"""

from __future__ import annotations

from collections import deque

# Below this, malloc has memory at hand.
_LEAST_BYTES = 128 << 10
# Lengths are rounded up to these, so that answers of about the same length fit the same memory.
_STEP_BYTES = 256 << 10
_KEPT_BYTES = 32 << 20
_KEPT_MOST = 32

_kept: deque[bytearray] = deque(maxlen=_KEPT_MOST)


def take_memory(size: int) -> memoryview:
    """``size`` writable bytes, which hold anything; they are the caller's while a view of them is alive."""
    if size < _LEAST_BYTES:
        return memoryview(bytearray(size))
    for _ in range(len(_kept)):
        try:
            memory = _kept.popleft()
        except IndexError:
            break
        if size <= len(memory) <= 2 * size and _is_idle(memory):
            view = memoryview(memory)
            _kept.append(memory)
            return view[:size]
        _kept.append(memory)
    memory = bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
    view = memoryview(memory)
    if len(memory) <= _KEPT_BYTES // 4:
        _kept.append(memory)
        _let_go()
    return view[:size]


def _is_idle(memory: bytearray) -> bool:
    """Whether nobody has a view of ``memory``. Within what is allocated, neither step moves a byte."""
    try:
        memory.pop()
    except BufferError:
        return False
    memory.append(0)
    return True


def _let_go() -> None:
    """Forget what was taken longest ago; it is freed when its last view is."""
    excess = sum(map(len, tuple(_kept))) - _KEPT_BYTES
    while excess > 0:
        try:
            excess -= len(_kept.popleft())
        except IndexError:
            return


def _keep_freed_heap() -> None:
    """Have the records of one poll leave their memory to those of the next.

    glibc gives the free end of its heap back to the system from 128 KB on, unless it has seen a longer
    stretch come and go: then from twice its length on. Nothing of this stretch is ever touched.
    """
    stretch = bytes(_KEPT_BYTES // 4)
    del stretch


_keep_freed_heap()
