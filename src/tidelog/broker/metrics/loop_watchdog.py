"""Finds out when one step of the event loop takes too long, and what it was doing.

A broker serves everybody from one loop. While one callback, or one stretch of a coroutine between two awaits,
is running, nobody else is served; so no step may take longer than 20 ms, whatever a peer sends. Tests and
chaos hold the broker to that; in production each longer step than ``tidelog.loop.step.warn.ms`` is counted,
and some of them logged.

How. A thread looks at the stack of the loop's thread. While the loop waits for events there is nothing above
its own frames. Otherwise a step is running, and the thread looks again in a moment: the step is still the
same if its outermost frame is, and if the loop has not come round to a question that was put to it meanwhile
(a coroutine has the same frame in every step). So many short steps in one turn, of many busy peers, are not a
long one. A step that is over, and was too long, is reported with the stack that was seen most often.

Nobody can look while one call of native code keeps the interpreter to itself; such a call is found only in a
step that was seen before it. The garbage collector, which keeps everybody waiting in whichever thread it
runs, tells of itself.

What counts. Time that the step had the processor, and time that it was blocked (a disk, a lock), but neither
time in which the machine ran others (the kernel's run queue statistics tell), nor time in which a virtual
machine stood still (its steal time, known to 10 ms), nor time in which the whole process did (so did the
watchdog). So a busy machine or SIGSTOP accuse nobody. Where the system does not tell (not Linux), only the
time of the clock is known.

What it costs. At rest the thread wakes up once within the limit and looks; while the loop works, five times.
The loop itself is only asked while a step is running. What was seen is less than what was, by up to two
looks: a step of one and a half times the limit, or of two and a half after a rest, is certain to be found.

``broker/app`` starts and stops it; the counters are there for a metric.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import selectors
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

logger = logging.getLogger(__name__)

MESSAGE = "The event loop was held up for"
"""How the log line of a step that took too long begins; tests look for it."""

_LINES_PER_S = 1.0
_LOOKS_PER_LIMIT = 5
_SHOWN_FRAMES = 6
# Less processor time than this since the last look is a loop at rest.
_AT_REST_S = 0.001
_STAT = Path("/proc/stat")
_TICK_S = 0.01
_LATELY_S = 0.25


class HoldUp(NamedTuple):
    """One step that took too long."""

    busy_ms: float
    """How long it had the processor."""
    blocked_ms: float
    """How long it waited for something else than the processor."""
    stack: tuple[str, ...]
    """Where it was most of the time: ``function file:line``, the innermost first."""

    @property
    def duration_ms(self) -> float:
        """How long the others waited for it, whatever the machine did besides."""
        return self.busy_ms + self.blocked_ms

    def __str__(self) -> str:
        kind = "computing" if self.busy_ms >= self.blocked_ms else "blocked"
        return f"{MESSAGE} {self.duration_ms:.0f} ms, {kind} in {' < '.join(self.stack)}"


class LoopWatchdog:
    """Watches one loop from a thread of its own; to be started on that loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_ms: float,
        on_hold_up: Callable[[HoldUp], None] | None = None,
    ) -> None:
        """``on_hold_up`` is told of each long step, in the watchdog's thread; without it they are logged."""
        self.count = 0
        """How many steps took too long."""
        self.total_ms = 0.0
        """How long they took together."""
        self._loop = loop
        self._limit_s = limit_ms / 1000
        self._tell = on_hold_up or _RateLimitedLog()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._asked = 0
        self._answered = 0
        self._loop_codes: frozenset[CodeType] = frozenset()
        self._loop_thread = _ThreadTimes()
        self._stolen = _StolenTime()
        self._collecting_since_s = 0.0
        # Bounded: nobody takes them out any more when a loop was closed without this being stopped.
        self._collections: deque[HoldUp] = deque(maxlen=16)

    def start(self) -> None:
        """Begin to watch; called on the loop."""
        self._loop_thread = _ThreadTimes.of_this_thread()
        self._loop_codes = _codes_below(sys._getframe(), asyncio.current_task(self._loop))
        self._thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)
        self._thread.start()
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Watch no longer; called on the loop, which need not run afterwards."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._loop_thread.close()
            gc.callbacks.remove(self._on_collection)

    def _watch(self) -> None:
        step: _Step | None = None
        cpu_s = self._loop_thread.now().cpu_s
        pause_s = self._limit_s
        while not self._wait(pause_s, step):
            now = self._loop_thread.now()
            frames = self._stack()
            outermost = frames[-1] if frames else None
            if step is not None and (step.outermost is not outermost or self._answered == self._asked):
                self._finish(step)
                step = None
            if outermost is not None:
                if step is None:
                    self._ask()
                    step = _Step(outermost, now, self._stolen.lately(now.wall_s))
                step.see(frames, now)
            # Not kept beyond this look: their variables would live as long.
            del frames, outermost
            at_rest = step is None and now.cpu_s - cpu_s < _AT_REST_S
            cpu_s = now.cpu_s
            pause_s = self._limit_s if at_rest else self._limit_s / _LOOKS_PER_LIMIT
            while self._collections:
                self._report(self._collections.popleft())

    def _wait(self, pause_s: float, step: _Step | None) -> bool:
        """Wait for the next look; whether there is to be none."""
        began_s = time.monotonic()
        stopped = self._stop.wait(pause_s) or self._loop.is_closed()
        if step is not None:
            step.overslept(time.monotonic() - began_s - pause_s)
        return stopped

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        """The garbage collector begins or ends, in any thread; nobody else runs meanwhile."""
        now_s = time.thread_time()
        if phase == "start":
            self._collecting_since_s = now_s
            return
        busy_s = now_s - self._collecting_since_s
        if busy_s >= self._limit_s:
            what = f"the garbage collector, generation {info['generation']}, {info['collected']} objects"
            self._collections.append(HoldUp(busy_s * 1000, 0.0, (what,)))

    def _ask(self) -> None:
        self._asked += 1
        # A loop that is closed runs no step, and the broker on it has stopped its watchdog or is gone.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answer, self._asked)

    def _answer(self, number: int) -> None:
        self._answered = number

    def _stack(self) -> list[FrameType]:
        """The frames of the running step, the innermost first; none while the loop itself runs."""
        frame = sys._current_frames().get(self._loop_thread.ident)
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        while frames and frames[-1].f_code in self._loop_codes:
            frames.pop()
        return frames

    def _finish(self, step: _Step) -> None:
        if sum(step.times(0.0)) < self._limit_s:
            return
        busy_s, blocked_s = step.times(_stolen_s() - step.stolen_before_s)
        if busy_s + blocked_s >= self._limit_s:
            self._report(HoldUp(busy_s * 1000, blocked_s * 1000, step.stack()))

    def _report(self, hold_up: HoldUp) -> None:
        self.count += 1
        self.total_ms += hold_up.duration_ms
        self._tell(hold_up)


