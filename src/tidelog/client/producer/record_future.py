"""The future of a record as programs see it, and the one of a record that is not even buffered yet.

``quick_send.RecordFuture`` is the usual one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.client._foreign_methods import FUTURE, foreign_methods
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer.record import RecordMetadata, check_callback


class Delivery(Protocol):
    """The future of one record: ``await`` it, or call ``result``.

    Example:
        delivery = producer.send("orders", b"one espresso")
        print(delivery.result(timeout=30).offset)
    """

    def done(self) -> bool:
        """Whether the record has been written or has failed."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record went; waits up to ``timeout`` seconds, raises what kept it from being written."""

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What kept the record from being written, None if it was; waits like ``result``."""

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback`` with this future when it is done, in the producer's thread; at once if it is."""

    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...


class DeferredRecord:
    """The future of a record that could not be buffered at once (``AsyncProducer.send`` never blocks).

    ``appended`` ends with the record's own future once there is room, or with what kept it from being
    buffered.
    """

    if not TYPE_CHECKING:
        __getattr__ = foreign_methods(FUTURE)

    def __init__(self, appended: asyncio.Future[Delivery], topic: str) -> None:
        self._appended = appended
        self._topic = topic

    def __repr__(self) -> str:
        return f"<record of topic {self._topic!r} that waits for room>"

    def done(self) -> bool:
        """Whether the record has been written or has failed."""
        if not self._appended.done():
            return False
        return self._appended.exception() is not None or self._appended.result().done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record went, of one that is done: waiting here would stop the loop that sends it."""
        if not self.done():
            raise RequestTimeoutError(f"the record of topic {self._topic!r} is still under way; await it")
        return self._appended.result().result(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What kept the record from being written, of one that is done."""
        if not self.done():
            raise RequestTimeoutError(f"the record of topic {self._topic!r} is still under way; await it")
        error = self._appended.exception()
        if error is None:
            return self._appended.result().exception(timeout)
        if isinstance(error, Exception):
            return error
        raise error

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback`` with this future when it is done; at once if it is."""
        check_callback("add_done_callback", "callback", callback)

        def appended(future: asyncio.Future[Delivery]) -> None:
            if future.cancelled() or future.exception() is not None:
                callback(self)
            else:
                future.result().add_done_callback(lambda _: callback(self))

        self._appended.add_done_callback(appended)

    async def buffered(self) -> Delivery:
        """The future of the record in its batch, once there is room; raises why there was none."""
        return await asyncio.shield(self._appended)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        future = yield from asyncio.shield(self._appended).__await__()
        return (yield from future.__await__())
