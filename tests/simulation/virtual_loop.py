"""An asyncio loop whose time jumps to the next timer when nobody has anything to do.

Minutes of a cluster's life pass in seconds, and a run depends on its seed alone: nothing in it may wait for
threads or sockets.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_START_MS = 1_700_000_000_000


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting for a time, it makes it come."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that cannot come")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time as its selector says."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class LoopClock:
    """The running loop's time as a ``Clock``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def time_ms(self) -> int:
        return _START_MS + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own; what is left over is cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
