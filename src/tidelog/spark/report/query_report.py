"""What a Spark query tells of itself, and where: beside the offsets of consumer groups that nobody joins.

A source commits where its query stands to a group of its own, ``__tidelog-spark-queries.<run>``; a sink's
tasks have groups already, in which the last epoch is (``epoch_record``). Kafka keeps a text beside each
committed offset: there the rest is, as JSON; of sinks it is a ``sink_note``. So reports need no topic, are
found by whoever lists groups, give every tool the query's lag, and expire with ``offsets.retention.minutes``.

Written by ``query_reporter``, read by ``reported_queries``. Free of Spark.
"""

from __future__ import annotations

import msgspec

from tidelog.decode_errors import DECODE_ERRORS, Int64
from tidelog.spark.report.application import Application

REPORT_PREFIX = "__tidelog-spark-queries."
SINK_PREFIX = f"{REPORT_PREFIX}sink."
"""Of at-least-once sinks, see ``sink_report``."""
HEARTBEAT_S = 10.0
SILENT_MS = 45_000
"""A query that has not reported for so long does not run."""
FORGOTTEN_MS = 24 * 3_600_000
"""Reports of queries that have ended are deleted after this, by whichever query starts next."""
KEPT_BATCHES = 24
MOST_BYTES = 3800
"""Brokers refuse notes of more than 4096 bytes (``offset.metadata.max.bytes``)."""
_LONGEST_ERROR = 500
_FORMAT = 1


class BatchReport(msgspec.Struct, frozen=True, array_like=True):
    """One micro-batch; ``took_ms`` is the time until Spark asked again, None while it runs."""

    planned_ms: Int64
    offsets: Int64
    """How many it takes; there may be fewer records (compaction, transaction markers)."""
    took_ms: Int64 | None = None


class QueryReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a source tells of its query; times are in ms since 1970."""

    at_ms: Int64
    started_ms: Int64
    application: Application
    batches: Int64 = 0
    """Of this run, those under way included."""
    offsets: Int64 = 0
    """All that they took."""
    recent: list[BatchReport] = []
    """The last ones, the newest last."""
    behind: Int64 | None = None
    """Offsets that the log was ahead of the last micro-batch's end when that was planned."""
    spark: str | None = None
    commit_group: str | None = None
    error: str | None = None
    ended_ms: Int64 | None = None
    undelivered: Int64 = 0
    """Reports that did not reach the brokers."""
    format: Int64 = _FORMAT


def encode(report: QueryReport) -> str:
    """The report as a note that brokers take: of what is too much the oldest batches are left out."""
    if report.error is not None and len(report.error) > _LONGEST_ERROR:
        report = msgspec.structs.replace(report, error=report.error[:_LONGEST_ERROR] + "…")
    while True:
        text = msgspec.json.encode(report)
        if len(text) <= MOST_BYTES or not report.recent:
            return text.decode()
        report = msgspec.structs.replace(report, recent=report.recent[len(report.recent) // 2 + 1 :])


def decode(note: str) -> QueryReport | None:
    """The report that a note is; None if it is none, or of a later format."""
    try:
        report = msgspec.json.decode(note, type=QueryReport)
    except DECODE_ERRORS:
        return None
    return report if report.format == _FORMAT else None
