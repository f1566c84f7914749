"""Incidents as their compacted topic has them, and verdicts on them; for ``tidelog alerts``.

Needs neither Spark nor Arrow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec

from tidelog.client import Consumer, Producer, TopicPartition
from tidelog.decode_errors import DECODE_ERRORS
from tidelog_rewards.detection.detection_rules import RulesName
from tidelog_rewards.detection.incidents import Reason
from tidelog_rewards.detection.verdicts import (
    State,
    Verdict,
    newest_verdicts,
    records_to_the_end,
    verdict_key,
)
from tidelog_rewards.events import ALERT_VERDICTS, INCIDENTS


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
    except DECODE_ERRORS:
        return None
    return told


class _Incident(msgspec.Struct):
    """What every incident has."""

    alert_id: str
    pipeline: str
    subject_kind: str
    subject: str
    state: State
    score: int
    peak: int
    opened: str
    updated: Annotated[datetime, msgspec.Meta(tz=True)]
    reasons: list[Reason]
    history: list[tuple[str, int]]
    rules: RulesName


def write_verdict(options: Mapping[str, Any], verdict: Verdict, told: dict[str, Any], *, undo: bool) -> State:
    """Write a verdict, or take it back, and the incident as it is with it; the state that it is in.

    When a verdict is taken back, the incident is what it was before, unless another one stands: this is what
    nobody but its pipeline knows better, which tells it at its next micro-batch.
    """
    key = verdict_key(verdict)
    standing = _standing(options, verdict)
    before = _without_verdicts(told, standing.values())
    if undo:
        standing.pop(key, None)
    else:
        standing[key] = msgspec.structs.replace(verdict, was=before)
    is_dismissed = any(each.until_us >= _time_us(told["updated"]) for each in standing.values())
    state = "dismissed" if is_dismissed else before
    with Producer(dict(options)) as producer:
        producer.send(ALERT_VERDICTS, None if undo else msgspec.json.encode(standing[key]), key=key)
        producer.flush()
        producer.send(INCIDENTS, msgspec.json.encode({**told, "state": state}), key=told["alert_id"].encode())
        producer.flush()
    return state


def _standing(options: Mapping[str, Any], verdict: Verdict) -> dict[bytes, Verdict]:
    """The verdicts on the incident of a verdict and on its subject, by their keys."""
    kinds: tuple[Literal["dismissed", "allowed"], ...] = ("dismissed", "allowed")
    keys = {verdict_key(msgspec.structs.replace(verdict, verdict=kind)) for kind in kinds}
    return {key: each for key, each in newest_verdicts(options).items() if key in keys}


def _without_verdicts(told: Mapping[str, Any], verdicts: Collection[Verdict]) -> State:
    """The state of an incident but for verdicts; dismissed where it is so for another reason."""
    if told["state"] != "dismissed" or not verdicts:
        return cast(State, told["state"])
    known = [each.was for each in verdicts if each.was]
    return known[0] if known else "updated" if len(told["history"]) > 1 else "open"


def _time_us(text: str) -> int:
    return round(msgspec.convert(text, type=datetime).timestamp() * 1_000_000)
