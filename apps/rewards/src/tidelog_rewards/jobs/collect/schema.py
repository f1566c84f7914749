"""The tables of ``collect``: one for each event log, the same in Cassandra and in the lake.

A row is an event with the day it belongs to and its place in the log. The key begins with user and day, so
that "what did this user do that day" reads one partition in the order of time, and ends with the event's id,
so that an event that was sent twice is one row.
"""

from __future__ import annotations

from tidelog.spark.sinks.table import ColumnSpec, TableSpec
from tidelog_rewards.events import LOGS, EventKind

_PLACE = (ColumnSpec("topic", "string"), ColumnSpec("partition", "long"), ColumnSpec("offset", "long"))


def table_of(kind: EventKind) -> TableSpec:
    """The table of a kind of event."""
    return TableSpec(
        name=kind.name,
        columns=(
            *(ColumnSpec(field.name, field.type) for field in kind.fields),
            ColumnSpec("date", "string"),
            *_PLACE,
        ),
        primary_key=("user_id", "date", "event_time", "event_id"),
        partition_key=("user_id", "date"),
        append_only=True,
    )


TABLES = tuple(table_of(kind) for kind in LOGS)
