"""What a broker of a cluster does before anything else: find ZooKeeper, learn who it is, and read what it
reads itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from tidelog.broker.cluster.admin import ClusterAdmin
from tidelog.broker.cluster.membership import ClusterMembership
from tidelog.broker.cluster.registration import prepare, settle_broker_id, settle_cluster_id
from tidelog.broker.membership import MetadataParts
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.features import first_features
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.store import NodeExists, SessionExpired, SharedStore
from tidelog.metadata.znodes import znodes
from tidelog.metadata.zookeeper.settings import zookeeper_security
from tidelog.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log_dir.meta_properties import Identity

logger = logging.getLogger(__name__)

Ensemble = Callable[[], Awaitable[SharedStore]]
"""Gives a session with ZooKeeper."""


async def join_ensemble(
    config: BrokerConfig, clock: Clock, log_dirs: LogDirs, ensemble: Ensemble | None = None
) -> MetadataParts:
    """Connect, settle the ids, mark the log directories with them, and begin to follow the configs.

    ``ensemble`` stands in for the one that ``zookeeper.connect`` names.
    """
    identity = log_dirs.stored_identity()
    store = await (_connect(config) if ensemble is None else ensemble())
    try:
        feed = await _settle(store, config, clock, log_dirs, identity)
    except BaseException:
        await store.close()
        raise
    configs = DynamicConfigs(store, feed, config)
    membership = ClusterMembership(config, clock, store, feed)
    admin = ClusterAdmin(store, feed, config, configs, membership)
    return MetadataParts(store, feed, configs, admin, membership)


async def _settle(
    store: SharedStore,
    config: BrokerConfig,
    clock: Clock,
    log_dirs: LogDirs,
    identity: Identity,
) -> ClusterFeed:
    while True:
        try:
            await prepare(store)
            cluster_id = await settle_cluster_id(store, identity.cluster_id)
            config.node_id = await settle_broker_id(store, config, identity.broker_id)
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
        security=zookeeper_security(config),
    )


async def _finalize_features(store: SharedStore) -> None:
    """A new cluster has all that its first broker can do."""
    try:
        await store.create(znodes.FEATURE, znodes.encode_feature(first_features({})))
    except NodeExists:
        return
