"""Spark's queries: by what they tell the cluster of themselves, and by their checkpoints.

Queries of Tidelog's source and sink report each micro-batch (``report.reported_queries``). Where a query
stands is in its checkpoint, too, with batch numbers and the watermark, in files whose format Spark's own
Kafka connector and Tidelog's source share. They are read here (``--pipelines``, ``--checkpoint``) and never
written; no Spark is needed.

A report and a checkpoint are of the same query if they have its id, or if the report stands where the
checkpoint says that one of its last batches ended; of several that do, those go together whose times are
nearest. Everything blocks: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidelog.console.watching.snapshot import Snapshot
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.ids import TopicPartition
from tidelog.spark.pipelines.status import last_commit
from tidelog.spark.report.reported_queries import ReportedQuery

_CHECKPOINTS = 100
_LARGEST_FILE = 8 * 1024 * 1024
_LATEST = 20
"""So many of a checkpoint's last batches are compared with reports."""
_UNKNOWN_MS = 10**15


class TopicPosition(msgspec.Struct, frozen=True):
    """Where a query stands in a topic."""

    topic: str
    partitions: int
    position: int
    end: int | None
    lag: int | None


class SinkRow(msgspec.Struct, frozen=True):
    """What a query has written last, through Tidelog's sink."""

    name: str
    """The query's id, or the ``txnAppId`` of what it writes in batches."""
    topics: list[str]
    epoch: int
    rows: int
    tasks: int
    age_s: float | None


class QueryRow(msgspec.Struct, frozen=True):
    """One query, as far as it is known."""

    key: str
    name: str
    path: str | None
    """Its checkpoint, if the console was told of it."""
    query_id: str | None
    running: bool | None
    """None: it tells nothing of itself."""
    application: str | None
    host: str | None
    spark: str | None
    commit_group: str | None
    started_ms: int | None
    seen_age_s: float | None
    batch: int | None
    """The last that is done."""
    planned: int | None
    """The last that was begun."""
    batches: int | None
    """Of this run, as reported."""
    batch_age_s: float | None
    batch_ms: int | None
    rows_per_second: float | None
    watermark_ms: int | None
    has_state: bool
    topics: list[TopicPosition]
    lag: int | None
    sinks: list[SinkRow]
    error: str | None
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


Offsets = frozenset[tuple[TopicPartition, int]]


class _Pair(NamedTuple):
    """A checkpoint and a report that stand at the same place."""

    apart_ms: float
    path: Path
    source: int
    """Which of the checkpoint's sources."""
    key: str


def query_rows(roots: Iterable[Path], seen: Snapshot) -> list[QueryRow]:
    """The queries that have reported, and those of checkpoints or of directories that hold some."""
    found = [path for root in roots for path in _checkpoints(root)]
    positions = {path: _position(path) for path in dict.fromkeys(found[:_CHECKPOINTS])}
    reports = _together(positions.values(), seen.spark_queries)
    rows = [_row(position, reports.get(path, []), seen) for path, position in positions.items()]
    taken = {each.key for several in reports.values() for each in several}
    rows += [_row(None, [each], seen) for each in seen.spark_queries if each.key not in taken]
    return sorted(rows, key=lambda each: (not each.running, each.name, each.key))


def _together(
    positions: Iterable[_Position], queries: Sequence[ReportedQuery]
) -> dict[Path, list[ReportedQuery]]:
    """The reports of each checkpoint's query; a query with several sources has several."""
    found: dict[Path, list[ReportedQuery]] = {}
    left = list(queries)
    unknown = []
    for position in positions:
        same = [each for each in left if position.query_id and each.query_id == position.query_id]
        left = [each for each in left if each not in same]
        if same:
            found[position.path] = same
        else:
            unknown.append(position)
    by_key = {each.key: each for each in left}
    used: set[object] = set()
    for pair in sorted(_pairs(unknown, left)):
        if pair.key not in used and (pair.path, pair.source) not in used:
            used |= {pair.key, (pair.path, pair.source)}
            found.setdefault(pair.path, []).append(by_key[pair.key])
    return found


def _pairs(positions: Iterable[_Position], queries: Sequence[ReportedQuery]) -> list[_Pair]:
    wanted: dict[Offsets, list[ReportedQuery]] = {}
    for each in queries:
        if each.source is not None and each.source.position:
            wanted.setdefault(frozenset(each.source.position.items()), []).append(each)
    if not wanted:
        return []
    pairs = []
    for position in positions:
        for written_ms, sources in _latest_offsets(position):
            for number, offsets in enumerate(sources):
                for each in wanted.get(offsets, ()):
                    assert each.source is not None
                    last = each.source.last_batch
                    apart_ms = _UNKNOWN_MS if last is None else abs(last.planned_ms - written_ms)
                    pairs.append(_Pair(apart_ms, position.path, number, each.key))
    return pairs


