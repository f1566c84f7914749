"""Taking over a data directory that Apache Kafka wrote.

Our metadata store knows nothing of it, but the directory does: every partition is a directory
``<topic>-<partition>`` whose ``partition.metadata`` holds the topic's id and whose
``leader-epoch-checkpoint`` holds the leader epochs so far. ``find_cluster`` reads those and returns the
topics to register; it writes nothing. The controller calls it on the first start of a store, in the same
step that initialises it, so that a crash leaves either an empty store or one with every topic in it.

What is taken over: names, ids, partition counts (a gap in the numbers is filled, as a topic has none), the
next leader epoch, and, where a KRaft metadata log lies next to the partitions, configs of topics, groups and
this broker, feature levels and which producer ids are taken (without one, all blocks up to the highest id in
the producer snapshots are). What is left alone: ``__cluster_metadata-0`` itself, directories that wait for
deletion, are strays or half moved (``-delete``, ``-stray``, ``-future``), and partitions of topics that the
metadata log says were deleted.

Where Kafka was in KRaft mode and its metadata log cannot be read, nothing is taken over: without its configs
a topic that is to be kept, or compacted, would lose its records to the retention of the defaults.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.controller.kraft_metadata import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    METADATA_DIRECTORY,
    TOPIC_RESOURCE,
    KraftMetadata,
    holds_kraft_metadata,
    read_kraft_metadata,
)
from tidelog.controller.topic_names import CLUSTER_METADATA_TOPIC, reason_invalid
from tidelog.errors import StorageError
from tidelog.ids import NO_PRODUCER_ID, Uuid, random_uuid
from tidelog.metadata.producer_ids import BLOCK_SIZE
from tidelog.storage.disk import REAL_DISK
from tidelog.storage.files import LEADER_EPOCH_FILE, parse_directory_name
from tidelog.storage.log.leader_epochs import LeaderEpochCache
from tidelog.storage.log.partition_metadata import read_partition_metadata
from tidelog.storage.log_dir.meta_properties import read_meta_properties
from tidelog.storage.producers.producer_snapshots import ProducerSnapshots

logger = logging.getLogger(__name__)

_KRAFT_VERSION = 1
"""Of ``meta.properties``."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic on disk; ``epochs`` maps each partition to the leader epoch its next leader must have."""

    name: str
    id: Uuid
    epochs: Mapping[int, int]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.epochs)


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """Everything that can be taken over; ``features`` is empty where nothing is known of any."""

    topics: Sequence[FoundTopic]
    features: Mapping[str, int]
    next_producer_id: int
    group_configs: Mapping[str, Mapping[str, str]]
    client_metrics: Mapping[str, Mapping[str, str]]
    broker_configs: Mapping[int | None, Mapping[str, str]]
    """Dynamic options by broker; None for those of every broker."""


@dataclass(frozen=True, slots=True)
class _FoundPartition:
    topic: str
    partition: int
    topic_id: Uuid | None
    next_epoch: int
    last_producer_id: int


def find_cluster(
    log_dirs: Sequence[Path], metadata_log_dir: Path | None = None, *, without_metadata: bool = False
) -> FoundCluster:
    """What lies in ``log_dirs``; topics are sorted by name.

    ``metadata_log_dir`` is where the metadata log is, if not in one of them. Raises StorageError if Kafka had
    one that cannot be read, unless ``without_metadata``.
    """
    partitions: dict[str, list[_FoundPartition]] = {}
    for log_dir in log_dirs:
        for directory in sorted(log_dir.iterdir()) if log_dir.is_dir() else ():
            found = _read_partition(directory)
            if found is not None:
                partitions.setdefault(found.topic, []).append(found)
    places = log_dirs if metadata_log_dir is None else (metadata_log_dir, *log_dirs)
    try:
        kraft = _read_kraft(places, needed=bool(partitions))
    except (StorageError, OSError) as error:
        if partitions and not without_metadata:
            raise StorageError(
                f"topics that Kafka left in {', '.join(map(str, log_dirs))} are not taken over, as their "
                f"configs are not known, and retention could delete what they keep: {error}. Set "
                f"metadata.log.dir to the directory with Kafka's {METADATA_DIRECTORY}, or start Kafka and "
                "stop it in good order; tidelog.adopt.without.metadata=true takes over topics without their "
                "configs"
            ) from error
        logger.warning("nothing but topics is taken over: %s", error)
        kraft = None
    # A log without topics says nothing about the partitions beside it: not even that they are gone.
    topic_source = kraft if kraft is not None and kraft.topics else None
    topics = (_topic(name, found, topic_source) for name, found in sorted(partitions.items()))
    return FoundCluster(
        [topic for topic in topics if topic is not None],
        kraft.features if kraft is not None else {},
        kraft.next_producer_id if kraft is not None else _next_producer_id(partitions.values()),
        _configs_of(kraft, GROUP_RESOURCE),
        _configs_of(kraft, CLIENT_METRICS_RESOURCE),
        {
            int(name) if name else None: entries
            for name, entries in _configs_of(kraft, BROKER_RESOURCE).items()
            if not name or name.isdecimal()
        },
    )


