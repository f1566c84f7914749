"""How the coordinators of a broker reach partitions and coordinators on other brokers.

``standalone`` has the links of a broker alone, ``cluster/remote_transactions`` those of one in a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.coordination.transaction_verification import PartitionAdder

if TYPE_CHECKING:
    # A sixth of all modules, which a broker needs when it is ready, and not before.
    from tidelog.coordinator.transaction.markers import MarkerWriter
    from tidelog.coordinator.transaction.service import TransactionCoordinator
    from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse


class CoordinatorLinks(Protocol):
    """How the coordinators here reach partitions and coordinators on all brokers."""

    def markers(self, local: MarkerWriter) -> MarkerWriter:
        """A writer of markers anywhere, over the one for partitions here."""

    def transactions(self, local: TransactionCoordinator) -> PartitionAdder:
        """The coordinators of all brokers, over the one here."""

    async def produce(self, broker_id: int, request: ProduceRequest, timeout_ms: float) -> ProduceResponse:
        """Have another broker write records; raises what keeps it from being asked."""
