"""One member of a consumer group as a process: a Python client, a foreign one or ours, in a loop of polls.

It is told what to do by lines of JSON and tells by lines of JSON what happened to it, with the moment.
Members in other languages (foreign/drivers) speak the same lines, so any of them may sit in one group.

| told | meaning |
|---|---|
| `{"op": "idle"}`, `{"op": "work"}` | stop and go on polling; the library's background work goes on |
| `{"op": "subscribe", "topics": […]}` | change the subscription |
| `{"op": "close"}` | leave the group as the library does it, and end |

| tells | fields, besides `at` in milliseconds since the epoch |
|---|---|
| `started`, `idle`, `closed` | |
| `assigned`, `revoked`, `lost` | `partitions`: pairs of topic and partition |
| `records` | `records`: triples of topic, partition, offset; told before they are committed |
| `committed` | |
| `failed` | `doing`, `error` |

Settings: `client name bootstrap group topics|pattern protocol assignor instance session_ms heartbeat_ms
max_poll_ms commit` (`each`: after each batch, `auto`: by the library, `never`).
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from collections.abc import Iterable
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka import ConsumerRebalanceListener as AioListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError as PurePythonError
from tests.rigs.delivered import offset_of, place_of
from tests.rigs.group_members import tidelog_member

from tidelog.errors import TidelogError

POLL_S = 0.05
AUTO_COMMIT_MS = 100
MOST_RECORDS = 200

Settings = dict[str, Any]

KAFKA_PYTHON_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
AIOKAFKA_ASSIGNORS = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}


class Place(Protocol):
    """A topic partition of any library."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...


class Line:
    """The two-way line to the test."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = b""

    def tell(self, event: str, **fields: Any) -> None:
        self._connection.sendall(
            json.dumps({"event": event, "at": time.time() * 1000, **fields}).encode() + b"\n"
        )

    def tell_places(self, event: str, places: Iterable[Place]) -> None:
        self.tell(event, partitions=sorted([each.topic, each.partition] for each in places))

    def orders(self, wait_s: float = 0.0) -> list[Settings]:
        """What was told since; the end of the line means the test is gone."""
        if select.select([self._connection], [], [], wait_s)[0]:
            data = self._connection.recv(65536)
            if not data:
                raise SystemExit
            self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        return [json.loads(line) for line in lines]


class Librdkafka:
    """confluent-kafka, in either protocol."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._line = line
        self._commits = settings["commit"] == "each"
        self._taken: list[tuple[str, int, int]] = []
        self._consumer = Consumer(self._config(settings))
        self.subscribe([settings["pattern"]] if settings.get("pattern") else settings["topics"])

    def _config(self, settings: Settings) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "client.id": settings["name"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": settings["commit"] == "auto",
            "auto.commit.interval.ms": AUTO_COMMIT_MS,
            "max.poll.interval.ms": settings["max_poll_ms"],
            "topic.metadata.refresh.interval.ms": 300,
            "topic.metadata.propagation.max.ms": 1000,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "session.timeout.ms": settings["session_ms"],
            "log_level": 2,
        }
        if settings.get("instance"):
            config["group.instance.id"] = settings["instance"]
        if settings["protocol"] == "consumer":
            del config["session.timeout.ms"]  # the broker's to say, KIP-848
            config["group.protocol"] = "consumer"
            if settings.get("assignor"):
                config["group.remote.assignor"] = settings["assignor"]
        else:
            config["heartbeat.interval.ms"] = settings["heartbeat_ms"]
            config["partition.assignment.strategy"] = settings.get("assignor") or "range"
        return config

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(
            topics,
            on_assign=lambda _, places: self._line.tell_places("assigned", places),
            on_revoke=self._on_revoke,
            on_lost=lambda _, places: self._line.tell_places("lost", places),
        )

    def _on_revoke(self, _: Consumer, places: list[TopicPartition]) -> None:
        # Called between two polls of a batch; and commits in a cooperative rebalance may have come too late.
        if self._taken:
            self._line.tell("records", records=self._taken)
            self._taken = []
        if self._commits:
            try:
                self.commit()
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError._NO_OFFSET:
                    self._line.tell("failed", doing="commit", error=failure.args[0].name())
        self._line.tell_places("revoked", places)

    def poll(self) -> list[tuple[str, int, int]]:
        message = self._consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is None:
                self._taken.append((*place_of(message), offset_of(message)))
            elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
                self._line.tell("failed", doing="poll", error=error.name())
            elif error.code() == KafkaError._FATAL:
                raise KafkaException(error)
            if len(self._taken) >= MOST_RECORDS:
                break
            message = self._consumer.poll(0)
        records, self._taken = self._taken, []
        return records

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class PurePython(ConsumerRebalanceListener):
    """kafka-python."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._line = line
        self._consumer = KafkaConsumer(
            bootstrap_servers=settings["bootstrap"],
            group_id=settings["group"],
            client_id=settings["name"],
            group_instance_id=settings.get("instance"),
            auto_offset_reset="earliest",
            enable_auto_commit=settings["commit"] == "auto",
            auto_commit_interval_ms=AUTO_COMMIT_MS,
            session_timeout_ms=settings["session_ms"],
            heartbeat_interval_ms=settings["heartbeat_ms"],
            max_poll_interval_ms=settings["max_poll_ms"],
            max_poll_records=MOST_RECORDS,
            partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[settings.get("assignor") or "range"]],
            metadata_max_age_ms=300,
            fetch_max_wait_ms=100,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=50,
        )
        if settings.get("pattern"):
            self._consumer.subscribe(pattern=settings["pattern"], listener=self)
        else:
            self.subscribe(settings["topics"])

    def subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics, listener=self)

    def on_partitions_assigned(self, assigned: list[Place]) -> None:
        self._line.tell_places("assigned", assigned)

    def on_partitions_revoked(self, revoked: list[Place]) -> None:
        self._line.tell_places("revoked", revoked)

    def on_partitions_lost(self, lost: list[Place]) -> None:
        self._line.tell_places("lost", lost)

    def poll(self) -> list[tuple[str, int, int]]:
        batches = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        # kafka-python 3.0: a leader that rejoins because of new metadata, and whose poll ends between its
        # assignment and the answer to it, thinks that it need not rejoin any more and never takes the answer.
        if self._consumer._coordinator.rejoining:
            self._consumer._coordinator.request_rejoin()
        return [
            (place.topic, place.partition, each.offset) for place, batch in batches.items() for each in batch
        ]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Asyncio(AioListener):
    """aiokafka."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._line = line
        self._settings = settings
        self._owes = False
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings["bootstrap"],
            group_id=settings["group"],
            client_id=settings["name"],
            group_instance_id=settings.get("instance"),
            auto_offset_reset="earliest",
            enable_auto_commit=settings["commit"] == "auto",
            auto_commit_interval_ms=AUTO_COMMIT_MS,
            session_timeout_ms=settings["session_ms"],
            heartbeat_interval_ms=settings["heartbeat_ms"],
            max_poll_interval_ms=settings["max_poll_ms"],
            rebalance_timeout_ms=settings["max_poll_ms"],
            partition_assignment_strategy=[AIOKAFKA_ASSIGNORS[settings.get("assignor") or "range"]],
            metadata_max_age_ms=300,
            fetch_max_wait_ms=100,
            retry_backoff_ms=50,
        )

    async def run(self) -> None:
        if self._settings.get("pattern"):
            self._consumer.subscribe(pattern=self._settings["pattern"], listener=self)
        else:
            self._consumer.subscribe(self._settings["topics"], listener=self)
        await self._consumer.start()
        idle = False
        while True:
            for order in self._line.orders():
                if order["op"] == "close":
                    await self._consumer.stop()
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
            batches = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=MOST_RECORDS)
            records = [
                (at.topic, at.partition, each.offset) for at, batch in batches.items() for each in batch
            ]
            if records:
                self._line.tell("records", records=records)
                self._owes = self._settings["commit"] == "each"
            await self._commit()
        except AioError as failure:
            self._line.tell("failed", doing="commit", error=type(failure).__name__)

    async def _commit(self) -> None:
        if self._owes and self._consumer.assignment():
            await self._consumer.commit()
            self._owes = False
            self._line.tell("committed")

    def on_partitions_assigned(self, assigned: Iterable[Place]) -> None:
        self._line.tell_places("assigned", assigned)

    async def on_partitions_revoked(self, revoked: list[Place]) -> None:
        # The background task that rebalances may overtake the commit after a batch: so it is made here too.
        try:
            await self._commit()
        except AioError as failure:
            self._line.tell("failed", doing="commit", error=type(failure).__name__)
        self._line.tell_places("revoked", revoked)


