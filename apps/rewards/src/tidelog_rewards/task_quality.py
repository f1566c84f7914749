"""Counts the quality of what a task parses, where it is parsed: Arrow counts columns, and copies at the end.

Called by the tasks of all jobs; ``quality`` says what the figures mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from operator import is_, itemgetter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.pipelines.quality import Quality
from tidelog_rewards.event_parser import EventParser, ParsedRows
from tidelog_rewards.events import EventKind

REMEMBERED_IDS = 1_000_000
"""A task looks for copies among so many events at most."""


class TaskQuality:
    """Counts what one task parses in one micro-batch."""

    def __init__(self) -> None:
        self._records = self._malformed = self._id_count = 0
        self._reasons: Counter[str] = Counter()
        self._nulls: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._ids: list[pa.Array] = []

    def counted(self) -> Quality:
        """All that was counted."""
        return Quality(
            self._records,
            self._malformed,
            self._duplicated(),
            dict(self._reasons),
            {name: count for name, count in self._nulls.items() if count},
            dict(self._seen),
        )

    def told(self) -> bytes:
        """The same as text, for the driver."""
        return msgspec.json.encode(self.counted())

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
            self._add_ids(parsed.field("event_id"))
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
        events = _counted(parsed.kinds)
        taken = parsed.values
        if any(parsed.reasons):
            # Those that a pipeline has refused, and not the parser, still have their values.
            taken = [
                values for values, reason in zip(parsed.values, parsed.reasons, strict=True) if reason is None
            ]
            for kind, reason in zip(parsed.kinds, parsed.reasons, strict=True):
                if reason is not None:
                    events[id(kind)] -= 1
                    self._count_malformed(kind, reason.code, 1)
        counts = {kind.name: events[id(kind)] for kind in parser.kinds}
        for kind in parser.kinds:
            self._count_events(kind, counts[kind.name], {})
        for name in {field.name for kind in parser.kinds for field in kind.fields if not field.required}:
            # What has it not, though it could, is null; so is what could not have it.
            without = list(map(itemgetter(at[name]), taken)).count(None)
            with_field = sum(
                counts[kind.name] for kind in parser.kinds if any(each.name == name for each in kind.fields)
            )
            self._nulls[name] += without - (len(taken) - with_field)
        ids = map(itemgetter(at["event_id"]), taken)
        self._add_ids(pa.array(list(ids), pa.string()))

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

    def _add_ids(self, ids: pa.Array) -> None:
        if self._id_count < REMEMBERED_IDS:
            self._ids.append(ids)
            self._id_count += len(ids)

    def _duplicated(self) -> int:
        if not self._ids:
            return 0
        ids = pa.chunked_array(self._ids)
        distinct: int = pc.count_distinct(ids, mode="only_valid").as_py()
        return len(ids) - int(ids.null_count) - distinct


def _counted(kinds: Sequence[EventKind | None]) -> Counter[int]:
    """How many there are of each kind, by identity: to compare two takes almost as long as to parse an event.

    Nearly always a batch is of one partition, and so of one kind.
    """
    if kinds and all(map(is_, kinds, repeat(kinds[0]))):
        return Counter({id(kinds[0]): len(kinds)})
    return Counter(map(id, kinds))
