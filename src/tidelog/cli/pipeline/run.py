"""``tidelog pipeline run``: pipelines in this process, with their figures, until a signal or the end.

The first Ctrl-C or SIGTERM lets every pipeline finish its micro-batch, a second one stops at once.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from tidelog.cli.output import counted, headings_in_pipes, is_terminal, print_json, print_row, remark
from tidelog.cli.pipeline.monitors import Monitors
from tidelog.cli.pipeline.session import spark

if TYPE_CHECKING:
    from tidelog.spark.pipelines.pipeline import Pipeline
    from tidelog.spark.pipelines.runner import Progress
    from tidelog.spark.settings import PipelineSettings

LOOK_S = 0.5
LAG_INTERVAL_S = 2.0
LAST_LOOK_S = 3.0
_FIELDS = ("pipeline", "batches", "rows_in", "rows_per_second", "batch_ms", "lag", "state_rows")
COLUMNS = ("pipeline", "batches", "rows in", "rows/s", "batch ms", "lag", "state rows")


def run(
    pipelines: Sequence[Pipeline],
    settings: PipelineSettings,
    master: str,
    spark_options: Mapping[str, str],
    monitors: Monitors,
    *,
    json: bool = False,
) -> None:
    """Run until all have ended or are stopped; raises one sentence where one fails.

    ``json``: one object on a line whenever a pipeline has finished micro-batches.
    """
    from tidelog.spark.pipelines.runner import PipelineRunner

    with ExitStack() as stack:
        # Before Spark, which takes seconds: an address that is taken is told at once.
        export = monitors.export(pipelines)
        if export is not None:
            stack.enter_context(export)
            if export.port is not None:
                remark(f"metrics are at http://{monitors.host}:{export.port}/metrics")
        session = stack.enter_context(spark(pipelines, settings, master, spark_options))
        stops = stack.enter_context(_signals())
        runner = PipelineRunner(session, settings, pipelines, on_restart=_tell_restart)
        stack.callback(runner.stop, timeout_s=0.0)
        lags = stack.enter_context(LagWatcher(settings, pipelines, letters=export is not None))
        view: _View = _LiveTable() if is_terminal() and not json else _Lines(json=json)
        view.start()
        stack.callback(view.stop)
        while not stops.count and not runner.finished:
            runner.wait(LOOK_S)
            view.show(runner.progress(), lags.latest)
            if export is not None:
                export.update(runner.figures(), lags.latest, lags.letters)
        if stops.count:
            remark("stopping after the running micro-batch; once more stops at once")
            runner.stop(hurry=lambda: stops.count > 1)
        view.show(runner.progress(), lags.last_look())
        if export is not None:
            export.update(runner.figures(), lags.latest, lags.letters)
    batches = sum(each.batches for each in view.last)
    rows = sum(each.rows_in for each in view.last)
    remark(f"stopped after {counted(rows, 'row')} in {counted(batches, 'batch')}")


def _tell_restart(pipeline: str, reason: str) -> None:
    remark(f"{pipeline} is started again, since this machine is busy: {reason}")


class _Stops:
    """Signals that have come."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, *_: object) -> None:
        self.count += 1


@contextmanager
def _signals() -> Iterator[_Stops]:
    """SIGINT and SIGTERM counted instead of raised; Spark's own handler would cancel the running jobs."""
    stops = _Stops()
    before = {number: signal.signal(number, stops.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LagWatcher:
    """Asks for the groups' lag in a thread of its own, so that a slow broker does not hold up the view."""

    def __init__(
        self, settings: PipelineSettings, pipelines: Sequence[Pipeline], *, letters: bool = False
    ) -> None:
        """``letters``: dead letters are counted, too."""
        self.latest: Mapping[str, int] = {}
        self.letters: Mapping[str, int] | None = None
        """Dead letters by pipeline; None where they are not counted, or there is no topic for them yet."""
        self._counts_letters = letters
        self._settings = settings
        self._pipelines = pipelines
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pipeline lag", daemon=True)

    def __enter__(self) -> LagWatcher:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()

    def last_look(self) -> Mapping[str, int]:
        """The lag as it is now, for the last figures that people see."""
        self._ended.set()
        self._thread.join(LAST_LOOK_S)
        return self.latest

    def _watch(self) -> None:
        from tidelog.client import Admin
        from tidelog.errors import TidelogError
        from tidelog.spark.pipelines.status import DeadLetterCounts, client_options, group_lags

        with (
            Admin(client_options(self._settings)) as admin,
            contextlib.closing(DeadLetterCounts(self._settings)) as letters,
        ):
            last = False
            while not last:
                last = self._ended.wait(LAG_INTERVAL_S)
                try:
                    self.latest = group_lags(admin, self._pipelines)
                    if self._counts_letters:
                        self.letters = letters.look(admin)
                except TidelogError:
                    # Nobody knows the lag while no broker answers, and the table says so.
                    self.latest = {}
                    self.letters = None


class _View(Protocol):
    """Shows how the pipelines are doing."""

    last: Sequence[Progress]

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def show(self, progress: Sequence[Progress], lags: Mapping[str, int]) -> None: ...


class _Lines:
    """For a pipe: one line for each look at which a pipeline has finished micro-batches."""

    def __init__(self, *, json: bool) -> None:
        self.last: Sequence[Progress] = ()
        self._json = json
        self._batches: dict[str, int] = {}

    def start(self) -> None:
        """Print the heading where it is wanted."""
        if headings_in_pipes() and not self._json:
            print_row(COLUMNS)

    def stop(self) -> None:
        """Nothing is held back."""

    def show(self, progress: Sequence[Progress], lags: Mapping[str, int]) -> None:
        """Print what is new."""
        self.last = progress
        for each in progress:
            if each.batches != self._batches.get(each.pipeline, 0):
                self._batches[each.pipeline] = each.batches
                if self._json:
                    print_json(dict(zip(_FIELDS, row(each, lags), strict=True)), indent=None)
                    sys.stdout.flush()
                else:
                    print_row(row(each, lags))


class _LiveTable:
    """For a terminal: one table that changes."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self.last: Sequence[Progress] = ()
        self._live = Live(console=Console(highlight=False), auto_refresh=False)

    def start(self) -> None:
        """Take the bottom of the terminal."""
        self._live.start()

    def stop(self) -> None:
        """Leave the last table where it is."""
        self._live.stop()

    def show(self, progress: Sequence[Progress], lags: Mapping[str, int]) -> None:
        """Draw the table anew."""
        from rich import box
        from rich.table import Table

        self.last = progress
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "pipeline" else "right")
        for each in progress:
            table.add_row(
                *(
                    "-" if cell is None else f"{cell:,}" if column else str(cell)
                    for column, cell in enumerate(row(each, lags))
                )
            )
        self._live.update(table, refresh=True)


def row(each: Progress, lags: Mapping[str, int]) -> tuple[object, ...]:
    """The cells of :data:`COLUMNS`."""
    return (
        each.pipeline,
        each.batches,
        each.rows_in,
        round(each.rows_per_second),
        each.batch_ms,
        lags.get(each.pipeline),
        each.state_rows,
    )
