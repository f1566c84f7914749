"""Long steps of the loop are found and named; a busy loop, or a busy machine, is not one."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tidelog.broker.metrics import loop_watchdog
from tidelog.broker.metrics.loop_watchdog import MESSAGE, HoldUp, LoopWatchdog
from tidelog.testing.broker_process import HELD_UP

LIMIT_MS = 20.0
DEADLINE_S = 30.0

Scene = Callable[["Watched"], Awaitable[None]]

both_loops = pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])


@pytest.fixture(autouse=True)
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel would say of the machine's time: none is stolen, whatever this machine's host does."""
    path = tmp_path / "stat"
    path.write_text("cpu  1 2 3 4 5 6 7 0 0 0\n")
    monkeypatch.setattr(loop_watchdog, "_STAT", path)
    return path


class Watched:
    """A watched loop and what was found on it."""

    def __init__(self) -> None:
        self.found: list[HoldUp] = []
        self.watchdog = LoopWatchdog(asyncio.get_running_loop(), LIMIT_MS, self.found.append)

    async def wait_found(self) -> HoldUp:
        async with asyncio.timeout(DEADLINE_S):
            while not self.found:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.found[0]

    async def found_in(self, step: Callable[[], Coroutine[Any, Any, None]]) -> HoldUp:
        """What is found in a step; it is taken again if the machine stood still, which accuses nobody."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.found and time.monotonic() < deadline:
            await asyncio.create_task(step())
            await asyncio.sleep(2 * LIMIT_MS / 1000)
        return await self.wait_found()


def run(scene: Scene, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Watched:
    async def body() -> Watched:
        watched = Watched()
        watched.watchdog.start()
        try:
            await scene(watched)
        finally:
            watched.watchdog.stop()
        return watched

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(body())


async def compute_too_long() -> None:
    """A callback that is a step of its own."""
    asyncio.get_running_loop().call_soon(compute, 10 * LIMIT_MS)


def compute(milliseconds: float) -> None:
    """Keep the processor for so long, whatever others do on the machine."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


@both_loops
def test_a_callback_that_computes_too_long_is_named(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene(watched: Watched) -> None:
        found = await watched.found_in(compute_too_long)
        assert found.stack[0].startswith("compute ")
        assert "test_loop_watchdog.py:" in found.stack[0]
        assert found.busy_ms >= LIMIT_MS
        assert str(found).startswith(MESSAGE)

    watched = run(scene, loop_factory)
    assert watched.watchdog.count == len(watched.found)
    assert watched.watchdog.total_ms == sum(each.duration_ms for each in watched.found)


@both_loops
def test_time_that_the_host_of_a_virtual_machine_took_accuses_nobody(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], stat: Path
) -> None:
    def robbed() -> None:
        compute(5 * LIMIT_MS)
        stat.write_text("cpu  1 2 3 4 5 6 7 1000 0 0\n")  # ten seconds

    async def scene(watched: Watched) -> None:
        asyncio.get_running_loop().call_soon(robbed)
        await asyncio.sleep(10 * LIMIT_MS / 1000)
        assert watched.found == []
        # What was taken before does not excuse what comes after it.
        await asyncio.sleep(0.5)
        await watched.found_in(compute_too_long)

    run(scene, loop_factory)


@both_loops
def test_a_coroutine_that_blocks_is_named(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def block() -> None:
        await asyncio.sleep(0)
        time.sleep(40 * LIMIT_MS / 1000)  # noqa: ASYNC251

    async def scene(watched: Watched) -> None:
        found = await watched.found_in(block)
        assert "block" in found.stack[0]
        assert found.blocked_ms > found.busy_ms
        assert "blocked in" in str(found)

    run(scene, loop_factory)


@both_loops
@pytest.mark.parametrize("in_thread", [False, True])
def test_the_garbage_collector_is_named_whichever_thread_it_runs_in(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], in_thread: bool
) -> None:
    def make_garbage() -> None:
        for _ in range(300_000):
            circle: list[object] = []
            circle.append(circle)
        gc.collect()

    async def scene(watched: Watched) -> None:
        gc.disable()
        try:
            if in_thread:
                await asyncio.to_thread(make_garbage)
            else:
                make_garbage()
            async with asyncio.timeout(DEADLINE_S):
                while not any("garbage collector" in each.stack[0] for each in watched.found):  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        finally:
            gc.enable()

    callbacks = list(gc.callbacks)
    run(scene, loop_factory)
    assert gc.callbacks == callbacks


@both_loops
def test_many_short_steps_are_not_a_long_one(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene(watched: Watched) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(200):
            loop.call_soon(compute, 1)
        for _ in range(200):
            compute(1)
            await asyncio.sleep(0)

    # A busy machine may stop the loop between two of them: that is no work of theirs.
    assert [found for found in run(scene, loop_factory).found if found.busy_ms >= LIMIT_MS] == []


def test_lines_are_few_and_say_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def left_out() -> list[int]:
        found = (
            re.search(r"\((\d+) more since the last line\)", each.getMessage()) for each in caplog.records
        )
        return [int(said[1]) for said in found if said is not None]

    async def body() -> int:
        watchdog = LoopWatchdog(asyncio.get_running_loop(), LIMIT_MS)
        watchdog.start()
        deadline = time.monotonic() + DEADLINE_S
        while not left_out() and time.monotonic() < deadline:
            compute(4 * LIMIT_MS)
            await asyncio.sleep(0)
        watchdog.stop()
        return watchdog.count

    with caplog.at_level(logging.WARNING):
        count = asyncio.run(body())
    assert all(record.getMessage().startswith(MESSAGE) for record in caplog.records)
    assert 0 < left_out()[0] <= count - 2


def test_the_helper_for_tests_looks_for_the_line_that_is_logged() -> None:
    assert HELD_UP == MESSAGE
