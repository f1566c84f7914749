"""``tidelog pipeline status``: one row for each pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.cli.output import print_json, print_table

if TYPE_CHECKING:
    from tidelog.pipelines.framework.status import PipelineStatus
    from tidelog.pipelines.pipeline import Pipeline, PipelineSettings

_COLUMNS = (
    "pipeline",
    "running",
    "lag",
    "last batch",
    "age",
    "rows/s",
    "state rows",
    "late",
    "dropped",
    "dead letters",
    "checkpoint",
)
_NUMBERS = ("lag", "last batch", "age", "rows/s", "state rows", "late", "dropped", "dead letters")


def show(settings: PipelineSettings, pipelines: Sequence[Pipeline], *, json: bool) -> None:
    """Print how the pipelines stand."""
    from tidelog.pipelines.framework.status import pipeline_statuses

    statuses = pipeline_statuses(settings, pipelines)
    if json:
        print_json([_json(each) for each in statuses])
        return
    print_table(
        _COLUMNS,
        map(_row, statuses),
        right=_NUMBERS,
        optional=("checkpoint", "dropped", "late", "state rows", "rows/s"),
    )


def _json(each: PipelineStatus) -> dict[str, object]:
    return {
        "pipeline": each.pipeline,
        "running": each.running,
        "pid": each.pid,
        "lag": each.lag,
        "last_batch": each.last_batch,
        "last_batch_age_s": each.last_batch_age_s,
        "rows_per_second": each.rows_per_second,
        "rows_in": each.rows_in,
        "state_rows": each.state_rows,
        "late": each.late,
        "dropped": each.dropped,
        "checkpoint": str(each.checkpoint),
        "dead_letters": each.dead_letters,
    }


def _row(each: PipelineStatus) -> tuple[object, ...]:
    return (
        each.pipeline,
        each.running,
        each.lag,
        each.last_batch,
        None if each.last_batch_age_s is None else age_text(each.last_batch_age_s),
        None if each.rows_per_second is None else round(each.rows_per_second),
        each.state_rows,
        each.late,
        each.dropped,
        each.dead_letters,
        str(each.checkpoint),
    )


def age_text(age_s: float) -> str:
    """``3 s``, ``12 min``, ``5 h``, ``9 d``."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age_s >= 2 * length_s:
            return f"{int(age_s // length_s)} {unit}"
    return f"{int(age_s)} s"
