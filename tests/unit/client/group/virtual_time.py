"""An event loop on which time passes only when everybody waits: minutes of heartbeats in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tidelog.client._network import retry

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting, moves the clock to the next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nobody can go on: a wait without a deadline")
        self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with its own time, in seconds from 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class _Time:
    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic = loop.time


def run(work: Coroutine[Any, Any, T], monkeypatch: pytest.MonkeyPatch) -> T:
    """Run a test's coroutine in virtual time; deadlines follow it."""
    loop = VirtualLoop()
    monkeypatch.setattr(retry, "time", _Time(loop))
    try:
        return loop.run_until_complete(asyncio.wait_for(work, 3600))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def later(seconds: float) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)
