"""Whether a write whose answer was lost has happened is told by what is in the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper

from tidelog.metadata.store import Check, Create, Delete, Op, Set
from tidelog.metadata.zookeeper.outcome import outcome_of


def run(scenario: Callable[[MemorySession, MemorySession], Awaitable[None]]) -> None:
    async def main() -> None:
        zookeeper = MemoryZooKeeper()
        mine, theirs = zookeeper.session(), zookeeper.session()
        await theirs.multi([Create("/set", b"0"), Create("/gone", b""), Create("/checked", b"")])
        await scenario(mine, theirs)

    asyncio.run(main())


WRITES: list[Sequence[Op]] = [
    [Create("/new", b"x")],
    [Create("/mine", b"x", ephemeral=True)],
    [Set("/set", b"1", 0)],
    [Set("/set", b"1")],
    [Delete("/gone")],
    [
        Check("/checked", 0),
        Create("/new", b"x"),
        Create("/new/child", b"y"),
        Set("/set", b"1", 0),
        Delete("/gone"),
    ],
]


@pytest.mark.parametrize("ops", WRITES)
def test_a_write_that_arrived_has_its_results(ops: Sequence[Op]) -> None:
    async def scenario(mine: MemorySession, theirs: MemorySession) -> None:
        results = await mine.multi(ops)
        assert await outcome_of(mine, ops) == results

    run(scenario)


@pytest.mark.parametrize("ops", WRITES)
def test_a_write_that_did_not_arrive_has_none(ops: Sequence[Op]) -> None:
    async def scenario(mine: MemorySession, theirs: MemorySession) -> None:
        assert await outcome_of(mine, ops) is None

    run(scenario)


@pytest.mark.parametrize(
    ("ops", "rival"),
    [
        ([Create("/new", b"x")], [Create("/new", b"other")]),
        ([Create("/mine", b"x", ephemeral=True)], [Create("/mine", b"x", ephemeral=True)]),
        ([Set("/set", b"1", 0)], [Set("/set", b"2", 0)]),
        ([Set("/set", b"1", 0)], [Set("/set", b"2", 0), Set("/set", b"1", 1)]),
    ],
)
def test_what_somebody_else_did_is_not_taken_for_ones_own(ops: Sequence[Op], rival: Sequence[Op]) -> None:
    async def scenario(mine: MemorySession, theirs: MemorySession) -> None:
        await theirs.multi(rival)
        assert await outcome_of(mine, ops) is None

    run(scenario)


@pytest.mark.parametrize("change", [Create("/new", b"x"), Set("/set", b"1", 0), Delete("/gone")])
def test_a_sequential_node_has_been_made_if_what_was_written_with_it_has(change: Op) -> None:
    async def scenario(mine: MemorySession, theirs: MemorySession) -> None:
        ops = [change, Create("/n-", b"x", sequential=True)]
        assert await outcome_of(mine, ops) is None
        [result, _] = await mine.multi(ops)
        assert await outcome_of(mine, ops) == [result, None], "which name it has nobody can tell"

    run(scenario)


def test_a_sequential_node_alone_is_never_recognised() -> None:
    async def scenario(mine: MemorySession, theirs: MemorySession) -> None:
        ops = [Create("/n-", b"x", sequential=True)]
        await mine.multi(ops)
        assert await outcome_of(mine, ops) is None

    run(scenario)
