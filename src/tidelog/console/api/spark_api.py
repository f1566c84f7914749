"""Spark: the pipelines by what they leave on disk, and any query by its checkpoint.

Spark commits to no group: where a query stands is in its checkpoint alone, in files whose format Spark's own
Kafka connector and Tidelog's source share. The console reads them (``--pipelines``, ``--checkpoint``) and
compares them with the ends of the logs; it writes nothing there, and needs no Spark.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from tidelog.console.api.access_api import require_whole_cluster
from tidelog.console.api.endpoint import Call, Nothing, reads
from tidelog.console.watching.snapshot import Snapshot
from tidelog.ids import TopicPartition
from tidelog.pipelines.framework.events import DEAD_LETTERS
from tidelog.pipelines.framework.status import last_commit
from tidelog.pipelines.framework.status_file import is_running, read_status
from tidelog.pipelines.registry import PIPELINES

_CHECKPOINTS = 100
_LARGEST_FILE = 8 * 1024 * 1024
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


class TopicPosition(msgspec.Struct, frozen=True):
    """Where a query stands in a topic."""

    topic: str
    partitions: int
    position: int
    end: int | None
    lag: int | None


class QueryRow(msgspec.Struct, frozen=True):
    """One query, as its checkpoint tells it."""

    name: str
    path: str
    query_id: str | None
    batch: int | None
    """The last that is done."""
    planned: int | None
    """The last that was begun."""
    batch_age_s: float | None
    watermark_ms: int | None
    has_state: bool
    topics: list[TopicPosition]
    lag: int | None
    problem: str | None


class SparkPage(msgspec.Struct, frozen=True):
    """Pipelines and queries; ``dead_letters`` is the end of that topic, None where there is none."""

    configured: bool
    pipelines: list[PipelineRow]
    queries: list[QueryRow]
    dead_letter_topic: str
    dead_letters: int | None


class _Position(msgspec.Struct, frozen=True):
    """What a checkpoint's files say."""

    path: Path
    query_id: str | None = None
    batch: int | None = None
    planned: int | None = None
    batch_at_s: float | None = None
    watermark_ms: int | None = None
    has_state: bool = False
    offsets: dict[str, dict[str, int]] = {}
    problem: str | None = None


@reads("/clusters/{cluster}/spark", "Pipelines, and Spark's queries by their checkpoints.", Nothing)
async def spark(call: Call, asked: Nothing) -> SparkPage:
    """Files are read in a thread; lag is that of the last look at the cluster."""
    require_whole_cluster(call)
    settings = call.console.settings
    seen = await call.cluster.seen()
    pipelines, positions = await asyncio.to_thread(_read, settings.pipelines, settings.checkpoints, seen)
    letters = [end for place, end in seen.ends.items() if place.topic == DEAD_LETTERS]
    return SparkPage(
        settings.pipelines is not None or bool(settings.checkpoints),
        pipelines,
        [_query(each, seen) for each in positions],
        DEAD_LETTERS,
        sum(letters) if letters else None,
    )


def _read(
    directory: Path | None, named: tuple[Path, ...], seen: Snapshot
) -> tuple[list[PipelineRow], list[_Position]]:
    rows = [] if directory is None else [_pipeline(directory, name, seen) for name in PIPELINES]
    roots = [*named, *([] if directory is None else [directory / "checkpoints"])]
    found = [path for root in roots for path in _checkpoints(root)]
    return rows, [_position(path) for path in found[:_CHECKPOINTS]]


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


def _checkpoints(root: Path) -> list[Path]:
    """``root`` itself if it is a checkpoint, or those right below it."""
    if (root / "offsets").is_dir():
        return [root]
    try:
        return sorted(path for path in root.iterdir() if (path / "offsets").is_dir())
    except OSError:
        return []


def _position(path: Path) -> _Position:
    try:
        planned = _last(path / "offsets")
        commit = last_commit(path)
        batch = commit[0] if commit else None
        lines = _lines(path / "offsets" / str(batch)) if batch is not None else []
        head = msgspec.json.decode(lines[1]) if len(lines) > 1 else {}
        offsets: dict[str, dict[str, int]] = {}
        for line in lines[2:]:
            for topic, partitions in _source(line).items():
                offsets.setdefault(topic, {}).update(partitions)
        watermark = head.get("batchWatermarkMs") if isinstance(head, dict) else None
        return _Position(
            path,
            _query_id(path),
            batch,
            planned,
            commit[1] if commit else None,
            watermark or None,
            (path / "state").is_dir(),
            offsets,
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _Position(path, problem=f"its files cannot be read: {error}")


def _last(folder: Path) -> int | None:
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    return max(numbers, default=None)


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE).decode("utf-8").splitlines()
    except FileNotFoundError:
        return []  # Spark cleans up


def _source(line: str) -> dict[str, dict[str, int]]:
    """The offsets of one source, if it is one of Kafka's kind; ids of topics are left out."""
    try:
        found = msgspec.json.decode(line, type=dict[str, dict[str, int]])
    except msgspec.MsgspecError:
        return {}
    return {topic: partitions for topic, partitions in found.items() if partitions}


def _query_id(path: Path) -> str | None:
    try:
        found = msgspec.json.decode((path / "metadata").read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return str(found.get("id")) if isinstance(found, dict) else None


def _query(position: _Position, seen: Snapshot) -> QueryRow:
    topics = []
    for topic, partitions in sorted(position.offsets.items()):
        ends = [seen.ends.get(TopicPartition(topic, int(each))) for each in partitions if each.isdecimal()]
        known = [each for each in ends if each is not None]
        at = sum(partitions.values())
        whole = len(known) == len(partitions) and bool(known)
        end = sum(known) if whole else None
        topics.append(
            TopicPosition(topic, len(partitions), at, end, None if end is None else max(end - at, 0))
        )
    lags = [each.lag for each in topics if each.lag is not None]
    return QueryRow(
        position.path.name,
        str(position.path),
        position.query_id,
        position.batch,
        position.planned,
        None if position.batch_at_s is None else max(0.0, round(time.time() - position.batch_at_s, 1)),
        position.watermark_ms,
        position.has_state,
        topics,
        sum(lags) if lags else None,
        position.problem,
    )


ENDPOINTS = (spark,)
