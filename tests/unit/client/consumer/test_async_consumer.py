"""The asyncio consumer where no broker answers, and how it closes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.group.membership import NoGroup
from tidelog.ids import TopicPartition

T0 = TopicPartition("t", 0)


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
def unreachable() -> str:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        return f"127.0.0.1:{nobody.getsockname()[1]}"


def raising(name: str, told: list[str]) -> Any:
    def callback(offsets: object, error: Exception | None) -> None:
        told.append(name)
        raise ValueError(name)

    return callback


def test_a_callback_that_raises_while_closing_keeps_nobody_from_leaving_the_group(unreachable: str) -> None:
    told: list[str] = []

    async def main() -> list[str]:
        consumer = AsyncConsumer(bootstrap_servers=unreachable)
        group = consumer._membership = LeavingGroup()
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
        group = consumer._membership = LeavingGroup()
        consumer.assign([T0])
        await consumer.start()
        consumer.seek(T0, 7)
        consumer.commit_nowait({T0: 1}, raising("first", []))
        with pytest.raises(ValueError, match="first"):
            await consumer.close()
        return group.events

    assert asyncio.run(main()) == ["committed [1]", "committed [7]"]
