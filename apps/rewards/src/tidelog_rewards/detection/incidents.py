"""Incidents: what is known against one subject, as long as it lasts, and what is written of it.

A subject (a device, an inviter, a ring) has one incident, whose id never changes. Detectors judge a subject
by the hour: a *point* is the score at the last event of an hour of event time. The incident is a function of
its points: those of an hour that can still change are replaced as a whole, so the order and the batches in
which events came leave no trace. Points that are further apart than the quiet time belong to different
episodes, of which the last one is told.

    open        the episode has one point
    updated     evidence has come in later hours, too
    closed      nothing has come for the quiet time
    dismissed   a person has said so, or the subject is on an allow list

The state is kept by one task, the follow-up of ``alert_tasks``, beside that of the buckets; it has a row for
each incident, and rows that name the devices of an address. A value is written when it differs from the last
one, and when a verdict on it has come or gone. A subject against which nothing is left, after all, gets a
record without a value.

Plain Python and Arrow, without Spark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog_rewards.detection.alert_evidence import alert_id, cut_short, time_text
from tidelog_rewards.detection.alert_state import KEY, STATE_COLUMNS, UNTIL, KeyedState, key_of
from tidelog_rewards.detection.detection_rules import RulesName
from tidelog_rewards.detection.verdicts import NEVER_US, Verdicts
from tidelog_rewards.phones.phone_tokens import PhonesWritten

US_PER_S = 1_000_000
HOUR_US = 3600 * US_PER_S
DAY_US = 24 * HOUR_US
MONTH_DAYS = 30
MONTH_US = MONTH_DAYS * DAY_US
NUMBER_BLOCK = "number-block"
"""The kind of a subject, and a rule, whose names are parts of phone numbers."""
SHOWN_POINTS = 72
"""So many hours of an episode are told; all of them count."""

_REASON_CHARS = 4096
_INCIDENT, _LINK = 0, 1
_SCHEMA = pa.schema(
    [
        *STATE_COLUMNS,
        pa.field("batch", pa.int64()),
        pa.field("kind", pa.uint8()),
        pa.field("name", pa.string()),
        pa.field("closes_us", pa.int64()),
        pa.field("value", pa.binary()),
    ]
)
_SEVERITIES = ((90, "critical"), (75, "high"), (0, "medium"))


class Reason(msgspec.Struct, frozen=True):
    """A rule that gave points: how many, for what count, of what."""

    rule: str
    points: int
    count: int
    value: str


class Point(msgspec.Struct, frozen=True):
    """What a subject's events come to at the last one of an hour."""

    time_us: int
    score: int
    reasons: tuple[Reason, ...]


def point_of(time_us: int, reasons: Sequence[Reason], least: int) -> Point | None:
    """The verdict of an hour, where it is a report; a value that names very many is cut short."""
    score = min(100, sum(reason.points for reason in reasons))
    if score < least:
        return None
    shown = (msgspec.structs.replace(each, value=cut_short(each.value, _REASON_CHARS)) for each in reasons)
    return Point(time_us, score, tuple(shown))


class Judged(msgspec.Struct, frozen=True):
    """A subject that was looked at: its points from a moment on, and what proves the last one."""

    subject_kind: str
    subject: str
    points: tuple[Point, ...]
    details: dict[str, Any]
    """Fields of the alert: who and what, and the events; empty without points."""
    replaces: tuple[str, ...] = ()
    """Other names under which this subject may have been known."""
    is_whole: bool = False
    """These are all points, and replace whatever was known."""


def without_numbers(judged: Judged, phones: PhonesWritten) -> Judged:
    """The same with tokens for blocks of phone numbers, which are all that is told of numbers."""
    points = tuple(
        msgspec.structs.replace(point, reasons=tuple(_without_number(each, phones) for each in point.reasons))
        for point in judged.points
    )
    if judged.subject_kind != NUMBER_BLOCK:
        return msgspec.structs.replace(judged, points=points)
    replaces = tuple(map(phones.of_block, judged.replaces))
    subject = phones.of_block(judged.subject)
    return msgspec.structs.replace(judged, subject=subject, points=points, replaces=replaces)


def _without_number(reason: Reason, phones: PhonesWritten) -> Reason:
    if reason.rule != NUMBER_BLOCK:
        return reason
    return msgspec.structs.replace(reason, value=phones.of_block(reason.value))


class Terms(msgspec.Struct, frozen=True):
    """By what the incidents of a batch are told."""

    pipeline: str
    rules: RulesName
    quiet_us: int
    watermark_us: int
    verdicts: Verdicts = Verdicts()
    allow: Mapping[str, Sequence[str]] = {}
    changed: frozenset[str] = frozenset()
    """The ids of incidents on which verdicts or allow lists are others than in the batch before."""


class IncidentRow(msgspec.Struct, frozen=True):
    """A row of ``incident_table``, times in milliseconds since 1970."""

    incident_id: str
    pipeline: str
    subject_kind: str
    subject: str
    state: str
    score: int
    peak: int
    severity: str
    opened: int
    updated: int
    reasons: str
    rules_version: str


