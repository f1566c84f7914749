"""Both coordinators of this broker: loads their shards where it leads, unloads them where it does not.

The internal topics come into being when a client first looks for a coordinator (``find``). Shards are loaded
one after the other in the background; until one is there its requests get COORDINATOR_LOAD_IN_PROGRESS or
NOT_COORDINATOR, which clients retry. Also turns the coordinators' timers, which know no loop, into timers of
the loop.

Owned by ``broker/app``; handlers use ``groups`` and ``transactions``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tidelog.broker.coordination.coordinator_links import CoordinatorLinks
from tidelog.broker.coordination.coordinator_log import PartitionLog
from tidelog.broker.coordination.transaction_markers import TransactionMarkers
from tidelog.broker.coordination.transaction_verification import TransactionVerification
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.timers import Timers

logger = logging.getLogger(__name__)

Coordinator = GroupCoordinator | TransactionCoordinator


class TopicMaker(Protocol):
    """Who makes the internal topics."""

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Create topics that are not there."""


_TIMERS_FOR_MS = 2.0
"""After so long others have their turn before more timers are looked at."""


class Coordinators:
    """The coordinators, their timers and the loading of their shards."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        image: MetadataImage,
        partitions: Partitions,
        controller: TopicMaker,
        on_offline: Callable[[LogDirOfflineError], None],
        producer_ids: ProducerIds,
        links: CoordinatorLinks,
    ) -> None:
        self.timers = Timers(clock)
        self.timers.on_earlier = self._arm
        self.groups = GroupCoordinator(config, clock, image, self.timers)
        self.markers = TransactionMarkers(partitions, self.groups, clock, self.timers, on_offline)
        self.transactions = TransactionCoordinator(
            config, clock, image, self.timers, producer_ids, links.markers(self.markers)
        )
        self.verification = TransactionVerification(
            config, clock, self.timers, partitions, links.transactions(self.transactions)
        )
        self._image = image
        self._partitions = partitions
        self._controller = controller
        self._on_offline = on_offline
        self._by_topic: dict[str, Coordinator] = {
            self.groups.TOPIC: self.groups,
            self.transactions.TOPIC: self.transactions,
        }
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._to_load: dict[tuple[str, int], Coordinator] = {}
        self._loading: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._closed = False

    def start(self) -> None:
        """Load what this broker leads already."""
        self._look_at(self._by_topic)

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Partitions have been brought in line with ``delta`` already."""
        if self._closed:
            return
        self._look_at(topic for topic in self._by_topic if topic in delta.topics)
        for coordinator in self._by_topic.values():
            coordinator.runtime.metadata_changed(delta)

    async def find(self, coordinator: Coordinator, key: str) -> int:
        """The id of the broker that coordinates ``key``; makes the internal topic if it is not there yet."""
        topic = coordinator.TOPIC
        if topic not in self._image.topics:
            error = (await self._controller.auto_create_topics([topic]))[topic]
            if error is not None:
                logger.error("%s cannot be created, so nobody can coordinate %r: %s", topic, key, error)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        partition = self._image.partition(topic, coordinator.partition_for(key))
        if partition is None or partition.leader not in self._image.brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        return partition.leader

    async def close(self) -> None:
        """Answer what waits and let go of everything."""
        self._closed = True
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        self.transactions.close()
        for coordinator in self._by_topic.values():
            coordinator.runtime.unload_all()
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    # Loading

    def _look_at(self, topics: Iterable[str]) -> None:
        """Load the partitions that this broker now leads, unload those that it does not lead any more."""
        for topic in topics:
            coordinator = self._by_topic[topic]
            found = self._image.topics.get(topic)
            indexes = set(found.partitions) if found is not None else set()
            for index in indexes | {held for name, held in self._logs if name == topic}:
                partition = self._partitions.by_name.get((topic, index))
                leads = partition is not None and partition.is_leader
                log = self._logs.get((topic, index))
                if log is not None and (not leads or log.partition is not partition):
                    self._let_go(coordinator, index)
                    log = None
                if leads and partition is not None:
                    if log is None or self._is_from_before(coordinator, partition):
                        self._hold(coordinator, partition)
                    else:
                        coordinator.runtime.raise_epoch(index, partition.leader_epoch)
        if self._to_load and (self._loading is None or self._loading.done()):
            self._loading = asyncio.get_running_loop().create_task(self._load())

    @staticmethod
    def _is_from_before(coordinator: Coordinator, partition: Partition) -> bool:
        """Whether a shard was loaded before this broker last came to lead its partition.

        A new epoch alone says nothing: it also comes when a follower dies, and the log is as it was. One that
        could not be loaded is tried again then, as in Kafka.
        """
        index, runtime = partition.topic_partition.partition, coordinator.runtime
        epoch = runtime.epoch_of(index)
        needed = partition.leader_epoch if runtime.has_failed(index) else partition.leads_since_epoch
        return epoch is None or epoch < needed

    def _hold(self, coordinator: Coordinator, partition: Partition) -> None:
        topic, index = partition.topic_partition
        self._let_go(coordinator, index)
        log = self._logs[topic, index] = PartitionLog(partition, self._on_offline)
        coordinator.runtime.hold(index, partition.leader_epoch, log)
        self._to_load[topic, index] = coordinator

    def _let_go(self, coordinator: Coordinator, index: int) -> None:
        coordinator.runtime.unload(index)
        self._to_load.pop((coordinator.TOPIC, index), None)
        log = self._logs.pop((coordinator.TOPIC, index), None)
        if log is not None:
            log.close()

    async def _load(self) -> None:
        while self._to_load:
            topic, index = next(iter(self._to_load))
            coordinator = self._to_load.pop((topic, index))
            await coordinator.runtime.load(index)
            # To load an empty log waits for nothing, and there may be very many of them.
            await asyncio.sleep(0)

    # Timers

    def _arm(self) -> None:
        """Have the loop call when the next timer is due."""
        delay_ms = self.timers.next_delay_ms
        if delay_ms is None or self._closed:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_ms / 1000
        if self._alarm is not None:
            if self._alarm_at <= when:
                return
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.timers.run_due(_TIMERS_FOR_MS)
        self._arm()
