"""Events on their way to the log: made into bytes when they happen, handed out in the order they arrive.

A small share arrives late, arrives twice, or comes with a damaged twin (an event that never was, so that
damage takes nothing away from the sums). The truth hears of each when it is handed out, not before.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from tidelog.pipelines import events
from tidelog.pipelines.generator.damage import damaged
from tidelog.pipelines.generator.population import User
from tidelog.pipelines.generator.truth import Incident, Truth

_REDELIVERED_SHARE = 0.003
_MALFORMED_SHARE = 0.001
_LATE_SHARE = 0.004
_VERY_LATE_SHARE = 0.0001
_SPECIAL_SHARE = _REDELIVERED_SHARE + _MALFORMED_SHARE + _LATE_SHARE + _VERY_LATE_SHARE

CREDIT_TOPIC = events.CREDIT.topic
DELAY_MS = 740
"""The longest that an event which is not late takes to reach the log."""


class Event(NamedTuple):
    """One record to send; ``timestamp_ms`` is when it reaches the log, in the time of the events."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int


class _Redelivery(NamedTuple):
    event_id: str


class _Damage(NamedTuple):
    fault: str
    field: str | None


class _Delay(NamedTuple):
    event_id: str
    delay_ms: int


class _Credit(NamedTuple):
    source: str
    cents: int
    delay: _Delay | None


_Note = Incident | _Redelivery | _Damage | _Delay | _Credit
_Waiting = tuple[int, int, str, bytes, bytes, _Note | None]


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
        """About how many records of tasks and invitations before the start there would have been."""
        self._random = random
        self._run = run
        self._truth = truth
        self._waiting: list[_Waiting] = []
        self._seconds: dict[int, str] = {}

    def add(
        self, topic: str, who: Presence, at_ms: int, own_fields: str, incident: Incident | None = None
    ) -> str:
        """An event of ``who`` at a time; ``own_fields`` is JSON without braces. Returns its ``event_id``."""
        self.added += 1
        event_id = f"{self._run}-{self.added:010x}"
        if at_ms < self.start_ms:
            return event_id
        value = (
            f'{{"event_id":"{event_id}","event_time":"{self._time_text(at_ms)}",{who.envelope},{own_fields}}}'
        ).encode()
        draw = self._random.random()
        arrival_ms = at_ms + 40 + int(draw * 7919) % (DELAY_MS - 40)
        note: _Note | None = incident
        if draw < _SPECIAL_SHARE:
            arrival_ms, note = self._special(draw, topic, who.key, value, event_id, arrival_ms, incident)
        heappush(self._waiting, (arrival_ms, self.added, topic, who.key, value, note))
        return event_id

    def add_credit(
        self, who: Presence, at_ms: int, source: str, cents: int, task_id: str | None = None
    ) -> None:
        """Money for a user."""
        self.added += 1
        event_id = f"{self._run}-{self.added:010x}"
        if at_ms < self.start_ms:
            return
        task = "" if task_id is None else f',"task_id":"{task_id}"'
        value = (
            f'{{"event_id":"{event_id}","event_time":"{self._time_text(at_ms)}",{who.envelope},'
            f'"source":"{source}","amount_cents":{cents}{task}}}'
        ).encode()
        draw = self._random.random()
        arrival_ms = at_ms + 40 + int(draw * 7919) % (DELAY_MS - 40)
        delay: _Note | None = None
        if draw < _SPECIAL_SHARE:
            arrival_ms, delay = self._special(draw, CREDIT_TOPIC, who.key, value, event_id, arrival_ms, None)
        note = _Credit(source, cents, delay if isinstance(delay, _Delay) else None)
        heappush(self._waiting, (arrival_ms, self.added, CREDIT_TOPIC, who.key, value, note))

    def _special(
        self,
        draw: float,
        topic: str,
        key: bytes,
        value: bytes,
        event_id: str,
        arrival_ms: int,
        incident: Incident | None,
    ) -> tuple[int, _Note | None]:
        """When the event arrives and what the truth must hear of it; copies are put in here."""
        more = self._random.random()
        if draw < _REDELIVERED_SHARE:
            again_ms = arrival_ms + 200 + int(more * 20_000)
            self._copy(again_ms, topic, key, value, _Redelivery(event_id))
            return arrival_ms, incident
        if draw < _REDELIVERED_SHARE + _MALFORMED_SHARE:
            broken, fault, field = damaged(self._random, topic, value)
            self._copy(arrival_ms, topic, key, broken, _Damage(fault, field))
            return arrival_ms, incident
        if incident is not None:
            return arrival_ms, incident
        very_late = draw > _SPECIAL_SHARE - _VERY_LATE_SHARE
        delay_ms = int(7_200_000 + more * 14_400_000) if very_late else int(30_000 + more * 270_000)
        return arrival_ms + delay_ms, _Delay(event_id, delay_ms)

    def _copy(self, arrival_ms: int, topic: str, key: bytes, value: bytes, note: _Note) -> None:
        self.added += 1
        heappush(self._waiting, (arrival_ms, self.added, topic, key, value, note))

    def _time_text(self, time_ms: int) -> str:
        second, millisecond = divmod(time_ms, 1000)
        text = self._seconds.get(second)
        if text is None:
            if len(self._seconds) > 10_000:
                self._seconds.clear()
            text = self._seconds[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{text}.{millisecond:03d}Z"

    def arrived(self, time_ms: int, limit: int) -> list[Event]:
        """The events that arrive until ``time_ms``, at most ``limit`` of them, and off to the truth."""
        waiting = self._waiting
        out: list[Event] = []
        while waiting and waiting[0][0] <= time_ms and len(out) < limit:
            arrival_ms, _, topic, key, value, note = heappop(waiting)
            out.append(Event(topic, key, value, arrival_ms))
            if note is not None:
                self._tell(note, topic, key, value, arrival_ms)
        self._truth.records.update(Counter([event.topic for event in out]))
        return out

    def _tell(self, note: _Note, topic: str, key: bytes, value: bytes, arrival_ms: int) -> None:
        truth = self._truth
        match note:
            case _Credit():
                truth.credit(key, note.source, note.cents)
                if note.delay is not None:
                    truth.late(topic, note.delay.event_id, note.delay.delay_ms)
            case Incident():
                truth.incident_event(note, arrival_ms)
            case _Redelivery():
                truth.redelivered(topic, note.event_id)
            case _Damage():
                truth.malformed(topic, note.fault, note.field, value)
            case _Delay():
                truth.late(topic, note.event_id, note.delay_ms)