class Change(msgspec.Struct, frozen=True):
    """A record to be written, and the row of the table that goes with it; a value of None takes it back."""

    key: bytes
    value: bytes | None
    row: IncidentRow


class _Kept(msgspec.Struct, frozen=True):
    """An incident in the state."""

    subject_kind: str
    subject: str
    points: tuple[Point, ...]
    details: dict[str, Any]
    told: bytes | None
    """The value that was written last."""


def incident_id(pipeline: str, kind: str, subject: str) -> str:
    """The same for a subject for ever."""
    return alert_id(pipeline, kind, subject)


def hour_of(time_us: int) -> int:
    """The beginning of a moment's hour."""
    return time_us - time_us % HOUR_US


def day_of(time_us: int) -> int:
    """The number of a moment's day since 1970."""
    return time_us // DAY_US


class IncidentBook:
    """The incidents before a batch, and what changes in it; owned by the task that follows up."""

    def __init__(self, directory: Path, batch_id: int) -> None:
        self._state = KeyedState(directory / "incidents", 0, batch_id, _SCHEMA)
        self._batch_id = batch_id
        self._new: list[dict[str, Any]] = []

    def linked(self, places: Iterable[str]) -> dict[str, set[str]]:
        """The names that were linked to places, those of this batch included."""
        wanted = set(places)
        keys = pa.array(sorted({key_of(place) for place in wanted}), pa.uint64())
        found: dict[str, set[str]] = {}
        rows = self._state.rows_of(keys) if len(keys) else _SCHEMA.empty_table()
        for row in [*rows.to_pylist(), *self._new]:
            if row["kind"] == _LINK:
                place = row["value"].decode()
                if place in wanted:
                    found.setdefault(place, set()).add(row["name"])
        return found

    def link(self, seen: Mapping[str, Mapping[str, int]]) -> dict[str, set[str]]:
        """Remember which names were seen at which places, and when last; all that are linked to these."""
        linked = self.linked(seen)
        for place, names in sorted(seen.items()):
            there = linked.setdefault(place, set())
            for name in sorted(names.keys() - there):
                self._new.append(
                    {
                        KEY: key_of(place),
                        UNTIL: names[name] + MONTH_US + DAY_US,
                        "batch": self._batch_id,
                        "kind": _LINK,
                        "name": name,
                        "closes_us": NEVER_US,
                        "value": place.encode(),
                    }
                )
            there.update(names)
        return linked

    def update(self, judged: Sequence[Judged], since_us: int, terms: Terms) -> list[Change]:
        """Take the points of subjects from a moment on, close what is over, and say what is to be written.

        Incidents on which verdicts have changed are looked at, too.
        """
        by_id = {incident_id(terms.pipeline, each.subject_kind, each.subject): each for each in judged}
        others = (_replaced(judged, terms.pipeline), self._due(terms.watermark_us), terms.changed)
        kept = self._load({*by_id}.union(*others))
        changes: list[Change] = []
        gone: set[str] = set()
        for name, each in by_id.items():
            old = kept.pop(name, None)
            now = _merged(old, each, since_us)
            gone |= {
                other
                for other in _replaced([each], terms.pipeline)
                if other in kept and now.points and other not in by_id
            }
            if now.points or old is not None:
                changes += self._tell(name, now, terms)
        for name in sorted(gone):
            old = kept.pop(name)
            changes += self._tell(name, msgspec.structs.replace(old, points=()), terms)
        for name, old in sorted(kept.items()):
            changes += self._tell(name, old, terms)
        return changes

    def commit(self, watermark_us: int) -> int:
        """Write the state after the batch; the moment at which the next incident closes, or never."""
        new = pa.Table.from_pylist(self._new, schema=_SCHEMA)
        replaced = new.filter(pc.equal(new["kind"], _INCIDENT))[KEY] if self._new else new[KEY]
        if self._new:
            self._state.commit(new, watermark_us, 0, replaced.combine_chunks())
        return self._next_close(set(replaced.to_pylist()))

    def _tell(self, name: str, kept: _Kept, terms: Terms) -> Iterator[Change]:
        told = _told(name, kept, terms)
        if told is not None and told["state"] == "dismissed" and kept.told is None:
            told = None  # Nobody has heard of it, and nobody wants to.
        value = None if told is None else msgspec.json.encode(told)
        # With a verdict people write the incident, too, and may not know what has become of it.
        if value != kept.told or (value is not None and name in terms.changed):
            row = _row(told or _withdrawn(name, kept, terms))
            yield Change(name.encode(), value, row)
        closes_us = NEVER_US
        if told is not None and kept.points[-1].time_us + terms.quiet_us > terms.watermark_us:
            closes_us = kept.points[-1].time_us + terms.quiet_us
        until_us = (kept.points[-1].time_us if kept.points else terms.watermark_us) + MONTH_US + DAY_US
        self._new.append(
            {
                KEY: key_of(name),
                UNTIL: until_us,
                "batch": self._batch_id,
                "kind": _INCIDENT,
                "name": name,
                "closes_us": closes_us,
                "value": msgspec.msgpack.encode(msgspec.structs.replace(kept, told=value)),
            }
        )

    def _load(self, names: set[str]) -> dict[str, _Kept]:
        keys = pa.array(sorted({key_of(name) for name in names}), pa.uint64())
        if not len(keys):
            return {}
        newest: dict[str, tuple[int, bytes]] = {}
        for row in self._state.rows_of(keys).to_pylist():
            is_newer = row["batch"] > newest.get(row["name"], (-1, b""))[0]
            if row["kind"] == _INCIDENT and row["name"] in names and is_newer:
                newest[row["name"]] = row["batch"], row["value"]
        return {name: msgspec.msgpack.decode(value, type=_Kept) for name, (_, value) in newest.items()}

    def _due(self, watermark_us: int) -> set[str]:
        due: set[str] = set()
        for table in self._state.tables():
            over = table.filter(pc.less_equal(table["closes_us"], watermark_us))
            due |= set(over["name"].to_pylist())
        return due

    def _next_close(self, replaced: set[int]) -> int:
        closes = [row["closes_us"] for row in self._new]
        for table in self._state.tables():
            pairs = zip(table[KEY].to_pylist(), table["closes_us"].to_pylist(), strict=True)
            closes += [closes_us for key, closes_us in pairs if key not in replaced]
        return min(closes, default=NEVER_US)


