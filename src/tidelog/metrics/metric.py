"""One declared figure: its name, its kind, its labels, and what it tells; ``catalog`` has all of them.

Names are those of the JMX exporter's example rules and of Strimzi's classic ones, which dashboards ask for.
The newer family of names (Strimzi's Metrics Reporter) differs where Kafka's own name ends in ``PerSec`` or
holds a percentage: ``newer_name``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """A family of series."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    newer_name: str


def counter(name: str, help: str, *labels: str) -> Metric:
    """Something that only grows; its name ends in ``_total``, or in ``_count``."""
    return Metric(name, "counter", labels, help, name)


def meter(name: str, help: str, *labels: str) -> Metric:
    """A counter whose name in Kafka ends in ``PerSec``."""
    return Metric(name, "counter", labels, help, name.removesuffix("_total") + "persec_total")


def gauge(name: str, help: str, *labels: str) -> Metric:
    """Something as it is now."""
    return Metric(name, "gauge", labels, help, name)


def percent(name: str, help: str, *labels: str) -> Metric:
    """A gauge between 0 and 1 that Kafka calls a percentage."""
    return Metric(name, "gauge", labels, help, name.replace("_percent", "percent"))


def histogram(name: str, help: str, *labels: str) -> Metric:
    """How values are distributed, in buckets that can be added up over brokers."""
    return Metric(name, "histogram", labels, help, name)
