"""Spark: the pipelines, by what they leave on disk and tell the cluster, and all other queries.

A query is shown once: those of the pipelines among the pipelines, each other one with its report, its
checkpoint or both (``spark_queries``).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from tidelog.console.api.endpoint import Call, Nothing, reads, require_whole_cluster
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.spark_queries import QueryRow, query_rows
from tidelog.spark.dead_letters.letter import DEAD_LETTERS
from tidelog.spark.pipelines.registry import installed
from tidelog.spark.pipelines.status import last_commit
from tidelog.spark.pipelines.status_file import is_running, read_status

_GROUP = "tidelog-pipeline-{}"


class PipelineRow(msgspec.Struct, frozen=True):
    """One pipeline; what is not known is None."""

    name: str
    running: bool
    host: str | None
    """Where it runs, by its report."""
    pid: int | None
    last_batch: int | None
    last_batch_age_s: float | None
    rows_per_second: float | None
    rows_in: int | None
    batch_ms: int | None
    state_rows: int | None
    state_bytes: int | None
    watermark_ms: int | None
    late: int | None
    dropped: int | None
    malformed: int | None
    group: str
    lag: int | None
    inputs: list[str]
    outputs: list[str]
    """Each with its kind: ``topic …``, ``lake …``, ``sqlite …``, ``cassandra …``."""
    error: str | None


class SparkPage(msgspec.Struct, frozen=True):
    """Pipelines and queries; ``dead_letters`` is the end of that topic, None where there is none."""

    configured: bool
    """Whether the console was told of checkpoints or pipelines that the person may see."""
    pipelines: list[PipelineRow]
    queries: list[QueryRow]
    dead_letter_topic: str
    dead_letters: int | None
    incident_topic: str | None
    outputs: list[str]
    """Topics that the pipelines write to, those that are there."""


@reads("/clusters/{cluster}/spark", "Pipelines, and Spark's queries.", Nothing)
async def spark(call: Call, asked: Nothing) -> SparkPage:
    """Files are read in a thread; lag and reports are those of the last look at the cluster."""
    require_whole_cluster(call)
    directory, checkpoints = files_for(call)
    seen = await call.cluster.seen()
    pipelines, queries = await asyncio.to_thread(read_spark, directory, checkpoints, seen)
    letters = [end for place, end in seen.ends.items() if place.topic == DEAD_LETTERS]
    return SparkPage(
        directory is not None or bool(checkpoints),
        pipelines,
        queries,
        DEAD_LETTERS,
        sum(letters) if letters else None,
        next(
            (each.incident_topic for each in installed().values() if each.incident_topic in seen.topics), None
        ),
        [each for each in _outputs() if each in seen.topics],
    )


def _outputs() -> list[str]:
    """The topics of pipelines that none of them reads, and that of dead letters."""
    pipelines = installed().values()
    inputs = {name for pipeline in pipelines for name in pipeline.inputs}
    topics = [topic.name for pipeline in pipelines for topic in pipeline.topics]
    return [name for name in dict.fromkeys((*topics, DEAD_LETTERS)) if name not in inputs]


def files_for(call: Call) -> tuple[Path | None, tuple[Path, ...]]:
    """The pipelines' directory and the checkpoints, of which none says which cluster it is about.

    They are for those who see all topics of all clusters; others see what queries tell the cluster.
    """
    if not all(map(call.person.sees_all_topics, call.console.clusters)):
        return None, ()
    return call.console.settings.pipelines, call.console.settings.checkpoints


def read_spark(
    directory: Path | None, named: tuple[Path, ...], seen: Snapshot
) -> tuple[list[PipelineRow], list[QueryRow]]:
    """Pipelines, and the queries that are none; blocks.

    Without ``directory`` those pipelines are known that tell the cluster of themselves.
    """
    own = None if directory is None else directory / "checkpoints"
    rows = query_rows([*named, *([] if own is None else [own])], seen)
    pipelines: dict[str, list[QueryRow]] = {}
    others = []
    for row in rows:
        name = _pipeline_of(row, own)
        if name is None:
            others.append(row)
        else:
            pipelines.setdefault(name, []).append(row)
    found = [
        _pipeline(directory, name, pipelines.get(name, []), seen)
        for name in installed()
        if directory is not None or name in pipelines
    ]
    return found, others


def _pipeline_of(row: QueryRow, checkpoints: Path | None) -> str | None:
    """The pipeline whose query this is: by its group, or by its checkpoint in the pipelines' directory."""
    for name in installed():
        if row.commit_group == _GROUP.format(name):
            return name
        if checkpoints is not None and row.path == str(checkpoints / name):
            return name
    return None


def _pipeline(directory: Path | None, name: str, rows: list[QueryRow], seen: Snapshot) -> PipelineRow:
    """What its files say, if it runs here; what it has reported, if it runs elsewhere."""
    commit = None if directory is None else last_commit(directory / "checkpoints" / name)
    is_here = directory is not None and is_running(directory, name)
    kept = None if directory is None else read_status(directory, name)
    note = kept if is_here else None
    reported = next((each for each in rows if each.running is not None), None)
    group = _GROUP.format(name)
    lags = seen.lags.get(group)
    age_s = reported.batch_age_s if reported is not None else None
    rate = reported.rows_per_second if reported is not None else None
    batch_ms = reported.batch_ms if reported is not None else None
    return PipelineRow(
        name=name,
        running=is_here or any(each.running for each in rows),
        host=None if reported is None else reported.host,
        pid=note.pid if note else None,
        last_batch=commit[0] if commit else None,
        last_batch_age_s=max(0.0, round(time.time() - commit[1], 1)) if commit else age_s,
        rows_per_second=note.rows_per_second if note else rate,
        rows_in=note.rows_in if note else None,
        batch_ms=note.batch_ms if note else batch_ms,
        state_rows=note.state_rows if note else None,
        state_bytes=note.state_bytes if note else None,
        watermark_ms=note.watermark_ms if note else None,
        late=note.late if note else None,
        dropped=note.dropped if note else None,
        malformed=note.quality.malformed if note else None,
        group=group,
        lag=sum(lags.values()) if lags else None,
        inputs=kept.inputs if kept else [each.topic for row in rows for each in row.topics],
        outputs=kept.outputs if kept else [],
        error=None if reported is None else reported.error,
    )


ENDPOINTS = (spark,)
