"""Starts a pipeline's streaming query with its name, checkpoint and trigger, in a scheduler pool of its own.

Called by every ``job.py``. Pools make queries that share a session take turns at the cores; without them one
query's micro-batch waits for all tasks of the others'.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.spark.runtime.private_directory import keep_private, make_private
from tidelog.spark.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

AVAILABLE_NOW = "available-now"


def require_state(checkpoint: Path, state: Path, way_out: str) -> None:
    """Refuse a checkpoint with micro-batches, but without the state that its pipeline keeps beside it.

    A pipeline makes its state before its first micro-batch. Without it the checkpoint is of a version that
    kept another one, or the state was removed; to go on with an empty one would be to forget.

    :raises TidelogError: ``state``, a file, is missing.
    """
    has_batches = any(path.name.isdecimal() for path in (checkpoint / "offsets").glob("*"))
    if has_batches and not state.exists():
        raise TidelogError(
            f"the checkpoint {checkpoint} has no {state}, which this version keeps with it: {way_out}"
        )


def start_query(writer: DataStreamWriter, settings: PipelineSettings, name: str) -> StreamingQuery:
    """Start a configured writer (its sink and output mode set) as the query of the pipeline ``name``."""
    from pyspark import SparkContext

    make_private(settings.directory)
    keep_private(settings.checkpoint(name).parent)
    named = writer.queryName(name).option("checkpointLocation", str(settings.checkpoint(name).absolute()))
    if settings.trigger == AVAILABLE_NOW:
        triggered = named.trigger(availableNow=True)
    else:
        triggered = named.trigger(processingTime=settings.trigger)
    context = SparkContext.getOrCreate()
    context.setLocalProperty("spark.scheduler.pool", name)
    try:
        return triggered.start()
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
