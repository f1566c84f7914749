"""The states of partitions and of replicas, with Kafka's numbers, and which may follow which.

A partition is new (it has replicas, no leader yet), online (it has had a leader elected), offline (its
leader is gone) or does not exist. A replica is new, online, offline, or on one of the three steps of its
deletion.

Pure tables: ``context`` keeps the states, ``state_changes`` makes them change.
"""

from __future__ import annotations

import enum


class PartitionPhase(enum.IntEnum):
    """Where in its life a partition is."""

    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3


class ReplicaPhase(enum.IntEnum):
    """Where in its life a replica is."""

    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7


_P = PartitionPhase
_R = ReplicaPhase

PARTITION_BEFORE: dict[PartitionPhase, frozenset[PartitionPhase]] = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}
"""From which states a partition may come to a state."""

REPLICA_BEFORE: dict[ReplicaPhase, frozenset[ReplicaPhase]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}
"""From which states a replica may come to a state."""
