"""The broker: the one place where all rooms are wired together, and the order in which they start and stop.

Start, as in Kafka: lock the log directories and find out who we are; open the metadata store and join those
who use it, if there are others; load the image and the dynamic configs; load and recover the logs; bring the
partitions in line with the image; register; accept requests. Ports are bound before logs are loaded, so that
a port in use is found out at once; nobody is served before the end. Stop: no new requests, finish those under
way, stop the background work, flush and close the logs, close the store.

Everything below is handed what it needs by its constructor. ``composition`` makes brokers, of one kind or the
other; ``broker/process`` runs one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tidelog.broker import log_levels
from tidelog.broker.access.authorization import OPEN, Authorization
from tidelog.broker.access.request_sizes import RequestSizes
from tidelog.broker.exchange.dispatch import Dispatcher
from tidelog.broker.exchange.services import Services
from tidelog.broker.fetch.fetch_services import FetchServices
from tidelog.broker.fetch.fetch_session import FetchSessions
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.produce import ProduceHandler, ProduceServices
from tidelog.broker.membership import Admin, Membership, OpenMetadata, RestOfBroker
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.metrics.loop_watchdog import LoopWatchdog
from tidelog.broker.network.ip_overrides import IpOverrides
from tidelog.broker.network.network import Network
from tidelog.broker.network.network_settings import apply_quotas, is_quota, network_limits
from tidelog.broker.produce.batch_validation import ValidationThreads
from tidelog.broker.quotas.client_quotas import ClientQuotas, QuotaWindows
from tidelog.broker.state import BrokerState, LifeCycle, StartGivenUp
from tidelog.broker.warm_up import import_in_steps, modules_of
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_quotas import IP, QuotaEntity
from tidelog.config.listeners import Listener, reachable
from tidelog.config.options.broker_options import BROKER_OPTIONS
from tidelog.config.options.topic_options import TopicConfig
from tidelog.controller.features import SUPPORTED_FEATURES
from tidelog.custom_class import is_custom_class
from tidelog.errors import LogDirOfflineError
from tidelog.ids import Uuid
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.feed import Feed, ImageDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.metadata.store import MetadataStore
from tidelog.metadata.znodes import znodes
from tidelog.replication.append_group import AppendGroup
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.deadlines import Deadlines
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.directories.log_dirs_loading import LoadProgress
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.log_dir import CLEAN_SHUTDOWN_FILE

if TYPE_CHECKING:
    from tidelog.broker.access.audit_topic import AuditTopic
    from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
    from tidelog.broker.access.authentication.sasl_listener import Authentication
    from tidelog.broker.cluster.membership import ClusterMembership
    from tidelog.broker.coordination.coordinators import Coordinators
    from tidelog.broker.metrics.service import MetricsService
    from tidelog.broker.network.tls_listeners import TlsListeners
    from tidelog.broker.quotas.address_quotas import AddressQuotas
    from tidelog.broker.telemetry.client_telemetry import ClientTelemetry

logger = logging.getLogger(__name__)

_DRAIN_S = 5.0


class Broker:
    """One broker; ``start`` it once, ``shut_down`` it once."""

    config: BrokerConfig
    clock: Clock
    store: MetadataStore
    image: MetadataImage
    metadata_cache: MetadataCache
    dynamic_configs: DynamicConfigs
    controller: Admin
    membership: Membership
    producer_ids: ProducerIds
    log_dirs: LogDirs
    partitions: Partitions
    network: Network
    quotas: ClientQuotas
    tls_listeners: TlsListeners | None
    """The keys and certificates of listeners with TLS, if there are any."""
    advertised: tuple[Listener, ...]
    _feed: Feed

    def __init__(self, config: BrokerConfig, clock: Clock, open_metadata: OpenMetadata) -> None:
        """``open_metadata`` brings the parts that differ by the way this broker runs (``composition``)."""
        self.config = config
        self.clock = clock
        self.on_fatal: Callable[[str], None] = lambda reason: None
        """Told when the broker cannot go on: no log directory is left."""
        self.loop_watchdog: LoopWatchdog | None = None
        """Counts the steps of the loop that took too long; unless ``tidelog.loop.step.warn.ms`` is 0."""
        self._open_metadata = open_metadata
        self._life = LifeCycle()
        self._undo: list[Callable[[], object]] = []
        self._given_up = False
        self._ended_unclean = False
        self._coordinators: Coordinators | None = None
        self.authorization: Authorization = OPEN
        self._audit_topic: AuditTopic | None = None
        self._authentication: Authentication | None = None
        self._delegation_tokens: DelegationTokens | None = None
        self._request_logger = log_levels.declare_request_logger()
        self._stop_watching_levels: Callable[[], None] = lambda: None
        self._logged_requests: tuple[int, bool] | None = None
        self.metrics: MetricsService | None = None
        """What tells of this broker over HTTP, where ``metrics.listeners`` asks for it."""
        self._addresses: AddressQuotas | None = None
        self.running_telemetry: ClientTelemetry | None = None
        """What clients push of their figures, if that has come into being already."""

    @property
    def cluster(self) -> ClusterMembership:
        """This broker's place in its cluster, for whoever knows that it has one."""
        return cast("ClusterMembership", self.membership)

    @property
    def state(self) -> BrokerState:
        """Where in its life the broker is."""
        state = self._life.state
        if state is BrokerState.RUNNING_AS_BROKER and self.membership.is_controller:
            return BrokerState.RUNNING_AS_CONTROLLER
        return state

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
            from tidelog.broker.coordination.coordinators import Coordinators

            self._coordinators = Coordinators(
                self.config,
                self.clock,
                self.image,
                self.partitions,
                self.controller,
                self.log_dir_failed,
                self.producer_ids,
                self.membership.coordinator_links,
            )
            self._coordinators.start()
        return self._coordinators

    @property
    def running_coordinators(self) -> Coordinators | None:
        """The same, if they have come into being already."""
        return self._coordinators

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """The delegation tokens of the cluster; a broker on which nobody logs in does without."""
        if self._delegation_tokens is None:
            from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens

            self._delegation_tokens = DelegationTokens(self.config, self.store, self._feed, self.clock)
            self._undo.append(self._delegation_tokens.close)
        return self._delegation_tokens

    @property
    def client_telemetry(self) -> ClientTelemetry:
        """Who asks clients for their figures, and keeps them; comes into being with the handlers for it."""
        if self.running_telemetry is None:
            from tidelog.broker.telemetry.client_telemetry import ClientTelemetry

            self.running_telemetry = ClientTelemetry(
                self.image,
                self.clock,
                self.config.int("telemetry.max.bytes"),
                self.config.int("tidelog.client.metrics.max.series"),
            )
        return self.running_telemetry

    def log_dir_failed(self, error: LogDirOfflineError) -> None:
        """A disk error came up while serving: its directory goes offline, the others serve on."""
        self.log_dirs.mark_offline(Path(error.log_dir or ""), error)

    def _all_log_dirs_failed(self, _: str) -> None:
        """The last directory went offline, under a request or under work in the background."""
        reasons = "; ".join(f"{path}: {reason}" for path, reason in self.log_dirs.offline_dirs.items())
        self.on_fatal(
            f"no log directory is left to serve from ({reasons}): repair one and restart the broker"
        )

    # Start

    def give_up_start(self) -> None:
        """Let a start that loads logs or waits for others, which may take long, end with ``StartGivenUp``."""
        self._given_up = True
        if hasattr(self, "membership"):
            self.membership.give_up()

    async def start(self) -> None:
        """Bring everything up; on an error what was opened is closed again and the error is raised."""
        self._life.enter(BrokerState.STARTING)
        try:
            await self._open_directories_and_store()
            self._open_network()
            await self._open_metrics()
            self._watch_requests()
            self._stop_watching_levels = log_levels.on_change(self._watch_requests)
            self._undo.append(self._stop_watching_levels)
            await self._open_authentication()
            await self._load()
            await self._register()
            self._open_audit_topic()
        except BaseException:
            await self._abandon()
            raise
        self._life.enter(BrokerState.RUNNING_AS_BROKER)

    async def _open_directories_and_store(self) -> None:
        config = self.config
        self.log_dirs = LogDirs(config.log_dirs, self._log_dirs_options(), clock=self.clock)
        self.log_dirs.open()
        self.log_dirs.on_all_offline = self._all_log_dirs_failed
        self._undo.append(self._close_log_dirs)
        self._ended_unclean = any(
            log_dir.meta is not None and not (path / CLEAN_SHUTDOWN_FILE).exists()
            for path, log_dir in self.log_dirs.online.items()
        )
        parts = await self._open_metadata(config, self.clock, self.log_dirs)
        self._undo += [parts.store.close, parts.feed.close]
        self.store = parts.store
        self._feed = parts.feed
        self.dynamic_configs = parts.configs
        self.controller = parts.admin
        self.membership = parts.membership
        self.image = self._feed.image
        self.metadata_cache = MetadataCache(self.image)
        self.producer_ids = ProducerIds(self.store, config.node_id)
        if config.str("authorizer.class.name").strip():
            # Not loaded by a broker that is open to everybody.
            from tidelog.broker.access.opening_access import open_authorization

            self.authorization = await open_authorization(
                config, self.store, self.membership.shared_store, self.clock
            )
            self._undo.append(self.authorization.close)

    def _open_network(self) -> None:
        config = self.config
        self.quotas = ClientQuotas(QuotaWindows.from_options(config), self.clock)
        if self.image.quotas:
            self.quotas.apply(self.image.quotas)
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
            self.membership.replication_context,
        )
        self.membership.attach(
            RestOfBroker(
                self.partitions, self.log_dirs, self.dynamic_configs, self.log_dir_failed, self._on_roles
            )
        )
        self.judging_threads = ValidationThreads(loop)
        group = AppendGroup(self.log_dir_failed)
        self.fetch_sessions = FetchSessions(
            config.int("max.incremental.fetch.session.cache.slots"), self.clock, self._topic_name
        )
        lane = SlowLane(self.clock)
        fetches = FetchServices(
            self.partitions,
            self.image,
            self.deadlines,
            self.clock,
            lane,
            config.int("fetch.max.bytes"),
            self.log_dir_failed,
            authorization=self.authorization,
            quotas=self.quotas,
            throttle=self.membership.leader_throttle,
            nearest=self.membership.nearest_replica,
        )
        self.produces = ProduceServices(
            self.partitions,
            self.image,
            self.deadlines,
            self.judging_threads,
            lane,
            self.log_dir_failed,
            lambda: self.coordinators,
            self.authorization,
            self.quotas,
        )
        self._dispatcher = Dispatcher(
            self._services(lane),
            ProduceHandler(self.produces, group),
            FetchHandler(fetches, self.fetch_sessions),
            group,
            config.int("queued.max.requests"),
        )
        self.quotas.on_change = self._time_requests
        self.tls_listeners = self._open_tls()
        tls = None if self.tls_listeners is None else self.tls_listeners.by_name
        limits = network_limits(config)
        self._ip_overrides = IpOverrides(limits.quotas)
        self._ip_overrides.start(config)
        self.network = Network(self._dispatcher, loop, limits, self.clock, tls)
        self._undo.append(self.network.close)
        self.network.frame_limits = RequestSizes(config, self.authorization)
        if self.authorization.is_on:
            self.authorization.sessions = self.network.sessions
        self._limit_addresses(self.image.quotas)
        ports = self.network.open(config.listeners, self.membership.control_listener)
        self._time_requests()
        self.advertised = reachable(config.advertised_listeners, ports)

    async def _open_metrics(self) -> None:
        config = self.config
        reporters = any(map(is_custom_class, config.list("metric.reporters")))
        if not (reporters or config.list("metrics.listeners") or config.str("tidelog.otlp.endpoint").strip()):
            return
        # Not loaded by a broker that tells nobody.
        from tidelog.broker.metrics.service import MetricsService

        self.metrics = MetricsService(self)
        self._undo.append(self.metrics.close)
        await self.metrics.open()
        self._dispatcher.exchanges.errors = self.partitions.counts.errors

    def _watch_requests(self) -> None:
        """Have requests counted, and logged, as far as that is wanted."""
        times = None if self.metrics is None else self.metrics.times
        slow_ms = self.config.int("tidelog.slow.request.log.ms")
        logs_all = self._request_logger.isEnabledFor(logging.DEBUG)
        if (slow_ms, logs_all) == self._logged_requests:
            # The level of another logger has changed.
            return
        self._logged_requests = slow_ms, logs_all
        if slow_ms >= 0 or logs_all:
            # Not loaded before somebody wants it.
            from tidelog.broker.exchange.request_log import RequestLog

            request_log = RequestLog(times, slow_ms)
            self.network.observe(request_log, request_log.answers if logs_all else None)
        else:
            self.network.observe(times)

    def _open_tls(self) -> TlsListeners | None:
        if not any(each.uses_tls for each in self.config.listeners):
            return None
        # Not before: a broker without TLS starts without it.
        from tidelog.broker.network.tls_listeners import TlsListeners

        opened = TlsListeners(self.config, self.config.listeners)
        self.dynamic_configs.listener_stores = opened
        self._undo.append(opened.close)
        return opened

    async def _open_authentication(self) -> None:
        """Have clients of SASL listeners log in before the dispatcher hears of them."""
        if "tidelog.bootstrap.user" in self.config.raw or "TIDELOG_BOOTSTRAP_USER" in os.environ:
            from tidelog.broker.access.authentication.bootstrap_user import (
                bootstrap_user,
                create_bootstrap_user,
            )

            first_user = bootstrap_user(self.config, os.environ)
            if first_user is not None:
                await create_bootstrap_user(first_user, self.image, self.controller)
        if not self.config.sasl:
            # A broker without SASL listeners is ready without what they need.
            return
        from tidelog.broker.access.authentication.credentials import UserCredentials
        from tidelog.broker.access.authentication.sasl_listener import Authentication

        self.delegation_tokens.start()
        credentials = UserCredentials(self._feed, self.delegation_tokens)
        self._authentication = await Authentication.open(
            self.config, self.store, credentials, self._dispatcher, self.clock
        )
        self._undo.append(self._authentication.close)
        for name, listener in self._authentication.listeners.items():
            self.network.greeters[name] = listener.begin
            listener.counts = self.network.counts[name]

    def _services(self, lane: SlowLane) -> Services:
        return Services(
            config=self.config,
            image=self.image,
            metadata_cache=self.metadata_cache,
            dynamic_configs=self.dynamic_configs,
            admin=self.controller,
            producer_ids=self.producer_ids,
            log_dirs=self.log_dirs,
            partitions=self.partitions,
            on_offline=self.log_dir_failed,
            membership=self.membership,
            authorization=self.authorization,
            find_coordinators=lambda: self.coordinators,
            find_delegation_tokens=lambda: self.delegation_tokens,
            find_client_telemetry=lambda: self.client_telemetry,
            quotas=self.quotas,
            lane=lane,
        )

    async def _load(self) -> None:
        if self._ended_unclean:
            self._life.enter(BrokerState.RECOVERING_FROM_UNCLEAN_SHUTDOWN)
        # The dynamic options were not known when the directories were opened.
        self.log_dirs.update_options(self._log_dirs_options())
        self.log_dirs.load(self._log_config, is_stray=self.membership.is_stray, progress=self._loaded_one)
        self.partitions.apply(self.image.topics, at_start=True)
        self._feed.subscribe(self._on_metadata)
        self.dynamic_configs.on_topic_change(self._on_topic_config)
        self.dynamic_configs.on_broker_change(self._on_broker_config)
        self.log_dirs.start()
        if self.tls_listeners is not None:
            self.tls_listeners.start()

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
        await self.membership.join(registration, self.network.start, after_crash=self._ended_unclean)
        self._ended_unclean = False

    def _open_audit_topic(self) -> None:
        """Write the audit log to its topic, now that there are topics."""
        log = self.authorization.log
        if log is None or log.audit_topic is None or log.audit_buffer is None:
            return
        # Not loaded where there is no such topic.
        from tidelog.broker.access.audit_topic import AuditPlaces, AuditTopic

        places = AuditPlaces(
            self.config.node_id,
            self.image,
            self.partitions,
            self.controller,
            self.membership.coordinator_links,
            self.log_dir_failed,
        )
        self._audit_topic = AuditTopic(log.audit_topic, log.audit_buffer, places, self.clock)
        self._audit_topic.start()

    def _watch_loop(self) -> None:
        limit_ms = self.config.int("tidelog.loop.step.warn.ms")
        if limit_ms > 0:
            self.loop_watchdog = LoopWatchdog(asyncio.get_running_loop(), limit_ms)
            self.loop_watchdog.start()

    async def warm_up(self) -> None:
        """Load the coordinators and the handlers that no request has asked for yet, between requests."""
        await import_in_steps(
            [*modules_of("tidelog.coordinator"), "tidelog.broker.coordination.coordinators"]
        )
        _ = self.coordinators
        await self._dispatcher.warm_up()
        # Not before: importing a large module is one step, and no request's.
        self._watch_loop()

    # Stop

    async def shut_down(self) -> None:
        """Stop serving, finish what is under way and close everything cleanly."""
        self._life.enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        await self.membership.leave()
        self.network.stop_requests()
        await self.network.drain(_DRAIN_S)
        if self._audit_topic is not None:
            await self._audit_topic.close()
        if self.loop_watchdog is not None:
            self.loop_watchdog.stop()
        self._life.enter(BrokerState.BROKER_SHUTTING_DOWN)
        self.dynamic_configs.close()
        self._stop_watching_levels()
        if self.tls_listeners is not None:
            await self.tls_listeners.close()
        await self._dispatcher.close()
        if self.metrics is not None:
            await self.metrics.close()
        if self._authentication is not None:
            self._authentication.close()
        if self._delegation_tokens is not None:
            self._delegation_tokens.close()
        self.judging_threads.close()
        if self._addresses is not None:
            self._addresses.close()
        self._ip_overrides.close()
        await self.membership.close()
        if self._coordinators is not None:
            await self._coordinators.close()
        self.partitions.close()
        await self._close_log_dirs()
        await self.authorization.close()
        await self._feed.close()
        await self.store.close()
        self.network.close()
        self._life.enter(BrokerState.NOT_RUNNING)

    async def _close_log_dirs(self) -> None:
        """Unless the cluster has been told of a crash, the next start is to know of it, too."""
        await self.log_dirs.close(mark_clean=not self._ended_unclean)

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
        if delta.quotas:
            self.quotas.apply(self.image.quotas, delta.quotas)
            self._limit_addresses(delta.quotas)
        if delta.client_metrics and self.running_telemetry is not None:
            self.running_telemetry.subscriptions_changed()
        yield from self.membership.follow(delta)
        self._on_roles(delta)

    def _time_requests(self) -> None:
        """Time requests while there is a quota of that."""
        self._dispatcher.request_time = self.quotas.request
        self.network.time_requests(self.quotas.request)

    def _limit_addresses(self, changed: Iterable[QuotaEntity]) -> None:
        """Give the network the quotas of IP addresses; hosts with names are looked up beside the loop."""
        if any(kind == IP for entity in changed for kind, _ in entity):
            from tidelog.broker.quotas.address_quotas import AddressQuotas

            self._addresses = self._addresses or AddressQuotas(self.network.quotas)
            self._addresses.apply(self.image.quotas)

    def _on_roles(self, delta: ImageDelta) -> None:
        """Partitions are what they are to be; the coordinators go where their topics' partitions are led."""
        if self._coordinators is not None:
            self._coordinators.metadata_changed(delta)

    def _on_topic_config(self, topic: str, config: TopicConfig) -> None:
        self.partitions.configure(topic, LogConfig.from_options(config))

    def _on_broker_config(self, changed: frozenset[str]) -> None:
        self.log_dirs.update_options(self._log_dirs_options())
        if self._authentication is not None:
            self._authentication.options_changed(changed)
        if "tidelog.slow.request.log.ms" in changed:
            self._watch_requests()
        if any(map(is_quota, changed)):
            apply_quotas(self.config, self.network.quotas)
            self._ip_overrides.apply(self.config)
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
