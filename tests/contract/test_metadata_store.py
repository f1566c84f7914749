"""What every metadata store must do; runs on each implementation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.store import (
    BadVersion,
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    StoreError,
    ensure_path,
    put,
)
from tidelog.metadata.zookeeper.zookeeper_store import ZooKeeperStore

Opener = Callable[[Path], AbstractAsyncContextManager[MetadataStore]]
Scenario = Callable[[MetadataStore], Awaitable[None]]


@asynccontextmanager
async def _embedded(directory: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(directory)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=["embedded", "zookeeper", "memory zookeeper"])
def opener(request: pytest.FixtureRequest, zookeeper_connect: Callable[[], str]) -> Opener:
    """How to open the same store, once or again."""
    in_memory: list[MemoryZooKeeper] = []

    @asynccontextmanager
    async def shared(_: Path) -> AsyncIterator[MetadataStore]:
        if request.param == "zookeeper":
            store: MetadataStore = await ZooKeeperStore.connect(zookeeper_connect())
        else:
            in_memory[:] = in_memory or [MemoryZooKeeper()]
            store = in_memory[0].session()
        try:
            yield store
        finally:
            await store.close()

    return _embedded if request.param == "embedded" else shared


@pytest.fixture
def run(opener: Opener, tmp_path: Path) -> Callable[[Scenario], None]:
    def _run(scenario: Scenario) -> None:
        async def main() -> None:
            async with opener(tmp_path) as store:
                await scenario(store)

        asyncio.run(main())

    return _run


def test_a_node_is_read_as_it_was_written(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.create("/a", b"one") == "/a"
        assert await store.get("/a") == (b"one", 0)
        assert await store.set("/a", b"two") == 1
        assert await store.set("/a", b"three", 1) == 2
        assert await store.get("/a") == (b"three", 2)
        assert await store.exists("/a")
        await store.delete("/a", 2)
        assert not await store.exists("/a")

    run(scenario)


def test_what_is_not_there_is_no_node(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        for attempt in (
            store.get("/a"),
            store.set("/a", b""),
            store.delete("/a"),
            store.children("/a"),
            store.create("/a/b"),
        ):
            with pytest.raises(NoNode):
                await attempt

    run(scenario)


def test_a_node_is_created_once(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"first")
        with pytest.raises(NodeExists):
            await store.create("/a", b"second")
        assert await store.get("/a") == (b"first", 0)

    run(scenario)


def test_a_stale_version_changes_nothing(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"one")
        await store.set("/a", b"two")
        with pytest.raises(BadVersion):
            await store.set("/a", b"x", 0)
        with pytest.raises(BadVersion):
            await store.delete("/a", 0)
        assert await store.get("/a") == (b"two", 1)

    run(scenario)


def test_a_deleted_node_begins_again_at_version_zero(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        await store.set("/a", b"x")
        await store.delete("/a")
        await store.create("/a", b"y")
        assert await store.get("/a") == (b"y", 0)

    run(scenario)


def test_a_node_with_children_stays(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")

    run(scenario)


def test_children_are_names_in_order(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        for name in ("c", "a", "b"):
            await store.create(f"/a/{name}")
        await store.create("/a/b/deep")
        assert await store.children("/a") == ["a", "b", "c"]
        assert "a" in await store.children("/")

    run(scenario)


def test_sequential_names_grow_and_are_not_given_again(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/q")
        first = await store.create("/q/n_", b"", sequential=True)
        second = await store.create("/q/n_", b"", sequential=True)
        assert first < second
        assert len(first) == len("/q/n_") + 10
        await store.delete(second)
        assert await store.create("/q/n_", b"", sequential=True) > second

    run(scenario)


def test_an_ephemeral_node_has_no_children(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/e", b"x", ephemeral=True)
        assert await store.get("/e") == (b"x", 0)
        with pytest.raises(NoChildrenForEphemerals):
            await store.create("/e/child")
        assert await store.set("/e", b"y") == 1

    run(scenario)


def test_multi_does_everything_and_returns_results_in_order(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/gone")
        results = await store.multi(
            [
                Create("/a", b"1"),
                Create("/a/b", b"2"),
                Set("/a", b"3", 0),
                Check("/a", 1),
                Delete("/gone"),
            ]
        )
        assert results == ["/a", "/a/b", 1, None, None]
        assert await store.get("/a") == (b"3", 1)
        assert await store.children("/a") == ["b"]
        assert not await store.exists("/gone")

    run(scenario)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Create("/kept"), NodeExists),
        (Create("/nowhere/x"), NoNode),
        (Set("/kept", b"", 7), BadVersion),
        (Delete("/nowhere"), NoNode),
        (Delete("/kept", 9), BadVersion),
        (Check("/kept", 9), BadVersion),
        (Check("/nowhere"), NoNode),
        (Delete("/new"), NotEmpty),
    ],
)
def test_multi_does_nothing_if_one_operation_is_refused(
    run: Callable[[Scenario], None], bad: Op, error: type[StoreError]
) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/kept", b"as it was")
        await store.create("/seq")
        heard: list[Change] = []
        if isinstance(store, EmbeddedStore):
            store.watch(heard.extend)
        ops: list[Op] = [
            Create("/new"),
            Create("/new/child"),
            Create("/seq/n", sequential=True),
            Set("/kept", b"changed"),
            bad,
            Create("/later"),
        ]
        with pytest.raises(error) as refusal:
            await store.multi(ops)
        assert refusal.value.op_index == 4
        assert heard == []
        assert sorted(set(await store.children("/")) & {"kept", "new", "later"}) == ["kept"]
        assert await store.get("/kept") == (b"as it was", 0)
        assert await store.children("/seq") == []

    run(scenario)


def test_an_empty_multi_is_nothing(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.multi([]) == []

    run(scenario)


def test_watchers_hear_of_every_change_before_the_writer_goes_on(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        heard: list[tuple[ChangeKind, str]] = []

        def watcher(changes: Sequence[Change]) -> None:
            heard.extend((change.kind, change.path) for change in changes)

        stop = store.watch(watcher)
        await store.create("/a")
        assert heard == [(ChangeKind.CREATED, "/a")]
        await store.multi([Set("/a", b"x"), Create("/a/b"), Delete("/a/b")])
        assert heard[1:] == [
            (ChangeKind.CHANGED, "/a"),
            (ChangeKind.CREATED, "/a/b"),
            (ChangeKind.DELETED, "/a/b"),
        ]
        stop()
        await store.delete("/a")
        assert len(heard) == 4

    _run_embedded(tmp_path, scenario)


def test_a_watcher_that_fails_harms_neither_the_write_nor_the_others(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        heard: list[Change] = []

        def broken(changes: Sequence[Change]) -> None:
            raise RuntimeError("broken watcher")

        store.watch(broken)
        store.watch(heard.extend)
        assert await store.create("/a") == "/a"
        assert [change.path for change in heard] == ["/a"]

    _run_embedded(tmp_path, scenario)


def _run_embedded(directory: Path, scenario: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with _embedded(directory) as store:
            await scenario(store)

    asyncio.run(main())


def test_concurrent_conditional_writes_let_one_win_each_round(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/n", b"0")

        async def increment() -> None:
            while True:
                raw, version = await store.get("/n")
                try:
                    await store.set("/n", str(int(raw) + 1).encode(), version)
                    return
                except BadVersion:
                    continue

        await asyncio.gather(*(increment() for _ in range(20)))
        assert await store.get("/n") == (b"20", 20)

    run(scenario)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a\0b"])
def test_a_path_that_is_none_is_refused(run: Callable[[Scenario], None], path: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="metadata path"):
            await store.create(path)

    run(scenario)


def test_ensure_path_and_put_create_what_is_missing(run: Callable[[Scenario], None]) -> None:
    async def scenario(store: MetadataStore) -> None:
        await ensure_path(store, "/a/b/c")
        await ensure_path(store, "/a/b/c")
        await put(store, "/a/b/c", b"1")
        await put(store, "/x/y", b"2")
        assert await store.get("/a/b/c") == (b"1", 1)
        assert await store.get("/x/y") == (b"2", 0)

    run(scenario)


def test_nodes_outlive_the_store_and_ephemeral_ones_do_not(opener: Opener, tmp_path: Path) -> None:
    async def write() -> None:
        async with opener(tmp_path) as store:
            await store.multi(
                [Create("/kept"), Create("/kept/a", b"x"), Create("/kept/e", b"", ephemeral=True)]
            )
            await store.set("/kept/a", b"y")

    async def read() -> None:
        async with opener(tmp_path) as store:
            assert await store.get("/kept/a") == (b"y", 1)
            assert await store.children("/kept") == ["a"]

    asyncio.run(write())
    asyncio.run(read())