def _replaced(judged: Iterable[Judged], pipeline: str) -> set[str]:
    return {incident_id(pipeline, each.subject_kind, name) for each in judged for name in each.replaces}


def _merged(old: _Kept | None, judged: Judged, since_us: int) -> _Kept:
    before: tuple[Point, ...] = ()
    if old is not None and not judged.is_whole:
        before = tuple(each for each in old.points if each.time_us < since_us)
    points = (*before, *judged.points)
    if points:
        points = tuple(each for each in points if each.time_us > points[-1].time_us - MONTH_US)
    details = judged.details if judged.points or old is None else old.details
    return _Kept(judged.subject_kind, judged.subject, points, details, None if old is None else old.told)


def _episode(points: Sequence[Point], quiet_us: int) -> Sequence[Point]:
    start = 0
    for at, (one, other) in enumerate(pairwise(points), 1):
        if other.time_us - one.time_us > quiet_us:
            start = at
    return points[start:]


def _told(name: str, kept: _Kept, terms: Terms) -> dict[str, Any] | None:
    """The alert, in the order of its JSON; None where nothing is left."""
    if not kept.points:
        return None
    episode = _episode(kept.points, terms.quiet_us)
    best: dict[str, Reason] = {}
    for point in episode:
        for reason in point.reasons:
            if reason.rule not in best or reason.points >= best[reason.rule].points:
                best[reason.rule] = reason
    peak = max(point.score for point in episode)
    evidence = {
        "score": episode[-1].score,
        "peak": peak,
        "severity": next(name for least, name in _SEVERITIES if peak >= least),
        "opened": time_text(episode[0].time_us),
        "updated": time_text(episode[-1].time_us),
        "reasons": sorted(best.values(), key=lambda reason: (-reason.points, reason.rule)),
        "history": [[time_text(each.time_us), each.score] for each in episode[-SHOWN_POINTS:]],
        **kept.details,
    }
    return {
        "alert_id": name,
        "pipeline": terms.pipeline,
        "subject_kind": kept.subject_kind,
        "subject": kept.subject,
        "state": _state(name, kept, episode, terms),
        **evidence,
        "evidence": hashlib.sha256(msgspec.json.encode(evidence)).hexdigest()[:16],
        "rules": terms.rules,
    }


def _state(name: str, kept: _Kept, episode: Sequence[Point], terms: Terms) -> str:
    last_us = episode[-1].time_us
    verdicts = terms.verdicts
    if (
        verdicts.dismissed.get(name, -1) >= last_us
        or (terms.pipeline, kept.subject_kind, kept.subject) in verdicts.allowed
        or kept.subject in terms.allow.get(kept.subject_kind, ())
    ):
        return "dismissed"
    if last_us + terms.quiet_us <= terms.watermark_us:
        return "closed"
    return "updated" if len(episode) > 1 else "open"


def _withdrawn(name: str, kept: _Kept, terms: Terms) -> dict[str, Any]:
    time = time_text(max(0, terms.watermark_us))
    return {
        "alert_id": name,
        "pipeline": terms.pipeline,
        "subject_kind": kept.subject_kind,
        "subject": kept.subject,
        "state": "closed",
        "score": 0,
        "peak": 0,
        "severity": "none",
        "opened": time,
        "updated": time,
        "reasons": [],
        "rules": terms.rules,
    }


def _row(told: Mapping[str, Any]) -> IncidentRow:
    return IncidentRow(
        incident_id=told["alert_id"],
        pipeline=told["pipeline"],
        subject_kind=told["subject_kind"],
        subject=told["subject"],
        state=told["state"],
        score=told["score"],
        peak=told["peak"],
        severity=told["severity"],
        opened=_millis(told["opened"]),
        updated=_millis(told["updated"]),
        reasons=msgspec.json.encode(told["reasons"]).decode(),
        rules_version=told["rules"].version,
    )


def _millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
