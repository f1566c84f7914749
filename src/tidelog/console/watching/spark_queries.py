"""Spark's queries, by their checkpoints: where they stand, and how far that is from the ends of the logs.

Spark commits to no group: where a query stands is in its checkpoint alone, in files whose format Spark's own
Kafka connector and Tidelog's source share. They are read here (``--pipelines``, ``--checkpoint``) and never
written; no Spark is needed. Everything blocks: call it in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tidelog.console.watching.snapshot import Snapshot
from tidelog.ids import TopicPartition
from tidelog.pipelines.framework.status import last_commit

_CHECKPOINTS = 100
_LARGEST_FILE = 8 * 1024 * 1024


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


def query_rows(roots: Iterable[Path], seen: Snapshot) -> list[QueryRow]:
    """The queries of checkpoints, or of directories that hold some."""
    found = [path for root in roots for path in _checkpoints(root)]
    return [_query(_position(path), seen) for path in found[:_CHECKPOINTS]]


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
