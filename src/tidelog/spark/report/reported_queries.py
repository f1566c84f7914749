"""The Spark queries of a cluster, of what their sources and sinks have left in consumer groups. Pure.

A source knows neither the id of its query nor its sink, for Spark does not tell; a sink knows the id. They
are put together by what both have: the application, and the driver's clock. Spark plans the sink's epoch
right after the source's micro-batch, so the sink of a query is the one whose epochs were planned within its
micro-batches, soonest after they began. Where times do not tell, the only source of an application goes with
its only sink. A sink that fits no source stands for itself: its query reads something else.

Used by the console and by ``tidelog top``, which have listed groups and their offsets anyway.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.ids import TopicPartition
from tidelog.spark.report.application import Application
from tidelog.spark.report.epoch_record import GROUP_PREFIX, EpochRecord
from tidelog.spark.report.query_report import (
    FORGOTTEN_MS,
    REPORT_PREFIX,
    SILENT_MS,
    SINK_PREFIX,
    BatchReport,
    QueryReport,
    decode,
)
from tidelog.spark.report.sink_note import SinkNote

GROUP_PREFIXES = (REPORT_PREFIX, GROUP_PREFIX)
_TASK = re.compile(rf"(?:{re.escape(GROUP_PREFIX)}|{re.escape(SINK_PREFIX)})(.+)\.\d+", re.DOTALL)
_LATELY_MS = 60_000
_SLACK_MS = 5


@dataclass(frozen=True)
class ReportedSource:
    """One source of a query, of one run."""

    group: str
    report: QueryReport
    position: Mapping[TopicPartition, int]

    def is_running(self, now_ms: int) -> bool:
        """Whether it has reported lately, and not that it ends."""
        return self.report.ended_ms is None and now_ms - self.report.at_ms < SILENT_MS

    @property
    def last_batch(self) -> BatchReport | None:
        """The last that is done."""
        return next((each for each in reversed(self.report.recent) if each.took_ms is not None), None)

    def offsets_per_second(self, now_ms: int) -> float:
        """Of the micro-batches of the last minute."""
        since_ms = now_ms - _LATELY_MS
        lately = [each for each in self.report.recent if each.planned_ms >= since_ms]
        if not lately or not self.is_running(now_ms):
            return 0.0
        # They began after the one before them; of the first of all nothing earlier is known.
        at = len(self.report.recent) - len(lately)
        begin_ms = self.report.recent[at - 1].planned_ms if at else self.report.started_ms
        seconds = max(self.report.at_ms - max(begin_ms, since_ms), 1000) / 1000
        return sum(each.offsets for each in lately) / seconds


@dataclass(frozen=True)
class ReportedSink:
    """What one application or query has written last, by all its tasks."""

    app_id: str
    """A stream's query id, or the ``txnAppId`` of batch writes."""
    run_id: str
    epoch: int
    rows: int
    """Of that epoch."""
    tasks: int
    note: SinkNote | None

    @property
    def is_stream(self) -> bool:
        """Whether Spark itself writes through it, and not a program in batches."""
        return self.note is not None and self.note.is_stream

    @property
    def planned_ms(self) -> int | None:
        """When its last epoch was planned."""
        return self.note.planned_ms[-1] if self.note and self.note.planned_ms else None


@dataclass(frozen=True)
class ReportedQuery:
    """A query: a source with its sinks, or sinks alone."""

    source: ReportedSource | None
    sinks: list[ReportedSink] = field(default_factory=list)

    @property
    def application(self) -> Application | None:
        """Where it runs, if that is told."""
        if self.source is not None:
            return self.source.report.application
        return next((each.note.application for each in self.sinks if each.note), None)

    @property
    def query_id(self) -> str | None:
        """Spark's id, which its sink has told."""
        return next((each.app_id for each in self.sinks if each.is_stream), None)

    @property
    def name(self) -> str:
        """What people call it: the query's own name, its group, or its application."""
        named = next((each.note.name for each in self.sinks if each.note and each.note.name), None)
        if named is not None:
            return named
        if self.source is not None and self.source.report.commit_group:
            return self.source.report.commit_group
        application = self.application
        if application is not None and application.name:
            return application.name
        if self.sinks:
            return self.sinks[0].app_id
        assert self.source is not None
        return self.source.group.removeprefix(REPORT_PREFIX)[:8]

    @property
    def key(self) -> str:
        """Tells queries apart; stays the same while a query runs."""
        return self.source.group if self.source is not None else f"{GROUP_PREFIX}{self.sinks[0].app_id}"

    @property
    def seen_ms(self) -> int:
        """When it told of itself the last time."""
        if self.source is not None:
            return self.source.report.at_ms
        return max((each.planned_ms for each in self.sinks if each.planned_ms is not None), default=0)

    def is_running(self, now_ms: int) -> bool:
        """By its source's last report, or its sink's last epoch."""
        if self.source is not None:
            return self.source.is_running(now_ms)
        return now_ms - self.seen_ms < SILENT_MS


def is_spark_group(name: str) -> bool:
    """Whether a group is one of Spark's notes."""
    return name.startswith(GROUP_PREFIXES)


