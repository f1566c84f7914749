"""Runs pipelines in one Spark session: starts their queries, follows them, stops them between two batches.

Used by ``tidelog pipeline run``, by the live view of ``make run`` and by the entry for ``spark-submit``. One
thread at a time may call a runner. Exactly-once does not depend on a clean stop; it saves the next
start from doing the last batch again.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog.errors import TidelogError
from tidelog.spark.pipelines.figures import figures_of
from tidelog.spark.pipelines.query_figures import QueryFigures, of_progress
from tidelog.spark.pipelines.status_file import RunStatus, StatusFile
from tidelog.spark.read.progress import source_metrics
from tidelog.spark.read.shared_source import FORMAT, share_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.spark.pipelines.pipeline import Pipeline
    from tidelog.spark.settings import PipelineSettings

RATE_WINDOW_S = 10.0
STOP_TIMEOUT_S = 120.0
NOTE_INTERVAL_S = 5.0
MAX_RESTARTS = 5
_POLL_S = 0.1
_TOO_SLOW = "failed to connect back"

_ERROR = re.compile(
    r"(?:^|: )((?:[A-Za-z_][\w$]*\.)*[A-Z]\w*(?:Error|Exception|Failed)): (.+)$", re.MULTILINE
)
_JAVAS_OWN = ("org.", "java.", "javax.", "scala.", "py4j.")


class PipelineFailed(TidelogError):
    """A pipeline's query has failed; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How a pipeline is doing since it was started."""

    pipeline: str
    running: bool
    batch_id: int | None
    """The last finished micro-batch; None before the first one."""
    batches: int
    rows_in: int
    rows_per_second: float
    """Over the last ten seconds."""
    batch_ms: int
    state_rows: int


class PipelineRunner:
    """Some pipelines, each one query, in one session."""

    def __init__(
        self,
        session: SparkSession,
        settings: PipelineSettings,
        pipelines: Sequence[Pipeline],
        on_restart: Callable[[str, str], None] | None = None,
    ) -> None:
        """``on_restart`` hears of queries that are started again (name, reason); None: they have failed."""
        self._runs: list[_Run] = []
        if len(pipelines) > 1 and settings.format == FORMAT:
            share_source(session)
        try:
            for pipeline in pipelines:
                self._runs.append(_Run(session, settings, pipeline, on_restart))
        except BaseException:
            self.stop(timeout_s=0.0)
            raise

    @property
    def running(self) -> bool:
        """Whether any query is still at work."""
        return any(run.query.isActive for run in self._runs)

    @property
    def finished(self) -> bool:
        """Whether all have come to their end; a query that failed has not."""
        return all(not run.query.isActive and run.query.exception() is None for run in self._runs)

    def progress(self) -> list[Progress]:
        """How all are doing; raises ``PipelineFailed`` once one of them has failed."""
        for run in self._runs:
            run.check()
        return [run.progress() for run in self._runs]

    def figures(self) -> list[QueryFigures]:
        """The same for monitors, as of the last :meth:`progress`."""
        return [run.figures() for run in self._runs]

    def wait(self, timeout_s: float) -> bool:
        """Wait until all have ended or the time is over; returns whether all have ended."""
        deadline = time.monotonic() + timeout_s
        while self.running and (remaining := deadline - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, remaining))
        return not self.running

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S, hurry: Callable[[], bool] = lambda: False) -> None:
        """Stop every query at the end of its micro-batch; after ``timeout_s``, or in a ``hurry``, at once."""
        deadline = time.monotonic() + timeout_s
        stopping = [_Stopping(run.query) for run in self._runs]
        while (
            [each for each in stopping if not each.stopped()] and time.monotonic() < deadline and not hurry()
        ):
            time.sleep(_POLL_S)
        for run in self._runs:
            run.close()


