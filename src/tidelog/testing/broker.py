"""A real broker for anybody's tests: started in a fraction of a second, gone at the end of the block.

    from tidelog import Producer
    from tidelog.testing import broker

    with broker(topics={"orders": 3}) as b:
        producer = Producer(bootstrap_servers=b.bootstrap_servers)

It is a process of its own on a free port of the loopback interface, with its data in a temporary directory:
nothing is left behind, and many can run at once. ``async_broker`` is the same for ``async with``, and
``testing.pytest_plugin`` has fixtures. ``BrokerProcess`` (``testing.broker_process``) is what Tidelog's own
tests use; it is importable from here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.testing.broker_process import BrokerProcess

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.resources import NewTopic
    from tidelog.testing.broker_thread import BrokerThread

Topics = Mapping[str, int] | Iterable["str | NewTopic"]
"""Topics to create: names with numbers of partitions, or names (one partition each) and ``NewTopic``."""

Options = Mapping[str, str | int | float | bool]
"""Broker options in Kafka's names."""

QUICK_OPTIONS: Options = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Where a broker for tests differs from Kafka's defaults unless told otherwise: groups begin at once."""


class LocalBroker:
    """A running broker; made by ``broker`` and ``async_broker``.

    Example:
        with broker() as b:
            print(b.bootstrap_servers)
    """

    def __init__(self, server: BrokerProcess | BrokerThread, data_dir: Path) -> None:
        self._server = server
        self._admin: Admin | None = None
        self.data_dir = data_dir

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, for clients."""
        return self._server.bootstrap

    @property
    def admin(self) -> Admin:
        """A client that administers this broker."""
        if self._admin is None:
            from tidelog.client.admin.admin import Admin

            self._admin = Admin(bootstrap_servers=self.bootstrap_servers)
        return self._admin

    def create_topics(self, topics: Topics) -> None:
        """Create topics.

        Args:
            topics: Names, ``NewTopic``s, or a mapping of names to numbers of partitions.

        Raises:
            KafkaError: A topic cannot be created.

        Example:
            b.create_topics({"orders": 3})
        """
        from tidelog.client.resources import NewTopic

        wanted = topics.items() if isinstance(topics, Mapping) else ((each, 1) for each in topics)
        new = [name if isinstance(name, NewTopic) else NewTopic(name, count) for name, count in wanted]
        for result in self.admin.create_topics(new) if new else ():
            result.raise_for_error()

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic.

        Args:
            name: Its name; None makes one that is not taken.
            partitions: The number of partitions.
            configs: Its configs, by name.

        Returns:
            The name.

        Raises:
            KafkaError: The topic cannot be created.

        Example:
            topic = b.create_topic(partitions=3)
        """
        from tidelog.client.resources import NewTopic

        chosen = name or f"topic-{uuid.uuid4().hex[:12]}"
        self.create_topics([NewTopic(chosen, partitions, configs=configs or {})])
        return chosen

    @property
    def log(self) -> str:
        """What the broker has printed since its last start."""
        return self._process().log

    def kill(self) -> None:
        """End the broker with SIGKILL; ``restart`` starts it again.

        Raises:
            RuntimeError: The broker runs in this process, which cannot be killed.

        Example:
            b.kill()
            b.restart()
        """
        self._process().kill()

    def restart(self) -> None:
        """Start again on the same port and data, after a clean stop if it is still running.

        Raises:
            RuntimeError: The broker does not start; the text has what it printed.

        Example:
            b.restart()
        """
        self._process().restart()

    def close(self) -> None:
        """Stop the broker; the end of the ``with`` block does it.

        Example:
            b.close()
        """
        if self._admin is not None:
            self._admin.close()
        if isinstance(self._server, BrokerProcess):
            self._server.close()
        else:
            self._server.stop()

    def _process(self) -> BrokerProcess:
        if not isinstance(self._server, BrokerProcess):
            raise RuntimeError("this broker runs inside the test's own process: leave out in_process=True")
        return self._server


@contextlib.contextmanager
def broker(
    *,
    topics: Topics = (),
    options: Options | None = None,
    data_dir: Path | str | None = None,
    port: int | None = None,
    in_process: bool = False,
) -> Iterator[LocalBroker]:
    """A real broker for the time of a ``with`` block, in a process of its own.

    Args:
        topics: Topics to create: names, ``NewTopic``s, or a mapping of names to numbers of partitions.
        options: Broker options by Kafka's names; groups begin without a delay, and internal topics have one
            partition, unless these say otherwise.
        data_dir: Where to keep the data; with a log file next to it; None means a temporary directory.
        port: The port; None means a free one.
        in_process: Run in a thread of this process: starts faster, but shares the interpreter.

    Returns:
        The running broker.

    Raises:
        RuntimeError: The broker does not start; the text has what it printed.

    Example:
        with broker(topics={"orders": 3}) as b, Producer(bootstrap_servers=b.bootstrap_servers) as producer:
            producer.send("orders", b"one espresso").result(timeout=30)
    """
    settings = {name: _text(value) for name, value in {**QUICK_OPTIONS, **(options or {})}.items()}
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            temporary = tempfile.TemporaryDirectory(prefix="tidelog-", ignore_cleanup_errors=True)
            data_dir = Path(stack.enter_context(temporary)) / "data"
        running = LocalBroker(_started(Path(data_dir), settings, port, in_process), Path(data_dir))
        stack.callback(running.close)
        running.create_topics(topics)
        yield running


@contextlib.asynccontextmanager
async def async_broker(
    *,
    topics: Topics = (),
    options: Options | None = None,
    data_dir: Path | str | None = None,
    port: int | None = None,
    in_process: bool = False,
) -> AsyncIterator[LocalBroker]:
    """As ``broker``, for ``async with``: the loop continues while the broker starts and stops.

    Args:
        topics: Topics to create: names, ``NewTopic``s, or a mapping of names to numbers of partitions.
        options: Broker options by Kafka's names; groups begin without a delay, and internal topics have one
            partition, unless these say otherwise.
        data_dir: Where to keep the data; with a log file next to it; None means a temporary directory.
        port: The port; None means a free one.
        in_process: Run in a thread of this process: starts faster, but shares the interpreter.

    Returns:
        The running broker.

    Raises:
        RuntimeError: The broker does not start; the text has what it printed.

    Example:
        async with async_broker() as b, AsyncProducer(bootstrap_servers=b.bootstrap_servers) as producer:
            await producer.send("orders", b"one espresso")
    """
    manager = broker(topics=topics, options=options, data_dir=data_dir, port=port, in_process=in_process)
    start = asyncio.ensure_future(asyncio.to_thread(manager.__enter__))
    try:
        running = await asyncio.shield(start)
    except asyncio.CancelledError:
        await start
        await asyncio.to_thread(manager.__exit__, None, None, None)
        raise
    try:
        yield running
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


def _started(
    data_dir: Path, options: Mapping[str, str], port: int | None, in_process: bool
) -> BrokerProcess | BrokerThread:
    if not in_process:
        server = BrokerProcess(data_dir, options=options, port=port)
        try:
            return server.start()
        except BaseException:
            server.close()
            raise
    from tidelog.testing.broker_thread import BrokerThread

    return BrokerThread(
        data_dir, options={"listeners": f"PLAINTEXT://127.0.0.1:{port or 0}", **options}
    ).start()


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
