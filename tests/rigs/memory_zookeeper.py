"""ZooKeeper's twin in memory: one tree, several sessions, each a ``SharedStore``; for tests and the
simulation.

    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    zookeeper.suspend(store)    # its connection breaks; operations wait
    zookeeper.resume(store)     # and comes back in time,
    zookeeper.expire(store)     # or too late: ephemeral nodes go, and a new session begins when it is resumed

Answers and watches come in turns of the loop of their own, in the order of the writes, as from a server: a
store's own write may be answered before or after others hear of it, but never does a reader see the past of
what it was told. The contract suite runs on this and on the real one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

from tidelog.metadata.embedded.node_tree import Effect, Node, NodeTree
from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    NodeStat,
    NoNode,
    Op,
    Result,
    SessionExpired,
    SessionState,
    Set,
    StoreClosed,
    TooLargeError,
    check_path,
    parent_of,
)


def _size(op: Op) -> int:
    return len(op.path.encode()) + (len(op.data) if isinstance(op, Create | Set) else 0)


class MemoryZooKeeper:
    """The tree, and who owns which ephemeral node."""

    def __init__(self, pause: Callable[[], Awaitable[None]] | None = None) -> None:
        self.max_bytes = 0xFFFFF
        """What it takes at once, as a server where jute.maxbuffer is not set."""
        """``pause`` is awaited before every operation: what a network and a server would take."""
        self.tree = NodeTree()
        self._pause = pause
        self._owners: dict[str, int] = {}
        self._created: dict[str, int] = {}
        self._zxid = 0
        self._session_ids = itertools.count(1)
        self._stores: list[MemorySession] = []

    def session(self) -> MemorySession:
        """A new user of the tree."""
        store = MemorySession(self, next(self._session_ids))
        self._stores.append(store)
        return store

    def suspend(self, store: MemorySession) -> None:
        """Break a store's connection."""
        store.enter(SessionState.SUSPENDED)

    def resume(self, store: MemorySession) -> None:
        """Give a store its connection back, in a new session if the old one has expired."""
        if store.state is SessionState.EXPIRED:
            store.session_id = next(self._session_ids)
        store.enter(SessionState.CONNECTED)

    def expire(self, store: MemorySession) -> None:
        """End a store's session; the store learns of it when it is resumed, or now if it is connected."""
        self.end(store.session_id)
        store.expired()

    def end(self, session_id: int) -> None:
        """Remove the ephemeral nodes of a session."""
        owned = [path for path, owner in self._owners.items() if owner == session_id]
        self._apply([Effect(path, None, ephemeral=True) for path in sorted(owned)], 0)

    def forget(self, store: MemorySession) -> None:
        """The store was closed."""
        self.end(store.session_id)
        if store in self._stores:
            self._stores.remove(store)

    async def pause(self) -> None:
        """Take as long as a server would."""
        if self._pause is not None:
            await self._pause()

    def node(self, path: str) -> Node:
        """The node at ``path``; raises :class:`NoNode`."""
        node = self.tree.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def stat(self, path: str) -> NodeStat:
        """What is known of the node at ``path``; raises :class:`NoNode`."""
        return NodeStat(self.node(path).version, self._created.get(path, 0), self._owners.get(path, 0))

    def write(self, ops: Sequence[Op], session_id: int) -> list[Result]:
        """Carry out all operations or none."""
        effects, results = self.tree.plan(ops)
        self._apply(effects, session_id)
        return results

    def _apply(self, effects: Sequence[Effect], session_id: int) -> None:
        self._zxid += 1
        self.tree.apply(effects)
        for effect in effects:
            if effect.data is None:
                self._owners.pop(effect.path, None)
                self._created.pop(effect.path, None)
            elif effect.order >= 0:
                self._created[effect.path] = self._zxid
                if effect.ephemeral:
                    self._owners[effect.path] = session_id
        for store in self._stores:
            store.changed(effects)


