"""Records → entries of the ledger, as one frame that carries the malformed ones too.

``entries`` is a pure expression over the parsed rows; a micro-batch evaluates it once. ``sort_entries`` takes
the rows as the driver has collected them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.pipelines import events
from tidelog.pipelines.dead_letter import dead_letters
from tidelog.pipelines.earnings.schema import MAXIMUM_CENTS, MAXIMUM_STEPS, Credit, TaskStep
from tidelog.pipelines.parsing import parse_all

KINDS = (events.CREDIT, events.TASK)

_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
_FIELDS = ("user_id", "event_id", "source", "amount_cents", "task_id", "step", "steps")


class Entry(NamedTuple):
    """A row of :func:`entries`."""

    kind: str
    reason: str | None
    event_time: str
    user_id: str
    event_id: str
    source: str
    amount_cents: int
    task_id: str
    step: int
    steps: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None


_LETTER_DDL = "topic STRING, partition INT, offset LONG, key BINARY, value BINARY, reason STRING"


def entries(raw: DataFrame) -> DataFrame:
    """The columns of :class:`Entry`; where there is a reason, it is no event but a dead letter to be.

    Key and value of the record are there only for those.
    """
    rows = parse_all(raw, KINDS).rows.withColumn("reason", F.coalesce("reason", _impossible()))
    malformed = F.col("reason").isNotNull()
    return rows.select(
        "kind",
        "reason",
        F.date_format("event_time", _TIME_FORMAT).alias("event_time"),
        *_FIELDS,
        "topic",
        "partition",
        "offset",
        "timestamp",
        *(F.when(malformed, F.col(name)).alias(name) for name in ("key", "value")),
    )


def _impossible() -> Column:
    """What no schema of single fields can say."""
    return (
        F.when(F.col("amount_cents") > MAXIMUM_CENTS, f"field amount_cents: more than {MAXIMUM_CENTS}")
        .when(F.col("steps") > MAXIMUM_STEPS, f"field steps: more than {MAXIMUM_STEPS}")
        .when(F.col("step") > F.col("steps"), "field step: more than field steps")
    )


def in_range(found: DataFrame, start: str, end: str) -> DataFrame:
    """The entries of a range of event time, and what is no event among the records written in it."""
    written = F.date_format("timestamp", _TIME_FORMAT)
    when = F.when(F.col("reason").isNull(), F.col("event_time")).otherwise(written)
    return found.where((when >= start) & (when < end))


def letters(session: SparkSession, malformed: Sequence[Entry], pipeline: str) -> DataFrame:
    """Collected rows with a reason, as dead letters."""
    rows = [(row.topic, row.partition, row.offset, row.key, row.value, row.reason) for row in malformed]
    return dead_letters(session.createDataFrame(rows, _LETTER_DDL), pipeline)


def sort_entries(rows: Iterable[tuple[Any, ...]]) -> tuple[list[Credit], list[TaskStep], list[Entry]]:
    """Collected rows as credits, steps, and those with a reason."""
    credits: list[Credit] = []
    steps: list[TaskStep] = []
    malformed: list[Entry] = []
    for row in map(Entry._make, rows):
        if row.reason is not None:
            malformed.append(row)
        elif row.kind == events.CREDIT.name:
            credits.append(Credit(row.user_id, row.event_time, row.event_id, row.source, row.amount_cents))
        else:
            steps.append(TaskStep(row.user_id, row.event_time, row.task_id, row.step, row.steps))
    return credits, steps, malformed
