"""Every figure that ``tidelog pipeline run --metrics`` shows, declared once, for ``docs/reference`` too."""

from __future__ import annotations

from tidelog.metrics.metric import counter, gauge

_P = "tidelog_pipeline_"

UP = gauge(f"{_P}up", "1 while the pipeline's query runs.", "pipeline")
BATCHES = counter(f"{_P}batches_total", "Micro-batches finished since the process started.", "pipeline")
ROWS = counter(f"{_P}input_rows_total", "Records read since the process started.", "pipeline")
INPUT_RATE = gauge(
    f"{_P}input_rows_per_second", "Records that came in per second, in the last micro-batch.", "pipeline"
)
PROCESSED_RATE = gauge(
    f"{_P}processed_rows_per_second",
    "Records worked off per second of work, in the last micro-batch.",
    "pipeline",
)
BATCH_SECONDS = gauge(f"{_P}batch_duration_seconds", "How long the last micro-batch took.", "pipeline")
PHASE_SECONDS = gauge(
    f"{_P}batch_phase_seconds",
    "How long a phase of the last micro-batch took, under Spark's name (addBatch, walCommit, …).",
    "pipeline",
    "phase",
)
BATCH_BEGAN = gauge(
    f"{_P}last_batch_timestamp_seconds", "When the last micro-batch was begun, in Unix time.", "pipeline"
)
STATE_ROWS = gauge(f"{_P}state_rows", "Rows that are remembered between micro-batches.", "pipeline")
STATE_BYTES = gauge(
    f"{_P}state_memory_bytes", "Memory of the state that Spark keeps, as it says.", "pipeline"
)
WATERMARK_DELAY = gauge(
    f"{_P}watermark_delay_seconds",
    "How far the watermark is behind the clock; only for pipelines that have one.",
    "pipeline",
)
BEHIND = gauge(
    f"{_P}offsets_behind_latest",
    "Offsets between where the last micro-batch ended and the end of the log then, over all partitions.",
    "pipeline",
)
LAG = gauge(f"{_P}lag", "Records that the pipeline's group has still to read, by its commits.", "pipeline")
LATE = counter(f"{_P}late_events_total", "Events that came too late to count.", "pipeline")
DROPPED = counter(f"{_P}dropped_searches_total", "Searches given up since they became too large.", "pipeline")
MALFORMED = counter(f"{_P}malformed_records_total", "Records that were no events.", "pipeline")
MALFORMED_REASONS = counter(
    f"{_P}malformed_reasons_total",
    "The same by the code of the reason; a record with two things wrong counts for both.",
    "pipeline",
    "reason",
)
DUPLICATED = counter(
    f"{_P}duplicated_events_total",
    "Events that a task had seen before in the same micro-batch, by their id.",
    "pipeline",
)
FIELD_NULLS = counter(
    f"{_P}field_nulls_total",
    "Records in which a field was absent or null, refused for it or not.",
    "pipeline",
    "field",
)
FIELD_NULL_RATIO = gauge(
    f"{_P}field_null_ratio",
    "Of the last micro-batch's records that could have a field, the share without a value, 0 to 1.",
    "pipeline",
    "field",
)
DEAD_LETTERS = gauge(
    f"{_P}dead_letters", "Dead letters of the pipeline that are in their topic, by whomever.", "pipeline"
)
RESTARTS = counter(
    f"{_P}restarts_total", "How often the query was started again after a slow machine.", "pipeline"
)

FAMILIES = (
    UP,
    BATCHES,
    ROWS,
    INPUT_RATE,
    PROCESSED_RATE,
    BATCH_SECONDS,
    PHASE_SECONDS,
    BATCH_BEGAN,
    STATE_ROWS,
    STATE_BYTES,
    WATERMARK_DELAY,
    BEHIND,
    LAG,
    LATE,
    DROPPED,
    MALFORMED,
    MALFORMED_REASONS,
    DUPLICATED,
    FIELD_NULLS,
    FIELD_NULL_RATIO,
    DEAD_LETTERS,
    RESTARTS,
)
