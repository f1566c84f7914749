"""An answer that may come later, without an event loop.

State machines hand out replies and settle them from other commands or timers: a member's JoinGroup waits
until the rest of its group has joined. ``broker/dispatch`` turns a reply into a response when it is settled;
tests look at ``done``; whoever runs on a loop may await it.

Invariant: a reply is settled once; later attempts raise. Callbacks run in the call that settles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


class Reply(Generic[T]):
    """The promise of one value or one error."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Reply[T]], object]] = []

    @classmethod
    def of(cls, value: T) -> Reply[T]:
        """A reply that is there already."""
        reply = cls()
        reply.done = True
        reply._value = value
        return reply

    @classmethod
    def failed(cls, error: Exception) -> Reply[T]:
        """A reply that is an error already."""
        reply = cls()
        reply.done = True
        reply._error = error
        return reply

    @property
    def error(self) -> Exception | None:
        """What went wrong, once the reply is settled."""
        return self._error

    def result(self) -> T:
        """The value, or raises the error; the reply must be settled."""
        if not self.done:
            raise RuntimeError("the reply is not settled yet")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def resolve(self, value: T) -> None:
        """Here is the value."""
        self._settle(value, None)

    def fail(self, error: Exception) -> None:
        """There is no value, because of ``error``."""
        self._settle(None, error)

    def when_done(self, callback: Callable[[Reply[T]], object]) -> None:
        """Call ``callback`` with this reply as soon as it is settled, at once if it is."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def then(self, change: Callable[[T], U]) -> Reply[U]:
        """The reply with ``change`` applied to its value; errors, also those of ``change``, pass through."""
        changed: Reply[U] = Reply()

        def settle(reply: Reply[T]) -> None:
            try:
                value = change(reply.result())
            except Exception as error:
                changed.fail(error)
            else:
                changed.resolve(value)

        self.when_done(settle)
        return changed

    def recover(self, change: Callable[[Exception], T]) -> Reply[T]:
        """The reply with errors turned into a value (or another error, if ``change`` raises)."""
        changed: Reply[T] = Reply()

        def settle(reply: Reply[T]) -> None:
            try:
                value = reply.result() if reply.error is None else change(reply.error)
            except Exception as error:
                changed.fail(error)
            else:
                changed.resolve(value)

        self.when_done(settle)
        return changed

    def pass_to(self, other: Reply[T]) -> None:
        """Settle ``other`` as this one is settled."""

        def settle(reply: Reply[T]) -> None:
            if reply.error is not None:
                other.fail(reply.error)
            else:
                other.resolve(cast(T, reply._value))

        self.when_done(settle)

    def _settle(self, value: T | None, error: Exception | None) -> None:
        if self.done:
            raise RuntimeError("the reply is settled already")
        self.done = True
        self._value = value
        self._error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_done(lambda _: None if future.done() else future.set_result(None))
            yield from future
        return self.result()


def gather(replies: list[Reply[T]]) -> Reply[list[T]]:
    """All values in order, once all are settled; the first error in that order if there is one."""
    gathered: Reply[list[T]] = Reply()
    left = len(replies)

    def settled(_: Reply[T]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finish()

    def finish() -> None:
        try:
            values = [reply.result() for reply in replies]
        except Exception as error:
            gathered.fail(error)
        else:
            gathered.resolve(values)

    if not replies:
        return Reply.of([])
    for reply in replies:
        reply.when_done(settled)
    return gathered