def _latest_offsets(position: _Position) -> list[tuple[float, list[Offsets]]]:
    """The ends of the last batches by source, and when they were written, in ms."""
    found = []
    last = position.planned if position.planned is not None else -1
    for batch in range(last, max(last - _LATEST, -1), -1):
        path = position.path / "offsets" / str(batch)
        try:
            written_ms = path.stat().st_mtime * 1000
            lines = _lines(path)
        except (OSError, UnicodeDecodeError):
            continue  # Spark cleans up
        found.append((written_ms, [_offsets(_source(line)) for line in lines[2:]]))
    return found


def _offsets(source: Mapping[str, Mapping[str, int]]) -> Offsets:
    return frozenset(
        (TopicPartition(topic, int(number)), offset)
        for topic, partitions in source.items()
        for number, offset in partitions.items()
        if number.isdecimal()
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
    except (OSError, *DECODE_ERRORS) as error:
        return _Position(path, problem=f"cannot read its files: {error}")


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
    except DECODE_ERRORS:
        return {}
    return {topic: partitions for topic, partitions in found.items() if partitions}


def _query_id(path: Path) -> str | None:
    try:
        found = msgspec.json.decode((path / "metadata").read_bytes())
    except (OSError, *DECODE_ERRORS):
        return None
    return str(found.get("id")) if isinstance(found, dict) else None


def _row(position: _Position | None, reports: Sequence[ReportedQuery], seen: Snapshot) -> QueryRow:
    """One query; of several sources what is true of the whole."""
    now_ms = seen.at_ms
    sources = [each.source for each in reports if each.source is not None]
    applications = [each.application for each in reports if each.application is not None]
    application = applications[0] if applications else None
    sinks = [sink for each in reports for sink in each.sinks]
    lasts = [last for each in sources if (last := each.last_batch) is not None]
    last = max(lasts, key=lambda each: each.planned_ms) if lasts else None
    done_ms: float | None = None
    if position is not None and position.batch_at_s is not None:
        done_ms = position.batch_at_s * 1000
    elif last is not None:
        done_ms = last.planned_ms + (last.took_ms or 0)
    topics = _topics(position, reports, seen)
    lags = [each.lag for each in topics if each.lag is not None]
    streams = [each for each in sinks if each.is_stream]
    return QueryRow(
        key=str(position.path) if position is not None else reports[0].key,
        name=_name(position, reports),
        path=None if position is None else str(position.path),
        query_id=(position.query_id if position is not None else None)
        or next((each.query_id for each in reports if each.query_id), None),
        running=any(each.is_running(now_ms) for each in reports) if reports else None,
        application=None if application is None else application.name,
        host=None if application is None else application.host,
        spark=next((each.report.spark for each in sources if each.report.spark), None),
        commit_group=next((each.report.commit_group for each in sources if each.report.commit_group), None),
        started_ms=min((each.report.started_ms for each in sources), default=None),
        seen_age_s=_age_s(max(each.seen_ms for each in reports), now_ms) if reports else None,
        batch=position.batch if position is not None else streams[0].epoch if streams else None,
        planned=None if position is None else position.planned,
        batches=max((each.report.batches for each in sources), default=None),
        batch_age_s=None if done_ms is None else _age_s(done_ms, now_ms),
        batch_ms=None if last is None else last.took_ms,
        rows_per_second=sum(each.offsets_per_second(now_ms) for each in sources) if sources else None,
        watermark_ms=None if position is None else position.watermark_ms,
        has_state=position is not None and position.has_state,
        topics=topics,
        lag=sum(lags) if lags else None,
        sinks=[
            SinkRow(
                each.app_id,
                list(each.note.topics) if each.note else [],
                each.epoch,
                each.rows,
                each.tasks,
                None if each.planned_ms is None else _age_s(each.planned_ms, now_ms),
            )
            for each in sinks
        ],
        error=next((each.report.error for each in sources if each.report.error), None),
        problem=None if position is None else position.problem,
    )


def _age_s(at_ms: float, now_ms: int) -> float:
    return max(0.0, round((now_ms - at_ms) / 1000, 1))


def _name(position: _Position | None, reports: Sequence[ReportedQuery]) -> str:
    """A query's own name goes before its checkpoint's, and that before its application's."""
    named = next((sink.note.name for each in reports for sink in each.sinks if sink.note), None)
    if named is not None:
        return named
    return position.path.name if position is not None else reports[0].name


def _topics(
    position: _Position | None, reports: Sequence[ReportedQuery], seen: Snapshot
) -> list[TopicPosition]:
    """Where it stands: by its checkpoint if there is one that can be read, else by its reports."""
    places: dict[str, dict[int, int]] = {}
    if position is not None and position.offsets:
        for topic, partitions in position.offsets.items():
            places[topic] = {int(each): at for each, at in partitions.items() if each.isdecimal()}
    else:
        for each in reports:
            for place, at in (each.source.position if each.source is not None else {}).items():
                places.setdefault(place.topic, {})[place.partition] = at
    topics = []
    for topic, offsets in sorted(places.items()):
        ends = [seen.ends.get(TopicPartition(topic, each)) for each in offsets]
        known = [each for each in ends if each is not None]
        at = sum(offsets.values())
        end = sum(known) if known and len(known) == len(offsets) else None
        topics.append(TopicPosition(topic, len(offsets), at, end, None if end is None else max(end - at, 0)))
    return topics
