"""How long something took that happens seldom, as two families: quantiles, and how many there were."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.metrics.histogram import Histogram, quantiles
from tidelog.metrics.metric import Metric
from tidelog.metrics.page import Page, labels


def timing(page: Page, metric: Metric, count: Metric, histogram_us: Histogram) -> Iterator[str]:
    """Quantiles in milliseconds, since the start."""
    found = quantiles(histogram_us.row)
    yield from page.family(metric, ((labels(quantile=label), value / 1000) for label, value in found))
    yield from page.family(count, [("", histogram_us.count)])
