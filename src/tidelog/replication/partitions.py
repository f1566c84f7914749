"""All partitions that this broker holds, found by topic name or topic id.

``apply`` brings them in line with the metadata image: logs are made for partitions that are assigned here,
deleted for those that are not any more (or whose topic was made anew under the same name), and leaders and
epochs are taken over. ``lose`` is told when a log directory has failed: its partitions are gone for
clients, with KAFKA_STORAGE_ERROR.

Invariant: ``by_name`` and ``by_id`` hold the same partitions, all of them open. Handlers on the hot path
look there first; ``get`` and ``get_by_id`` say why something is not there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import ZERO_UUID, TopicPartition, Uuid, uuid_to_text
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.metrics.topic_counts import AllTopicCounts
from tidelog.replication.partition import Partition
from tidelog.replication.replication_context import STANDALONE, ReplicationContext
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log.log import Log
from tidelog.storage.log_config import LogConfig

logger = logging.getLogger(__name__)

PartitionKey = tuple[str | bytes | None, int]


class Partitions:
    """The partitions of one broker."""

    def __init__(
        self,
        broker_id: int,
        image: MetadataImage,
        log_dirs: LogDirs,
        log_config: Callable[[str], LogConfig],
        loop: asyncio.AbstractEventLoop,
        on_offline: Callable[[LogDirOfflineError], None],
        context: ReplicationContext = STANDALONE,
    ) -> None:
        self._context = context
        self.by_name: dict[PartitionKey, Partition] = {}
        self.by_id: dict[PartitionKey, Partition] = {}
        self.counts = AllTopicCounts()
        """What was done with each topic."""
        self._by_topic: dict[str, dict[int, Partition]] = {}
        # The names of topics that have partitions in ``by_id``.
        self._names: dict[bytes, str] = {}
        # Partitions that had a log here once; if they have none now, a failed directory has it.
        self._known: dict[TopicPartition, Uuid] = {}
        self._coming: set[str] = set()
        self._broker_id = broker_id
        self._image = image
        self._log_dirs = log_dirs
        self._log_config = log_config
        self._loop = loop
        self._on_offline = on_offline
        self.on_lost: Callable[[list[TopicPartition]], None] = lambda lost: None
        """Told when a log directory has failed, whoever found out, with the partitions that it had."""
        log_dirs.on_offline = self.lose
        log_dirs.on_moved = self._replace_log

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self.by_name.values()))

    def get(self, topic: str | None, index: int) -> Partition:
        """A partition by its topic's name."""
        partition = self.by_name.get((topic, index))
        if partition is not None:
            return partition
        found = self._image.topics.get(topic) if topic is not None else None
        raise self._missing(found, index)

    def get_by_id(self, topic_id: Uuid, index: int) -> Partition:
        """A partition by its topic's id."""
        partition = self.by_id.get((topic_id, index))
        if partition is not None:
            return partition
        found = self._image.topic_by_id.get(topic_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has the id {_text(topic_id)}")
        raise self._missing(found, index)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic that the metadata know, or of which there is a partition here.

        Either may be first to come and last to go, and whatever can be read or written has a name by which
        access to it is decided.
        """
        name = self._names.get(topic_id)
        if name is None:
            found = self._image.topic_by_id.get(Uuid(topic_id))
            name = None if found is None else found.name
        return name

    def current_leader(self, key: PartitionKey) -> tuple[int, int] | None:
        """Who leads a partition and in which epoch: as its replica here knows it or, where there is none, the
        metadata."""
        topic, index = key
        if isinstance(topic, str):
            partition = self.by_name.get(key)
            image = self._image.topics.get(topic)
        else:
            partition = self.by_id.get(key)
            image = self._image.topic_by_id.get(Uuid(topic or b""))
        if partition is not None:
            return partition.leader, partition.leader_epoch
        state = None if image is None else image.partitions.get(index)
        return None if state is None else (state.leader, state.leader_epoch)

    def apply(self, topics: Iterable[str], *, at_start: bool = False) -> None:
        """Take over what the image says about ``topics``; ``at_start`` they are none that were just made."""
        for _ in self.apply_in_steps(topics, at_start=at_start):
            pass

    def apply_in_steps(self, topics: Iterable[str], *, at_start: bool = False) -> Iterator[None]:
        """``apply``, one log at a time: files are made and renamed, and requests can be served in between.

        A partition whose turn has not come is not led yet, for clients: they ask again.
        """
        names = list(topics)
        self._coming.update(names)
        try:
            yield from self._apply(names, at_start)
        finally:
            self._coming.difference_update(names)

    def _apply(self, names: list[str], at_start: bool) -> Iterator[None]:
        for name in names:
            topic = self._image.topics.get(name)
            if topic is not None and at_start:
                self._known.update({TopicPartition(name, index): topic.id for index in topic.partitions})
            wanted = {} if topic is None else _held_by(topic, self._broker_id)
            for partition in self._of_topic(name):
                index = partition.topic_partition.partition
                if topic is None or index not in wanted or partition.topic_id != topic.id:
                    self._delete(partition)
                    yield
            if topic is not None:
                for index, image in wanted.items():
                    self._update(topic, index, image)
                    yield

    def configure(self, topic: str, config: LogConfig) -> None:
        """A topic's options have changed."""
        for partition in self._of_topic(topic):
            partition.log.update_config(config)
            partition.options_changed()

    def lose(self, path: Path, lost: Iterable[TopicPartition]) -> None:
        """The log directory ``path`` has failed."""
        gone = list(lost)
        for topic_partition in gone:
            partition = self.by_name.get(topic_partition)
            if partition is not None:
                self._forget(partition, offline=True)
        self.on_lost(gone)

    def is_stray(self, log: Log) -> bool:
        """Whether a log on disk belongs to no partition that the metadata place on this broker."""
        topic = self._image.topics.get(log.topic_partition.topic)
        if topic is None:
            return True
        if log.topic_id is not None and topic.id not in (log.topic_id, ZERO_UUID):
            return True
        return log.topic_partition.partition not in _held_by(topic, self._broker_id)

    def close(self) -> None:
        """Nobody need wait for any partition any longer."""
        for partition in self:
            self._forget(partition)

    def assign(
        self, topic_partition: TopicPartition, topic_id: Uuid, image: PartitionImage, *, is_new: bool
    ) -> tuple[Partition, bool]:
        """What a replica here is to be, be it the metadata or a cluster's controller that says so; the
        partition, and whether that was news.

        The log of a topic that had the same name is set aside. That topic is deleted, but the order to delete
        this replica was lost, with the controller that gave it.

        Raises ``LogDirOfflineError`` or :class:`KafkaError` where its log cannot be had.
        """
        partition = self.by_name.get(topic_partition)
        if partition is not None and partition.topic_id != topic_id:
            self._forget(partition)
            partition = None
        if partition is None:
            left = self._log_dirs.get(topic_partition)
            if left is not None and left.topic_id not in (None, topic_id):
                self._log_dirs.set_aside(left, f"it is of topic {_text(left.topic_id)}, which is deleted")
            partition = self._open(topic_partition, topic_id, is_new=is_new)
        return partition, partition.apply(image)

    def unassign(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """A replica is not to be here any more."""
        partition = self.by_name.get(topic_partition)
        if delete and partition is not None:
            self._delete(partition)
        elif delete:
            self._log_dirs.delete(topic_partition)

    def resign_all(self) -> None:
        """Lead nothing any more, because this broker may have been succeeded without knowing it."""
        for partition in self:
            partition.resign()

    def _update(self, topic: TopicImage, index: int, image: PartitionImage) -> None:
        topic_partition = TopicPartition(topic.name, index)
        is_new = self._known.get(topic_partition) != topic.id
        try:
            self.assign(topic_partition, topic.id, image, is_new=is_new)
        except LogDirOfflineError as error:
            self._log_dirs.mark_offline(Path(error.log_dir or ""), error)
        except (KafkaError, OSError) as error:
            logger.error("Partition %s cannot be served: %s", topic_partition, error)

    def _open(self, topic_partition: TopicPartition, topic_id: Uuid, *, is_new: bool) -> Partition:
        topic, index = topic_partition
        config = self._log_config(topic)
        log = self._log_dirs.get_or_create(topic_partition, topic_id, config, is_new=is_new)
        if log.config != config:
            # It was opened at the start, and nobody told it of changes before the partition came.
            log.update_config(config)
        self._known[topic_partition] = topic_id
        partition = Partition(
            topic_partition,
            topic_id,
            log,
            self._broker_id,
            self._loop,
            self._on_offline,
            self._context,
            self.counts.of(topic),
        )
        self.by_name[topic_partition] = partition
        self.by_id[topic_id, index] = partition
        self._names[topic_id] = topic
        self._by_topic.setdefault(topic, {})[index] = partition
        return partition

    def _delete(self, partition: Partition) -> None:
        self._forget(partition)
        try:
            self._log_dirs.delete(partition.topic_partition)
        except KafkaError as error:
            logger.error("The log of %s cannot be deleted: %s", partition.topic_partition, error)

    def _forget(self, partition: Partition, *, offline: bool = False) -> None:
        topic, index = partition.topic_partition
        self.by_name.pop((topic, index), None)
        self.by_id.pop((partition.topic_id, index), None)
        siblings = self._by_topic.get(topic, {})
        siblings.pop(index, None)
        if not any(each.topic_id == partition.topic_id for each in siblings.values()):
            self._names.pop(partition.topic_id, None)
        partition.close(offline=offline)
        if not siblings:
            self._by_topic.pop(topic, None)
            self.counts.forget(topic)

    def _replace_log(self, topic_partition: TopicPartition, log: Log) -> None:
        """The log has moved to another directory."""
        partition = self.by_name.get(topic_partition)
        if partition is not None:
            partition.use_log(log)

    def _of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_topic.get(topic, {}).values())

    def _missing(self, topic: TopicImage | None, index: int) -> KafkaError:
        image = topic.partitions.get(index) if topic is not None else None
        if topic is None or image is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        name = TopicPartition(topic.name, index)
        if topic.name in self._coming:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {name} is just being made")
        if self._broker_id in image.replicas:
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {name} is in an offline log directory"
            )
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {name} is on another broker")


def _held_by(topic: TopicImage, broker_id: int) -> dict[int, PartitionImage]:
    return {index: image for index, image in topic.partitions.items() if broker_id in image.replicas}


def _text(topic_id: bytes) -> str:
    return uuid_to_text(Uuid(topic_id))
