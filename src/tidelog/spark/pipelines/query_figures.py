"""The figures of a streaming query for people's monitors: Spark's progress under the names of a page.

``pipelines.runner`` makes one of these per look; ``pipelines.metrics_export`` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidelog.metrics import pipeline_catalog as catalog
from tidelog.metrics.metric import Metric
from tidelog.metrics.page import Page, labels
from tidelog.spark.pipelines.quality import NOTHING, Quality

_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """One pipeline at one moment; None is for what nobody knows."""

    pipeline: str
    up: bool
    batches: int = 0
    rows: int = 0
    restarts: int = 0
    late: int = 0
    dropped: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    input_rate: float | None = None
    processed_rate: float | None = None
    batch_s: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    batch_at_s: float | None = None
    watermark_s: float | None = None
    """In Unix time."""
    behind: int | None = None
    quality: Quality = NOTHING
    """Since the process started."""
    batch_quality: Quality = NOTHING
    """Of the last micro-batch."""


def of_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """What the progress of a micro-batch says of :class:`QueryFigures`."""
    operators: Sequence[Mapping[str, Any]] = progress["stateOperators"]
    return {
        "input_rate": _rate(progress["inputRowsPerSecond"]),
        "processed_rate": _rate(progress["processedRowsPerSecond"]),
        "batch_s": progress["batchDuration"] / 1000,
        "phases_s": {name: ms / 1000 for name, ms in progress["durationMs"].items()},
        "batch_at_s": _moment_s(progress["timestamp"]),
        "state_bytes": sum(each["memoryUsedBytes"] for each in operators),
        "watermark_s": _watermark_s(progress["eventTime"]),
    }


def families(
    figures: Sequence[QueryFigures], lags: Mapping[str, int], letters: Mapping[str, int] | None, now_s: float
) -> Iterator[tuple[Metric, list[tuple[str, float]]]]:
    """All families with their series."""
    of = {each.pipeline: labels(pipeline=each.pipeline) for each in figures}

    def told(metric: Metric, values: Iterator[tuple[str, float | None]]) -> Any:
        return metric, [(of[name], value) for name, value in values if value is not None]

    plain: tuple[tuple[Metric, str], ...] = (
        (catalog.UP, "up"),
        (catalog.BATCHES, "batches"),
        (catalog.ROWS, "rows"),
        (catalog.INPUT_RATE, "input_rate"),
        (catalog.PROCESSED_RATE, "processed_rate"),
        (catalog.BATCH_SECONDS, "batch_s"),
        (catalog.BATCH_BEGAN, "batch_at_s"),
        (catalog.STATE_ROWS, "state_rows"),
        (catalog.STATE_BYTES, "state_bytes"),
        (catalog.BEHIND, "behind"),
        (catalog.LATE, "late"),
        (catalog.DROPPED, "dropped"),
        (catalog.RESTARTS, "restarts"),
    )
    for metric, attribute in plain:
        yield told(metric, ((each.pipeline, _number(getattr(each, attribute))) for each in figures))
    yield (
        catalog.PHASE_SECONDS,
        [
            (labels(pipeline=each.pipeline, phase=phase), seconds)
            for each in figures
            for phase, seconds in sorted(each.phases_s.items())
        ],
    )
    yield told(
        catalog.WATERMARK_DELAY,
        (
            (each.pipeline, None if each.watermark_s is None else max(0.0, now_s - each.watermark_s))
            for each in figures
        ),
    )
    yield from _of_quality(figures, of)
    yield told(catalog.LAG, ((each.pipeline, lags.get(each.pipeline)) for each in figures))
    if letters is not None:
        yield told(catalog.DEAD_LETTERS, ((each.pipeline, letters.get(each.pipeline, 0)) for each in figures))


def _of_quality(
    figures: Sequence[QueryFigures], of: Mapping[str, str]
) -> Iterator[tuple[Metric, list[tuple[str, float]]]]:
    """What was wrong with the records, where any were counted."""
    counted = [each for each in figures if each.quality.records]
    yield catalog.MALFORMED, [(of[each.pipeline], each.quality.malformed) for each in counted]
    yield (
        catalog.MALFORMED_REASONS,
        [
            (labels(pipeline=each.pipeline, reason=reason), count)
            for each in counted
            for reason, count in sorted(each.quality.reasons.items())
        ],
    )
    yield catalog.DUPLICATED, [(of[each.pipeline], each.quality.duplicated) for each in counted]
    yield (
        catalog.FIELD_NULLS,
        [
            (labels(pipeline=each.pipeline, field=name), each.quality.nulls.get(name, 0))
            for each in counted
            for name in sorted(each.quality.seen)
        ],
    )
    yield (
        catalog.FIELD_NULL_RATIO,
        [
            (labels(pipeline=each.pipeline, field=name), rate)
            for each in counted
            for name, rate in sorted(each.batch_quality.null_rates.items())
        ],
    )


def render(
    page: Page,
    figures: Sequence[QueryFigures],
    lags: Mapping[str, int],
    letters: Mapping[str, int] | None,
    now_s: float,
) -> Iterator[str]:
    """The page of the figures."""
    for metric, samples in families(figures, lags, letters, now_s):
        yield from page.family(metric, samples)


def _number(value: bool | float | None) -> float | None:
    return int(value) if isinstance(value, bool) else value


def _rate(value: float | None) -> float | None:
    # Spark says NaN or infinity of a batch that took no time.
    return value if value is not None and 0 <= value < float("inf") else None


def _watermark_s(event_time: Mapping[str, str]) -> float | None:
    """Spark's watermark; it is at the epoch before the first event."""
    text = event_time.get("watermark")
    seconds = None if text is None else _moment_s(text)
    return seconds or None


def _moment_s(text: str) -> float:
    return (datetime.fromisoformat(text) - _EPOCH).total_seconds()