class _Moment(NamedTuple):
    """The clocks of a thread at one time, in seconds."""

    wall_s: float
    cpu_s: float
    queued_s: float
    """How long it was ready to run while the machine ran others."""


class _ThreadTimes:
    """Reads the clocks of one thread from another; a clock that the system does not have stands still."""

    def __init__(self, ident: int = 0, cpu_clock: int | None = None, schedstat: int | None = None) -> None:
        self.ident = ident
        self._cpu_clock = cpu_clock
        self._schedstat = schedstat

    @classmethod
    def of_this_thread(cls) -> _ThreadTimes:
        ident = threading.get_ident()
        clock = time.pthread_getcpuclockid(ident) if hasattr(time, "pthread_getcpuclockid") else None
        path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        return cls(ident, clock, os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else None)

    def now(self) -> _Moment:
        wall_s = time.monotonic()
        # Where there is no clock of the thread, all its time counts as processor time.
        cpu_s = wall_s if self._cpu_clock is None else time.clock_gettime(self._cpu_clock)
        queued_s = 0.0
        if self._schedstat is not None:
            queued_s = int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9
        return _Moment(wall_s, cpu_s, queued_s)

    def close(self) -> None:
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None


class _Step:
    """A step that has been seen at least once, and how long it has been running since."""

    def __init__(self, outermost: FrameType, began: _Moment, stolen_before_s: float) -> None:
        # The frame itself and not its id, which a frame behind it could be given; let go of at the next look.
        self.outermost = outermost
        self._began = self._seen = began
        # Blocked time counts from the second look on: most steps are seen once.
        self._second: _Moment | None = None
        self.stolen_before_s = stolen_before_s
        self._oversleep_s = 0.0
        self._asleep_s = 0.0
        self._stacks: Counter[tuple[str, ...]] = Counter()

    def see(self, frames: list[FrameType], now: _Moment) -> None:
        if self._second is not None:
            # What the process slept too long is nobody's doing, unless this step had the processor.
            self._asleep_s += max(0.0, self._oversleep_s - (now.cpu_s - self._seen.cpu_s))
        elif self._stacks:
            self._second = now
        self._oversleep_s = 0.0
        self._seen = now
        self._stacks[_described(frames)] += 1

    def overslept(self, seconds: float) -> None:
        self._oversleep_s += max(0.0, seconds)

    def times(self, stolen_s: float) -> tuple[float, float]:
        """For how long it was seen to have the processor, and to be blocked, but for what was stolen."""
        seen, since = self._seen, self._second or self._seen
        idle_s = seen.wall_s - since.wall_s - (seen.cpu_s - since.cpu_s)
        elsewhere_s = seen.queued_s - since.queued_s + self._asleep_s
        blocked_s = idle_s - elsewhere_s
        busy_s = seen.cpu_s - self._began.cpu_s
        # The kernel counts stolen time as the thread's own if the thread was running, else as idle.
        if blocked_s > 0:
            blocked_s -= stolen_s + _TICK_S
        return max(0.0, busy_s - stolen_s), max(0.0, blocked_s)

    def stack(self) -> tuple[str, ...]:
        return self._stacks.most_common(1)[0][0]


