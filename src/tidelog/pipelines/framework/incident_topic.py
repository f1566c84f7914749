"""Incidents as their compacted topic has them, and verdicts on them; for ``tidelog alerts``.

Needs neither Spark nor Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidelog.client import Consumer, Producer, TopicPartition
from tidelog.pipelines.framework.detection_rules import RulesName
from tidelog.pipelines.framework.events import ALERT_VERDICTS, INCIDENTS
from tidelog.pipelines.framework.incidents import Reason
from tidelog.pipelines.framework.verdicts import Verdict, records_to_the_end, verdict_key
from tidelog.unreadable import UNREADABLE


def read_incidents(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The newest of each incident, by its id."""
    found: dict[str, dict[str, Any]] = {}
    reading = {"isolation.level": "read_committed", "enable.auto.commit": False}
    with Consumer({**options, **reading}) as consumer:
        there = consumer.list_topics().get(INCIDENTS, ())
        partitions = [TopicPartition(INCIDENTS, each.partition) for each in there]
        for record in records_to_the_end(consumer, partitions):
            name = (record.key or b"").decode(errors="replace")
            found.pop(name, None)
            told = None if record.value is None else read_incident(record.value)
            if told is not None:
                found[name] = told
    return found


def read_incident(value: bytes) -> dict[str, Any] | None:
    """The incident that a record's value is; None where it is none: whoever may write may write anything."""
    try:
        msgspec.json.decode(value, type=_Incident)
        told: dict[str, Any] = msgspec.json.decode(value)
    except UNREADABLE:
        return None
    return told


class _Incident(msgspec.Struct):
    """What every incident has."""

    alert_id: str
    pipeline: str
    subject_kind: str
    subject: str
    state: str
    score: int
    peak: int
    opened: str
    updated: str
    reasons: list[Reason]
    history: list[tuple[str, int]]
    rules: RulesName


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
