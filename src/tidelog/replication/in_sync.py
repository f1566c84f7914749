"""Who may be in sync: what the controller has written down (``Partition.isr``), and the change that the
leader has asked it for.

While a change is under way the leader counts with the larger of both sets (KIP-497): a replica that is
being taken in must have what is committed from now on, and one that is being put out may still be in sync
for all that others know. At most one change is under way; what the controller says last, by partition
epoch, holds.

Pure; owned by ``replication/partition``. ``IsrRequests`` is the way to the controller.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tidelog.ids import TopicPartition, Uuid


class LedPartition(Protocol):
    """What is to be known of a partition to ask for other in-sync replicas, and who hears the answer."""

    topic_partition: TopicPartition
    topic_id: Uuid
    leader_epoch: int
    closed: bool

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads it."""

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas that are in sync."""

    @property
    def partition_epoch(self) -> int:
        """The version of what the controller has written down."""

    def broker_epochs(self, isr: Collection[int], own_epoch: int) -> dict[int, int]:
        """The registrations that replicas had when they were found to be in sync."""

    def isr_changed(self, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has written down what it was asked for, or something else."""

    def isr_refused(self, leader_epoch: int) -> None:
        """The controller does not do it."""


class IsrRequests(Protocol):
    """Asks the controller for other in-sync replicas, until it answers."""

    def submit(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        """Ask; the partition hears of it by ``isr_changed`` or ``isr_refused``."""


class InSync:
    """The in-sync replicas of a partition that this broker leads, and the change that is under way."""

    __slots__ = ("maximal", "partition_epoch", "proposed")

    def __init__(self) -> None:
        self.proposed: tuple[int, ...] | None = None
        """What has been asked for and not been answered yet."""
        self.maximal: Collection[int] = ()
        """All that may be in sync, whatever becomes of the request."""
        self.partition_epoch = -1

    def commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has written ``isr`` down; nothing is under way any more."""
        self.maximal = isr
        self.proposed = None
        self.partition_epoch = partition_epoch

    def propose(self, isr: tuple[int, ...]) -> None:
        """Another set is being asked for."""
        self.proposed = isr
        self.maximal = {*self.maximal, *isr}

    def withdraw(self, isr: tuple[int, ...]) -> None:
        """The request was refused: ``isr`` holds, as before."""
        self.proposed = None
        self.maximal = isr
