"""The parts of a broker that its metrics look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.fetch.fetch_session import FetchSessions
from tidelog.broker.membership import Membership
from tidelog.broker.metrics.loop_watchdog import LoopWatchdog
from tidelog.broker.network.network import Network
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.state import BrokerState
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.metadata.image import MetadataImage
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.deadlines import Deadlines
from tidelog.storage.directories.log_dirs import LogDirs

if TYPE_CHECKING:
    from tidelog.broker.coordination.coordinators import Coordinators
    from tidelog.broker.network.tls_listeners import TlsListeners
    from tidelog.broker.telemetry.client_telemetry import ClientTelemetry


class ObservedBroker(Protocol):
    """A ``broker/app.Broker``, whose network is open."""

    config: BrokerConfig
    clock: Clock
    image: MetadataImage
    membership: Membership
    log_dirs: LogDirs
    partitions: Partitions
    network: Network
    deadlines: Deadlines
    quotas: ClientQuotas
    fetch_sessions: FetchSessions
    loop_watchdog: LoopWatchdog | None
    tls_listeners: TlsListeners | None
    running_telemetry: ClientTelemetry | None
    """What clients push of their figures, if that has come into being."""

    @property
    def state(self) -> BrokerState:
        """Where in its life the broker is."""

    @property
    def broker_id(self) -> int:
        """The id of the broker in its cluster."""

    @property
    def running_coordinators(self) -> Coordinators | None:
        """The coordinators, if they have come into being."""