def _configs_of(kraft: KraftMetadata | None, wanted: int) -> dict[str, dict[str, str]]:
    if kraft is None:
        return {}
    return {name: dict(entries) for (kind, name), entries in kraft.configs.items() if kind == wanted}


def _topic(name: str, found: Sequence[_FoundPartition], kraft: KraftMetadata | None) -> FoundTopic | None:
    ids = Counter(each.topic_id for each in found if each.topic_id is not None)
    topic_id = ids.most_common(1)[0][0] if ids else random_uuid()
    if len(ids) > 1:
        logger.warning(
            "the partitions of topic %s have %d different topic ids; the commonest is taken", name, len(ids)
        )
    if kraft is not None and ids and topic_id not in kraft.topics:
        logger.warning("topic %s was deleted in the KRaft metadata next to it and is not taken over", name)
        return None
    count = max(each.partition for each in found) + 1
    configs: dict[str, str] = {}
    if kraft is not None:
        count = max(count, 1 + max(kraft.partitions.get(topic_id, ()), default=0))
        configs = dict(kraft.configs.get((TOPIC_RESOURCE, name), {}))
    epochs = dict.fromkeys(range(count), 0)
    epochs.update({each.partition: each.next_epoch for each in found})
    return FoundTopic(name, topic_id, epochs, configs)


def _read_partition(directory: Path) -> _FoundPartition | None:
    try:
        (topic, partition), suffix = parse_directory_name(directory.name)
    except StorageError:
        return None
    if suffix or topic == CLUSTER_METADATA_TOPIC or reason_invalid(topic) or not directory.is_dir():
        return None
    return _FoundPartition(
        topic, partition, _topic_id(directory), _next_epoch(directory), _last_producer_id(directory)
    )


def _topic_id(directory: Path) -> Uuid | None:
    """The id in ``partition.metadata``; None where Kafka was too old to write one or it is damaged."""
    try:
        return read_partition_metadata(directory)
    except StorageError as error:
        logger.warning("the topic of %s gets a new id: %s", directory, error)
        return None


def _next_epoch(directory: Path) -> int:
    """One more than the last epoch in ``leader-epoch-checkpoint``."""
    try:
        return LeaderEpochCache.load(directory / LEADER_EPOCH_FILE, REAL_DISK).latest_epoch + 1
    except StorageError as error:
        logger.warning("the leader epochs of %s start at 0: %s", directory, error)
        return 0


def _last_producer_id(directory: Path) -> int:
    """The highest producer id in the newest snapshot, which a clean stop writes; -1 if there is none."""
    snapshots = ProducerSnapshots(directory, REAL_DISK, (entry.name for entry in directory.iterdir()))
    if snapshots.latest is None:
        return NO_PRODUCER_ID
    try:
        producers = snapshots.read(snapshots.latest)
    except StorageError as error:
        logger.warning("the producer ids in %s are not known: %s", directory, error)
        return NO_PRODUCER_ID
    return max((producer.producer_id for producer in producers), default=NO_PRODUCER_ID)


def _next_producer_id(partitions: Iterable[Sequence[_FoundPartition]]) -> int:
    """The first id of the block behind the last one that any producer is known to have one of."""
    last = max((each.last_producer_id for found in partitions for each in found), default=NO_PRODUCER_ID)
    return (last // BLOCK_SIZE + 1) * BLOCK_SIZE


def _read_kraft(places: Sequence[Path], *, needed: bool) -> KraftMetadata | None:
    """The metadata log in the first of some directories that has one; None if Kafka kept none.

    Raises StorageError or OSError if it cannot be read, or if it is ``needed`` and cannot be found.
    """
    for place in places:
        if holds_kraft_metadata(place / METADATA_DIRECTORY):
            return read_kraft_metadata(place / METADATA_DIRECTORY)
    for place in places if needed else ():
        meta = read_meta_properties(place)
        if meta is not None and meta.version == _KRAFT_VERSION:
            raise StorageError(f"{place} is of Kafka in KRaft mode, whose metadata log is not there")
    return None
