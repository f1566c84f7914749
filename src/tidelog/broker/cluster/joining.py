"""What a broker of a cluster does before anything else: find ZooKeeper, learn who it is, and read what it
reads itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidelog.broker.cluster.admin import ClusterAdmin
from tidelog.broker.cluster.membership import ClusterMembership
from tidelog.broker.cluster.registration import prepare, settle_broker_id, settle_cluster_id
from tidelog.clock import Clock
from tidelog.controller.features import first_features
from tidelog.metadata import znodes
from tidelog.metadata.broker_config import BrokerConfig
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.store import NodeExists, SessionExpired, SharedStore
from tidelog.metadata.zookeeper import ZooKeeperStore
from tidelog.storage.log_dirs import LogDirs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Joined:
    """The parts of a broker that a cluster gives it."""

    store: SharedStore
    feed: ClusterFeed
    configs: DynamicConfigs
    membership: ClusterMembership
    admin: ClusterAdmin


async def join_ensemble(
    config: BrokerConfig,
    clock: Clock,
    log_dirs: LogDirs,
    broker_id: int | None,
    known_cluster_id: str | None,
    ensemble: Callable[[], Awaitable[SharedStore]] | None = None,
) -> Joined:
    """Connect, settle the ids, mark the log directories with them, and begin to follow the configs.

    ``ensemble`` stands in for the one that ``zookeeper.connect`` names.
    """
    store = await (_connect(config) if ensemble is None else ensemble())
    try:
        feed = await _settle(store, config, clock, log_dirs, broker_id, known_cluster_id)
    except BaseException:
        await store.close()
        raise
    configs = DynamicConfigs(store, feed, config, feed.announce)
    membership = ClusterMembership(config, clock, store, feed)
    return Joined(store, feed, configs, membership, ClusterAdmin(store, feed, config, configs, membership))


async def _settle(
    store: SharedStore,
    config: BrokerConfig,
    clock: Clock,
    log_dirs: LogDirs,
    broker_id: int | None,
    known_cluster_id: str | None,
) -> ClusterFeed:
    while True:
        try:
            await prepare(store)
            cluster_id = await settle_cluster_id(store, known_cluster_id)
            config.node_id = await settle_broker_id(store, config, broker_id)
            log_dirs.identify(broker_id=config.node_id, cluster_id=cluster_id)
            if not await store.exists(znodes.FEATURE):
                await _finalize_features(store)
            return await ClusterFeed.start(store, clock)
        except SessionExpired as error:
            # Nothing depends on the session yet: the next one will do.
            logger.info("Beginning anew: %s", error)


async def _connect(config: BrokerConfig) -> SharedStore:
    timeout_ms = config.get("zookeeper.connection.timeout.ms")
    return await ZooKeeperStore.connect(
        config.str("zookeeper.connect"),
        session_timeout_ms=config.int("zookeeper.session.timeout.ms"),
        connection_timeout_ms=timeout_ms if isinstance(timeout_ms, int) else None,
    )


async def _finalize_features(store: SharedStore) -> None:
    """A new cluster has all that its first broker can do."""
    try:
        await store.create(znodes.FEATURE, znodes.encode_feature(first_features({})))
    except NodeExists:
        return
