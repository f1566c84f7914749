"""Whoever looks on while a client works: reporters, listeners for the cluster's id, brokers (KIP-714).

One :class:`Observers` per producer, consumer or admin client. It follows the metadata updates of the client's
cluster; where nobody looks on, an update costs it a comparison or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline, check_seconds
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.options import ClientConfig
from tidelog.client.reporters import listeners_among, reporters_from, tell_cluster_id
from tidelog.errors import ConfigError
from tidelog.ids import Uuid

if TYPE_CHECKING:
    from tidelog.client._telemetry.telemetry import ClientTelemetry


class Observers:
    """Those who look on at one client.

    ``candidates`` are its interceptors and serializers, which may listen for the cluster's id.
    """

    def __init__(
        self,
        config: ClientConfig,
        candidates: Iterable[object] = (),
        member_id: Callable[[], str] = lambda: "",
    ) -> None:
        self._config = config
        self._member_id = member_id
        self._reporters = reporters_from(config.list("metric.reporters"))
        for reporter in self._reporters:
            reporter.configure(config)
        self._listeners = listeners_among((*candidates, *self._reporters))
        self._push = config.bool("enable.metrics.push")
        self._pushing = False
        self._telemetry: ClientTelemetry | None = None
        self._cluster: Cluster | None = None

    def start(self, cluster: Cluster) -> None:
        """Look on at ``cluster``, which has all of the client's figures by now."""
        self._cluster = cluster
        if self._reporters:
            context = {"_namespace": f"kafka.{cluster.metrics.client.replace('-', '.')}"}
            for reporter in self._reporters:
                reporter.context_change(context)
            cluster.metrics.report_to(self._reporters)
        if self._push or self._reporters or self._listeners:
            cluster.subscribe_updates(self._updated)

    def figures_changed(self) -> None:
        """Things with figures of their own have come or gone."""
        if self._cluster is not None and self._cluster.metrics.has_reporters:
            self._cluster.metrics.refresh()

    async def client_instance_id(self, timeout: float) -> Uuid:
        """The id that brokers know this client by; asks for it, at most for ``timeout`` seconds."""
        check_seconds("client_instance_id", timeout)
        if not self._push:
            raise ConfigError(
                "this client sends no telemetry and has no instance id: set enable.metrics.push=true"
            )
        assert self._cluster is not None
        return await self._telemetry_of(self._cluster).instance_id(Deadline(timeout * 1000))

    async def close(self, timeout: float | None = None) -> None:
        """Send the last figures, within ``timeout`` seconds; before the client's connections are closed."""
        if self._telemetry is not None:
            await self._telemetry.close(timeout)
        for reporter in self._reporters:
            reporter.close()

    def _updated(self, metadata: ClusterMetadata) -> None:
        if self._listeners:
            tell_cluster_id(self._listeners, metadata.cluster_id)
        self.figures_changed()
        if self._push and not self._pushing and self._cluster is not None and self._is_offered():
            self._pushing = True
            self._telemetry_of(self._cluster).start()

    def _is_offered(self) -> bool:
        """Whether a broker takes telemetry; only then its code is needed."""
        assert self._cluster is not None
        return self._cluster.offers(_GET_TELEMETRY_SUBSCRIPTIONS)

    def _telemetry_of(self, cluster: Cluster) -> ClientTelemetry:
        if self._telemetry is None:
            from tidelog.client._telemetry.telemetry import ClientTelemetry

            self._telemetry = ClientTelemetry(cluster, self._labels)
        return self._telemetry

    def _labels(self) -> dict[str, str]:
        """What telemetry says of the client itself, as Java's clients do."""
        config = self._config
        found = {label: config.object(name) for name, label in _LABELS.items() if name in config}
        found["group_member_id"] = self._member_id()
        return {label: str(value) for label, value in found.items() if value}


_GET_TELEMETRY_SUBSCRIPTIONS = 71
_LABELS = {
    "transactional.id": "transactional_id",
    "group.id": "group_id",
    "group.instance.id": "group_instance_id",
    "client.rack": "client_rack",
}
