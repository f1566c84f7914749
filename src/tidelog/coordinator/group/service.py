"""The group coordinator of one broker: finds a group's shard and runs commands on it.

Handlers call ``write`` and ``read`` with what is to be done in the shard. What the log refuses is turned into
what clients of a coordinator understand, as Kafka does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.clock import Clock
from tidelog.coordinator.group.shard import SCHEMAS, GroupShard
from tidelog.coordinator.group.support import GroupSupport
from tidelog.coordinator.partitioning import partition_for
from tidelog.coordinator.reply import Reply, gather
from tidelog.coordinator.runtime import Producer, Result, Runtime
from tidelog.coordinator.timers import Timers
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, random_uuid
from tidelog.metadata.broker_config import BrokerConfig
from tidelog.metadata.group_configs import GroupConfigs
from tidelog.metadata.image import MetadataImage

R = TypeVar("R")

_NOT_AVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_NOT_COORDINATOR = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class GroupCoordinator:
    """Everything that has a ``group.id``."""

    TOPIC = CONSUMER_OFFSETS_TOPIC

    def __init__(self, config: BrokerConfig, clock: Clock, image: MetadataImage, timers: Timers) -> None:
        self.config = config
        self.image = image
        self.support = GroupSupport(config, GroupConfigs(image, config), image, random_uuid)
        self.runtime: Runtime[GroupShard] = Runtime(
            self.TOPIC,
            SCHEMAS,
            lambda context: GroupShard(context, self.support),
            clock=clock,
            timers=timers,
        )

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that a group belongs to."""
        topic = self.image.topics.get(self.TOPIC)
        count = len(topic.partitions) if topic else self.config.int("offsets.topic.num.partitions")
        return partition_for(group_id, count)

    def write(
        self,
        group_id: str,
        command: Callable[[GroupShard], Result[R]],
        producer: Producer | None = None,
    ) -> Reply[R]:
        """Run a command on the group's shard, as part of a producer's transaction if there is one."""
        partition = self.partition_for(group_id)
        if producer is None:
            reply = self.runtime.write(partition, command)
        else:
            reply = self.runtime.write(partition, command, producer)
        return reply if reply.done and reply.error is None else reply.recover(_as_coordinator)

    def read(self, group_id: str, query: Callable[[GroupShard], R]) -> Reply[R]:
        """Ask the group's shard."""
        reply = self.runtime.read(self.partition_for(group_id), query)
        return reply if reply.done and reply.error is None else reply.recover(_as_coordinator)

    def read_all(self, query: Callable[[GroupShard], R]) -> Reply[list[R]]:
        """Ask every shard that this broker serves."""
        return gather([self.runtime.read(partition, query) for partition in self.runtime.active])


def _as_coordinator(error: Exception) -> R:  # type: ignore[type-var]
    """Raise what a client of a coordinator understands."""
    if not isinstance(error, KafkaError):
        raise error
    if error.code in _NOT_AVAILABLE:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    if error.code in _NOT_COORDINATOR:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error
    if error.code in _TOO_LARGE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
    raise error