class _Run:
    """One pipeline's query, its lock and its figures."""

    def __init__(
        self,
        session: SparkSession,
        settings: PipelineSettings,
        pipeline: Pipeline,
        on_restart: Callable[[str, str], None] | None,
    ) -> None:
        self._name = pipeline.name
        self._directory = settings.directory
        self._start: Callable[[], StreamingQuery] = lambda: pipeline.start(session, settings)
        self._on_restart = on_restart
        self._restarts = 0
        self._book = StatusFile(settings.directory, pipeline.name)
        self._noted_at = float("-inf")
        self._seen_batch: int | None = None
        self._batches = 0
        self._latest: Any = None
        self._closed = False
        self._window: deque[tuple[float, int]] = deque()
        self._started_at = time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        self._note = RunStatus(
            os.getpid(),
            now_ms,
            now_ms,
            inputs=list(pipeline.inputs),
            outputs=pipeline.stores(settings),
        )
        try:
            self.query: StreamingQuery = self._started()
        except BaseException:
            self._book.close()
            raise
        self._write_note()

    def check(self) -> None:
        error = None if self.query.isActive else self.query.exception()
        if error is None:
            return
        if not self._may_restart(error):
            raise PipelineFailed(f"{self._name} has stopped: {failure_sentence(error)}") from error
        self.query = self._started()

    def _started(self) -> StreamingQuery:
        while True:
            try:
                return self._start()
            except TidelogError:
                raise
            except Exception as error:
                if not self._may_restart(error):
                    raise PipelineFailed(f"{self._name} cannot start: {failure_sentence(error)}") from error

    def _may_restart(self, error: Exception) -> bool:
        """Whether it was only slow; counts, and tells of it."""
        if (
            self._on_restart is None
            or self._closed
            or self._restarts == MAX_RESTARTS
            or not was_too_slow(error)
        ):
            return False
        self._restarts += 1
        self._on_restart(self._name, failure_sentence(error))
        return True

    def progress(self) -> Progress:
        self._catch_up()
        if not self._closed and time.monotonic() - self._noted_at >= NOTE_INTERVAL_S:
            self._write_note()
        note = self._note
        return Progress(
            self._name,
            self.query.isActive,
            note.batch_id,
            self._batches,
            note.rows_in,
            note.rows_per_second,
            note.batch_ms,
            note.state_rows,
        )

    def figures(self) -> QueryFigures:
        note, latest = self._note, self._latest
        told = {} if latest is None else self._told(latest)
        return QueryFigures(
            self._name,
            self.query.isActive,
            self._batches,
            note.rows_in,
            self._restarts,
            note.late,
            note.dropped,
            note.state_rows,
            quality=note.quality,
            batch_quality=note.batch_quality,
            **told,
        )

    def _told(self, progress: Any) -> dict[str, Any]:
        """What Spark and the job say of a micro-batch."""
        told = of_progress(progress)
        watermark_us = figures_of(self._directory, self._name).watermark_us
        if watermark_us is not None and watermark_us > 0:  # not before the first event
            told["watermark_s"] = watermark_us / 1e6
        if sources := source_metrics(progress):
            told["behind"] = sum(each.offsets_behind_latest for each in sources)
        return told

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.query.stop()
        self._catch_up()
        self._write_note()
        self._book.close()

    def _catch_up(self) -> None:
        """Count the batches that have ended since the last look."""
        last = self.query.lastProgress
        fresh: list[Any] = []
        if last is not None and last["batchId"] != self._seen_batch:
            seen = -1 if self._seen_batch is None else self._seen_batch
            fresh = [each for each in self.query.recentProgress if each["batchId"] > seen]
        rows = sum(each["numInputRows"] for each in fresh)
        rate = self._rate(rows)
        self._note = msgspec.structs.replace(self._note, rows_per_second=rate)
        if fresh:
            latest = fresh[-1]
            figures = figures_of(self._directory, self._name)
            told = self._told(latest)
            watermark_s = told["watermark_s"]
            self._seen_batch = latest["batchId"]
            self._latest = latest
            self._batches += len(fresh)
            self._note = msgspec.structs.replace(
                self._note,
                batch_id=latest["batchId"],
                rows_in=self._note.rows_in + rows,
                batch_ms=latest["batchDuration"],
                state_rows=figures.state_rows
                + sum(operator["numRowsTotal"] for operator in latest["stateOperators"]),
                late=figures.late,
                dropped=figures.dropped,
                input_rate=told["input_rate"],
                processed_rate=told["processed_rate"],
                phases_ms=dict(latest["durationMs"]),
                watermark_ms=None if watermark_s is None else round(watermark_s * 1000),
                state_bytes=told["state_bytes"],
                behind=told.get("behind"),
                quality=figures.quality,
                batch_quality=figures.batch_quality,
            )
            self._write_note()

    def _rate(self, rows: int) -> float:
        now = time.monotonic()
        self._window.append((now, rows))
        while self._window[0][0] < now - RATE_WINDOW_S:
            self._window.popleft()
        watched_s = min(RATE_WINDOW_S, max(1.0, now - self._started_at))
        return round(sum(count for _, count in self._window) / watched_s, 1)

    def _write_note(self) -> None:
        self._noted_at = time.monotonic()
        self._note = msgspec.structs.replace(self._note, updated_at_ms=time.time_ns() // 1_000_000)
        self._book.write(self._note)


class _Stopping:
    """Stops a query at the end of the micro-batch that runs now."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._batch_before = self._last_batch()

    def stopped(self) -> bool:
        if not self._query.isActive:
            return True
        between_batches = not self._query.status["isTriggerActive"]
        if between_batches or self._last_batch() != self._batch_before:
            self._query.stop()
            return True
        return False

    def _last_batch(self) -> int | None:
        last = self._query.lastProgress
        return None if last is None else last["batchId"]


def was_too_slow(error: BaseException) -> bool:
    """Whether Spark gave a Python process up that was ten seconds late: to be tried again."""
    return _TOO_SLOW in f"{error} {error.__cause__}"


def failure_sentence(error: BaseException) -> str:
    """What went wrong, out of Spark's many lines: the innermost error's own words."""
    if isinstance(error, TidelogError):
        return str(error)
    text = str(error)
    found = [_innermost(name, said) for name, said in _ERROR.findall(text)]
    pythons = [said for name, said in found if not name.startswith(_JAVAS_OWN)]
    javas = [said for _, said in found]
    first = [line for line in text.splitlines() if line.strip()]
    said = [*first[:1], *(pythons or javas)] or [type(error).__name__]
    return said[-1].strip().rstrip(".")


def _innermost(name: str, said: str) -> tuple[str, str]:
    """The error that is told at the end of another's words."""
    while (inner := _ERROR.search(said)) is not None:
        name, said = inner.groups()
    return name, said
