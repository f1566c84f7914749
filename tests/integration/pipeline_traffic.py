"""Events for tests of the pipelines, with the truth about them, and what is found in topics and tables."""

from __future__ import annotations

import json
import random
import sqlite3
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidelog import Consumer, Producer
from tidelog.ids import TopicPartition
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards import events
from tidelog_rewards.jobs.earnings.parts import ledger_parts

DAYS = 5
"""Events are as old as this at most: a backfill looks for late ones in a week, and brokers keep a week."""
BROKEN = (b"", b"{", b"[1]", b'{"event_id": 5}')


@dataclass
class EarningsTraffic:
    """Draws credits and task steps, keeps count, and can send anything again."""

    seed: int
    users: int = 20
    cents: Counter[str] = field(default_factory=Counter)
    sent: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    broken: int = 0
    start: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(days=DAYS))

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fresh(self, count: int) -> list[tuple[str, bytes, bytes]]:
        """New events, as (topic, key, value)."""
        made = [self._event() for _ in range(count)]
        self.sent += made
        return made

    def again(self, count: int) -> list[tuple[str, bytes, bytes]]:
        """Copies of events that were sent before."""
        return self._random.choices(self.sent, k=count)

    def damaged(self, count: int) -> list[tuple[str, bytes, bytes]]:
        """Records that are no events."""
        self.broken += count
        topics = (events.CREDIT.topic, events.TASK.topic)
        return [(self._random.choice(topics), b"k", self._random.choice(BROKEN)) for _ in range(count)]

    def shuffled(self, records: list[tuple[str, bytes, bytes]]) -> list[tuple[str, bytes, bytes]]:
        self._random.shuffle(records)
        return records

    def _event(self) -> tuple[str, bytes, bytes]:
        draw = self._random
        user = f"user-{draw.randrange(self.users)}"
        event: dict[str, Any] = {
            "event_id": str(uuid.UUID(int=draw.getrandbits(128))),
            "event_time": time_text(self.start + timedelta(milliseconds=draw.randrange(DAYS * 86_400_000))),
            "user_id": user,
            "device_id": "device",
            "ip": "10.0.0.1",
        }
        if draw.random() < 0.8:
            cents = draw.randrange(500)
            event |= {"source": draw.choice(("task", "invite", "install")), "amount_cents": cents}
            self.cents[user] += cents
            topic = events.CREDIT.topic
        else:
            event |= {"task_id": f"task-{draw.randrange(3)}", "step": draw.randrange(1, 5), "steps": 4}
            self.cents[user] += 0
            topic = events.TASK.topic
        return topic, user.encode(), json.dumps(event).encode()


def time_text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def send(bootstrap: str, records: list[tuple[str, bytes, bytes]]) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for topic, key, value in records:
            producer.send(topic, value, key=key)
        producer.flush()


def read_all(bootstrap: str, topic: str) -> list[Any]:
    """All committed records of a topic, those of a partition in order."""
    options = {
        "bootstrap.servers": bootstrap,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    found: list[Any] = []
    with Consumer(options) as reader:
        partitions = [TopicPartition(topic, each.partition) for each in reader.partitions_for(topic)]
        reader.assign(partitions)
        reader.seek_to_beginning(partitions)
        ends = reader.end_offsets(partitions)
        while any(reader.position(each) < ends[each] for each in partitions):
            found += reader.poll(1.0)
    return found


def latest_states(bootstrap: str) -> dict[str, Any]:
    """What the compacted topic says about each user."""
    records = read_all(bootstrap, events.USER_EARNINGS)
    return {record.key.decode(): json.loads(record.value) for record in records}


def ledger_totals(settings: PipelineSettings) -> dict[str, int]:
    """The total of each user, by the tables of earnings."""
    rows = ledger_rows(settings, "user_earnings")["user_earnings"]
    found = {row[0]: row[1] for row in rows}
    assert len(found) == len(rows), "a user is in two parts"
    return found


def ledger_rows(settings: PipelineSettings, *tables: str) -> dict[str, list[Any]]:
    """The tables of earnings, those of all parts together."""
    found: dict[str, list[Any]] = {name: [] for name in tables}
    for path in ledger_parts(settings).files:
        if path.exists():
            for name, rows in table_rows(path, *tables).items():
                found[name] += rows
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def table_rows(path: Path, *tables: str) -> dict[str, list[Any]]:
    with sqlite3.connect(path) as connection:
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in tables}
