"""ZooKeeper for a simulated cluster: one tree, sessions whose requests, answers and watches take their
time.

Requests of one session arrive in the order in which they were made; answers and watches of one session
arrive in the order in which the server sent them, so that nobody reads the past of what a watch told. A
broker that is cut off learns of the end of its session when it can reach the server again, and not before;
``expire_after_s`` is how long the server waits for it. An answer that is under way when the session ends is
lost: what it was the answer to has happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper
from tests.simulation.cluster.trace import Trace
from tests.simulation.virtual_loop import OWNER, Life

from tidelog.metadata.embedded.node_tree import Effect
from tidelog.metadata.store import (
    NodeStat,
    Op,
    Result,
    SessionExpired,
    SessionState,
    StoreClosed,
    StoreError,
    check_path,
    parent_of,
)

T = TypeVar("T")

_ORDER_S = 1e-7


class SimEnsemble(MemoryZooKeeper):
    """The server's side."""

    def __init__(self, rng: random.Random, trace: Trace, expire_after_s: float) -> None:
        super().__init__()
        self.rng = rng
        self.trace = trace
        self.expire_after_s = expire_after_s
        self.on_write: Callable[[Sequence[Effect]], None] = lambda effects: None

    def session(self) -> SimSession:
        store = SimSession(self, next(self._session_ids))
        self._stores.append(store)
        return store

    def delay_s(self) -> float:
        rng = self.rng
        return rng.uniform(0.0003, 0.003) if rng.random() < 0.97 else rng.uniform(0.02, 0.2)

    def _apply(self, effects: Sequence[Effect], session_id: int) -> None:
        super()._apply(effects, session_id)
        self.trace.note("zookeeper", *(each.path for each in effects))
        self.on_write(effects)


class SimSession(MemorySession):
    """A broker's side; satisfies ``SharedStore``."""

    def __init__(self, server: SimEnsemble, session_id: int) -> None:
        super().__init__(server, session_id)
        self._life: Life | None = OWNER.get()
        self._ensemble = server
        self._sent_s = 0.0
        self._came_s = 0.0
        self.is_cut = False

    # What happens to it

    def cut(self) -> None:
        """The broker cannot reach the server, nor the server the broker."""
        if self.is_cut:
            return
        self.is_cut = True
        self._soon(self.enter, SessionState.SUSPENDED)
        self._loop.call_later(self._ensemble.expire_after_s, self._miss, self.session_id)

    def mend(self) -> None:
        """It can again."""
        if self.is_cut:
            self.is_cut = False
            self._soon(self.enter, SessionState.CONNECTED)

    def stop_hearing(self) -> None:
        """The broker's process stands still, or is gone: the server misses it in time."""
        self._loop.call_later(self._ensemble.expire_after_s, self._miss_paused, self.session_id)

    def _miss(self, session_id: int) -> None:
        if self.is_cut and self.session_id == session_id:
            self._lose(session_id)

    def _miss_paused(self, session_id: int) -> None:
        life = self._life
        gone = life is not None and (life.ended or life.held is not None)
        if gone and self.session_id == session_id:
            self._lose(session_id)
            if life is not None and not life.ended and not self.is_cut:
                # It finds out as soon as it goes on: the server has closed the connection.
                self._soon(self.enter, SessionState.SUSPENDED)
                self._soon(self.enter, SessionState.CONNECTED)

    def _lose(self, session_id: int) -> None:
        self._doomed = True
        self._server.end(session_id)

    def _soon(self, work: Callable[..., object], *args: Any) -> None:
        if self._life is None:
            self._loop.call_soon(work, *args)
        else:
            self._life.call_soon(work, *args)

    # What it asks

    async def get(self, path: str) -> tuple[bytes, int]:
        return await self._exchange(super().get(path))

    async def get_with_stat(self, path: str) -> tuple[bytes, NodeStat]:
        return await self._exchange(super().get_with_stat(path))

    async def stat(self, path: str) -> NodeStat | None:
        return await self._exchange(super().stat(path))

    async def exists(self, path: str) -> bool:
        return await self._exchange(super().exists(path))

    async def children(self, path: str) -> list[str]:
        return await self._exchange(super().children(path))

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        return await self._exchange(super().multi(ops))

    async def _exchange(self, asked: Awaitable[T]) -> T:
        result: T
        error: StoreError | None = None
        try:
            result = await asked
        except (SessionExpired, StoreClosed):
            raise
        except StoreError as refusal:
            error = refusal
        generation = self._generation
        self._came_s = max(self._loop.time() + self._ensemble.delay_s(), self._came_s + _ORDER_S)
        await self._until(self._came_s)
        await self._connected.wait()
        if generation != self._generation:
            raise SessionExpired("the answer")
        if error is not None:
            raise error
        return result

    async def _arrive(self, path: str) -> None:
        check_path(path)
        generation = self._generation
        self._sent_s = max(self._loop.time() + self._ensemble.delay_s(), self._sent_s + _ORDER_S)
        await self._until(self._sent_s)
        await self._connected.wait()
        if self._closed:
            raise StoreClosed(path, "the connection to ZooKeeper was closed")
        if generation != self._generation:
            raise SessionExpired(path)
        if self._doomed:
            # The server knows no such session; the client is about to be told.
            await self._connected_anew(generation)
            raise SessionExpired(path)

    async def _connected_anew(self, generation: int) -> None:
        while generation == self._generation and not self._closed:  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(0.01)

    async def _until(self, when_s: float) -> None:
        await asyncio.sleep(max(0.0, when_s - self._loop.time()))

    # What it is told

    def changed(self, effects: Sequence[Effect]) -> None:
        if self.state is not SessionState.CONNECTED or self._closed:
            return
        touched = {effect.path for effect in effects}
        parents = {parent_of(each.path) for each in effects if each.data is None or each.order >= 0}
        for watches, paths in ((self._node_watches, touched), (self._child_watches, parents | touched)):
            for entry in watches:
                if entry[0] in paths:
                    self._deliver(watches, entry)

    def _register(
        self, watches: list[tuple[str, Callable[[], None]]], path: str, on_change: Callable[[], None]
    ) -> Callable[[], None]:
        check_path(path)
        entry = (path, lambda: on_change())
        watches.append(entry)
        self._deliver(watches, entry)

        def stop() -> None:
            if entry in watches:
                watches.remove(entry)

        return stop

    def _deliver(
        self, watches: list[tuple[str, Callable[[], None]]], entry: tuple[str, Callable[[], None]]
    ) -> None:
        self._came_s = max(self._loop.time() + self._ensemble.delay_s(), self._came_s + _ORDER_S)
        context = None if self._life is None else self._life.context
        self._loop.call_at(self._came_s, self._tell, watches, entry, context=context)

    def enter(self, state: SessionState) -> None:
        if self._closed or state is self.state:
            return
        if state is SessionState.CONNECTED and self.is_cut:
            return
        if state is SessionState.CONNECTED and self._doomed:
            self._become(SessionState.EXPIRED)
            self.session_id = next(self._server._session_ids)
        self._become(state)
        if state is SessionState.CONNECTED:
            for watches in (self._node_watches, self._child_watches):
                for entry in watches:
                    self._deliver(watches, entry)
