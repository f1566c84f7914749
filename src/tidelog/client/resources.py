"""What goes into and comes out of :class:`AsyncAdmin`: topics, configs, offsets.

Results of calls that act on several things carry their own ``error``, so that one bad name does not hide
the others; ``raise_for_error`` turns it into an exception.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.client._spec_names import also_called
from tidelog.client.errors import ClientError
from tidelog.client.metadata import Node, PartitionMetadata
from tidelog.errors import KafkaError
from tidelog.ids import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, TopicPartition, Uuid

_CHANGES_APART = "give changes to `alter_configs({resource: [AlterConfigOp(name, value)]})`"


class Outcome:
    """One part of a call's answer: done, or refused with ``error``."""

    __slots__ = ()
    error: KafkaError | None

    def raise_for_error(self) -> None:
        """Raise ``error`` if there is one."""
        if self.error is not None:
            raise self.error


@also_called(
    {"replica_assignment": "it is assignments, a mapping of each partition to its brokers"},
    topic="name",
    num_partitions="partitions",
    replica_assignments="assignments",
    topic_configs="configs",
    config="configs",
)
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Args:
        name: Its name.
        partitions: The number of partitions; -1 means the broker's default (Kafka 2.4 and later).
        replication_factor: The number of replicas; -1 means the broker's default.
        assignments: The brokers of each partition's replicas, instead of the two numbers.
        configs: Configs of the topic, by name.

    Example:
        NewTopic("menu", partitions=3, configs={"cleanup.policy": "compact"})
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, number in (
            ("partitions", self.partitions),
            ("replication_factor", self.replication_factor),
        ):
            if not isinstance(number, int):
                raise ClientError(f"{name} of NewTopic is an int, got {number!r}")
        if not isinstance(self.name, str):
            raise ClientError(f"name of NewTopic is a str, got {self.name!r}")
        for name, given, example in (
            ("assignments", self.assignments, "{0: [1, 2]}"),
            ("configs", self.configs, "{'cleanup.policy': 'compact'}"),
        ):
            if not isinstance(given, Mapping):
                raise ClientError(f"{name} of NewTopic is a mapping, as {example}, got {given!r}")


@also_called(
    {"topic": "the topic is the key, `create_partitions({topic: NewPartitions(6)})`"},
    total_count="total",
    new_total_count="total",
    new_assignments="assignments",
    replica_assignment="assignments",
)
@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic shall have.

    Args:
        total: The new total.
        assignments: The brokers of each new partition's replicas; empty leaves the choice to the cluster.

    Example:
        admin.create_partitions({"orders": NewPartitions(6)})
    """

    total: int
    assignments: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class TopicResult(Outcome):
    """What became of one topic in a create, alter or delete call; -1 and None where the broker is silent."""

    name: str
    error: KafkaError | None = None
    topic_id: Uuid | None = None
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class TopicDescription(Outcome):
    """One topic and its partitions, in order; with an ``error`` it has only its name."""

    name: str
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    error: KafkaError | None = None

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, as Kafka's tools count them."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class ResourceType(enum.IntEnum):
    """The kinds of resources that have configs.

    Example:
        ConfigResource(ResourceType.GROUP, "kitchen")
    """

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@also_called(
    {
        "configs": f"name what to describe in `describe_configs(…, names=…)`, and {_CHANGES_APART}",
        "set_config": _CHANGES_APART,
        "incremental_configs": _CHANGES_APART,
        "described_configs": "`describe_configs` returns them",
        "error": "`describe_configs` and `alter_configs` return it",
    },
    resource_type="type",
    restype="type",
)
@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource that has configs: a topic, a broker, a group and so on.

    Args:
        type: Its kind.
        name: Its name; of a broker its number, or ``""`` for the defaults of all brokers.

    Example:
        ConfigResource(ResourceType.TOPIC, "orders")
    """

    type: ResourceType
    name: str

    def __post_init__(self) -> None:
        kind: object = self.type
        if not isinstance(kind, ResourceType):
            found = kind if isinstance(kind, int) else getattr(ResourceType, str(kind).upper(), None)
            if found not in list(ResourceType):
                known = ", ".join(f"ResourceType.{each.name}" for each in ResourceType)
                raise ClientError(f"the type of a resource is one of {known}, got {kind!r}")
            object.__setattr__(self, "type", ResourceType(found))

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "the cluster's defaults"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name!r}"


class ConfigSource(enum.IntEnum):
    """Where a config's value comes from, in Kafka's order of precedence.

    Example:
        entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    """

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(enum.IntEnum):
    """The type of a config's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the places a value could come from; the first of a list is the one in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of one resource; ``value`` is None where it is sensitive or unset."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigResult(Outcome):
    """The configs of one resource, or the result of a change to them.

    Args:
        resource: The resource.
        entries: Its configs, in the order of their names.
        error: Why it has failed, or None.
        remark: The broker's remark on a change that has succeeded.

    Example:
        for entry in result.entries:
            print(entry.name, entry.value)
    """

    resource: ConfigResource
    entries: tuple[ConfigEntry, ...] = ()
    error: KafkaError | None = None
    remark: str | None = None
    """What the broker says of a change that has gone well: that it keeps options without effect, say."""


class AlterConfigOpType(enum.IntEnum):
    """What to do with a config.

    Example:
        AlterConfigOp("retention.ms", None, AlterConfigOpType.DELETE)
    """

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@also_called(incremental_operation="op")
@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """One change to one config.

    Args:
        name: The name of the config.
        value: The value; None for ``DELETE``.
        op: Set the config, reset it, or change the items of a list.

    Example:
        AlterConfigOp("retention.ms", "60000")
    """

    name: str
    value: str | None
    op: AlterConfigOpType = AlterConfigOpType.SET


class OffsetSpec(enum.IntEnum):
    """Places in the log, for ``list_offsets``; other numbers are times in milliseconds.

    Example:
        admin.list_offsets({TopicPartition("orders", 0): OffsetSpec.LATEST})
    """

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4


class IsolationLevel(enum.IntEnum):
    """Whether records of open and aborted transactions are read."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class OffsetResult(Outcome):
    """The answer to "which offset": -1 where no record is that young."""

    partition: TopicPartition
    offset: int = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    leader_epoch: int = NO_LEADER_EPOCH
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class DeletedRecords(Outcome):
    """How far a partition's start has moved; -1 with an error."""

    partition: TopicPartition
    low_watermark: int = NO_OFFSET
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Who is in the cluster; ``controller`` is None while there is none."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