def reported_queries(
    committed: Mapping[str, Mapping[TopicPartition, int]], notes: Mapping[str, Sequence[str]], now_ms: int
) -> list[ReportedQuery]:
    """The queries of the last day, of all groups' offsets and the texts beside them; by their names.

    Sinks without a note (of pipelines, or written before there were notes) belong to no query.
    """
    sources, sinks = _sources(committed, notes), _sinks(committed, notes)
    source_of = _placed(sources, sinks)
    found = [
        ReportedQuery(source, [each for each in sinks if source_of.get(each.app_id) == source.group])
        for source in sources
    ]
    found += [ReportedQuery(None, [each]) for each in sinks if each.app_id not in source_of and each.note]
    since_ms = now_ms - FORGOTTEN_MS
    lately = [each for each in found if each.seen_ms >= since_ms]
    return sorted(_last_runs(lately, now_ms), key=lambda each: (each.name, each.key))


def _last_runs(queries: Iterable[ReportedQuery], now_ms: int) -> list[ReportedQuery]:
    """Without runs that have ended and were followed by another of what looks like the same query."""
    found: list[ReportedQuery] = []
    newer: set[object] = set()
    for each in sorted(queries, key=lambda query: (not query.is_running(now_ms), -query.seen_ms)):
        same = _alike(each)
        if each.is_running(now_ms) or same is None or same not in newer:
            found.append(each)
        newer.add(same)
    return found


def _alike(query: ReportedQuery) -> object:
    """What runs of one query have in common; None of sinks alone, which are one query each."""
    source, application = query.source, query.application
    if source is None or application is None:
        return None
    topics = frozenset(each.topic for each in source.position)
    return application.name, application.host, source.report.commit_group, topics


def _placed(sources: Sequence[ReportedSource], sinks: Sequence[ReportedSink]) -> dict[str, str]:
    """By a sink's application id the group of the source that it belongs to."""
    fits = [(_fit(source, sink), source, sink) for sink in sinks for source in sources]
    sure = [(delay, source, sink) for delay, source, sink in fits if delay is not None and delay < math.inf]
    placed: dict[str, str] = {}
    taken: set[str] = set()
    for _, source, sink in sorted(sure, key=lambda each: (each[0], each[1].group, each[2].app_id)):
        # A query has one sink of its own; batches that it writes itself may go to several.
        if sink.app_id in placed or (sink.is_stream and source.group in taken):
            continue
        placed[sink.app_id] = source.group
        if sink.is_stream:
            taken.add(source.group)
    unsure = [
        (source, sink)
        for delay, source, sink in fits
        if delay == math.inf and sink.is_stream and sink.app_id not in placed and source.group not in taken
    ]
    for source, sink in unsure:
        if sum(each is source or other is sink for each, other in unsure) == 1:
            placed[sink.app_id] = source.group
    return placed


def _sources(
    committed: Mapping[str, Mapping[TopicPartition, int]], notes: Mapping[str, Sequence[str]]
) -> list[ReportedSource]:
    found = []
    for group, texts in notes.items():
        if group.startswith(REPORT_PREFIX):
            reports = [report for text in texts if (report := decode(text)) is not None]
            if reports:
                newest = max(reports, key=lambda each: each.at_ms)
                found.append(ReportedSource(group, newest, committed.get(group, {})))
    return found


def _sinks(
    committed: Mapping[str, Mapping[TopicPartition, int]], notes: Mapping[str, Sequence[str]]
) -> list[ReportedSink]:
    tasks: dict[str, list[EpochRecord]] = {}
    for group, texts in notes.items():
        match = _TASK.fullmatch(group)
        # An at-least-once sink commits at one of its topics, which need not be the same each time.
        version = max(committed.get(group, {}).values(), default=None)
        if match is None or version is None:
            continue
        records = [record for text in texts if (record := read_epoch(version, text)) is not None]
        if records:
            tasks.setdefault(match[1], []).append(max(records, key=_planned_ms))
    return [_sink(app_id, records) for app_id, records in sorted(tasks.items())]


def read_epoch(version: int, text: str) -> EpochRecord | None:
    """The record of a sink's task; None if it is none of ours: the sink refuses that, with a sentence."""
    try:
        return EpochRecord.read(version, text)
    except ValueError:
        return None


def _planned_ms(record: EpochRecord) -> int:
    return record.note.planned_ms[-1] if record.note is not None and record.note.planned_ms else 0


def _sink(app_id: str, records: Iterable[EpochRecord]) -> ReportedSink:
    every = list(records)
    newest = max(every, key=lambda each: each.version)
    last = [each for each in every if each.version == newest.version]
    noted = [each.note for each in last if each.note is not None]
    note = noted[0] if noted else None
    if note is not None:
        topics = sorted({topic for each in noted for topic in each.topics})
        planned = max((each.planned_ms for each in noted), key=len)
        note = SinkNote(note.application, planned, tuple(topics), note.name, note.is_stream)
    return ReportedSink(
        app_id, newest.run_id, newest.version, sum(each.content.rows for each in last), len(last), note
    )


def _fit(source: ReportedSource, sink: ReportedSink) -> float | None:
    """How long after micro-batches of the source the epochs were planned, in ms.

    None if they were not; infinity where the report and the note are of different times.
    """
    note, recent = sink.note, source.report.recent
    if note is None or not recent or note.application.id != source.report.application.id:
        return None
    delays = []
    for planned_ms in note.planned_ms:
        if not recent[0].planned_ms <= planned_ms <= source.report.at_ms:
            continue  # of another time than the report tells of
        begun = [each for each in recent if each.planned_ms - _SLACK_MS <= planned_ms]
        last = begun[-1]
        if last.took_ms is not None and planned_ms > last.planned_ms + last.took_ms + _SLACK_MS:
            return None
        delays.append(max(planned_ms - last.planned_ms, 0))
    return sum(delays) / len(delays) if delays else math.inf
