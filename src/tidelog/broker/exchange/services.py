"""What handlers may ask for: the services of a broker, each under the name of a handler's parameter.

A handler is ``handle(context, request, …)``, and what follows the request are the services it uses. The
dispatcher binds them when a handler is loaded; a handler that asks for one that is not here cannot be.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.membership import Admin, Membership, ServedApis
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.partition_errors import OnOffline
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.config.broker_config import BrokerConfig
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.storage.directories.log_dirs import LogDirs

if TYPE_CHECKING:
    # What a broker is ready without.
    from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
    from tidelog.broker.cluster.controller_requests import ControllerRequests
    from tidelog.broker.cluster.membership import ClusterMembership
    from tidelog.broker.coordination.coordinators import Coordinators
    from tidelog.broker.coordination.transaction_markers import TransactionMarkers
    from tidelog.broker.telemetry.client_telemetry import ClientTelemetry
    from tidelog.controller.cluster.controller import ClusterController
    from tidelog.coordinator.group.service import GroupCoordinator
    from tidelog.coordinator.transaction.service import TransactionCoordinator

_CONTEXT_AND_REQUEST = 2


@dataclass(slots=True)
class Services:
    """All services of one broker, by name."""

    config: BrokerConfig
    image: MetadataImage
    metadata_cache: MetadataCache
    dynamic_configs: DynamicConfigs
    admin: Admin
    producer_ids: ProducerIds
    log_dirs: LogDirs
    partitions: Partitions
    on_offline: OnOffline
    membership: Membership
    authorization: Authorization
    find_coordinators: Callable[[], Coordinators]
    """Gives the coordinators, which come into being when they are first needed."""
    find_delegation_tokens: Callable[[], DelegationTokens]
    find_client_telemetry: Callable[[], ClientTelemetry]
    quotas: ClientQuotas
    lane: SlowLane

    @property
    def served(self) -> ServedApis:
        """The APIs of this broker."""
        return self.membership.served

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """The delegation tokens of the cluster."""
        return self.find_delegation_tokens()

    @property
    def client_telemetry(self) -> ClientTelemetry:
        """Who asks clients for their figures, and keeps them."""
        return self.find_client_telemetry()

    @property
    def coordinators(self) -> Coordinators:
        """Both coordinators, for what needs more than one of them."""
        return self.find_coordinators()

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of groups."""
        return self.coordinators.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        return self.coordinators.transactions

    @property
    def markers(self) -> TransactionMarkers:
        """Who writes the ends of transactions into partitions here."""
        return self.coordinators.markers

    @property
    def cluster_controller(self) -> ClusterController:
        """This broker's part in the election, and the controller if it has won; in clusters."""
        return self._cluster.controller

    @property
    def controller_requests(self) -> ControllerRequests:
        """What the controller tells this broker; in clusters."""
        return self._cluster.controller_requests

    @property
    def _cluster(self) -> ClusterMembership:
        # The APIs whose handlers ask for it are served in clusters alone.
        return cast("ClusterMembership", self.membership)


def bind(handle: Callable[..., Any], services: object) -> Callable[..., Any]:
    """``handle`` with what ``services`` has under the names of its parameters behind the request."""
    names = list(inspect.signature(handle).parameters)[_CONTEXT_AND_REQUEST:]
    found = [getattr(services, name) for name in names]

    def bound(context: object, request: object) -> Any:
        return handle(context, request, *found)

    return bound if found else handle
