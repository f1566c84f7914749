"""Incidents as their compacted topic has them, and verdicts on them; for ``tidelog alerts``.

Needs neither Spark nor Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidelog.client import Consumer, Producer, TopicPartition
from tidelog.pipelines.framework.events import ALERT_VERDICTS, INCIDENTS
from tidelog.pipelines.framework.verdicts import Verdict, records_to_the_end, verdict_key


def read_incidents(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The newest of each incident, by its id."""
    found: dict[str, dict[str, Any]] = {}
    reading = {"isolation.level": "read_committed", "enable.auto.commit": False}
    with Consumer({**options, **reading}) as consumer:
        there = consumer.list_topics().get(INCIDENTS, ())
        partitions = [TopicPartition(INCIDENTS, each.partition) for each in there]
        for record in records_to_the_end(consumer, partitions):
            name = (record.key or b"").decode()
            found.pop(name, None)
            if record.value is not None:
                found[name] = msgspec.json.decode(record.value)
    return found


def write_verdict(options: Mapping[str, Any], verdict: Verdict, told: dict[str, Any], *, undo: bool) -> None:
    """Write a verdict, or take it back, and the incident as it is with it."""
    state = "updated" if len(told["history"]) > 1 else "open"
    now = {**told, "state": state if undo else "dismissed"}
    with Producer(dict(options)) as producer:
        producer.send(
            ALERT_VERDICTS, None if undo else msgspec.json.encode(verdict), key=verdict_key(verdict)
        )
        producer.flush()
        producer.send(INCIDENTS, msgspec.json.encode(now), key=told["alert_id"].encode())
        producer.flush()
