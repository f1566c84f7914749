"""The background thread on which a synchronous client runs its asyncio core.

One thread per client, as Java's clients have: a callback of one client that takes its time does not hold up
the heartbeats of another, and closing a client ends everything that it has started. The loop is uvloop's
where that is installed.

At the end of the program every thread that is still there runs its client's ``at_exit``, stops and is
joined, all within a time limit: a client that was not closed neither hangs the interpreter nor dies in the
middle of its teardown. Threads do not survive a fork, so in a forked child every call raises
``ClientClosedError``. So does a call from the client's own thread (from a callback, that is), which would
wait for itself for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from tidelog.client.errors import ClientClosedError, RequestTimeoutError

T = TypeVar("T")

logger = logging.getLogger(__name__)

AtExit = Callable[[], Coroutine[Any, Any, None]]
OnFork = Callable[[str], object]

_STOP_TIMEOUT_S = 5.0
_AT_EXIT_TIMEOUT_S = 10.0

_alive: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def read_here(given: Any) -> Any:
    """An argument of a call on the loop: an iterator is read in the caller's thread, of which it may need."""
    return list(given) if isinstance(given, Iterator) else given


class LoopThread:
    """A thread that runs an event loop until it is closed."""

    def __init__(self, name: str, *, at_exit: AtExit | None = None, on_fork: OnFork | None = None) -> None:
        """``at_exit`` is what remains to be done if the program ends without closing the client.

        ``on_fork`` is told in a forked child why the client cannot be used there. It must take no lock:
        a thread that the child does not have may hold it.
        """
        self.name = name
        self.loop = _new_loop()
        self._at_exit = at_exit
        self._on_fork = on_fork
        self._gone: str | None = None
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _alive.add(self)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def check(self) -> None:
        """Raise ``ClientClosedError`` where the thread cannot be used any more, or not from here."""
        if self._gone is not None:
            raise ClientClosedError(self._gone)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run ``coroutine`` on the loop; does not wait."""
        try:
            self.check()
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except BaseException as error:
            coroutine.close()
            if isinstance(error, RuntimeError):
                raise ClientClosedError(f"{self.name} is closed") from error
            raise

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None, what: str = "") -> T:
        """The result of ``coroutine``, run on the loop.

        It is cancelled when ``timeout_s`` have passed, which raises ``RequestTimeoutError`` that says
        ``what`` was waited for (by default the coroutine's name), or when the waiting is interrupted
        (Ctrl-C).
        """
        what = what or getattr(coroutine, "__name__", "it")
        if self.is_current:
            coroutine.close()
            raise ClientClosedError(
                f"a callback of {self.name} waits for {self.name} itself; use the asynchronous client there"
            )
        future = self.submit(coroutine)
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise ClientClosedError(f"{self.name} was closed while {what} was waited for") from None
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise RequestTimeoutError(f"{what} has not ended within {timeout_s:.3g} s") from None
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Have ``callback`` called on the loop."""
        self.check()
        try:
            self.loop.call_soon_threadsafe(callback, *args)
        except RuntimeError as error:
            raise ClientClosedError(f"{self.name} is closed") from error

    def close(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Cancel what still runs on the loop, stop it and wait for the thread; more than once is no harm."""
        if self._gone is not None:
            return
        self._gone = f"{self.name} is closed"
        _alive.discard(self)
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        if self.is_current:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.warning(
                "%s has not stopped within %.3g s: one of its callbacks still runs", self.name, timeout_s
            )

    def close_after(self, last: Coroutine[Any, Any, None]) -> None:
        """On this thread, which cannot wait for itself: run ``last``, then close."""
        self._last = self.loop.create_task(last)
        self._last.add_done_callback(self._close_behind)

    def _close_behind(self, last: asyncio.Task[None]) -> None:
        if not last.cancelled() and (error := last.exception()) is not None:
            logger.warning("the end of %s failed: %s", self.name, error)
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self._gone = self._gone or f"{self.name} has ended"
            _finish(self.loop)
            asyncio.set_event_loop(None)
            self.loop.close()

    def _end_with_program(self) -> None:
        if self._at_exit is not None and self._gone is None:
            try:
                self.submit(self._at_exit()).result(_AT_EXIT_TIMEOUT_S)
            except Exception as error:
                logger.warning("%s was not closed, and its end failed: %s", self.name, error)
        self.close()

    def _forked(self) -> None:
        self._gone = (
            f"{self.name} was made before this process was forked from another and cannot be used here; "
            f"make a client in the child (process {os.getpid()})"
        )
        if self._on_fork is not None:
            self._on_fork(self._gone)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _finish(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks and wait for them."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())


@atexit.register
def _end_all() -> None:
    for thread in list(_alive):
        thread._end_with_program()


def _after_fork() -> None:
    for thread in list(_alive):
        thread._forked()
    _alive.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