class _RateLimitedLog:
    """One line a second at most, which says how many were left out before it."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._left_out = 0

    def __call__(self, hold_up: HoldUp) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last line)" if self._left_out else ""
        logger.warning("%s%s", hold_up, more)
        self._next_s = now_s + 1 / _LINES_PER_S
        self._left_out = 0


class _StolenTime:
    """What was stolen until a short while ago, for those who begin to count: reading it anew is dear."""

    def __init__(self) -> None:
        self._read_at_s = 0.0
        self._stolen_s = 0.0

    def lately(self, now_s: float) -> float:
        if now_s - self._read_at_s > _LATELY_S:
            self._read_at_s, self._stolen_s = now_s, _stolen_s()
        return self._stolen_s


def _stolen_s() -> float:
    """For how long the host of this machine, if it is a virtual one, has run others instead."""
    try:
        with _STAT.open() as file:
            return int(file.readline().split()[8]) * _TICK_S
    except (OSError, IndexError):
        return 0.0


def _is_selector(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, selectors.BaseSelector)


def _codes_below(frame: FrameType | None, task: asyncio.Task[object] | None) -> frozenset[CodeType]:
    """The code of the loop itself: what is below the task that is running, and where it waits for events."""
    coroutine = getattr(task.get_coro() if task is not None else None, "cr_frame", None)
    while frame is not None and frame is not coroutine:
        frame = frame.f_back
    codes = {each.select.__code__ for each in vars(selectors).values() if _is_selector(each)}
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
        codes.add(frame.f_code)
    return frozenset(codes)


def _described(frames: list[FrameType]) -> tuple[str, ...]:
    """The innermost frames and, if that is not all, the outermost; the machinery of imports says nothing."""
    telling = [frame for frame in frames if not frame.f_code.co_filename.startswith("<frozen importlib")]
    if len(telling) > _SHOWN_FRAMES:
        telling[_SHOWN_FRAMES - 1 : -1] = []
    return tuple(map(_place, telling or frames[:1]))


def _place(frame: FrameType) -> str:
    code = frame.f_code
    file = code.co_filename
    for package in ("tidelog/", "site-packages/"):
        _, found, tail = file.rpartition(package)
        if found:
            file = (package if package == "tidelog/" else "") + tail
            break
    return f"{code.co_qualname} {file}:{frame.f_lineno}"
