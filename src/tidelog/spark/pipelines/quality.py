"""The quality of what a pipeline reads: malformed records, events that came twice, fields without a value.

Counted in Spark's tasks (``task_quality``), of which each answers with one :class:`Quality`; the driver adds
these up (``figures``), notes them for ``tidelog pipeline status`` and shows them to monitors.

*Null* is a field that is absent or null: in a record that is refused for it where the field is required, in
an event where it is not. The rate of a field is that among the records whose value is an object of a kind
that has the field, or, for a field that is not required, among the events of such kinds.

*Duplicated* are events with an ``event_id`` that the same task has seen in the same micro-batch: events that
are sent twice in a row, which are most. Copies that come later are told by what a pipeline does with them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Quality(msgspec.Struct, frozen=True):
    """Counts of some records."""

    records: int = 0
    malformed: int = 0
    duplicated: int = 0
    reasons: dict[str, int] = {}
    """Malformed records by code; one with two things wrong counts for both."""
    nulls: dict[str, int] = {}
    """Fields without a value, by name; where there were none, the field may be left out."""
    seen: dict[str, int] = {}
    """Records that could have had a value, by field."""

    def __add__(self, other: Quality) -> Quality:
        return Quality(
            self.records + other.records,
            self.malformed + other.malformed,
            self.duplicated + other.duplicated,
            _sum(self.reasons, other.reasons),
            _sum(self.nulls, other.nulls),
            _sum(self.seen, other.seen),
        )

    @property
    def null_rates(self) -> dict[str, float]:
        """Of each field that could have been there, from 0 to 1."""
        return {name: self.nulls.get(name, 0) / count for name, count in self.seen.items() if count}


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


NOTHING = Quality()


def quality_of(told: Iterable[str | bytes]) -> Quality:
    """The sum of what tasks have told, on the driver."""
    decode = msgspec.json.Decoder(Quality).decode
    return sum(map(decode, told), NOTHING)
