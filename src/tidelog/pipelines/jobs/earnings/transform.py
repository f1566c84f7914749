"""The dead letters of a range of time as a frame, for backfills, which look for those that are missing.

What becomes of events is in ``packing``; the rules about malformed ones are the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog.pipelines.framework.parsing import parse_all
from tidelog.pipelines.jobs.earnings.packing import KINDS
from tidelog.pipelines.jobs.earnings.schema import MAXIMUM_CENTS, MAXIMUM_STEPS

_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def malformed(raw: DataFrame, start: str, end: str) -> DataFrame:
    """The records that were written in a range of time and are no events, with their ``reason``."""
    rows = parse_all(raw, KINDS).rows.withColumn("reason", F.coalesce("reason", _impossible()))
    written = F.date_format("timestamp", _TIME_FORMAT)
    return rows.where(F.col("reason").isNotNull() & (written >= start) & (written < end))


def _impossible() -> Column:
    """What no schema of single fields can say."""
    return (
        F.when(F.col("amount_cents") > MAXIMUM_CENTS, f"field amount_cents: more than {MAXIMUM_CENTS}")
        .when(F.col("steps") > MAXIMUM_STEPS, f"field steps: more than {MAXIMUM_STEPS}")
        .when(F.col("step") > F.col("steps"), "field step: more than field steps")
    )
