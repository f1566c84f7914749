"""Generated traffic in which rare kinds of events are not rare: as from many more people than there are.

The generator sends one login among seventy events and one invitation among thousands, as a real app does. A
pipeline that reads nothing else would be measured on a handful. So each of these events is sent many times,
every time of other people, on other devices, behind other addresses, with other numbers: what belongs
together in the generated traffic still does in each copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tidelog import Producer
from tidelog_rewards import events
from tidelog_rewards.generator.outbox import Event
from tidelog_rewards.generator.traffic import Traffic, TrafficSettings

COPIES = {events.LOGIN.topic: 20, events.MESSAGE_VERIFICATION.topic: 20, events.INVITE.topic: 100}
NAMES = ("event_id", "user_id", "device_id", "invitee_id", "invitee_device_id")
ADDRESSES = ("ip", "invitee_ip")
PHONES = ("phone", "invitee_phone")
_SLICE_MS = 1000


def send(bootstrap: str, count: int) -> None:
    """Generate ``count`` events, and send them with the copies of the rare ones."""
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 262_144}) as producer:
        for event in _generated(count):
            for topic, key, value, timestamp_ms in _with_copies(event):
                producer.send(topic, value, key=key, timestamp_ms=timestamp_ms)


def _generated(count: int) -> Iterator[Event]:
    traffic = Traffic(TrafficSettings(start=datetime(2026, 1, 5, tzinfo=UTC), seed=5))
    left = count
    while left:
        some = traffic.until(traffic.time_ms + _SLICE_MS, left)
        left -= len(some)
        yield from some


def _with_copies(event: Event) -> Iterator[Event]:
    yield event
    copies = COPIES.get(event.topic, 1)
    if copies == 1:
        return
    try:
        fields = json.loads(event.value)
        made = [_copy(event, fields, number) for number in range(1, copies)]
    except (ValueError, TypeError, AttributeError, KeyError):
        return  # it is one of the damaged events, of which one is enough
    yield from made


def _copy(event: Event, fields: dict[str, Any], number: int) -> Event:
    other = dict(fields)
    for name in NAMES:
        if name in other:
            other[name] = f"{fields[name]}-{number}"
    for name in ADDRESSES:
        if name in other:
            first, second, third, fourth = map(int, fields[name].split("."))
            place = (second << 8 | third) + number & 0xFFFF
            other[name] = f"{first}.{place >> 8}.{place & 255}.{fourth}"
    for name in PHONES:
        if name in other:
            phone = fields[name]
            other[name] = f"{phone[:-8]}{(int(phone[-8:-4]) + number) % 10_000:04}{phone[-4:]}"
    return event._replace(key=other["user_id"].encode(), value=json.dumps(other).encode())
