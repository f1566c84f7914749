"""Events on their way to the log: made into bytes when they happen, handed out in the order they arrive.

A small share arrives late, arrives twice, or comes with a damaged twin (an event that never was, so that
damage takes nothing away from the sums). The truth hears of each when it is handed out, not before.

Everything here happens once per event, thousands of times a second beside the pipelines that are to be shown:
what waits is kept by the eighth of a second in which it arrives, and put in order when that has come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from tidelog_rewards import events
from tidelog_rewards.generator.damage import damaged
from tidelog_rewards.generator.population import User
from tidelog_rewards.generator.truth import Incident, Truth

_REDELIVERED_SHARE = 0.003
_MALFORMED_SHARE = 0.001
_LATE_SHARE = 0.004
_VERY_LATE_SHARE = 0.0001
_SPECIAL_SHARE = _REDELIVERED_SHARE + _MALFORMED_SHARE + _LATE_SHARE + _VERY_LATE_SHARE

_CREDIT_TOPIC = events.CREDIT.topic
_MILLIS = tuple(f".{number:03d}Z" for number in range(1000))
_SECONDS_KEPT = 10_000
_BUCKET_BITS = 7
"""Events of the same 128 ms wait together."""

DELAY_MS = 740
"""The longest that an event which is not late takes to reach the log."""


class Event(NamedTuple):
    """One record to send; ``timestamp_ms`` is when it reaches the log, in the time of the events."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int


class Credit:
    """Money for a user: what for, how much, and both as the event has it (JSON without braces)."""

    __slots__ = ("cents", "own_fields", "source")

    def __init__(self, source: str, cents: int, task_id: str | None = None) -> None:
        self.source = source
        self.cents = cents
        task = "" if task_id is None else f',"task_id":"{task_id}"'
        self.own_fields = f'"source":"{source}","amount_cents":{cents}{task}'


class _Redelivery(NamedTuple):
    event_id: str


class _Damage(NamedTuple):
    fault: str
    field: str | None


class _Delay(NamedTuple):
    event_id: str
    delay_ms: int
    credit: Credit | None


_Note = Incident | Credit | _Redelivery | _Damage | _Delay
_Waiting = tuple[int, int, Event, _Note | None]
"""When it arrives, its number (no two have the same), the event, and what the truth must hear."""


class Presence:
    """A user on a device at an address: what the envelopes of a session's events have in common."""

    __slots__ = ("device_id", "envelope", "ip", "key", "user")

    def __init__(self, user: User, device_id: str, ip: str) -> None:
        self.user = user
        self.device_id = device_id
        self.key = user.key
        self.ip = ip
        self.envelope = (
            f'"user_id":"{user.user_id}","device_id":"{device_id}","ip":"{ip}","app_version":"{user.version}"'
        )


