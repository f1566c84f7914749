"""Events for the tests of ``collect``, in topics of a real broker, and the dead letters out of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidelog.client import Consumer, Producer, TopicPartition
from tidelog_rewards import events
from tidelog_rewards.events import EventKind
from tidelog_rewards.topics import ensure_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.settings import PipelineSettings

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DEADLINE_S = 300


def event(kind: EventKind, number: int, when: datetime = TODAY) -> dict[str, Any]:
    values: dict[str, Any] = {"string": f"{kind.name}-{number}", "long": number, "boolean": True}
    values["time"] = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields = {
        field.name: field.choices[number % len(field.choices)] if field.choices else values[field.type]
        for field in kind.fields
    }
    return {**fields, "user_id": f"user-{number % 5}"}


def send(settings: PipelineSettings, topic: str, values: Iterable[dict[str, Any] | bytes | None]) -> None:
    ensure_topics(settings, [topic])
    with Producer(bootstrap_servers=settings.bootstrap_servers) as producer:
        for value in values:
            encoded = json.dumps(value).encode() if isinstance(value, dict) else value
            key = value["user_id"].encode() if isinstance(value, dict) else b"broken"
            producer.send(topic, encoded, key=key)
        producer.flush()


def run(spark: SparkSession, settings: PipelineSettings) -> None:
    """Work off what is there."""
    from tidelog.spark.pipelines.registry import load

    query = load("collect").start(spark, settings)
    try:
        assert query.awaitTermination(DEADLINE_S), "the query did not come to its end"
    finally:
        query.stop()


def letters(settings: PipelineSettings) -> list[dict[str, str]]:
    """The headers of all dead letters, each with its ``value``."""
    found = []
    options = {"bootstrap.servers": settings.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer(options) as consumer:
        partitions = [TopicPartition(events.DEAD_LETTERS, number) for number in range(4)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(1.0):
                headers = {name: value.decode() for name, value in record.headers if value is not None}
                found.append({**headers, "value": (record.value or b"").decode(errors="replace")})
    return found
