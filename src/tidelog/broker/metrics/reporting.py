"""Hands the broker's metrics to reporters of the user's own, at an interval.

All series are collected in steps of the event loop and given to each reporter in a thread of its own. A
reporter that is still busy with a report misses the next ones; that, and what it raises, is logged when it
begins and not again until a report succeeds. Opened by ``broker/metrics/service`` where ``metric.reporters``
names Python classes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import SimpleQueue

from tidelog.custom_class import configure_custom, is_custom_class, make_custom
from tidelog.metrics.metric import Metric
from tidelog.metrics.otlp_page import attributes_of
from tidelog.metrics.page import Page, Sample
from tidelog.metrics.reporters import MetricsReporter, MetricValue

logger = logging.getLogger(__name__)

OPTION = "metric.reporters"
_STEP_S = 0.002
_END_S = 5.0


class SnapshotPage(Page):
    """Collects values in place of text; what comes out is empty, so that others have their turn."""

    def __init__(self, *, newer_names: bool) -> None:
        super().__init__(newer_names=newer_names)
        self.values: list[MetricValue] = []

    def family(self, metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
        name = self.name_of(metric)
        for number, (label_text, value) in enumerate(samples, 1):
            self.values.append(MetricValue(name, attributes_of(label_text), metric.kind, value))
            if not number % 100:
                yield ""
        yield ""

    def histogram(
        self, metric: Metric, rows: Iterable[tuple[str, Sequence[tuple[str, int]], float, int]]
    ) -> Iterator[str]:
        name = self.name_of(metric)
        for label_text, buckets, total, count in rows:
            labels = attributes_of(label_text)
            for bound, below in buckets:
                self.values.append(MetricValue(f"{name}_bucket", {**labels, "le": bound}, "histogram", below))
            self.values.append(MetricValue(f"{name}_sum", labels, "histogram", total))
            self.values.append(MetricValue(f"{name}_count", labels, "histogram", count))
            yield ""


class ReporterThread:
    """One reporter at work."""

    def __init__(self, name: str, reporter: MetricsReporter) -> None:
        self._name = name
        self._reporter = reporter
        self._reports: SimpleQueue[Sequence[MetricValue] | None] = SimpleQueue()
        self._is_busy = False
        self._complained = False
        # A daemon: one that hangs must not keep the broker's process from ending.
        self._thread = threading.Thread(target=self._run, name="tidelog-reporter", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until the reporter is closed; blocks."""
        self._thread.join(timeout_s)

    def offer(self, values: Sequence[MetricValue]) -> None:
        """Have these reported, unless earlier ones still are."""
        if self._is_busy:
            self._complain("is still busy with an earlier report; this one is skipped", None)
        else:
            self._is_busy = True
            self._reports.put(values)

    def close(self) -> None:
        """Close the reporter behind the report that it is busy with."""
        self._reports.put(None)

    def _run(self) -> None:
        while (values := self._reports.get()) is not None:
            try:
                self._reporter.report(values)
            except BaseException as error:
                # SystemExit, too: it would end the thread, and with it all reports.
                self._complain("failed", error)
            else:
                self._complained = False
            self._is_busy = False
        try:
            self._reporter.close()
        except BaseException as error:
            self._complain("failed to close", error)

    def _complain(self, what: str, error: BaseException | None) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("The metrics reporter %s %s", self._name, what, exc_info=error)


class Reporting:
    """Runs from ``start`` to ``close``."""

    def __init__(
        self,
        reporters: Mapping[str, MetricsReporter],
        collect: Callable[[Page], Iterator[str]],
        interval_s: float,
        *,
        newer_names: bool,
    ) -> None:
        """``collect`` writes all metrics to a page; ``reporters`` are by the names of their classes."""
        self._collect = collect
        self._interval_s = interval_s
        self._newer_names = newer_names
        self._threads = [ReporterThread(name, each) for name, each in reporters.items()]
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to report."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Close the reporters, and wait for them a moment."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for each in self._threads:
            each.close()
        await asyncio.gather(*(asyncio.to_thread(each.join, _END_S) for each in self._threads))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                values = await self._snapshot()
            except Exception:
                logger.exception("The metrics could not be collected for their reporters")
                continue
            for each in self._threads:
                each.offer(values)

    async def _snapshot(self) -> Sequence[MetricValue]:
        page = SnapshotPage(newer_names=self._newer_names)
        until_s = time.monotonic() + _STEP_S
        for _ in self._collect(page):
            if time.monotonic() >= until_s:
                await asyncio.sleep(0)
                until_s = time.monotonic() + _STEP_S
        return tuple(page.values)


def reporters_named(names: Iterable[str], options: Mapping[str, str]) -> dict[str, MetricsReporter]:
    """The reporters that the option names, configured; raises ``ConfigError``. Java's classes are none."""
    found: dict[str, MetricsReporter] = {}
    for name in filter(is_custom_class, names):
        reporter = make_custom(OPTION, name, MetricsReporter)
        configure_custom(OPTION, name, reporter, options)
        found[name] = reporter
    return found
