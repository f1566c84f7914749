"""What a broker does with the store before it serves: becoming the controller, and mending what a crash left.

``take_over`` runs once per start, on the store alone, before the image is loaded and before any log is
opened. In order:

1. On the very first start (no ``/brokers/topics``) the topics that Kafka left in the log directories are
   registered in the same ``multi`` that initialises the store; so are this broker's dynamic options, feature
   levels and the producer ids that are taken. Where no features have been finalized, those of a new cluster
   are.
2. ``/controller`` and ``/controller_epoch`` say who the controller is.
3. Deletions that a crash interrupted (a mark in ``/admin/delete_topics`` is left) are finished: nodes go,
   and the topic's directories are renamed to ``-delete``, which the log directories remove on loading.
4. Unless every log directory was closed cleanly, each partition gets its leader again, in a new leader
   epoch, as Kafka's controller elects after a restart: a client that has read records which a crash took
   away can tell by the epoch. (Kafka elects after a clean restart too; nothing can be lost then, and the new
   epoch would cost a synced write for each partition.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_metrics import check_subscription
from tidelog.config.options.log_options import raised
from tidelog.config.options.topic_options import check_topic_overrides
from tidelog.config.options.unsupported_options import unmet_protection
from tidelog.config.secret_entries import SecretEntries
from tidelog.controller.auto_topics import internal_configs
from tidelog.controller.features import first_features
from tidelog.controller.topic_nodes import create_topic_ops, delete_topic_ops, first_state, set_leader_op
from tidelog.errors import ConfigError, KafkaError, StorageError
from tidelog.ids import TopicPartition
from tidelog.metadata.dynamic_config import usable_dynamic
from tidelog.metadata.feed import load
from tidelog.metadata.group_configs import check_group
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import Create, Delete, MetadataStore, NoNode, Op, Set, parent_of
from tidelog.metadata.znodes import znodes
from tidelog.storage.files import DELETE_DIR_SUFFIX, parse_directory_name, suffixed_directory_name
from tidelog.storage.log_dir.log_dir import CLEAN_SHUTDOWN_FILE

if TYPE_CHECKING:
    from tidelog.controller.adopt import FoundCluster, FoundTopic

logger = logging.getLogger(__name__)

FIRST_CONTROLLER_EPOCH = 1


async def take_over(
    store: MetadataStore, config: BrokerConfig, clock: Clock, log_dirs: Sequence[Path] | None = None
) -> None:
    """Make this broker the controller of ``store`` and its partitions' leader; see the module's docstring.

    ``log_dirs`` are the directories that can be used; by default all that the configuration names.
    """
    directories = config.log_dirs if log_dirs is None else log_dirs
    first_start = not await store.exists(znodes.TOPICS)
    epoch = await _next_controller_epoch(store)
    ops = await _missing_path_ops(store)
    features: Mapping[str, int] = {}
    if first_start and _hold_partitions(directories):
        # Imported here: few starts are the first on a directory that Kafka has filled.
        from tidelog.controller.adopt import find_cluster

        found = find_cluster(
            directories,
            config.metadata_log_dir,
            without_metadata=config.bool("tidelog.adopt.without.metadata"),
        )
        features = found.features
        ops += _adoption_ops(found, config, epoch)
    if not await store.exists(znodes.FEATURE):
        ops.append(Create(znodes.FEATURE, znodes.encode_feature(first_features(features))))
    ops += await _claim_ops(store, config.node_id, epoch, clock.time_ms())
    await store.multi(ops)
    await _finish_deletions(store, directories)
    if not first_start and not _closed_cleanly(directories):
        await _elect_leaders(store, config.node_id, epoch)


def _hold_partitions(log_dirs: Sequence[Path]) -> bool:
    """Whether anything may have to be taken over: partitions are directories."""
    return any(path.is_dir() for log_dir in log_dirs if log_dir.is_dir() for path in log_dir.iterdir())


def _closed_cleanly(log_dirs: Sequence[Path]) -> bool:
    return all((log_dir / CLEAN_SHUTDOWN_FILE).exists() for log_dir in log_dirs)


async def _missing_path_ops(store: MetadataStore) -> list[Op]:
    wanted: dict[str, None] = {}
    for path in (*znodes.PERSISTENT_PATHS, znodes.GROUP_CONFIGS, znodes.CLIENT_METRICS):
        missing = path
        lineage = []
        while missing != "/" and not await store.exists(missing):
            lineage.append(missing)
            missing = parent_of(missing)
        wanted |= dict.fromkeys(reversed(lineage))
    return [Create(path) for path in wanted]


async def _next_controller_epoch(store: MetadataStore) -> int:
    try:
        raw, _ = await store.get(znodes.CONTROLLER_EPOCH)
    except NoNode:
        return FIRST_CONTROLLER_EPOCH
    return znodes.decode_controller_epoch(raw) + 1


async def _claim_ops(store: MetadataStore, broker_id: int, epoch: int, now_ms: int) -> list[Op]:
    number = znodes.encode_controller_epoch(epoch)
    known = await store.exists(znodes.CONTROLLER_EPOCH)
    return [
        Set(znodes.CONTROLLER_EPOCH, number) if known else Create(znodes.CONTROLLER_EPOCH, number),
        Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now_ms), ephemeral=True),
    ]


def _adoption_ops(found: FoundCluster, config: BrokerConfig, controller_epoch: int) -> list[Op]:
    ops: list[Op] = []
    if found.topics:
        partitions = sum(topic.partitions for topic in found.topics)
        logger.info(
            "taking over %d topics with %d partitions that are on disk", len(found.topics), partitions
        )
    for topic in found.topics:
        ops += _topic_ops(topic, config, controller_epoch)
    if found.next_producer_id > 0:
        taken = znodes.ProducerIdBlock(config.node_id, 0, found.next_producer_id - 1)
        ops.append(Set(znodes.PRODUCER_ID_BLOCK, taken.encode()))
    ops += _broker_ops(found, config)
    for group, entries in found.group_configs.items():
        usable = _usable_group_configs(group, entries, config)
        if usable:
            ops.append(Create(znodes.group_config_path(group), znodes.encode_config(usable)))
    for name, entries in found.client_metrics.items():
        try:
            check_subscription(name, entries)
        except KafkaError as error:
            logger.warning("the subscription %s to metrics is not taken over: %s", name, error.message)
        else:
            ops.append(Create(znodes.client_metrics_path(name), znodes.encode_config(entries)))
    return ops


def _topic_ops(topic: FoundTopic, config: BrokerConfig, controller_epoch: int) -> list[Op]:
    """Register one topic that is on disk; this broker, which has the files, is its only replica."""
    broker_id = config.node_id
    configs = _usable_configs(topic, config) or internal_configs(topic.name, config)
    states = {
        index: first_state((broker_id,), (broker_id,), controller_epoch, leader_epoch)
        for index, leader_epoch in topic.epochs.items()
    }
    return create_topic_ops(topic.name, topic.id, dict.fromkeys(topic.epochs, (broker_id,)), configs, states)


def _usable_configs(topic: FoundTopic, config: BrokerConfig) -> dict[str, str]:
    """The topic's overrides without those that this release cannot honour."""
    usable: dict[str, str] = {}
    for name, value in topic.configs.items():
        try:
            checked = {each: raised(each, text) for each, text in {**usable, name: value}.items()}
            check_topic_overrides(checked, config.topic_defaults())
        except KafkaError as error:
            logger.warning("topic %s is taken over without %s=%s: %s", topic.name, name, value, error.message)
        else:
            usable[name] = value
    return usable


