"""The broker: the one place where all rooms are wired together, and the order in which they start and stop.

Start, as in Kafka: lock the log directories and find out who we are; open the metadata store and become its
controller; load the image and the dynamic configs; load and recover the logs; bring the partitions in line
with the image; register; accept requests. Ports are bound before logs are loaded, so that a port in use is
found out at once; nobody is served before the end. Stop: no new requests, finish those under way, stop the
background work, flush and close the logs, close the store.

Everything below is handed what it needs by its constructor; nothing else in the package imports this
module, except ``broker/process``, which runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.broker.deadlines import Deadlines
from tidelog.broker.dispatch import SERVED, SERVED_IN_CLUSTERS, Dispatcher
from tidelog.broker.fetch_session import FetchSessions
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.judging import JudgingThreads
from tidelog.broker.loop_watchdog import LoopWatchdog
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.nearest_replica import RACK_AWARE, NearestReplica
from tidelog.broker.network import Network
from tidelog.broker.network_settings import QUOTA_OPTIONS, apply_quotas, network_limits
from tidelog.broker.state import BrokerState, LifeCycle
from tidelog.broker.warm_up import import_in_steps, modules_of
from tidelog.clock import Clock, SystemClock
from tidelog.controller.controller import Controller
from tidelog.controller.features import SUPPORTED_FEATURES
from tidelog.controller.takeover import take_over
from tidelog.errors import LogDirOfflineError, StorageError, TidelogError
from tidelog.ids import Uuid, random_uuid, uuid_to_text
from tidelog.metadata import znodes
from tidelog.metadata.broker_config import BrokerConfig
from tidelog.metadata.broker_options import BROKER_OPTIONS
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.embedded import JOURNAL_NAME, EmbeddedStore
from tidelog.metadata.feed import Feed, ImageDelta, MetadataFeed
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.listeners import Listener, reachable
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.metadata.store import MetadataStore, NoNode, SharedStore, put
from tidelog.metadata.topic_options import TopicConfig
from tidelog.replication.append_group import AppendGroup
from tidelog.replication.partitions import Partitions
from tidelog.replication.replication_context import STANDALONE
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir import CLEAN_SHUTDOWN_FILE
from tidelog.storage.log_dirs import LogDirs
from tidelog.storage.log_dirs_loading import LoadProgress
from tidelog.storage.log_dirs_options import LogDirsOptions
from tidelog.wire.api import ApiKey
from tidelog.wire.primitives import Endpoint

if TYPE_CHECKING:
    from tidelog.broker.cluster.admin import ClusterAdmin
    from tidelog.broker.cluster.membership import ClusterMembership
    from tidelog.broker.coordinators import Coordinators

logger = logging.getLogger(__name__)

_DRAIN_S = 5.0


class StartGivenUp(TidelogError):
    """The broker was told to stop before it had started."""


class Broker:
    """One broker; ``start`` it once, ``shut_down`` it once."""

    config: BrokerConfig
    clock: Clock
    store: MetadataStore
    image: MetadataImage
    metadata_cache: MetadataCache
    dynamic_configs: DynamicConfigs
    controller: Controller | ClusterAdmin
    producer_ids: ProducerIds
    log_dirs: LogDirs
    partitions: Partitions
    network: Network
    advertised: tuple[Listener, ...]
    _feed: Feed

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        ensemble: Callable[[], Awaitable[SharedStore]] | None = None,
    ) -> None:
        """``ensemble`` is asked for the session with ZooKeeper instead of ``zookeeper.connect``, in tests."""
        self.config = config
        self._ensemble = ensemble
        self.clock = clock or SystemClock()
        self.on_fatal: Callable[[str], None] = lambda reason: None
        """Told when the broker cannot go on: no log directory is left."""
        self._life = LifeCycle()
        self.loop_watchdog: LoopWatchdog | None = None
        """Counts the steps of the loop that took too long; unless ``tidelog.loop.step.warn.ms`` is 0."""
        self._undo: list[Callable[[], object]] = []
        self._given_up = False
        self._coordinators: Coordinators | None = None
        self._membership: ClusterMembership | None = None
        self.served: tuple[ApiKey, ...] = SERVED
        """The APIs that this broker serves."""
        if config.optional_str("zookeeper.connect") is not None:
            self.served = (*SERVED, *SERVED_IN_CLUSTERS)

    @property
    def in_cluster(self) -> bool:
        """Whether ZooKeeper coordinates this broker with others."""
        return self._membership is not None

    @property
    def membership(self) -> ClusterMembership:
        """This broker's place in its cluster; a broker alone has none, and serves no API that needs it."""
        assert self._membership is not None
        return self._membership

    @property
    def state(self) -> BrokerState:
        """Where in its life the broker is."""
        return self._life.state

    @property
    def broker_id(self) -> int:
        """The id of this broker in its cluster."""
        return self.config.node_id

    @property
    def coordinators(self) -> Coordinators:
        """The coordinators of groups and transactions.

        They come into being when the first request needs them, or in ``warm_up``: a sixth of all modules is
        theirs, and nobody who waits for the broker to be ready has to wait for those.
        """
        if self._coordinators is None:
            from tidelog.broker.coordinators import Coordinators

            self._coordinators = Coordinators(
                self.config,
                self.clock,
                self.image,
                self.partitions,
                self.controller,
                self.log_dir_failed,
                self.producer_ids,
                None if self._membership is None else self._membership.links,
            )
            self._coordinators.start()
        return self._coordinators

    @property
    def knows_cluster(self) -> bool:
        """Whether this broker can say what there is: in a cluster, once its controller has told it."""
        return self._membership is None or self._membership.controller_requests.informed.is_set()

    def endpoints(self, broker_ids: Collection[int], listener: str) -> list[Endpoint]:
        """The addresses of brokers on one listener, for answers that send clients elsewhere."""
        found: list[Endpoint] = []
        for broker in filter(None, map(self.image.brokers.get, broker_ids)):
            found += [
                (broker.broker_id, endpoint.host, endpoint.port, broker.rack)
                for endpoint in broker.endpoints
                if endpoint.name == listener
            ]
        return found

    def log_dir_failed(self, error: LogDirOfflineError) -> None:
        """A disk error came up while serving: its directory goes offline, the others serve on."""
        self.log_dirs.mark_offline(Path(error.log_dir or ""), error)

    def _all_log_dirs_failed(self, _: str) -> None:
        """The last directory went offline, under a request or under work in the background."""
        reasons = "; ".join(f"{path}: {reason}" for path, reason in self.log_dirs.offline_dirs.items())
        self.on_fatal(
            f"no log directory is left to serve from ({reasons}): mend one and start the broker again"
        )

    # Start

    def give_up_start(self) -> None:
        """Let a start that is loading logs, which may take long, end with ``StartGivenUp``."""
        self._given_up = True
        if self._membership is not None:
            self._membership.given_up = True

    async def start(self) -> None:
        """Bring everything up; on an error what was opened is closed again and the error is raised."""
        self._life.enter(BrokerState.STARTING)
        try:
            await self._open_directories_and_store()
            self._open_network()
            await self._load()
            await self._register()
        except BaseException:
            await self._abandon()
            raise
        self._life.enter(BrokerState.RUNNING_AS_BROKER)
        if self._membership is None:
            self.network.start()

    async def _open_directories_and_store(self) -> None:
        config = self.config
        self.log_dirs = LogDirs(config.log_dirs, self._log_dirs_options(), clock=self.clock)
        self.log_dirs.open()
        self.log_dirs.on_all_offline = self._all_log_dirs_failed
        self._undo.append(self.log_dirs.close)
        identity = self.log_dirs.stored_identity()
        self._ended_unclean = any(
            log_dir.meta is not None and not (path / CLEAN_SHUTDOWN_FILE).exists()
            for path, log_dir in self.log_dirs.online.items()
        )
        if config.optional_str("zookeeper.connect") is not None:
            await self._join_ensemble(identity.broker_id, identity.cluster_id)
        else:
            await self._open_store(identity.broker_id, identity.cluster_id)
        self.image = self._feed.image
        self.metadata_cache = MetadataCache(self.image)
        self.producer_ids = ProducerIds(self.store, config.node_id)

    async def _open_store(self, broker_id: int | None, known_cluster_id: str | None) -> None:
        """A broker alone: its metadata are its own."""
        config = self.config
        if broker_id is not None and not {"node.id", "broker.id"} & config.raw.keys():
            config.node_id = broker_id
        store = self.store = EmbeddedStore(self._store_directory(known=known_cluster_id is not None))
        self._undo.append(store.close)
        cluster_id = await self._cluster_id(known_cluster_id)
        self.log_dirs.identify(broker_id=config.node_id, cluster_id=cluster_id)
        await take_over(store, config, self.clock, list(self.log_dirs.online))
        feed = self._feed = await MetadataFeed.start(store)
        self._undo.append(feed.close)
        self.dynamic_configs = DynamicConfigs(store, feed, config)
        self.controller = Controller(store, feed, config, self.dynamic_configs)

    async def _join_ensemble(self, broker_id: int | None, known_cluster_id: str | None) -> None:
        """A broker of a cluster: its metadata come from ZooKeeper and from the controller."""
        from tidelog.broker.cluster.joining import join_ensemble

        joined = await join_ensemble(
            self.config, self.clock, self.log_dirs, broker_id, known_cluster_id, self._ensemble
        )
        self._undo += [joined.store.close, joined.feed.close]
        self.store = joined.store
        self._feed = joined.feed
        self.dynamic_configs = joined.configs
        self.controller = joined.admin
        self._membership = joined.membership

    def _store_directory(self, *, known: bool) -> Path:
        """The log directory that has the metadata, or the first one if there are none yet."""
        for path in self.log_dirs.online:
            if (path / JOURNAL_NAME).exists():
                return path
        if known and self.log_dirs.offline_dirs:
            offline = ", ".join(map(str, self.log_dirs.offline_dirs))
            raise StorageError(
                f"the metadata ({JOURNAL_NAME}) is in none of the log directories that can be used, so it "
                f"must be in {offline}: mend that disk, or restore the file from a backup into another one"
            )
        return next(iter(self.log_dirs.online))

    async def _cluster_id(self, stored: str | None) -> str:
        try:
            raw, _ = await self.store.get(znodes.CLUSTER_ID)
            return znodes.decode_cluster_id(raw)
        except NoNode:
            cluster_id = stored or uuid_to_text(random_uuid())
            await put(self.store, znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
            return cluster_id

    def _open_network(self) -> None:
        config = self.config
        loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(loop)
        self._undo.append(self.deadlines.close)
        self.partitions = Partitions(
            config.node_id,
            self.image,
            self.log_dirs,
            self._log_config,
            loop,
            self.log_dir_failed,
            STANDALONE if self._membership is None else self._membership.replication_context,
        )
        if self._membership is not None:
            self._membership.attach(
                self.partitions, self.log_dirs, self.dynamic_configs, self.log_dir_failed, self._on_roles
            )
        self.judging_threads = JudgingThreads(loop)
        group = AppendGroup(self.log_dir_failed)
        sessions = FetchSessions(
            config.int("max.incremental.fetch.session.cache.slots"), self.clock, self._topic_name
        )
        fetch = FetchHandler(self, sessions, config.int("fetch.max.bytes"))
        if self._membership is not None:
            fetch.throttle = self._membership.throttles.leader
            if config.optional_str("replica.selector.class") == RACK_AWARE:
                fetch.nearest = NearestReplica(self.image)
        self._dispatcher = Dispatcher(
            self,
            ProduceHandler(self, group),
            fetch,
            group,
            config.int("queued.max.requests"),
        )
        self.network = Network(self._dispatcher, loop, network_limits(config), self.clock)
        self._undo.append(self.network.close)
        ports = self.network.open(
            config.listeners, config.control_plane_listener_name if self._membership is not None else None
        )
        self.advertised = reachable(config.advertised_listeners, ports)

    async def _load(self) -> None:
        if self._ended_unclean:
            self._life.enter(BrokerState.RECOVERING_FROM_UNCLEAN_SHUTDOWN)
        # In a cluster only the controller knows what belongs here, and it has not been asked yet.
        is_stray = self.partitions.is_stray if self._membership is None else lambda log: False
        self.log_dirs.load(self._log_config, is_stray=is_stray, progress=self._loaded_one)
        self.partitions.apply(self.image.topics, at_start=True)
        self._feed.subscribe(self._on_metadata)
        self.dynamic_configs.on_topic_change(self._on_topic_config)
        self.dynamic_configs.on_broker_change(self._on_broker_config)
        self.log_dirs.start()

    def _loaded_one(self, _: LoadProgress) -> None:
        if self._given_up:
            raise StartGivenUp("the broker was told to stop while it was loading its logs")

    async def _register(self) -> None:
        registration = znodes.BrokerRegistration(
            broker_id=self.config.node_id,
            endpoints=self.advertised,
            rack=self.config.rack,
            features={
                name: {"min_version": levels.min, "max_version": levels.max}
                for name, levels in SUPPORTED_FEATURES.items()
            },
            timestamp_ms=self.clock.time_ms(),
        )
        if self._membership is not None:
            # The controller speaks to a broker as soon as it is registered.
            self.network.start()
            await self._membership.join(registration, after_crash=self._ended_unclean)
            return
        await self.store.create(
            znodes.broker_path(self.config.node_id), registration.encode(), ephemeral=True
        )
        await self._feed.caught_up()

    def _watch_loop(self) -> None:
        limit_ms = self.config.int("tidelog.loop.step.warn.ms")
        if limit_ms > 0:
            self.loop_watchdog = LoopWatchdog(asyncio.get_running_loop(), limit_ms)
            self.loop_watchdog.start()

    async def warm_up(self) -> None:
        """Load the coordinators and the handlers that no request has asked for yet, between requests."""
        await import_in_steps([*modules_of("tidelog.coordinator"), "tidelog.broker.coordinators"])
        _ = self.coordinators
        await self._dispatcher.warm_up()
        # Not before: importing a large module is one step, and no request's.
        self._watch_loop()

    # Stop

    async def shut_down(self) -> None:
        """Stop serving, finish what is under way and close everything cleanly."""
        self._life.enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        if self._membership is not None:
            await self._membership.leave()
        self.network.stop_requests()
        await self.network.drain(_DRAIN_S)
        if self.loop_watchdog is not None:
            self.loop_watchdog.stop()
        self._life.enter(BrokerState.BROKER_SHUTTING_DOWN)
        self.dynamic_configs.close()
        await self._dispatcher.close()
        self.judging_threads.close()
        if self._membership is not None:
            await self._membership.close()
        if self._coordinators is not None:
            await self._coordinators.close()
        self.partitions.close()
        await self.log_dirs.close()
        await self._feed.close()
        await self.store.close()
        self.network.close()
        self._life.enter(BrokerState.NOT_RUNNING)

    async def _abandon(self) -> None:
        """Close what a start that failed has opened, last first."""
        self._life.enter(BrokerState.BROKER_SHUTTING_DOWN)
        for close in reversed(self._undo):
            closing = close()
            if asyncio.iscoroutine(closing):
                await closing
        self._life.enter(BrokerState.NOT_RUNNING)

    # Changes while running

    def _on_metadata(self, delta: ImageDelta) -> Iterator[None]:
        if delta.topics and self._membership is None:
            yield from self.partitions.apply_in_steps(sorted(delta.topics))
        self._on_roles(delta)

    def _on_roles(self, delta: ImageDelta) -> None:
        """Partitions are what they are to be; the coordinators go where their topics' partitions are led."""
        if self._coordinators is not None:
            self._coordinators.metadata_changed(delta)

    def _on_topic_config(self, topic: str, config: TopicConfig) -> None:
        self.partitions.configure(topic, LogConfig.from_options(config))

    def _on_broker_config(self, changed: frozenset[str]) -> None:
        self.log_dirs.update_options(self._log_dirs_options())
        if changed & QUOTA_OPTIONS:
            apply_quotas(self.config, self.network.quotas)
            self.network.quotas_changed()

    def _log_dirs_options(self) -> LogDirsOptions:
        return LogDirsOptions.from_options({name: self.config.get(name) for name in BROKER_OPTIONS})

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_options(self.dynamic_configs.topic(topic))

    def _topic_name(self, topic: str | bytes | None) -> str | None:
        if topic is None or isinstance(topic, str):
            return topic
        found = self.image.topic_by_id.get(Uuid(topic))
        return found.name if found is not None else None
