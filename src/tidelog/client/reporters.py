"""Who is told of a client's figures and of its cluster: metrics reporters, listeners for the cluster's id.

Both are Kafka's contracts in Python. What one of them raises is logged and changes nothing for the client.
They are called in the client's own thread (for the synchronous clients that is not the program's) or, of a
consumer, in the one that polls, and must be quick.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from tidelog.client.metrics import ClientMetric
from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

_JMX = "org.apache.kafka.common.metrics.JmxReporter"


@runtime_checkable
class ClusterResourceListener(Protocol):
    """A reporter, interceptor, serializer or deserializer that wants to know which cluster it works for."""

    def on_update(self, cluster_id: str | None) -> None:
        """Metadata have come; ``cluster_id`` is None where brokers do not tell one."""


class MetricsReporter:
    """Receives the metrics of a client, to read their values whenever it likes; override the methods that you
    need.

    ``metric.name`` has ``name``, ``group`` and ``tags``. ``metric.value()`` may be called from any thread.

    Example:
        class Shown(MetricsReporter):
            def init(self, metrics):
                self.metrics = metrics

            def close(self):
                for metric in self.metrics:
                    print(metric.name, metric.value())

        Producer(bootstrap_servers="127.0.0.1:9092", metric_reporters=[Shown])
    """

    def configure(self, options: Mapping[str, object]) -> None:
        """The client's options, by Kafka's names."""

    def context_change(self, context: Mapping[str, str]) -> None:
        """Whose figures they are: ``_namespace`` is ``kafka.producer``, ``kafka.consumer`` or its like."""

    def init(self, metrics: Sequence[ClientMetric]) -> None:
        """The figures there are when the client begins."""

    def metric_change(self, metric: ClientMetric) -> None:
        """A figure that is new (a topic, a partition, a broker)."""

    def metric_removal(self, metric: ClientMetric) -> None:
        """A figure that is no longer kept."""

    def close(self) -> None:
        """The client has been closed."""


def reporters_from(given: Iterable[object]) -> tuple[MetricsReporter, ...]:
    """The reporters that ``metric.reporters`` asks for: instances, classes or dotted names of classes."""
    return tuple(_reporter(each) for each in given if each != _JMX)


def _reporter(given: object) -> MetricsReporter:
    wanted = _imported(given) if isinstance(given, str) else given
    made = wanted() if isinstance(wanted, type) else wanted
    if not isinstance(made, MetricsReporter):
        raise ConfigError(
            "metric.reporters takes objects or classes of MetricsReporter, or dotted names of classes, "
            f"not {given!r}"
        )
    return _Guarded(made)


def _imported(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"metric.reporters={name!r} cannot be imported ({error}): give a class as package.module.Class"
        ) from error


class _Guarded(MetricsReporter):
    """A reporter whose failures are logged."""

    def __init__(self, reporter: MetricsReporter) -> None:
        self.reporter = reporter

    def configure(self, options: Mapping[str, object]) -> None:
        # As in Kafka, a reporter that refuses its options keeps the client from starting.
        self.reporter.configure(options)

    def context_change(self, context: Mapping[str, str]) -> None:
        self._tell("context_change", context)

    def init(self, metrics: Sequence[ClientMetric]) -> None:
        self._tell("init", metrics)

    def metric_change(self, metric: ClientMetric) -> None:
        self._tell("metric_change", metric)

    def metric_removal(self, metric: ClientMetric) -> None:
        self._tell("metric_removal", metric)

    def close(self) -> None:
        self._tell("close")

    def on_update(self, cluster_id: str | None) -> None:
        if isinstance(self.reporter, ClusterResourceListener):
            self._tell("on_update", cluster_id)

    def _tell(self, method: str, *values: object) -> None:
        try:
            getattr(self.reporter, method)(*values)
        except Exception:
            logger.warning("the metrics reporter %r failed in %s", self.reporter, method, exc_info=True)


def listeners_among(candidates: Iterable[object]) -> tuple[ClusterResourceListener, ...]:
    """Those that listen; functions are looked through for the object whose method they are."""
    owners = (getattr(each, "__self__", each) for each in candidates)
    return tuple(each for each in owners if isinstance(each, ClusterResourceListener))


def tell_cluster_id(listeners: Iterable[ClusterResourceListener], cluster_id: str | None) -> None:
    """Tell all of them which cluster it is."""
    for each in listeners:
        try:
            each.on_update(cluster_id)
        except Exception:
            logger.warning("%r failed on the cluster's id", each, exc_info=True)
