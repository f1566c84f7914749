"""An asyncio loop on virtual time: when nobody has anything to do, it is the time of the next timer.

Minutes of a cluster's life pass in a part of a second, and a run depends on its seed alone: there are no
sockets, no threads, no waiting. What would run in a thread runs on the loop, a little later.

Everything that a broker does carries its :class:`Life` in its context, and what it starts inherits it. A life
that has ended does nothing any more, from one moment to the next, as after kill -9: no ``finally`` runs, no
answer leaves. A life that is paused does nothing until it goes on, as after SIGSTOP; then it catches up in
order, and does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import logging
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_START_MS = 1_700_000_000_000
_THREAD_S = 0.001

OWNER: contextvars.ContextVar[Life | None] = contextvars.ContextVar("owner", default=None)


class Life:
    """Something that acts on the loop and can be stopped: one run of a broker's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False
        self.held: deque[asyncio.Handle] | None = None
        """What waits while the life is paused, None if it is not."""
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)
        self._loop = asyncio.get_running_loop()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something in this life."""
        return self._loop.create_task(work, context=self.context.copy())

    def call_soon(self, work: Callable[..., object], *args: Any) -> None:
        """Have something done in this life in a turn of its own."""
        self._loop.call_soon(work, *args, context=self.context)

    def pause(self) -> None:
        """Stop for a while."""
        if self.held is None:
            self.held = deque()

    def go_on(self) -> None:
        """Do what has waited."""
        held, self.held = self.held, None
        if held and not self.ended:
            self._loop._ready.extend(held)  # type: ignore[attr-defined]

    def end(self) -> None:
        """Do nothing any more."""
        self.ended = True
        self.held = None


class Connector(Protocol):
    """Opens connections between those who live on the loop."""

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        """A transport and the protocol that it talks to; raises ``OSError``."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Time, turns and connections of a simulated world."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 1000.0
        self.connector: Connector | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_trouble)
        self.trouble: list[str] = []
        """What went wrong in callbacks, where nobody waits for it."""

    def time(self) -> float:
        return self._now_s

    def _note_trouble(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Of futures that nobody asks any more this is heard when they are thrown away, which proves nothing.
        if "handle" in context:
            self.trouble.append("".join(traceback.format_exception(context["exception"])))

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
            if owner is not None:
                if owner.ended:
                    continue
                if owner.held is not None:
                    owner.held.append(handle)
                    continue
            handle._run()

    def _jump(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        while scheduled:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle._cancelled:
                continue
            self._now_s = max(self._now_s, handle._when)  # type: ignore[attr-defined]
            ready.append(handle)
            while scheduled and scheduled[0]._when <= self._now_s:  # type: ignore[attr-defined]
                handle = heapq.heappop(scheduled)
                handle._scheduled = False  # type: ignore[attr-defined]
                ready.append(handle)
            return
        raise RuntimeError("everybody waits for something that cannot come")

    def _make_task(self, loop: Any, coro: Any, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
        # Those of a life that was ended are never finished, and that is no mistake. They are kept, because
        # the end of a coroutine that nobody holds runs its ``finally``.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        return task

    def forget_all(self) -> None:
        """Let go of what was left unfinished; whatever it still wants to do comes to nothing."""
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        for task in self._tasks:
            if not task.done():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self._tasks.clear()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def _write_to_self(self) -> None:
        """There is no other thread that could have called."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """What a thread would do is done a moment later, in one go."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(_THREAD_S, work)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        """Hosts have one address each, which is their name."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> Any:
        assert self.connector is not None
        return await self.connector.connect(protocol_factory, host, port)


class LoopClock:
    """The running loop's time as a ``Clock``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def time_ms(self) -> int:
        return _START_MS + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own; what is left over is forgotten.

    Garbage is collected afterwards and not between, because that would run parts of what was ended.
    """
    loop = VirtualLoop()
    collects = gc.isenabled()
    gc.disable()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        with _unheard():
            loop.forget_all()
            asyncio.set_event_loop(None)
            loop.close()
            gc.collect()
        if collects:
            gc.enable()


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """What coroutines say while they are thrown away is of no interest."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        logging.disable(level)
