"""``tidelog pipeline status``: one row for each pipeline, and on request all figures of those that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.cli.output import bytes_text, print_json, print_table, remark, time_text

if TYPE_CHECKING:
    from tidelog.spark.pipelines.pipeline import Pipeline
    from tidelog.spark.pipelines.quality import Quality
    from tidelog.spark.pipelines.status import PipelineStatus
    from tidelog.spark.pipelines.status_file import RunStatus
    from tidelog.spark.settings import PipelineSettings

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
    "malformed",
    "twice",
    "dead letters",
    "checkpoint",
)
_NUMBERS = tuple(name for name in _COLUMNS if name not in ("pipeline", "running", "checkpoint"))


def show(
    settings: PipelineSettings, pipelines: Sequence[Pipeline], *, json: bool, figures: bool = False
) -> None:
    """Print how the pipelines stand."""
    from tidelog.spark.pipelines.status import pipeline_statuses

    statuses = pipeline_statuses(settings, pipelines)
    if json:
        print_json([_json(each) for each in statuses])
        return
    print_table(
        _COLUMNS,
        map(_row, statuses),
        right=_NUMBERS,
        optional=("checkpoint", "dropped", "late", "twice", "state rows", "malformed", "rows/s"),
    )
    if figures:
        _show_figures([each for each in statuses if each.note is not None])


def _show_figures(statuses: Sequence[PipelineStatus]) -> None:
    """A table with a column for each pipeline that runs."""
    if not statuses:
        remark("none of them runs on this directory, and figures are told by running ones")
        return
    told = [figures_of(each.note) for each in statuses if each.note is not None]
    rows = [(name, *(each.get(name) for each in told)) for name in _in_order(told)]
    columns = [each.pipeline for each in statuses]
    print_table(("figure", *columns), rows, right=columns)


def _in_order(told: Sequence[Mapping[str, str]]) -> list[str]:
    """All names; one that a pipeline alone has comes where it has it."""
    names: list[str] = []
    for each in told:
        at = 0
        for name in each:
            if name not in names:
                names.insert(at, name)
            at = names.index(name) + 1
    return names


def figures_of(note: RunStatus) -> dict[str, str]:
    """The figures of a running pipeline, by what people call them."""
    quality = note.quality
    return {
        "records in/s": _number(note.input_rate),
        "worked off/s": _number(note.processed_rate),
        "batch": f"{note.batch_ms:,} ms",
        **{f"  {phase}": f"{ms:,} ms" for phase, ms in sorted(note.phases_ms.items())},
        "watermark": "-" if note.watermark_ms is None else time_text(note.watermark_ms),
        "state rows": f"{note.state_rows:,}",
        "state memory": bytes_text(note.state_bytes),
        "offsets left": "-" if note.behind is None else f"{note.behind:,}",
        "records": f"{note.rows_in:,}",
        "late": f"{note.late:,}",
        "dropped": f"{note.dropped:,}",
        "came twice": f"{quality.duplicated:,}",
        "malformed": f"{quality.malformed:,}",
        **{f"  {reason}": f"{count:,}" for reason, count in sorted(quality.reasons.items())},
        **{f"null {name}": _percent(rate) for name, rate in sorted(quality.null_rates.items())},
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _percent(rate: float) -> str:
    """A rate that is not 0 does not look like it."""
    return "0 %" if not rate else f"{100 * rate:.2f} %" if rate >= 0.0001 else "< 0.01 %"


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
        **_figures_json(each.note),
    }


def _figures_json(note: RunStatus | None) -> dict[str, object]:
    return {
        "input_rows_per_second": note and note.input_rate,
        "processed_rows_per_second": note and note.processed_rate,
        "batch_ms": note and note.batch_ms,
        "phases_ms": note and note.phases_ms,
        "watermark_ms": note and note.watermark_ms,
        "state_bytes": note and note.state_bytes,
        "offsets_behind": note and note.behind,
        "quality": note and _quality_json(note.quality),
        "last_batch_quality": note and _quality_json(note.batch_quality),
    }


def _quality_json(quality: Quality) -> dict[str, object]:
    return {
        "records": quality.records,
        "malformed": quality.malformed,
        "duplicated": quality.duplicated,
        "reasons": quality.reasons,
        "null_rates": {name: round(rate, 6) for name, rate in quality.null_rates.items()},
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
        each.note and each.note.quality.malformed,
        each.note and each.note.quality.duplicated,
        each.dead_letters,
        str(each.checkpoint),
    )


def age_text(age_s: float) -> str:
    """``3 s``, ``12 min``, ``5 h``, ``9 d``."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age_s >= 2 * length_s:
            return f"{int(age_s // length_s)} {unit}"
    return f"{int(age_s)} s"