def work(client: Librdkafka | PurePython | tidelog_member.Ours, settings: Settings, line: Line) -> None:
    """Poll and commit until told to close; a commit that failed is made again."""
    idle = owes = False
    while True:
        for order in line.orders(POLL_S if idle else 0.0):
            if order["op"] == "close":
                client.close()
                return
            if order["op"] == "subscribe":
                client.subscribe(order["topics"])
            idle = order["op"] == "idle"
            if idle:
                line.tell("idle")
        if idle:
            continue
        doing = "poll"
        try:
            if records := client.poll():
                line.tell("records", records=records)
                owes = settings["commit"] == "each"
            if owes:
                doing = "commit"
                client.commit()
                owes = False
                line.tell("committed")
        except KafkaException as failure:
            error = failure.args[0]
            fatal = error.code() == KafkaError._FATAL
            line.tell("failed", doing=doing, error=error.str() if fatal else error.name())
            if fatal:
                return
            owes = owes and error.code() != KafkaError._NO_OFFSET  # others have what it owed
        except (PurePythonError, TidelogError) as failure:
            line.tell("failed", doing=doing, error=type(failure).__name__)


def run(settings: Settings, connection: socket.socket) -> None:
    """What the process does."""
    line = Line(connection)
    line.tell("started")
    match settings["client"]:
        case "aiokafka":

            async def main() -> None:
                await Asyncio(settings, line).run()

            asyncio.run(main())
        case "kafka-python":
            work(PurePython(settings, line), settings, line)
        case "confluent":
            work(Librdkafka(settings, line), settings, line)
        case "tidelog" | "tidelog-async":
            tidelog_member.run(settings, line, work)
    line.tell("closed")
