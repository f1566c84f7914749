"""The transaction coordinator of one broker: finds a transactional id's shard and runs commands on it."""

from __future__ import annotations

from tidelog.clock import Clock
from tidelog.coordinator.partitioning import partition_for
from tidelog.coordinator.runtime import Runtime
from tidelog.coordinator.timers import Timers
from tidelog.coordinator.transaction.shard import SCHEMAS, TransactionShard
from tidelog.ids import TRANSACTION_STATE_TOPIC
from tidelog.metadata.broker_config import BrokerConfig
from tidelog.metadata.image import MetadataImage


class TransactionCoordinator:
    """Everything that has a ``transactional.id``."""

    TOPIC = TRANSACTION_STATE_TOPIC

    def __init__(self, config: BrokerConfig, clock: Clock, image: MetadataImage, timers: Timers) -> None:
        self.config = config
        self.image = image
        self.runtime: Runtime[TransactionShard] = Runtime(
            self.TOPIC, SCHEMAS, TransactionShard, clock=clock, timers=timers
        )

    def partition_for(self, transactional_id: str) -> int:
        """The partition of ``__transaction_state`` that a transactional id belongs to."""
        topic = self.image.topics.get(self.TOPIC)
        count = len(topic.partitions) if topic else self.config.int("transaction.state.log.num.partitions")
        return partition_for(transactional_id, count)
