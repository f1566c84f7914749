"""Spark: the pipelines by what they leave on disk, and any query by its checkpoint (``spark_queries``)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from tidelog.console.api.access_api import require_whole_cluster
from tidelog.console.api.endpoint import Call, Nothing, reads
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.spark_queries import QueryRow, query_rows
from tidelog.pipelines.framework.events import DEAD_LETTERS, OUTPUTS
from tidelog.pipelines.framework.status import last_commit
from tidelog.pipelines.framework.status_file import is_running, read_status
from tidelog.pipelines.registry import PIPELINES

_GROUP = "tidelog-pipeline-{}"


class PipelineRow(msgspec.Struct, frozen=True):
    """One pipeline."""

    name: str
    running: bool
    pid: int | None
    last_batch: int | None
    last_batch_age_s: float | None
    rows_per_second: float | None
    rows_in: int | None
    batch_ms: int | None
    state_rows: int | None
    late: int | None
    dropped: int | None
    group: str
    lag: int | None


class SparkPage(msgspec.Struct, frozen=True):
    """Pipelines and queries; ``dead_letters`` is the end of that topic, None where there is none."""

    configured: bool
    pipelines: list[PipelineRow]
    queries: list[QueryRow]
    dead_letter_topic: str
    dead_letters: int | None
    outputs: list[str]
    """Topics that the pipelines write to, those that are there."""


@reads("/clusters/{cluster}/spark", "Pipelines, and Spark's queries by their checkpoints.", Nothing)
async def spark(call: Call, asked: Nothing) -> SparkPage:
    """Files are read in a thread; lag is that of the last look at the cluster."""
    require_whole_cluster(call)
    settings = call.console.settings
    seen = await call.cluster.seen()
    pipelines, queries = await asyncio.to_thread(_read, settings.pipelines, settings.checkpoints, seen)
    letters = [end for place, end in seen.ends.items() if place.topic == DEAD_LETTERS]
    return SparkPage(
        settings.pipelines is not None or bool(settings.checkpoints),
        pipelines,
        queries,
        DEAD_LETTERS,
        sum(letters) if letters else None,
        [each for each in OUTPUTS if each in seen.topics],
    )


def _read(
    directory: Path | None, named: tuple[Path, ...], seen: Snapshot
) -> tuple[list[PipelineRow], list[QueryRow]]:
    rows = [] if directory is None else [_pipeline(directory, name, seen) for name in PIPELINES]
    roots = [*named, *([] if directory is None else [directory / "checkpoints"])]
    return rows, query_rows(roots, seen)


def _pipeline(directory: Path, name: str, seen: Snapshot) -> PipelineRow:
    commit = last_commit(directory / "checkpoints" / name)
    running = is_running(directory, name)
    note = read_status(directory, name) if running else None
    group = _GROUP.format(name)
    lags = seen.lags.get(group)
    return PipelineRow(
        name,
        running,
        note.pid if note else None,
        commit[0] if commit else None,
        max(0.0, round(time.time() - commit[1], 1)) if commit else None,
        note.rows_per_second if note else None,
        note.rows_in if note else None,
        note.batch_ms if note else None,
        note.state_rows if note else None,
        note.late if note else None,
        note.dropped if note else None,
        group,
        sum(lags.values()) if lags else None,
    )


ENDPOINTS = (spark,)
