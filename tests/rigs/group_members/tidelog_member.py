"""Our own clients as members of a group, for ``python_member``: ``tidelog`` and ``tidelog-async``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.subscription._subscription_state import SubscriptionPattern
from tidelog.client.subscription.listener import RebalanceListener
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tests.rigs.group_members.python_member import Line, Settings

POLL_S = 0.05
AUTO_COMMIT_MS = 100
MOST_RECORDS = 200

Triples = list[tuple[str, int, int]]


def options(settings: Settings) -> dict[str, Any]:
    """The settings of a member in our clients' names."""
    chosen: dict[str, Any] = {
        "bootstrap.servers": settings["bootstrap"],
        "group.id": settings["group"],
        "client.id": settings["name"],
        "group.instance.id": settings.get("instance"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": settings["commit"] == "auto",
        "auto.commit.interval.ms": AUTO_COMMIT_MS,
        "max.poll.interval.ms": settings["max_poll_ms"],
        "max.poll.records": MOST_RECORDS,
        "metadata.max.age.ms": 300,
        "fetch.max.wait.ms": 100,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 50,
    }
    if settings["protocol"] == "consumer":
        chosen["group.protocol"] = "consumer"
        chosen["group.remote.assignor"] = settings.get("assignor")
    else:
        chosen["session.timeout.ms"] = settings["session_ms"]
        chosen["heartbeat.interval.ms"] = settings["heartbeat_ms"]
        chosen["partition.assignment.strategy"] = settings.get("assignor")
    return chosen


def subscription(settings: Settings) -> dict[str, Any]:
    """The arguments of ``subscribe``."""
    pattern = settings.get("pattern")
    if pattern and settings["protocol"] == "consumer":
        return {"pattern": SubscriptionPattern(pattern)}
    return {"pattern": pattern} if pattern else {"topics": settings["topics"]}


def triples(records: Collection[Any]) -> Triples:
    return [(each.topic, each.partition, each.offset) for each in records]


class Ours(RebalanceListener):
    """``Consumer``."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._line = line
        self._commits = settings["commit"] == "each"
        self._consumer = Consumer(options(settings))
        self._consumer.subscribe(**subscription(settings), listener=self)

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics, listener=self)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._line.tell_places("assigned", partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        if self._commits:
            try:
                self._consumer.commit()
            except TidelogError as failure:
                self._line.tell("failed", doing="commit", error=type(failure).__name__)
        self._line.tell_places("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._line.tell_places("lost", partitions)

    def poll(self) -> Triples:
        return triples(self._consumer.poll(POLL_S))

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class OursAsync(RebalanceListener):
    """``AsyncConsumer``, with a listener whose methods are ``async`` where it has to wait."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._line = line
        self._settings = settings
        self._owes = False
        self._consumer = AsyncConsumer(options(settings))

    async def run(self) -> None:
        self._consumer.subscribe(**subscription(self._settings), listener=self)
        idle = False
        async with self._consumer:
            while True:
                for order in self._line.orders():
                    if order["op"] == "close":
                        return
                    if order["op"] == "subscribe":
                        self._consumer.subscribe(order["topics"], listener=self)
                    idle = order["op"] == "idle"
                    if idle:
                        self._line.tell("idle")
                if idle:
                    await asyncio.sleep(POLL_S)
                else:
                    await self._work()

    async def _work(self) -> None:
        try:
            records = triples(await self._consumer.poll(POLL_S))
            if records:
                self._line.tell("records", records=records)
                self._owes = self._settings["commit"] == "each"
            await self._commit()
        except TidelogError as failure:
            self._line.tell("failed", doing="poll or commit", error=type(failure).__name__)

    async def _commit(self) -> None:
        if self._owes:
            await self._consumer.commit()
            self._owes = False
            self._line.tell("committed")

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._line.tell_places("assigned", partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        try:
            await self._commit()
        except TidelogError as failure:
            self._line.tell("failed", doing="commit", error=type(failure).__name__)
        self._line.tell_places("revoked", partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._owes = False
        self._line.tell_places("lost", partitions)


def run(settings: Settings, line: Line, work: Callable[[Ours, Settings, Line], None]) -> None:
    """Be a member until told to close."""
    if settings["client"] == "tidelog":
        work(Ours(settings, line), settings, line)
        return

    async def main() -> None:
        await OursAsync(settings, line).run()

    asyncio.run(main())
