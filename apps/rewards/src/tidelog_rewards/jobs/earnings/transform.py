"""The dead letters of a range of time as a frame, for backfills, which look for those that are missing.

What becomes of events is in ``packing``; the rules about malformed ones are the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog_rewards.jobs.earnings.packing import KINDS
from tidelog_rewards.jobs.earnings.schema import MAXIMUM_CENTS, MAXIMUM_STEPS
from tidelog_rewards.parsing import RECORD_COLUMNS, parse_all

_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def malformed(raw: DataFrame, start: str, end: str) -> DataFrame:
    """The records that were written in a range of time and are no events, with ``code`` and ``reason``."""
    rows = parse_all(raw, KINDS).rows
    checked = rows.select(
        *RECORD_COLUMNS, *(F.coalesce(name, _impossible(name)).alias(name) for name in ("code", "reason"))
    )
    written = F.date_format("timestamp", _TIME_FORMAT)
    return checked.where(F.col("reason").isNotNull() & (written >= start) & (written < end))


def _impossible(name: str) -> Column:
    """What no schema of single fields can say: ``packing.impossible`` for frames."""
    texts = {
        "range:amount_cents": f"field amount_cents: more than {MAXIMUM_CENTS}",
        "range:steps": f"field steps: more than {MAXIMUM_STEPS}",
        "range:step": "field step: more than field steps",
    }
    amount, steps, step = texts if name == "code" else texts.values()
    return (
        F.when(F.col("amount_cents") > MAXIMUM_CENTS, amount)
        .when(F.col("steps") > MAXIMUM_STEPS, steps)
        .when(F.col("step") > F.col("steps"), step)
    )
