"""The interface of a metrics reporter of your own, which the broker option ``metric.reporters`` names.

    class ToStatsd(MetricsReporter):
        def report(self, metrics: Sequence[MetricValue]) -> None:
            for metric in metrics:
                send(metric.name, metric.labels, metric.value)

``metric.reporters=package.module:ToStatsd`` loads it when the broker starts. Names and labels are those of
the page ``/metrics`` (docs/reference/metrics.md). Importing this module loads nothing of the broker, which
calls reporters in ``broker/metrics/reporting``. Reporters of clients are another class,
``tidelog.MetricsReporter``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.metrics.metric import Kind


class MetricValue(NamedTuple):
    """One series and its value at the time of the report."""

    name: str
    labels: Mapping[str, str]
    kind: Kind
    """``counter``, ``gauge`` or ``histogram``; a histogram's series end in _bucket, _sum and _count."""
    value: float


class MetricsReporter(ABC):
    """Receives all metrics of the broker every few seconds; derive from it and define ``report``.

    Each reporter has a thread of its own. While ``report`` has not returned, newer reports are skipped; what
    it raises is logged. Neither affects the broker or other reporters.
    """

    def configure(self, options: Mapping[str, str]) -> None:  # noqa: B027  # optional
        """Take over the broker's options, with unknown ones and without passwords.

        Called once, before the first report. An exception keeps the broker from starting.
        """

    @abstractmethod
    def report(self, metrics: Sequence[MetricValue]) -> None:
        """All series, every ``kafka.metrics.polling.interval.secs`` (10 seconds unless set)."""

    def close(self) -> None:  # noqa: B027  # optional
        """Give resources back; the broker stops."""
