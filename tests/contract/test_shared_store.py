"""What every store of a cluster must do beyond the common contract: watches, sessions, ephemeral nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kazoo.client import KazooClient
from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper

from tidelog.metadata.store import (
    Create,
    NodeExists,
    SessionExpired,
    SessionState,
    Set,
    SharedStore,
    TooLargeError,
)
from tidelog.metadata.zookeeper.zookeeper_store import ZooKeeperStore, ZooKeeperUnreachableError

TIMEOUT_S = 30


class Ground:
    """Opens stores on one tree, and ends their sessions."""

    def __init__(self, connect: Callable[[], str] | None) -> None:
        self._connect = connect
        self._memory = MemoryZooKeeper() if connect is None else None

    @asynccontextmanager
    async def store(self) -> AsyncIterator[SharedStore]:
        store: SharedStore
        if self._connect is not None:
            store = await ZooKeeperStore.connect(self._connect(), session_timeout_ms=6000)
        else:
            assert self._memory is not None
            store = self._memory.session()
        try:
            yield store
        finally:
            await store.close()

    async def expire(self, store: SharedStore) -> None:
        """End a session on the server, as if its owner had been away for too long."""
        if isinstance(store, MemorySession):
            assert self._memory is not None
            self._memory.expire(store)
            self._memory.resume(store)
            return
        assert isinstance(store, ZooKeeperStore)
        # Whoever closes a connection to the same session ends the session for both.
        twin = KazooClient(store._hosts, client_id=store._client.client_id, timeout=6)
        await asyncio.to_thread(twin.start)
        await asyncio.to_thread(twin.stop)
        await asyncio.to_thread(twin.close)


@pytest.fixture(params=["zookeeper", "memory zookeeper"])
def run(
    request: pytest.FixtureRequest, zookeeper_connect: Callable[[], str]
) -> Callable[[Callable[[Ground], Awaitable[None]]], None]:
    def _run(scenario: Callable[[Ground], Awaitable[None]]) -> None:
        async def main() -> None:
            ground = Ground(zookeeper_connect if request.param == "zookeeper" else None)
            async with asyncio.timeout(TIMEOUT_S):
                await scenario(ground)

        asyncio.run(main())

    return _run


Run = Callable[[Callable[[Ground], Awaitable[None]]], None]


class Bell:
    """A watcher that can be waited for."""

    def __init__(self) -> None:
        self.rings = 0
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.rings += 1
        self._event.set()

    async def rung(self) -> None:
        await self._event.wait()
        self._event.clear()


def test_what_is_too_large_is_refused_and_the_store_goes_on(run: Run) -> None:
    """A server ends the connection of who sends it that, which would come again with every new one."""

    async def scenario(ground: Ground) -> None:
        async with ground.store() as store:
            await store.create("/n", b"1")
            session = store.session_id
            for _ in range(2):
                with pytest.raises(TooLargeError, match=r"/large.*jute\.maxbuffer"):
                    await store.multi([Set("/n", b"2"), Create("/large", b"x" * 1_200_000)])
            assert await store.get("/n") == (b"1", 0)
            assert not await store.exists("/large")
            await store.create("/less", b"x" * 900_000)
            assert store.session_id == session
            if isinstance(store, ZooKeeperStore):
                assert store.disconnects == 3

    run(scenario)


def test_one_store_hears_of_what_another_does_to_a_node(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as mine, ground.store() as theirs:
            bell = Bell()
            mine.watch_node("/n", bell)
            await bell.rung()
            await theirs.create("/n", b"1")
            await bell.rung()
            assert await mine.get("/n") == (b"1", 0)
            await theirs.set("/n", b"2")
            await bell.rung()
            assert await mine.get("/n") == (b"2", 1)
            await theirs.delete("/n")
            await bell.rung()
            assert not await mine.exists("/n")

    run(scenario)


def test_children_are_watched_even_of_a_node_that_is_yet_to_come(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as mine, ground.store() as theirs:
            bell = Bell()
            mine.watch_children("/p", bell)
            await bell.rung()
            await theirs.create("/p")
            await bell.rung()
            for name in ("a", "b", "c"):
                await theirs.create(f"/p/{name}")
                await bell.rung()
                assert name in await mine.children("/p")
            await theirs.delete("/p/b")
            await bell.rung()
            assert await mine.children("/p") == ["a", "c"]

    run(scenario)


def test_a_change_right_after_the_watch_began_is_not_missed(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as mine, ground.store() as theirs:
            for number in range(20):
                parent, bell = f"/p{number}", Bell()
                mine.watch_children(parent, bell)
                await theirs.create(parent)
                await theirs.create(f"{parent}/x")
                while not await mine.exists(parent) or await mine.children(parent) != ["x"]:
                    await bell.rung()

    run(scenario)


def test_no_change_is_missed_however_fast_they_come(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as mine, ground.store() as theirs:
            await theirs.create("/n", b"0")
            bell = Bell()
            mine.watch_node("/n", bell)
            for number in range(1, 101):
                await theirs.set("/n", str(number).encode())
            while await mine.get("/n") != (b"100", 100):
                await bell.rung()

    run(scenario)


def test_a_watch_that_was_stopped_is_silent(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as mine, ground.store() as theirs:
            stopped, going = Bell(), Bell()
            stop = mine.watch_node("/n", stopped)
            mine.watch_node("/n", going)
            await stopped.rung()
            await going.rung()
            stop()
            await theirs.create("/n")
            await going.rung()
            assert stopped.rings == 1

    run(scenario)


def test_after_a_sync_a_store_reads_what_others_had_written(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as one, ground.store() as other:
            await one.create("/synced", b"first")
            await other.sync("/synced")
            assert (await other.get("/synced"))[0] == b"first"
            await other.sync("/no/such/node")

    run(scenario)


def test_ephemeral_nodes_belong_to_their_session_and_go_with_it(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as watching:
            bell = Bell()
            async with ground.store() as owner:
                await owner.create("/e", b"x", ephemeral=True)
                data, stat = await watching.get_with_stat("/e")
                assert data == b"x"
                assert stat.owner == owner.session_id != watching.session_id
                assert stat.created_zxid > 0
                watching.watch_node("/e", bell)
            while await watching.stat("/e") is not None:
                await bell.rung()

    run(scenario)


def test_the_first_of_two_gets_the_node_and_the_second_gets_it_after_the_first_is_gone(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as second:
            bell = Bell()
            second.watch_node("/controller", bell)
            async with ground.store() as first:
                await first.create("/controller", b"1", ephemeral=True)
                with pytest.raises(NodeExists):
                    await second.create("/controller", b"2", ephemeral=True)
                first_zxid = (await second.get_with_stat("/controller"))[1].created_zxid
            while await second.exists("/controller"):
                await bell.rung()
            await second.create("/controller", b"2", ephemeral=True)
            assert (await second.get_with_stat("/controller"))[1].created_zxid > first_zxid

    run(scenario)


def test_an_expired_session_is_told_takes_its_nodes_along_and_another_one_follows(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as mine, ground.store() as theirs:
            states: list[SessionState] = []
            back = asyncio.Event()

            def listener(state: SessionState) -> None:
                states.append(state)
                if SessionState.EXPIRED in states and state is SessionState.CONNECTED:
                    back.set()

            mine.on_session(listener)
            await mine.create("/e", ephemeral=True)
            before = mine.session_id
            await ground.expire(mine)
            await back.wait()
            assert mine.session_id != before
            assert not await theirs.exists("/e")
            await mine.create("/e", ephemeral=True)
            stat = await theirs.stat("/e")
            assert stat is not None
            assert stat.owner == mine.session_id

    run(scenario)


def test_watches_go_on_in_the_next_session(run: Run) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.store() as mine, ground.store() as theirs:
            bell, back = Bell(), asyncio.Event()
            mine.watch_node("/n", bell)
            await bell.rung()
            mine.on_session(lambda state: back.set() if state is SessionState.CONNECTED else None)
            await ground.expire(mine)
            await back.wait()
            await bell.rung()  # Something may have changed meanwhile: the owner is made to look.
            await theirs.create("/n", b"new")
            while not await mine.exists("/n"):
                await bell.rung()

    run(scenario)


def test_an_operation_that_waits_fails_with_its_session() -> None:
    async def scenario() -> None:
        zookeeper = MemoryZooKeeper()
        store = zookeeper.session()
        zookeeper.suspend(store)
        waiting = asyncio.create_task(store.create("/n"))
        await asyncio.sleep(0)
        zookeeper.expire(store)
        zookeeper.resume(store)
        with pytest.raises(SessionExpired):
            await waiting
        assert not await store.exists("/n")

    asyncio.run(scenario())


def test_a_suspended_store_waits_and_goes_on_in_the_same_session() -> None:
    async def scenario() -> None:
        zookeeper = MemoryZooKeeper()
        store, other = zookeeper.session(), zookeeper.session()
        session = store.session_id
        await store.create("/e", ephemeral=True)
        zookeeper.suspend(store)
        waiting = asyncio.create_task(store.multi([Create("/n", b"1"), Set("/n", b"2", 0)]))
        await asyncio.sleep(0)
        assert not await other.exists("/n")
        zookeeper.resume(store)
        assert await waiting == ["/n", 1]
        assert store.session_id == session
        assert await other.exists("/e")

    asyncio.run(scenario())


def test_an_ensemble_that_does_not_answer_is_named() -> None:
    async def scenario() -> None:
        with pytest.raises(ZooKeeperUnreachableError, match=r"127\.0\.0\.1:1: start it"):
            await ZooKeeperStore.connect("127.0.0.1:1/tide", connection_timeout_ms=300)

    asyncio.run(scenario())
