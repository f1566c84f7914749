"""Ways in which an event can be damaged, each a fault that the pipelines must name and put aside."""

from __future__ import annotations

from random import Random

import msgspec

from tidelog_rewards import events

FAULTS = ("truncated", "not json", "empty", "missing field", "mistyped field", "out of range", "bad time")


def damaged(random: Random, topic: str, value: bytes) -> tuple[bytes, str, str | None]:
    """A damaged form of the event ``value``, the fault, and the field that has it."""
    fault = FAULTS[int(random.random() * len(FAULTS))]
    if fault == "truncated":
        return value[: len(value) // 2], fault, None
    if fault == "not json":
        return b"<html><body>502 Bad Gateway</body></html>", fault, None
    if fault == "empty":
        return b"", fault, None
    event: dict[str, object] = msgspec.json.decode(value)
    event["event_id"] = f"{event['event_id']}-x"
    field = _break(random, event, events.BY_TOPIC[topic], fault)
    return msgspec.json.encode(event), fault, field


def _break(random: Random, event: dict[str, object], kind: events.EventKind, fault: str) -> str:
    numbers = [field.name for field in kind.fields if field.type in ("long", "boolean")]
    choices = [field.name for field in kind.fields if field.choices]
    if fault == "mistyped field" and numbers:
        field = numbers[int(random.random() * len(numbers))]
        event[field] = "many"
        return field
    if fault == "out of range" and choices:
        field = choices[int(random.random() * len(choices))]
        event[field] = "teleport"
        return field
    if fault == "out of range" and numbers:
        event[numbers[0]] = -5
        return numbers[0]
    if fault == "bad time":
        event["event_time"] = "yesterday at noon"
        return "event_time"
    required = [field.name for field in kind.fields if field.required]
    field = required[int(random.random() * len(required))]
    del event[field]
    return field
