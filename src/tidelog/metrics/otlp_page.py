"""A page that is written as OTLP: whoever writes families of figures for a scrape writes them for this, too.

Names and labels are those of the page ``/metrics``; counters are cumulative sums since the broker has
started. What is written comes out in requests of a bounded size, by ``take``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tidelog.metrics.metric import Metric as Declared
from tidelog.metrics.otlp import (
    Attributes,
    Data,
    Gauge,
    Histogram,
    HistogramPoint,
    Metric,
    NumberPoint,
    ScopeMetrics,
    Sum,
    assembled,
    encoded_metric,
)
from tidelog.metrics.page import Page, Sample

POINTS_OF_A_REQUEST = 5000

_POINTS_PER_PIECE = 100
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_LARGEST = (1 << 63) - 1


class OtlpPage(Page):
    """Collects what is written to it; the text that comes out of it is empty: others may have their turn."""

    def __init__(self, *, newer_names: bool, start_ns: int, time_ns: int) -> None:
        super().__init__(newer_names=newer_names)
        self._start_ns = start_ns
        self._time_ns = time_ns
        self._metrics: list[bytes] = []
        self.points = 0
        """How many have not been taken."""

    def take(self, resource: Attributes, scope: str, version: str) -> bytes:
        """A request with all that has been collected, which is gone here then."""
        message = assembled(self._metrics, ScopeMetrics([], scope, version), resource)
        self._metrics, self.points = [], 0
        return message

    def family(self, metric: Declared, samples: Iterable[Sample]) -> Iterator[str]:
        points: list[NumberPoint] = []
        start_ns = self._start_ns if metric.kind == "counter" else 0
        for label_text, value in samples:
            points.append(NumberPoint(_number(value), attributes_of(label_text), self._time_ns, start_ns))
            if len(points) >= _POINTS_PER_PIECE:
                self._add(metric, points)
                points = []
                yield ""
        if points:
            self._add(metric, points)
            yield ""

    def histogram(
        self, metric: Declared, rows: Iterable[tuple[str, Sequence[tuple[str, int]], float, int]]
    ) -> Iterator[str]:
        for label_text, buckets, total, count in rows:
            before = 0
            counts: list[int] = []
            for _, below in buckets:
                counts.append(below - before)
                before = below
            bounds = [float(bound) for bound, _ in buckets if bound != "+Inf"]
            point = HistogramPoint(
                count,
                total,
                counts,
                bounds,
                attributes=attributes_of(label_text),
                time_ns=self._time_ns,
                start_ns=self._start_ns,
            )
            self._keep(metric, Histogram([point]), 1)
            yield ""

    def _add(self, metric: Declared, points: list[NumberPoint]) -> None:
        self._keep(metric, Sum(points) if metric.kind == "counter" else Gauge(points), len(points))

    def _keep(self, metric: Declared, data: Data, points: int) -> None:
        # Encoded piece by piece, so that it is never much at a time.
        self._metrics.append(encoded_metric(Metric(self.name_of(metric), data, metric.help)))
        self.points += points


def attributes_of(label_text: str) -> dict[str, str]:
    """The labels that ``page.labels`` wrote."""
    return {
        name: _ESCAPE.sub(_unescaped, value) if "\\" in value else value
        for name, value in _LABEL.findall(label_text)
    }


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _number(value: float) -> int | float:
    return float(value) if isinstance(value, int) and abs(value) > _LARGEST else value
