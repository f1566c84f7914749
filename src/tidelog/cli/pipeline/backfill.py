"""``tidelog pipeline backfill``: pipelines over a range of event time, with a bar and a report at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import counted, is_terminal, print_json, print_table, remark
from tidelog.cli.pipeline.session import spark
from tidelog.errors import TidelogError
from tidelog.spark.pipelines.pipeline import TimeRange

if TYPE_CHECKING:
    from tidelog.spark.pipelines.pipeline import BackfillReport, Pipeline
    from tidelog.spark.settings import PipelineSettings

_LOOK_S = 0.2


def parse_range(start: str, end: str) -> TimeRange:
    """The range between two ISO dates or times, UTC where they name no zone."""
    time_range = TimeRange(_moment(start, "--from"), _moment(end, "--to"))
    if time_range.start >= time_range.end:
        raise WrongUsage(f"--from {start} is not before --to {end}; the end is not included")
    return time_range


def _moment(text: str, option: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(f"{option} {text!r} is no time: write 2026-11-01 or 2026-11-01T06:00:00Z") from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def backfill(
    pipelines: Sequence[Pipeline],
    settings: PipelineSettings,
    time_range: TimeRange,
    master: str,
    spark_options: Mapping[str, str],
    *,
    json: bool,
) -> None:
    """Work off the range with each pipeline in turn, and print what each has done."""
    reports: dict[str, BackfillReport] = {}
    with spark(pipelines, settings, master, spark_options) as session:
        for pipeline in pipelines:
            reports[pipeline.name] = _with_bar(session, settings, pipeline, time_range)
    show(reports, json=json)


def show(reports: Mapping[str, BackfillReport], *, json: bool) -> None:
    """Print what backfills have done, by pipeline."""
    if json:
        print_json([{"pipeline": name, **_report_json(report)} for name, report in reports.items()])
        return
    rows = [
        (name, report.read, output, number, report.dead_letters)
        for name, report in reports.items()
        for output, number in (report.written.items() or [(None, 0)])
    ]
    columns = ("pipeline", "rows read", "output", "rows written", "dead letters")
    print_table(columns, rows, right=("rows read", "rows written", "dead letters"))
    for name, report in reports.items():
        if report.dropped:
            remark(f"{name}: {counted(report.dropped, 'search')} given up, too large to be judged")


def _report_json(report: BackfillReport) -> dict[str, object]:
    return {
        "read": report.read,
        "written": dict(report.written),
        "dead_letters": report.dead_letters,
        "dropped": report.dropped,
    }


class _Work(threading.Thread):
    """A backfill in a thread, so that the main one can draw and be interrupted."""

    def __init__(
        self, session: Any, settings: PipelineSettings, pipeline: Pipeline, time_range: TimeRange
    ) -> None:
        super().__init__(name=f"backfill {pipeline.name}", daemon=True)
        self._call: Callable[[], BackfillReport] = lambda: pipeline.backfill(session, settings, time_range)
        self.report: BackfillReport | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Work; whatever fails is kept for the main thread."""
        try:
            self.report = self._call()
        except BaseException as error:
            self.error = error


def _with_bar(
    session: Any, settings: PipelineSettings, pipeline: Pipeline, time_range: TimeRange
) -> BackfillReport:
    from tidelog.spark.pipelines.runner import MAX_RESTARTS, failure_sentence, was_too_slow

    for _ in range(1 + MAX_RESTARTS):
        work = _Work(session, settings, pipeline, time_range)
        work.start()
        if is_terminal():
            _draw(work, session, pipeline.name)
        work.join()
        if work.error is None or not was_too_slow(work.error):
            break
    if isinstance(work.error, TidelogError):
        raise work.error
    if work.error is not None:
        raise Failure(
            f"the backfill of {pipeline.name} failed: {failure_sentence(work.error)}"
        ) from work.error
    assert work.report is not None
    return work.report


def _draw(work: _Work, session: Any, name: str) -> None:
    """A bar of the tasks of Spark's jobs so far."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, transient=True) as progress:
        bar = progress.add_task(name, total=None, tasks="")
        tracker = session.sparkContext.statusTracker()
        while work.is_alive():
            work.join(_LOOK_S)
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            if total:
                progress.update(bar, total=total, completed=done, tasks=f"{done} of {total} tasks")
