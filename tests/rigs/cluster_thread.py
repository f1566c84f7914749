"""A cluster inside the test's own process: whole brokers with sockets and logs, on one loop in a thread, and
ZooKeeper's twin in memory.

    with ClusterThread(tmp_path, 3) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap)
        cluster.expire(2)               # broker 2's session with ZooKeeper ends, and a new one begins
        cluster.call(lambda: cluster.brokers[1].partitions.get("orders", 0).isr)

Starts in a fraction of a second and can be looked into. Brokers share one loop, so they cannot be killed or
frozen one by one; tests of crashes use processes. ``options`` are all brokers', ``each`` adds those of one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper

from tidelog.broker.app import Broker
from tidelog.broker.composition import with_zookeeper
from tidelog.config.broker_config import BrokerConfig
from tidelog.metadata.store import SessionState, SharedStore
from tidelog.replication.partition import Partition

TIMEOUT_S = 60.0
_POLL_S = 0.01
_OPTIONS = {
    # Only says that there is a ZooKeeper; the twin is asked.
    "zookeeper.connect": "twin:2181",
    "zookeeper.session.timeout.ms": "6000",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "replica.fetch.backoff.ms": "50",
    "replica.fetch.wait.max.ms": "50",
    "controlled.shutdown.retry.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}

T = TypeVar("T")


class ClusterThread:
    """Brokers 1 to ``count``; methods may be called from any thread but the cluster's own."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        *,
        options: Mapping[str, str] | None = None,
        each: Callable[[int], Mapping[str, str]] = lambda broker: {},
    ) -> None:
        self.brokers: dict[int, Broker] = {}
        self.sessions: dict[int, MemorySession] = {}
        self.zookeeper: MemoryZooKeeper
        self._directory = directory
        self._options = {**_OPTIONS, **(options or {})}
        self._each = each
        self._ids = range(1, count + 1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for clients."""
        return self.bootstrap_of(*self.brokers)

    def bootstrap_of(self, *brokers: int) -> str:
        """The addresses of some brokers."""
        return ",".join(f"127.0.0.1:{self.brokers[each].advertised[0].port}" for each in brokers)

    def log_dir(self, broker: int) -> Path:
        """Where a broker keeps its logs."""
        return self._directory / str(broker)

    def __enter__(self) -> ClusterThread:
        self._thread.start()
        self.run(self._begin())
        for broker in self._ids:
            self.start(broker)
        return self

    async def _begin(self) -> None:
        self.zookeeper = MemoryZooKeeper()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for broker in list(self.brokers):
                self.zookeeper_back(broker)
                self.stop(broker)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT_S)

    # Brokers

    def start(self, broker: int) -> None:
        """Start a broker, and wait until it serves."""
        config = BrokerConfig(
            {
                **self._options,
                "broker.id": str(broker),
                "log.dirs": str(self.log_dir(broker)),
                **self._each(broker),
            }
        )

        async def ensemble() -> SharedStore:
            session = self.sessions[broker] = self.zookeeper.session()
            return session

        async def begin() -> None:
            started = with_zookeeper(config, ensemble=ensemble)
            await started.start()
            self.brokers[broker] = started

        self.run(begin())

    def stop(self, broker: int) -> None:
        """Shut a broker down cleanly."""
        self.run(self.brokers.pop(broker).shut_down())

    def partition(self, broker: int, topic: str, index: int = 0) -> Partition:
        """A broker's replica; look at it within ``call`` or ``wait_for``."""
        return self.brokers[broker].partitions.get(topic, index)

    def leader_of(self, topic: str, index: int = 0) -> int:
        """Who leads a partition."""

        def leader() -> int:
            held = {
                each: broker.partitions.by_name.get((topic, index)) for each, broker in self.brokers.items()
            }
            led = [each for each, replica in held.items() if replica is not None and replica.is_leader]
            return led[0] if len(led) == 1 else -1

        return self.wait_for(leader, lambda found: found > 0, f"a leader of {topic}-{index}")

    @property
    def controller(self) -> Broker:
        """The broker that is the controller; look at it within ``call`` or ``wait_for``."""
        return next(each for each in self.brokers.values() if each.cluster.controller.is_active)

    # ZooKeeper

    def expire(self, broker: int) -> None:
        """End a broker's session; the next begins at once."""

        def end() -> None:
            self.zookeeper.expire(self.sessions[broker])
            self.zookeeper.resume(self.sessions[broker])

        self.call(end)

    def expire_and_keep_away(self, broker: int) -> None:
        """End a broker's session; the next begins with ``zookeeper_back``."""
        self.call(lambda: self.zookeeper.expire(self.sessions[broker]))

    def zookeeper_away(self, broker: int) -> None:
        """Cut a broker's connection to ZooKeeper."""
        self.call(lambda: self.zookeeper.suspend(self.sessions[broker]))

    def zookeeper_back(self, broker: int) -> None:
        """Give a broker its connection to ZooKeeper back."""

        def back() -> None:
            if self.sessions[broker].state is not SessionState.CONNECTED:
                self.zookeeper.resume(self.sessions[broker])

        self.call(back)

    # The cluster's thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the cluster's loop."""

        async def run() -> T:
            return function()

        return self.run(run())

    def wait_for(
        self, look: Callable[[], T], holds: Callable[[T], bool] = bool, what: str = "the condition"
    ) -> T:
        """Look, on the cluster's loop, until what is seen ``holds``; gives it."""
        deadline = time.monotonic() + TIMEOUT_S
        while not holds(seen := self.call(look)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come about; last seen: {seen!r}")
            time.sleep(_POLL_S)
        return seen