class MemorySession:
    """One user's view; satisfies ``SharedStore``."""

    def __init__(self, server: MemoryZooKeeper, session_id: int) -> None:
        self.session_id = session_id
        self.state = SessionState.CONNECTED
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._connected.set()
        self._generation = 0
        self._doomed = False
        self._closed = False
        self._listeners: list[Callable[[SessionState], None]] = []
        self._node_watches: list[tuple[str, Callable[[], None]]] = []
        self._child_watches: list[tuple[str, Callable[[], None]]] = []

    # Reading

    async def get(self, path: str) -> tuple[bytes, int]:
        await self._arrive(path)
        node = self._server.node(path)
        return node.data, node.version

    async def get_with_stat(self, path: str) -> tuple[bytes, NodeStat]:
        await self._arrive(path)
        return self._server.node(path).data, self._server.stat(path)

    async def stat(self, path: str) -> NodeStat | None:
        await self._arrive(path)
        return None if self._server.tree.find(path) is None else self._server.stat(path)

    async def sync(self, path: str) -> None:
        await self._arrive(path)

    async def exists(self, path: str) -> bool:
        await self._arrive(path)
        return self._server.tree.find(path) is not None

    async def children(self, path: str) -> list[str]:
        await self._arrive(path)
        return sorted(self._server.node(path).children)

    # Writing

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        [created] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        [new_version] = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        if not ops:
            return []
        await self._arrive(ops[0].path)
        size = sum(map(_size, ops))
        if size > self._server.max_bytes:
            raise TooLargeError(max(ops, key=_size).path, size)
        return self._server.write(ops, self.session_id)

    # Watching

    def watch_node(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        return self._register(self._node_watches, path, on_change)

    def watch_children(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        return self._register(self._child_watches, path, on_change)

    def _register(
        self, watches: list[tuple[str, Callable[[], None]]], path: str, on_change: Callable[[], None]
    ) -> Callable[[], None]:
        check_path(path)
        # A wrapper of its own: the same function may watch the same node twice.
        entry = (path, lambda: on_change())
        watches.append(entry)
        self._loop.call_soon(self._tell, watches, entry)

        def stop() -> None:
            if entry in watches:
                watches.remove(entry)

        return stop

    def changed(self, effects: Sequence[Effect]) -> None:
        """Have those told whose nodes the effects touch; while the connection is away nobody is."""
        if self.state is not SessionState.CONNECTED:
            return
        touched = {effect.path for effect in effects}
        parents = {parent_of(each.path) for each in effects if each.data is None or each.order >= 0}
        for watches, paths in ((self._node_watches, touched), (self._child_watches, parents | touched)):
            for entry in watches:
                if entry[0] in paths:
                    self._loop.call_soon(self._tell, watches, entry)

    def _tell(
        self, watches: list[tuple[str, Callable[[], None]]], entry: tuple[str, Callable[[], None]]
    ) -> None:
        if entry in watches and self.state is SessionState.CONNECTED:
            entry[1]()

    # The session

    def on_session(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def enter(self, state: SessionState) -> None:
        """The connection broke, or came back."""
        if self._closed or state is self.state:
            return
        if state is SessionState.CONNECTED and self._doomed:
            self._become(SessionState.EXPIRED)
            self.session_id = next(self._server._session_ids)
        self._become(state)
        if state is SessionState.CONNECTED:
            for watches in (self._node_watches, self._child_watches):
                for entry in watches:
                    self._loop.call_soon(self._tell, watches, entry)

    def expired(self) -> None:
        """The session is over."""
        self._doomed = True
        if self.state is SessionState.CONNECTED:
            self._become(SessionState.EXPIRED)

    def _become(self, state: SessionState) -> None:
        self.state = state
        if state is SessionState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        if state is SessionState.EXPIRED:
            self._generation += 1
            self._doomed = False
        for listener in tuple(self._listeners):
            listener(state)

    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""
        self._closed = True
        self._connected.set()
        self._server.forget(self)

    async def _arrive(self, path: str) -> None:
        check_path(path)
        generation = self._generation
        await self._server.pause()
        await self._connected.wait()
        if self._closed:
            raise StoreClosed(path, "the connection to ZooKeeper was closed")
        if generation != self._generation:
            raise SessionExpired(path)
