"""Spark's queries by what they tell the cluster of themselves, of two samples. Pure.

Queries of Tidelog's source and sink report each micro-batch in consumer groups (``report.reported_queries``),
so that nothing more is asked of the cluster for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.cli.top.sample import Sample
from tidelog.spark.report.reported_queries import ReportedQuery, reported_queries


@dataclass(frozen=True)
class QueryLoad:
    """One query; what it does not tell is None."""

    name: str
    query_id: str | None
    running: bool
    application: str | None
    host: str | None
    reads: list[str]
    writes: list[str]
    rows_per_second: float | None
    lag: int | None
    lag_per_second: float | None
    batches: int | None
    """Of this run."""
    batch_ms: int | None
    """How long the last one took."""
    epoch: int | None
    seen_age_s: float
    """Since its last report."""
    error: str | None


def query_loads(before: Sample, now: Sample, seconds: float) -> list[QueryLoad]:
    """Those that run first, then the ones that are furthest behind."""
    found = [_load(each, before, now, seconds) for each in _queries(now)]
    return sorted(found, key=lambda each: (not each.running, -(each.lag or 0), each.name))


def _queries(sample: Sample) -> list[ReportedQuery]:
    return reported_queries(sample.committed, sample.notes, sample.at_ms)


def _load(query: ReportedQuery, before: Sample, now: Sample, seconds: float) -> QueryLoad:
    source, application = query.source, query.application
    last = None if source is None else source.last_batch
    lag, change = None, None
    if source is not None:
        lags, earlier = now.lags(source.group), before.lags(source.group)
        both = lags.keys() & earlier.keys()
        lag = sum(lags.values()) if lags else None
        change = sum(lags[each] - earlier[each] for each in both) / seconds if both else None
    return QueryLoad(
        query.name,
        query.query_id,
        query.is_running(now.at_ms),
        None if application is None else application.name,
        None if application is None else application.host,
        [] if source is None else sorted({each.topic for each in source.position}),
        sorted({topic for each in query.sinks if each.note for topic in each.note.topics}),
        None if source is None else source.offsets_per_second(now.at_ms),
        lag,
        change,
        None if source is None else source.report.batches,
        None if last is None else last.took_ms,
        max((each.epoch for each in query.sinks), default=None),
        max(now.at_ms - query.seen_ms, 0) / 1000,
        None if source is None else source.report.error,
    )
