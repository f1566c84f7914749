"""A broker inside the test's own process, on a loop in a thread of its own.

    with BrokerThread(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        assert broker.call(lambda inner: len(inner.partitions)) == 0

Starts faster than ``BrokerProcess`` and can be looked into: ``call`` runs a function on the broker's loop. It
cannot be killed the hard way; tests of crashes use the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tidelog.broker.app import Broker
from tidelog.broker.composition import standalone
from tidelog.config.broker_config import BrokerConfig

TIMEOUT_S = 60.0

T = TypeVar("T")


class BrokerThread:
    """A running broker; ``bootstrap`` is its address."""

    def __init__(self, data_dir: Path, *, options: Mapping[str, str] | None = None) -> None:
        self.options = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data_dir),
            **(options or {}),
        }
        self.host = "127.0.0.1"
        self.port = 0
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._broker: Broker | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port``, for clients."""
        return f"{self.host}:{self.port}"

    def start(self) -> BrokerThread:
        """Start the broker and wait until it serves; raises what kept it from starting."""
        self._started.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self._thread.start()
        if not self._started.wait(TIMEOUT_S):
            raise TimeoutError("the broker did not start in time")
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """Shut the broker down cleanly."""
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the broker did not stop in time"
        self._thread = None
        if self._failure is not None:
            raise self._failure

    def call(self, function: Callable[[Broker], T]) -> T:
        """Run ``function`` on the broker's loop and give back its result."""
        assert self._loop is not None
        broker = self._broker
        assert broker is not None

        async def run() -> T:
            return function(broker)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT_S)

    def __enter__(self) -> BrokerThread:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        broker = self._broker = standalone(BrokerConfig(self.options))
        await broker.start()
        self.port = broker.advertised[0].port
        self._started.set()
        await self._stop.wait()
        await broker.shut_down()
