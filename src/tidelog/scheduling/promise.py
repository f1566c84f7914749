"""A value that may come later, without an event loop.

Whoever cannot answer at once hands out a promise and settles it from another command, a timer, a change of a
partition: a member's JoinGroup waits until the rest of its group has joined, a fetch until there are records.
It is not an asyncio future on purpose: callbacks run in the call that settles, and nobody pays for a task or
a context. ``broker/exchange/dispatch`` makes the answer of a request out of what a coordinator promises, and
``broker/network/connection`` sends it; tests look at ``done``; whoever runs on a loop may await it.

A promise is settled once; later attempts raise. Errors are passed on, not raised again. A ``KafkaError``
loses its history on the way in, which would lead back to the promise, a circle that only the garbage
collector can free; any other error is a bug and keeps it for the log.

Whoever waits may go away: ``cancel`` tells the one who would settle. Until ``only_waits`` says otherwise,
somebody works on what is promised, and must be left to finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

from tidelog.errors import KafkaError

T = TypeVar("T")
U = TypeVar("U")


class Promise(Generic[T]):
    """The promise of one value or one error; ``on_cancel`` is told when nobody wants it any more."""

    __slots__ = ("_on_cancel", "_on_done", "done", "error", "pipelined", "value")

    def __init__(self, on_cancel: Callable[[], object] | None = None, *, pipelined: bool = False) -> None:
        self.done = False
        self.value: T | None = None
        self.error: Exception | None = None
        # For connections: whether requests behind this one may be handled before it is answered.
        self.pipelined = pipelined
        self._on_cancel = on_cancel
        self._on_done: Callable[[Promise[T]], object] | None = None

    @classmethod
    def of(cls, value: T) -> Promise[T]:
        """A promise that is kept already."""
        promise = cls()
        promise.done = True
        promise.value = value
        return promise

    @classmethod
    def failed(cls, error: Exception) -> Promise[T]:
        """A promise that is broken already."""
        promise = cls()
        promise.fail(error)
        return promise

    def result(self) -> T:
        """The value, or raises the error; the promise must be settled."""
        if not self.done:
            raise RuntimeError("the promise is not settled yet")
        if self.error is not None:
            try:
                raise self.error
            finally:
                # The error keeps this frame, and would by it keep the promise that keeps the error.
                del self
        return cast(T, self.value)

    # Settling

    def resolve(self, value: T) -> None:
        """Here is the value."""
        if self.done:
            raise RuntimeError("the promise is settled already")
        self.value = value
        self._settle()

    def fail(self, error: Exception) -> None:
        """There is no value, because of ``error``."""
        if self.done:
            raise RuntimeError("the promise is settled already")
        self.error = error.without_history() if isinstance(error, KafkaError) else error
        self._settle()

    def follow(self, outcome: T | Promise[T]) -> None:
        """Here is the value, or another promise of it."""
        if not isinstance(outcome, Promise):
            self.resolve(outcome)
        elif not outcome.done:
            if outcome.cancellable:
                self.only_waits(outcome.cancel)
            outcome.when_done(self.follow)
        elif outcome.error is not None:
            self.fail(outcome.error)
        else:
            self.resolve(cast(T, outcome.value))

    def _settle(self) -> None:
        self.done = True
        self._on_cancel = None
        if self._on_done is not None:
            on_done, self._on_done = self._on_done, None
            on_done(self)

    # Waiting

    def when_done(self, callback: Callable[[Promise[T]], object]) -> None:
        """Call ``callback`` with this promise as soon as it is settled, at once if it is."""
        if self.done:
            callback(self)
        elif self._on_done is None:
            self._on_done = callback
        else:
            self._on_done = _both(self._on_done, callback)

    def then(self, change: Callable[[T], U | Promise[U]]) -> Promise[U]:
        """The promise of what ``change`` makes of the value; errors, also those of ``change``, pass on."""
        changed: Promise[U] = Promise()

        def settle(promise: Promise[T]) -> None:
            if promise.error is not None:
                changed.fail(promise.error)
                return
            try:
                outcome = change(cast(T, promise.value))
            except Exception as error:
                changed.fail(error)
            else:
                changed.follow(outcome)

        self.when_done(settle)
        return changed

    def recover(self, change: Callable[[Exception], T]) -> Promise[T]:
        """The promise with errors turned into a value (or another error, if ``change`` raises)."""
        changed: Promise[T] = Promise()

        def settle(promise: Promise[T]) -> None:
            try:
                value = cast(T, promise.value) if promise.error is None else change(promise.error)
            except Exception as error:
                changed.fail(error)
            else:
                changed.resolve(value)

        self.when_done(settle)
        return changed

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_done(lambda _: None if future.done() else future.set_result(None))
            yield from future
        return self.result()

    # Giving up

    @property
    def cancellable(self) -> bool:
        """Whether giving up costs nothing: a wait, not work."""
        return self._on_cancel is not None

    def only_waits(self, on_cancel: Callable[[], object] | None = None) -> None:
        """From now on nobody works on it: it waits for something."""
        self._on_cancel = self._on_cancel or on_cancel or _nothing

    def works(self) -> None:
        """From now on somebody works on it again."""
        self._on_cancel = None

    def cancel(self) -> None:
        """Nobody wants the value any longer."""
        self._on_done = None
        if self._on_cancel is not None and not self.done:
            on_cancel, self._on_cancel = self._on_cancel, None
            on_cancel()


def gather(promises: list[Promise[T]]) -> Promise[list[T]]:
    """All values in order, once all are settled; the first error in that order if there is one."""
    gathered: Promise[list[T]] = Promise()
    left = len(promises)

    def settled(_: Promise[T]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finish()

    def finish() -> None:
        for promise in promises:
            if promise.error is not None:
                gathered.fail(promise.error)
                return
        gathered.resolve([cast(T, promise.value) for promise in promises])

    if not promises:
        return Promise.of([])
    for promise in promises:
        promise.when_done(settled)
    return gathered


def _nothing() -> None:
    """What is to be done when nobody wants a value that nobody works on."""


def _both(
    first: Callable[[Promise[T]], object], second: Callable[[Promise[T]], object]
) -> Callable[[Promise[T]], None]:
    def call(promise: Promise[T]) -> None:
        first(promise)
        second(promise)

    return call