def _broker_ops(found: FoundCluster, config: BrokerConfig) -> list[Op]:
    """Register the dynamic options of this broker, and those of every broker."""
    ops: list[Op] = []
    layers: dict[int | None, dict[str, str]] = {None: {}, config.node_id: {}}
    for which, usable in layers.items():
        path = znodes.broker_config_path(which)
        given = found.broker_configs.get(which, {})
        for sentence in unmet_protection(given):
            raise ConfigError(f"the dynamic options that Kafka had for {path} cannot be honoured: {sentence}")
        for name, value in given.items():
            try:
                if not usable_dynamic({name: value}):
                    raise ConfigError("it is not among the options that can be changed while a broker runs")
                with_it = {**layers, which: {**usable, name: value}}
                config.preview_dynamic(with_it[None], with_it[config.node_id])
            except ConfigError as error:
                logger.warning("%s of %s is not taken over: %s", name, path, error)
            else:
                usable[name] = value
        if usable:
            kept = SecretEntries(config).hidden(usable, {})
            ops.append(Create(path, znodes.encode_config(kept)))
    return ops


def _usable_group_configs(group: str, given: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    usable: dict[str, str] = {}
    for name, value in given.items():
        try:
            check_group({**usable, name: value}, config)
        except KafkaError as error:
            logger.warning("group %s is taken over without %s=%s: %s", group, name, value, error.message)
        else:
            usable[name] = value
    return usable


async def _finish_deletions(store: MetadataStore, log_dirs: Sequence[Path]) -> None:
    for topic in await store.children(znodes.DELETE_TOPICS):
        logger.info("finishing the deletion of topic %s", topic)
        ops = await delete_topic_ops(store, topic)
        if ops:
            await store.multi(ops)
        for log_dir in log_dirs:
            _set_aside(log_dir, topic)
        await store.multi([Delete(znodes.delete_topic_path(topic))])


def _set_aside(log_dir: Path, topic: str) -> None:
    """Rename a deleted topic's partition directories so that loading removes them."""
    for directory in log_dir.iterdir() if log_dir.is_dir() else ():
        try:
            partition, suffix = parse_directory_name(directory.name)
        except StorageError:
            continue
        if partition.topic == topic and not suffix and directory.is_dir():
            directory.rename(log_dir / suffixed_directory_name(partition, DELETE_DIR_SUFFIX))


async def _elect_leaders(store: MetadataStore, broker_id: int, controller_epoch: int) -> None:
    image = MetadataImage()
    await load(store, image)
    ops: list[Op] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas and partition.state_version >= 0:
                leader = broker_id if broker_id in partition.isr else znodes.NO_LEADER
                ops.append(
                    set_leader_op(TopicPartition(topic.name, index), partition, leader, controller_epoch)
                )
    if ops:
        await store.multi(ops)
