"""Brokers as :class:`AsyncAdmin` hands them out: log directories, features, replicas that move.

As in ``client.resources``, a result carries its own ``error``; with one, its other fields say nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.client._spec_names import also_called
from tidelog.client.resources import Outcome
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One partition in a log directory; ``is_future``: a copy that will replace that in another directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirDescription(Outcome):
    """One log directory of a broker; the sizes of its file system are None before Kafka 3.3."""

    path: str
    replicas: tuple[ReplicaInfo, ...] = ()
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class BrokerLogDirs(Outcome):
    """All log directories of one broker."""

    broker_id: int
    log_dirs: tuple[LogDirDescription, ...] = ()
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ReplicaMove(Outcome):
    """Whether a broker has begun to move its replica of a partition to another log directory."""

    broker_id: int
    partition: TopicPartition
    error: KafkaError | None = None


class UpgradeType(enum.IntEnum):
    """Which way a feature's level may go; an unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@also_called()
@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature shall have; 0 switches it off."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The lowest and the highest level of a feature."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """What a broker supports, and what the cluster has finalized; empty before Kafka 2.7."""

    supported: Mapping[str, VersionRange] = field(default_factory=dict)
    finalized: Mapping[str, VersionRange] = field(default_factory=dict)
    finalized_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class FeatureResult(Outcome):
    """What became of one feature's update."""

    feature: str
    error: KafkaError | None = None


class ElectionType(enum.IntEnum):
    """The preferred replica, if it is in sync; or any replica, where none in sync is left."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition on its way to other brokers; ``replicas`` are all that it has meanwhile."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
