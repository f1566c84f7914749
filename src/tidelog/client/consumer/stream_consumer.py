"""``StreamConsumer``: message streams, the way programs on Kafka's old high-level consumer read topics.

    def handle(record): ...

    StreamConsumer({"orders": 4, "payments": 2}, handle, bootstrap_servers=..., group_id="billing").run()

runs four streams that read ``orders`` and two that read ``payments``. A stream is a member of the group
that reads its topic alone, with a handler of its own: a function, or a class of which each stream makes an
instance (``handle(record)``, and ``close()`` if it has one). A plain handler runs in the stream's own
thread, an ``async`` one on the loop that all streams share.

Records of one partition are handled one after another, in order; partitions are divided among the streams by
the group. Offsets are committed once the records are handled, so each record is handled at least once. What
happens to a record that cannot be handled says ``consumer.failure_policy``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from tidelog.client._loop_thread import LoopThread
from tidelog.client._network.ongoing_errors import PATIENCE_S
from tidelog.client.consumer._message_stream import DeadLetters, MessageStream, StreamOutcome
from tidelog.client.consumer.failure_policy import FailurePolicy, Stop
from tidelog.client.consumer.health import StreamsHealth
from tidelog.client.errors import ClientClosedError, IllegalStateError
from tidelog.client.options import CONSUMER, PRODUCER, ClientConfig
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client.consumer.option_types import ConsumerOptions

logger = logging.getLogger(__name__)

_SHARED_WITH_PRODUCER = frozenset(CONSUMER.options) & frozenset(PRODUCER.options) - {"client.id"}
_PER_STREAM = ("client.id", "group.instance.id")


class StreamConsumer:
    """Parallel streams over the topics of one group, each with a handler.

    Offsets are committed once their records are handled: each record is handled at least once.

    Args:
        streams: How many streams read each topic.
        handler: A function of one record, plain or ``async``, or a class with ``handle(record)``, of which
            each stream makes an instance.
        options: A consumer's options by Kafka's names.
        on_failure: What becomes of a record whose handler fails: ``Stop()``, ``Skip()``,
            ``DeadLetter(topic)`` or ``Retry(…)``.
        keywords: A consumer's options with underscores.

    Raises:
        ConfigError: An option, the streams or the handler cannot be used.

    Example:
        def handle(record):
            print(record.value)

        StreamConsumer({"orders": 4}, handle, bootstrap_servers="127.0.0.1:9092", group_id="billing").run()
    """

    def __init__(
        self,
        streams: Mapping[str, int],
        handler: Callable[..., Any],
        options: Mapping[str, object] | None = None,
        /,
        *,
        on_failure: FailurePolicy | None = None,
        **keywords: Unpack[ConsumerOptions[Any, Any]],
    ) -> None:
        """``streams`` says how many streams read each topic; options are those of a consumer."""
        config = ClientConfig.parse(CONSUMER, options, **keywords)
        if not isinstance(streams, Mapping):
            raise ConfigError(
                f"say how many streams read each topic, as {{'orders': 4}}; {streams!r} does not"
            )
        if not streams or not all(type(count) is int and count >= 1 for count in streams.values()):
            raise ConfigError(
                "name at least one topic, and at least one stream for each, as {'orders': 4}; "
                f"not {streams!r}"
            )
        if not callable(handler) and not hasattr(handler, "handle"):
            raise ConfigError(
                f"the handler is a function, or a class or object with `handle(record)`, got {handler!r}"
            )
        if config.optional_str("group.id") is None:
            raise ConfigError("streams divide partitions among them as members of a group: set group.id")
        if "enable.auto.commit" in config.given and config.bool("enable.auto.commit"):
            raise ConfigError("streams commit what is handled by themselves: leave enable.auto.commit out")
        self._config = config
        self._streams = dict(streams)
        self._handler = handler
        self._policy: FailurePolicy = on_failure or Stop()
        self._running: list[MessageStream] = []
        self._ended: concurrent.futures.Future[None] | None = None
        self._thread: LoopThread | None = None
        self._closed = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self) -> None:
        """Run until ``stop``, a handler's error under ``Stop()``, or Ctrl-C; everything is closed on return.

        Raises:
            Exception: The handler's error, under ``Stop()``.
            KafkaError: The broker refuses a stream.
            IllegalStateError: The streams were closed.

        Example:
            streams.run()
        """
        try:
            self.start()
            self.wait()
        finally:
            self.close()

    def start(self) -> None:
        """Begin to read in the background.

        Raises:
            IllegalStateError: The streams were closed.

        Example:
            streams.start()
        """
        if self._closed:
            raise IllegalStateError("these streams were closed: make new ones")
        if self._thread is None:
            self._thread = LoopThread(
                f"tidelog streams of {self._config.str('group.id')}", at_exit=self._stop_all
            )
            self._ended = self._thread.submit(self._run())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the streams have ended.

        Args:
            timeout: Seconds to wait; None waits without a limit.

        Returns:
            Whether they have ended.

        Raises:
            Exception: The error that ended them.
            IllegalStateError: They were not started, or a handler waits for itself.

        Example:
            streams.start()
            print(streams.wait(timeout=0.1))
        """
        if self._ended is None:
            raise IllegalStateError("the streams were not started")
        if self._is_handling_here():
            raise IllegalStateError("a handler waits for its own streams to end: call stop() there")
        if self._thread is not None:
            try:
                self._thread.check()  # what a forked child waits for would never come
            except ClientClosedError:
                if not self._ended.done():
                    raise
        try:
            self._ended.result(timeout)
        except TimeoutError:
            if self._ended.done():
                raise
            return False
        return True

    def health(self, patience: float = PATIENCE_S) -> StreamsHealth:
        """Return whether all streams work, for a readiness probe: at once, from memory, from any thread.

        Args:
            patience: Seconds that an error which keeps it from reading may last before it counts.

        Returns:
            Its state, with ``ok`` and, where that is False, the ``reason``.

        Example:
            health = streams.health()
            if not health.ok:
                print(health.reason)
        """
        streams = {stream.name: stream.health(patience) for stream in list(self._running)}
        reason = next((f"{name}: {each.reason}" for name, each in streams.items() if not each.ok), None)
        if self._closed:
            reason = "the streams are closed"
        elif self._ended is not None and self._ended.done():
            failed = None if self._ended.cancelled() else self._ended.exception()
            reason = "the streams have ended" + ("" if failed is None else f": {failed}")
        elif not streams:
            reason = "the streams have not started yet"
        return StreamsHealth(ok=reason is None, reason=reason, streams=streams)

    def stop(self) -> None:
        """End the streams after the records in work; from any thread, also from a handler.

        Example:
            streams.stop()
        """
        if self._thread is not None:
            for stream in list(self._running):
                stream.stop()

    def close(self, timeout: float = 30.0) -> None:
        """Stop, wait for the records in work, and leave the group.

        A handler cannot wait for itself: called there, ``close`` stops the streams and returns at once.

        Args:
            timeout: Seconds to wait for handlers.

        Example:
            streams.close(timeout=10)
        """
        self._closed = True
        if self._thread is None:
            return
        try:
            self._thread.check()
        except ClientClosedError:
            return  # closed before, or another process's
        assert self._ended is not None
        self.stop()
        if self._is_handling_here():
            self._ended.add_done_callback(self._close_thread)
            return
        done, _ = concurrent.futures.wait([self._ended], timeout)
        if not done:
            logger.warning("a handler still runs after %g s: its record will be handled again", timeout)
            self._ended.cancel()
        self._thread.close()

    def _close_thread(self, _: object) -> None:
        assert self._thread is not None
        self._thread.close()

    def _is_handling_here(self) -> bool:
        """Whether the caller is a handler, plain or ``async``, of these streams."""
        on_loop = self._thread is not None and self._thread.is_current
        return on_loop or any(stream.is_handling_here for stream in self._running)

    async def _run(self) -> None:
        dead_letters = DeadLetters(self._producer_options())
        self._running = [
            MessageStream(
                topic, number, self._options(topic, number), self._make_handler(), self._policy, dead_letters
            )
            for topic, count in self._streams.items()
            for number in range(count)
        ]
        if self._closed:
            self.stop()
        tasks = [asyncio.ensure_future(stream.run()) for stream in self._running]
        try:
            for finished in asyncio.as_completed(tasks):
                if await finished is StreamOutcome.FAILED:
                    self.stop()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await dead_letters.close()
        for stream in self._running:
            if stream.failure is not None:
                raise stream.failure

    async def _stop_all(self) -> None:
        self.stop()
        await asyncio.wait([asyncio.wrap_future(self._ended)] if self._ended is not None else [], timeout=5)

    def _make_handler(self) -> Any:
        handler = self._handler() if isinstance(self._handler, type) else self._handler
        if not callable(handler) and not callable(getattr(handler, "handle", None)):
            raise ConfigError(f"{handler!r} handles nothing: give a function, or a class with handle(record)")
        return handler

    def _options(self, topic: str, number: int) -> dict[str, object]:
        """A stream's options: those given, with names of its own where members of a group need them."""
        given = {name: self._config[name] for name in self._config.given}
        given["client.id"] = self._config["client.id"]
        for name in _PER_STREAM:
            if given.get(name):
                given[name] = f"{given[name]}-{topic}-{number}"
        return {**given, "enable.auto.commit": False}

    def _producer_options(self) -> dict[str, object]:
        return {name: self._config[name] for name in self._config.given & _SHARED_WITH_PRODUCER}