class Outbox:
    """Holds what has happened until it arrives; events from before ``start_ms`` are dropped."""

    def __init__(self, random: Random, run: str, start_ms: int, truth: Truth) -> None:
        self.start_ms = start_ms
        self.added = 0
        """Records put in so far: the clock holds its rate by it."""
        self.skipped = 0
        """About how many records that were never made there would have been before the start."""
        self._random = random
        self._run = run
        self._truth = truth
        self._buckets: dict[int, list[_Waiting]] = {}
        self._bucket_order: list[int] = []
        self._arriving: list[_Waiting] = []
        """What is left of the buckets that were opened, in order."""
        self._seconds: dict[int, str] = {}

    def add(
        self,
        topic: str,
        who: Presence,
        at_ms: int,
        own_fields: str,
        note: Incident | Credit | None = None,
    ) -> str:
        """An event of ``who`` at a time; ``own_fields`` is JSON without braces. Returns its ``event_id``."""
        self.added = number = self.added + 1
        event_id = f"{self._run}-{number:010x}"
        if at_ms < self.start_ms:
            return event_id
        second = at_ms // 1000
        time_text = self._seconds.get(second) or self._second_text(second)
        value = (
            f'{{"event_id":"{event_id}","event_time":"{time_text}{_MILLIS[at_ms - 1000 * second]}",'
            f"{who.envelope},{own_fields}}}"
        ).encode()
        draw = self._random.random()
        arrival_ms = at_ms + 40 + int(draw * 7919) % (DELAY_MS - 40)
        if draw < _SPECIAL_SHARE:
            self._put_special(draw, Event(topic, who.key, value, arrival_ms), event_id, number, note)
        else:
            self._put(arrival_ms, number, Event(topic, who.key, value, arrival_ms), note)
        return event_id

    def add_credit(self, who: Presence, at_ms: int, credit: Credit) -> None:
        """Money for a user."""
        self.add(_CREDIT_TOPIC, who, at_ms, credit.own_fields, credit)

    def _put(self, arrival_ms: int, number: int, event: Event, note: _Note | None) -> None:
        which = arrival_ms >> _BUCKET_BITS
        bucket = self._buckets.get(which)
        if bucket is None:
            bucket = self._buckets[which] = []
            heappush(self._bucket_order, which)
        bucket.append((arrival_ms, number, event, note))

    def _put_special(
        self, draw: float, event: Event, event_id: str, number: int, note: Incident | Credit | None
    ) -> None:
        """An event that comes twice, has a damaged twin, or is late; one that proves an incident is not."""
        more = self._random.random()
        arrival_ms = event.timestamp_ms
        if draw < _REDELIVERED_SHARE:
            self._put_copy(event, arrival_ms + 200 + int(more * 20_000), _Redelivery(event_id))
        elif draw < _REDELIVERED_SHARE + _MALFORMED_SHARE:
            broken, fault, field = damaged(self._random, event.topic, event.value)
            self._put_copy(event._replace(value=broken), arrival_ms, _Damage(fault, field))
        elif not isinstance(note, Incident):
            very_late = draw > _SPECIAL_SHARE - _VERY_LATE_SHARE
            delay_ms = int(7_200_000 + more * 14_400_000) if very_late else int(30_000 + more * 270_000)
            late = event._replace(timestamp_ms=arrival_ms + delay_ms)
            self._put(late.timestamp_ms, number, late, _Delay(event_id, delay_ms, note))
            return
        self._put(arrival_ms, number, event, note)

    def _put_copy(self, event: Event, arrival_ms: int, note: _Note) -> None:
        self.added += 1
        self._put(arrival_ms, self.added, event._replace(timestamp_ms=arrival_ms), note)

    def _second_text(self, second: int) -> str:
        if len(self._seconds) > _SECONDS_KEPT:
            self._seconds.clear()
        text = self._seconds[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return text

    def arrived(self, time_ms: int, limit: int) -> list[Event]:
        """The events that arrive until ``time_ms``, at most ``limit`` of them, and off to the truth."""
        arriving = self._arriving
        order = self._bucket_order
        while order and order[0] <= time_ms >> _BUCKET_BITS:
            arriving += self._buckets.pop(heappop(order))
        # Numbers decide between events of the same moment: nothing behind them is ever compared.
        arriving.sort()
        taken = arriving[: min(bisect_left(arriving, (time_ms + 1,)), limit)]
        del arriving[: len(taken)]
        for _, _, event, note in taken:
            if note is not None:
                self._tell(note, event)
        out = [waiting[2] for waiting in taken]
        self._truth.records.update(Counter([event.topic for event in out]))
        return out

    def _tell(self, note: _Note, event: Event) -> None:
        truth = self._truth
        if isinstance(note, Credit):
            truth.credit(event.key, note.source, note.cents)
        elif isinstance(note, Incident):
            truth.incident_event(note, event.timestamp_ms)
        elif isinstance(note, _Redelivery):
            truth.redelivered(event.topic, note.event_id)
        elif isinstance(note, _Damage):
            truth.malformed(event.topic, note.fault, note.field, event.value)
        else:
            if note.credit is not None:
                truth.credit(event.key, note.credit.source, note.credit.cents)
            truth.late(event.topic, note.event_id, note.delay_ms)
