"""The asyncio consumer where no broker answers, and how it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.errors import WakeupError
from tidelog.client.group.membership import NoGroup
from tidelog.ids import TopicPartition
from tidelog.testing.reserved_port import ReservedPort

T0 = TopicPartition("t", 0)
TIMEOUT_S = 20


class LeavingGroup(NoGroup):
    """Remembers what was committed, and that it was left."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def ensure_active(self, deadline: Any) -> bool:
        return True

    async def commit(self, offsets: Mapping[TopicPartition, Any], deadline: Any) -> None:
        self.events.append(f"committed {sorted(at.offset for at in offsets.values())}")

    async def leave(self, deadline: Any) -> None:
        self.events.append("left")


@pytest.fixture
def unreachable() -> Iterator[str]:
    with ReservedPort() as nobody:
        yield f"127.0.0.1:{nobody.port}"


def raising(name: str, told: list[str]) -> Any:
    def callback(offsets: object, error: Exception | None) -> None:
        told.append(name)
        raise ValueError(name)

    return callback


def test_a_callback_that_raises_while_closing_keeps_nobody_from_leaving_the_group(unreachable: str) -> None:
    told: list[str] = []

    async def main() -> list[str]:
        consumer = AsyncConsumer(bootstrap_servers=unreachable)
        group = LeavingGroup()
        consumer._start_membership = lambda *parts: group
        consumer._subscription.subscribe(["t"], None)
        await consumer.start()
        consumer.commit_nowait({T0: 1}, raising("first", told))
        consumer.commit_nowait({T0: 2}, raising("second", told))
        with pytest.raises(ValueError, match="first"):
            await consumer.close()
        return group.events

    assert asyncio.run(main()) == ["committed [1]", "committed [2]", "left"]
    assert told == ["first", "second"]


def test_a_callback_that_raises_while_closing_keeps_nobody_from_the_last_commit(unreachable: str) -> None:
    async def main() -> list[str]:
        consumer = AsyncConsumer(bootstrap_servers=unreachable, group_id="g")
        group = LeavingGroup()
        consumer._start_membership = lambda *parts: group
        consumer.assign([T0])
        await consumer.start()
        consumer.seek(T0, 7)
        consumer.commit_nowait({T0: 1}, raising("first", []))
        with pytest.raises(ValueError, match="first"):
            await consumer.close()
        return group.events

    assert asyncio.run(main()) == ["committed [1]", "committed [7]"]


def test_a_pattern_without_metadata_brings_nothing_and_is_no_error(unreachable: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=unreachable, group_id="g") as consumer:
            consumer.subscribe(pattern="t.*")
            assert await consumer.poll(0) == []
            assert await consumer.poll(0.05) == []

    asyncio.run(main())


def test_a_wakeup_ends_a_poll_that_waits_for_the_topics_of_a_pattern(unreachable: str) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(bootstrap_servers=unreachable, group_id="g")
        async with asyncio.timeout(TIMEOUT_S), consumer:
            consumer.subscribe(pattern="t.*")
            polling = asyncio.create_task(consumer.poll(3600))
            while not consumer.cluster.updates._waiting:  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0)
            consumer.wakeup()
            await asyncio.wait([polling])
            assert isinstance(polling.exception(), WakeupError)

    asyncio.run(main())
