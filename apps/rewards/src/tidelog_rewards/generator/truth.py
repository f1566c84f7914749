"""What was planted and what was sent: one JSON object per line, written as it becomes known.

    {"record": "run", …}              the settings
    {"record": "incident", "pipeline": "account-switch" | "invite-fraud", "rule": …, "complete": …,
     "users": […], "devices": […], "start": …, "end": …, "events": […]}
                                      planted fraud; ``complete`` is false if the run ended within it
    {"record": "honest", "case": …, …}  people who look like fraudsters and are none
    {"record": "malformed", "topic": …, "fault": …, "field": …, "sha256": …}
    {"record": "redelivered", "topic": …, "event_id": …}
    {"record": "late", "topic": …, "event_id": …, "delay_ms": …}
    {"record": "invalid_phone", "user_id": …, "phone": …, "reason": …}
    {"record": "user", "user_id": …, "cents": …}    what a user earned in all, at the end
    {"record": "totals", …}           the last line: records and distinct valid events per topic, all cents

It holds what was really sent: an event that was still to come when the run ended is not in it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

PipelineName = Literal["account-switch", "invite-fraud"]


class Incident:
    """Planted fraud, or a suspicious-looking honest case; counts its events as they are sent."""

    __slots__ = (
        "devices",
        "end_ms",
        "event_ids",
        "expected",
        "name",
        "pipeline",
        "sent",
        "start_ms",
        "users",
    )

    def __init__(self, pipeline: PipelineName | None, name: str) -> None:
        self.pipeline = pipeline
        """None: an honest case."""
        self.name = name
        self.users: list[str] = []
        self.devices: list[str] = []
        self.event_ids: list[str] = []
        self.expected = 0
        self.sent = 0
        self.start_ms = 0
        self.end_ms = 0


class Truth:
    """Collects the truth of a run: totals in memory, and all else in a file if there is one."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file = file
        self._open: dict[Incident, None] = {}
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        self.records: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.malformed_records: Counter[str] = Counter()
        self.cents_by_source: Counter[str] = Counter()
        self.cents_by_user: Counter[bytes] = Counter()

    def _write(self, record: dict[str, object]) -> None:
        if self._file is not None:
            self._file.write(self._encode(record) + b"\n")

    def run(self, settings: dict[str, object]) -> None:
        """The first line: how to make this traffic again."""
        self._write({"record": "run", **settings})

    def open(self, incident: Incident) -> None:
        """An incident whose events are all scheduled."""
        self._open[incident] = None

    def incident_event(self, incident: Incident, arrival_ms: int) -> None:
        """One of the events that prove an incident has been sent."""
        incident.sent += 1
        incident.start_ms = incident.start_ms or arrival_ms
        incident.end_ms = arrival_ms
        if incident.sent == incident.expected:
            self._open.pop(incident, None)
            self._write_incident(incident)

    def _write_incident(self, incident: Incident) -> None:
        told: dict[str, object] = {
            "complete": incident.sent == incident.expected,
            "users": incident.users,
            "devices": incident.devices,
            "start_ms": incident.start_ms,
            "end_ms": incident.end_ms,
            "events": incident.event_ids,
            "sent": incident.sent,
        }
        if incident.pipeline is None:
            self._write({"record": "honest", "case": incident.name, **told})
        else:
            self._write({"record": "incident", "pipeline": incident.pipeline, "rule": incident.name, **told})

    def malformed(self, topic: str, fault: str, field: str | None, value: bytes) -> None:
        """A damaged event was sent."""
        self.malformed_records[topic] += 1
        digest = hashlib.sha256(value).hexdigest()
        self._write({"record": "malformed", "topic": topic, "fault": fault, "field": field, "sha256": digest})

    def redelivered(self, topic: str, event_id: str) -> None:
        """An event was sent again."""
        self.duplicates[topic] += 1
        self._write({"record": "redelivered", "topic": topic, "event_id": event_id})

    def late(self, topic: str, event_id: str, delay_ms: int) -> None:
        """An event was sent long after it happened."""
        self._write({"record": "late", "topic": topic, "event_id": event_id, "delay_ms": delay_ms})

    def invalid_phone(self, user_id: str, phone: str, reason: str) -> None:
        """A user has a number that cannot exist."""
        self._write({"record": "invalid_phone", "user_id": user_id, "phone": phone, "reason": reason})

    def credit(self, key: bytes, source: str, cents: int) -> None:
        """A credit was sent for the first time."""
        self.cents_by_source[source] += cents
        if self._file is not None:
            self.cents_by_user[key] += cents

    def finish(self) -> None:
        """Write what only the end can tell; the caller closes the file."""
        for incident in self._open:
            if incident.sent:
                self._write_incident(incident)
        self._open.clear()
        for key, cents in sorted(self.cents_by_user.items()):
            self._write({"record": "user", "user_id": key.decode(), "cents": cents})
        valid = {
            topic: number - self.duplicates[topic] - self.malformed_records[topic]
            for topic, number in sorted(self.records.items())
        }
        self._write(
            {
                "record": "totals",
                "records": dict(sorted(self.records.items())),
                "events": valid,
                "redelivered": dict(sorted(self.duplicates.items())),
                "malformed": dict(sorted(self.malformed_records.items())),
                "cents_by_source": dict(sorted(self.cents_by_source.items())),
            }
        )


@contextlib.contextmanager
def truth_file(path: Path | None) -> Iterator[Truth]:
    """The truth of one run, in a file if there is a path; finished whatever happens to the run."""
    if path is None:
        yield Truth()
        return
    with path.open("wb") as file:
        truth = Truth(file)
        try:
            yield truth
        finally:
            truth.finish()
