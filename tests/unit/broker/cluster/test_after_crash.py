"""A broker that has crashed comes back when the cluster has noticed it: nobody counts on what it may have
lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.cluster import registration
from tidelog.broker.cluster.registration import prepare, wait_until_missed
from tidelog.ids import TopicPartition
from tidelog.metadata.store import SharedStore, ensure_path
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import PartitionState

ME, OTHER = 1, 2
P0 = TopicPartition("t", 0)
PATIENCE_MS = 60_000


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_LOOK_S", 0.001)


def run(test: Callable[[SharedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryZooKeeper().session()
        await prepare(store)
        async with asyncio.timeout(30):
            await test(store)

    asyncio.run(main())


async def put(store: SharedStore, leader: int, *isr: int) -> None:
    path = znodes.partition_state_path(P0)
    await ensure_path(store, path)
    await store.set(path, PartitionState(leader=leader, leader_epoch=3, isr=isr, controller_epoch=1).encode())


async def waiting(store: SharedStore, *, patience_ms: float = PATIENCE_MS) -> asyncio.Task[None]:
    """A task that has looked once and would look again: it waits."""
    looks = 0
    looks_again = asyncio.Event()

    def given_up() -> bool:
        nonlocal looks
        looks += 1
        if looks > 1:
            looks_again.set()
        return False

    task = asyncio.create_task(wait_until_missed(store, ME, [P0], patience_ms, given_up))
    await looks_again.wait()
    return task


def test_it_waits_until_it_is_in_sync_no_more() -> None:
    async def test(store: SharedStore) -> None:
        await ensure_path(store, znodes.broker_path(OTHER))
        await put(store, ME, ME, OTHER)
        task = await waiting(store)
        assert not task.done()
        await put(store, OTHER, OTHER)
        await task

    run(test)


def test_it_does_not_wait_where_it_alone_is_in_sync_or_nobody_else_is_there() -> None:
    async def test(store: SharedStore) -> None:
        await ensure_path(store, znodes.broker_path(ME))
        await put(store, ME, ME, OTHER)
        await wait_until_missed(store, ME, [P0], PATIENCE_MS, lambda: False)
        await ensure_path(store, znodes.broker_path(OTHER))
        await put(store, ME, ME)
        await wait_until_missed(store, ME, [P0], PATIENCE_MS, lambda: False)

    run(test)


def test_a_topic_that_is_being_deleted_keeps_nobody_waiting() -> None:
    async def test(store: SharedStore) -> None:
        await ensure_path(store, znodes.broker_path(OTHER))
        await put(store, ME, ME, OTHER)
        await ensure_path(store, znodes.delete_topic_path(P0.topic))
        await wait_until_missed(store, ME, [P0], PATIENCE_MS, lambda: False)

    run(test)


def test_it_comes_back_all_the_same_when_nobody_notices(caplog: pytest.LogCaptureFixture) -> None:
    async def test(store: SharedStore) -> None:
        await ensure_path(store, znodes.broker_path(OTHER))
        await put(store, ME, ME, OTHER)
        await wait_until_missed(store, ME, [P0], 1, lambda: False)

    run(test)
    assert "still written down as in sync for 1 partitions" in caplog.text
