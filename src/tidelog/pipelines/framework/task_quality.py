"""Counts the quality of what a task parses, where it is parsed: what it costs an event is an entry in a set.

Called by the tasks of all jobs; ``quality`` says what the figures mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.framework.event_parser import EventParser, ParsedRows
from tidelog.pipelines.framework.events import EventKind
from tidelog.pipelines.framework.quality import Quality

REMEMBERED_IDS = 1_000_000
"""A task looks for copies among so many events at most."""


class TaskQuality:
    """Counts what one task parses in one micro-batch."""

    def __init__(self) -> None:
        self._records = self._malformed = self._duplicated = 0
        self._reasons: Counter[str] = Counter()
        self._nulls: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._ids: set[str] = set()

    def told(self) -> bytes:
        """All that was counted, for the driver."""
        counted = Quality(
            self._records,
            self._malformed,
            self._duplicated,
            dict(self._reasons),
            {name: count for name, count in self._nulls.items() if count},
            dict(self._seen),
        )
        return msgspec.json.encode(counted)

    def add(self, kind: EventKind | None, parsed: pa.StructArray) -> None:
        """Count records of one kind, as ``EventParser.columns`` has parsed them; None: none is an event."""
        codes = parsed.field("code")
        events = codes.null_count
        self._records += len(codes)
        if kind is not None:
            nulls = {
                field.name: parsed.field(field.name).null_count - (len(codes) - events)
                for field in kind.fields
                if not field.required
            }
            self._count_events(kind, events, nulls)
            self._count_ids(parsed.field("event_id").drop_null().to_pylist())
        if events < len(codes):
            counts = pc.value_counts(codes.drop_null())
            for code, count in zip(
                counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True
            ):
                self._count_malformed(kind, code, count)

    def add_rows(self, parser: EventParser, parsed: ParsedRows) -> None:
        """Count records of whatever kinds, as ``EventParser.rows`` has parsed them."""
        at = {name: index for index, name in enumerate(parser.fields)}
        self._records += len(parsed.values)
        for kind in parser.kinds:
            rows = [
                values
                for values, each, reason in zip(parsed.values, parsed.kinds, parsed.reasons, strict=True)
                if each is kind and reason is None
            ]
            nulls = {
                field.name: list(map(itemgetter(at[field.name]), rows)).count(None)
                for field in kind.fields
                if not field.required
            }
            self._count_events(kind, len(rows), nulls)
            self._count_ids(list(map(itemgetter(at["event_id"]), rows)))
        for kind_of, reason in zip(parsed.kinds, parsed.reasons, strict=True):
            if reason is not None:
                self._count_malformed(kind_of, reason.code, 1)

    def _count_events(self, kind: EventKind, events: int, nulls: dict[str, int]) -> None:
        self._nulls.update(nulls)
        if events:
            self._seen.update({field.name: events for field in kind.fields})

    def _count_malformed(self, kind: EventKind | None, code: str, count: int) -> None:
        self._malformed += count
        parts = code.split(",")
        self._reasons.update(dict.fromkeys(parts, count))
        if kind is None or ":" not in code:
            return  # it is no object
        self._seen.update({field.name: count for field in kind.fields if field.required})
        missing = [name for what, _, name in (part.partition(":") for part in parts) if what == "missing"]
        self._nulls.update(dict.fromkeys(missing, count))

    def _count_ids(self, ids: Sequence[str]) -> None:
        if len(self._ids) < REMEMBERED_IDS:
            before = len(self._ids)
            self._ids.update(ids)
            self._duplicated += len(ids) - (len(self._ids) - before)
