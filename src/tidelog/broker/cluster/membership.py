"""A broker's place in its cluster: session, registration, election, control, following; begun and ended in
order.

The ``Membership`` of a broker where ``zookeeper.connect`` is set. When
the session expires the broker leads nothing from that moment on (others may have been told to); with the
next session it registers again, and the controller tells it what it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.cluster.channels import Channels
from tidelog.broker.cluster.controller_link import ControllerLink
from tidelog.broker.cluster.controller_requests import ControllerRequests
from tidelog.broker.cluster.isr_requests import IsrSender
from tidelog.broker.cluster.peer_broker import PeerBroker, PeerEndpoint
from tidelog.broker.cluster.peer_settings import PeerSettings
from tidelog.broker.cluster.registration import register, wait_until_missed
from tidelog.broker.cluster.remote_leader import RemoteLeader
from tidelog.broker.cluster.remote_transactions import BrokerLinks
from tidelog.broker.cluster.throttles import Throttles
from tidelog.broker.fetch.nearest_replica import RACK_AWARE, NearestReplica
from tidelog.broker.membership import RestOfBroker, Serve
from tidelog.broker.served import SERVED, SERVED_IN_CLUSTERS
from tidelog.client._address import Address
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.topic_options import TopicConfig
from tidelog.controller.cluster.context import LiveBroker
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.controller_term import ControllerSettings
from tidelog.controller.topics import TopicDefaults
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, listed
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.store import SessionExpired, SessionState, SharedStore, StoreError
from tidelog.metadata.znodes import znode_requests, znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.replication.fetch_loop import FetchLoop, FetchLoops
from tidelog.replication.replication_context import ReplicationContext
from tidelog.replication.throttle import ReplicationThrottle
from tidelog.storage.log.log import Log
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from tidelog.metrics.page import Page

logger = logging.getLogger(__name__)

_INFORMED_TIMEOUT_S = 10.0
_UNCLEAN = "unclean.leader.election.enable"


class ClusterMembership:
    """One broker among others."""

    served = (*SERVED, *SERVED_IN_CLUSTERS)
    controller_requests: ControllerRequests
    controller: ClusterController

    def __init__(self, config: BrokerConfig, clock: Clock, store: SharedStore, feed: ClusterFeed) -> None:
        self.broker_epoch = -1
        self._registered_in: int | None = None
        """The session of the last registration."""
        self.given_up = False
        self._connected = True
        self._config = config
        self._clock = clock
        self._store = store
        self._feed = feed
        self._peer_settings = PeerSettings(config)
        for listener in set(self._control_listeners):
            # What cannot be used is found out now, and not when others are to be reached.
            self._peer_settings.of(listener)
        timeout_ms = config.int("controller.socket.timeout.ms")
        self.link = ControllerLink(self._controller_endpoint, timeout_ms)
        self.control_listener = config.control_plane_listener_name
        self.coordinator_links = BrokerLinks(
            config.node_id,
            feed.image,
            store,
            lambda broker_id: PeerBroker(partial(self._endpoint_of, broker_id)),
        )
        self._isr = IsrSender(config.node_id, lambda: self.broker_epoch, lambda: self.link)
        self.replication_context = ReplicationContext(
            clock, self._isr, lambda: feed.image.brokers.keys(), config.int("replica.lag.time.max.ms")
        )
        self._peers: dict[int, PeerBroker] = {}
        """Who was asked where partitions end; only where metrics are wanted."""
        self._stop_session: Callable[[], None] = lambda: None
        self._shrinking: asyncio.TimerHandle | None = None

    @property
    def is_informed(self) -> bool:
        """Whether a controller has told this broker what there is."""
        return self.controller_requests.is_informed

    @property
    def is_controller(self) -> bool:
        """Whether this broker has won the election and nothing has ended its term."""
        return self.controller.is_active

    @property
    def shared_store(self) -> SharedStore:
        """The session with ZooKeeper."""
        return self._store

    @property
    def leader_throttle(self) -> ReplicationThrottle:
        """What bounds how much followers get."""
        return self.throttles.leader

    @property
    def nearest_replica(self) -> NearestReplica | None:
        """Who sends consumers to a replica near by, where ``replica.selector.class`` asks for it."""
        is_rack_aware = self._config.optional_str("replica.selector.class") == RACK_AWARE
        return NearestReplica(self._feed.image) if is_rack_aware else None

    def attach(self, rest: RestOfBroker) -> None:
        """The rest of the broker is there."""
        self._partitions = rest.partitions
        self._partitions.on_lost = self._log_dir_failed
        self._log_dirs = rest.log_dirs
        self.replication_context.truncation = rest.log_dirs
        self._on_offline = rest.on_offline
        self._configs = rest.configs
        self.throttles = Throttles(self._config, self._clock, self._feed, rest.configs)
        self.loops = FetchLoops(self._fetch_loop)
        self.controller_requests = ControllerRequests(
            self._config.node_id,
            lambda: self.broker_epoch,
            self._feed,
            rest.partitions,
            rest.log_dirs,
            self.loops,
            rest.on_roles,
        )

    def is_stray(self, log: Log) -> bool:
        """Only the controller knows what belongs here, and it has not been asked yet."""
        return False

    def follow(self, delta: ImageDelta) -> Iterator[None]:
        """The controller tells what partitions are to be, not the metadata."""
        return iter(())

    def figures(self, page: Page) -> Iterator[str]:
        """The families about the cluster."""
        from tidelog.broker.metrics.cluster_figures import ClusterView, among_others

        term = self.controller.term.context if self.controller.is_active else None
        view = ClusterView(term, self.controller, self.loops, self._store, self._connected)
        return among_others(page, view)

    async def end_offsets(
        self, leader: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Ask the leader where partitions end; what it does not say is left out."""
        from tidelog.broker.cluster.remote_ends import ask

        peer = self._peers.get(leader)
        if peer is None:
            peer = self._peers[leader] = PeerBroker(partial(self._endpoint_of, leader))
        return await ask(peer, partitions)

    def give_up(self) -> None:
        """The broker is told to stop while it starts."""
        self.given_up = True

    async def join(
        self, registration: BrokerRegistration, serve: Serve, *, after_crash: bool = False
    ) -> None:
        """Register and take part in the election.

        The listeners that brokers use open when this one is registered, as the controller connects then; the
        others when it has sent the metadata. Until then clients are refused, and ask another broker.
        """
        self._registration = registration
        self._serve = serve
        config = self._config
        settings = ControllerSettings(
            broker_id=config.node_id,
            inter_broker_listener=config.inter_broker_listener_name,
            topic_defaults=lambda: TopicDefaults(
                config.int("num.partitions"), config.int("default.replication.factor")
            ),
            check_topic_configs=self._configs.check_topic,
            unclean_topics=lambda topics: {each for each in topics if self._configs.topic(each)[_UNCLEAN]},
            delete_topics=config.bool("delete.topic.enable"),
            auto_balance=config.bool("auto.leader.rebalance.enable"),
            balance_interval_s=config.int("leader.imbalance.check.interval.seconds"),
            imbalance_percentage=config.int("leader.imbalance.per.broker.percentage"),
        )
        self._stop_session = self._store.on_session(self._session_changed)
        self.controller = ClusterController(
            self._store, self._channels, settings, self._clock, self._register
        )
        self._configs.on_topic_change(self._topic_configured)
        self._configs.on_broker_change(self._broker_configured)
        while True:
            try:
                await self._look_around(after_crash=after_crash)
                break
            except SessionExpired as error:
                # Nothing is registered yet: the next session will do.
                logger.info("Broker %d looks around again: %s", config.node_id, error)
        await self.controller.start()
        self._schedule_shrinking()
        await self.wait_until_informed()
        if not self.controller_requests.informed.is_set():
            self.controller_requests.expects_topics = False
            if self._feed.image.brokers:
                self.controller_requests.informed.set()
            else:
                logger.warning(
                    "This broker has no metadata after %d s, as it has heard from no controller: it closes "
                    "connections that ask for metadata until it has",
                    _INFORMED_TIMEOUT_S,
                )
        serve()

    async def wait_until_informed(self) -> bool:
        """Wait for a bounded time until a controller has said what there is; whether one has."""
        try:
            async with asyncio.timeout(_INFORMED_TIMEOUT_S):
                await self.controller_requests.informed.wait()
        except TimeoutError:
            return False
        return self.is_informed

    async def _look_around(self, *, after_crash: bool) -> None:
        """What must be known, or have happened, before this broker registers for the first time."""
        # A new controller names the brokers first and topics only then: clients must not find none there.
        self.controller_requests.expects_topics = bool(await self._store.children(znodes.TOPICS))
        if after_crash:
            await wait_until_missed(
                self._store,
                self._config.node_id,
                list(self._log_dirs.logs),
                2 * self._config.int("zookeeper.session.timeout.ms"),
                lambda: self.given_up,
            )

    async def leave(self) -> None:
        """Hand over what this broker leads, as long as somebody is there to take it.

        An attempt without a controller waits for one, in place of the pause before the next; without
        ZooKeeper, by which no controller could do anything, there is only one.
        """
        config = self._config
        if not config.bool("controlled.shutdown.enable"):
            return
        pause_ms = config.int("controlled.shutdown.retry.backoff.ms")
        waited = True
        reason = ""
        for _ in range(1 + config.int("controlled.shutdown.max.retries")):
            if not waited:
                await asyncio.sleep(pause_ms / 1000)
            timeout_ms = config.int("controller.socket.timeout.ms")
            waited = not self._connected or self._controller_endpoint() is None
            if waited:
                timeout_ms = min(timeout_ms, pause_ms)
            try:
                response = await self.link.request(
                    ControlledShutdownRequest(broker_id=config.node_id, broker_epoch=self.broker_epoch),
                    ControlledShutdownResponse,
                    timeout_ms=timeout_ms,
                )
            except KafkaError as error:
                reason = str(error)
                if not self._connected:
                    break
                continue
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                return
            waited = False
            reason = "no other replica can lead"
            if response.error_code != ErrorCode.NONE:
                reason = f"the controller answered {ErrorCode(response.error_code).name}"
            logger.info("Still leading %d partitions: %s", len(response.remaining_partitions), reason)
        led = sum(each.is_leader for each in self._partitions)
        logger.warning("Stopping while leading %d partitions: %s", led, reason)

    async def close(self) -> None:
        """End everything; the session is the store's to end."""
        if self._shrinking is not None:
            self._shrinking.cancel()
        self.controller_requests.close()
        self._stop_session()
        if hasattr(self, "controller"):
            await self.controller.close()
        self.throttles.close()
        await self.loops.close()
        await self._isr.close()
        await self.coordinator_links.close()
        await self.link.close()

    def _log_dir_failed(self, lost: list[TopicPartition]) -> None:
        """Follow what was there no more, and let the controller ask which replicas are left."""
        for partition in lost:
            self.loops.stop(partition)
        self._telling = asyncio.get_running_loop().create_task(self._tell_of_log_dir())

    async def _tell_of_log_dir(self) -> None:
        try:
            await self._store.create(
                znodes.LOG_DIR_EVENT_PREFIX,
                znode_requests.encode_log_dir_event(self._config.node_id),
                sequential=True,
            )
        except StoreError as error:
            logger.error("The cluster does not learn of the failed log directory: %s", error)

    # The session

    async def _register(self) -> None:
        patience_ms = 2 * self._config.int("zookeeper.session.timeout.ms")
        self.broker_epoch = await register(
            self._store,
            self._registration,
            patience_ms,
            lambda: self.given_up,
            earlier_session=self._registered_in,
        )
        self._registered_in = self._store.session_id
        self._serve(self._control_listeners)
        self.controller_requests.registered()
        logger.info("Broker %d is registered in epoch %d", self._config.node_id, self.broker_epoch)

    def _session_changed(self, state: SessionState) -> None:
        self._connected = state is SessionState.CONNECTED
        if state is SessionState.EXPIRED:
            logger.warning(
                "The session with ZooKeeper has expired: this broker leads nothing until it is back"
            )
            # What was meant for the life that is over is refused from now on, what is for the next is not.
            if self.broker_epoch >= 0:
                self.broker_epoch += 1
            self._partitions.resign_all()

    # Options that change

    def _topic_configured(self, topic: str, config: TopicConfig) -> None:
        if _UNCLEAN in self._feed.image.topic_config(topic) and config[_UNCLEAN]:
            self.controller.unclean_allowed([topic])

    def _broker_configured(self, changed: frozenset[str]) -> None:
        if _UNCLEAN in changed and self._config.bool(_UNCLEAN):
            self.controller.unclean_allowed(None)

    # In-sync replicas

    def _schedule_shrinking(self) -> None:
        delay_s = self._config.int("replica.lag.time.max.ms") / 2000
        self._shrinking = asyncio.get_running_loop().call_later(delay_s, self._shrink)

    def _shrink(self) -> None:
        self._schedule_shrinking()
        self.replication_context.max_lag_ms = self._config.int("replica.lag.time.max.ms")
        behind: defaultdict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
        for partition in self._partitions:
            if lagging := partition.shrink_isr():
                behind[tuple(lagging)].append(partition.topic_partition)
        for replicas, partitions in behind.items():
            logger.info("Replicas %s have fallen behind in %s", list(replicas), listed(partitions))

    # Ways to others

    def _fetch_loop(self, leader_id: int) -> FetchLoop:
        peer = PeerBroker(partial(self._endpoint_of, leader_id))
        endpoint = RemoteLeader(self._config.node_id, lambda: self.broker_epoch, peer, self._config)
        return FetchLoop(
            leader_id,
            endpoint,
            self._clock,
            lambda: self._config.int("replica.fetch.backoff.ms"),
            self._on_offline,
            self.throttles.follower,
        )

    def _channels(self) -> Channels:
        def endpoint_of(broker: LiveBroker) -> PeerEndpoint | None:
            return self._endpoint(broker.registration, self._control_listeners)

        timeout_ms = min(
            self._config.int("controller.socket.timeout.ms"), self._config.int("request.timeout.ms")
        )
        return Channels(endpoint_of, timeout_ms)

    @property
    def _control_listeners(self) -> tuple[str, ...]:
        """The listeners by which the controller and brokers speak, the best first."""
        inter_broker = self._config.inter_broker_listener_name
        return (self._config.control_plane_listener_name or inter_broker, inter_broker)

    def _endpoint_of(self, broker_id: int) -> PeerEndpoint | None:
        known: Mapping[int, BrokerRegistration] = self._feed.image.brokers
        registration = known.get(broker_id)
        if registration is None:
            return None
        return self._endpoint(registration, (self._config.inter_broker_listener_name,))

    def _controller_endpoint(self) -> PeerEndpoint | None:
        if self.controller.is_active:
            return self._endpoint(self._registration, self._control_listeners)
        registration = self._feed.image.brokers.get(self.controller.active_id)
        return None if registration is None else self._endpoint(registration, self._control_listeners)

    def _endpoint(self, registration: BrokerRegistration, names: tuple[str, ...]) -> PeerEndpoint | None:
        """The first of a broker's listeners with one of these names."""
        for name in names:
            for found in registration.endpoints:
                if found.name == name:
                    return PeerEndpoint(Address(found.host, found.port), self._peer_settings.of(name))
        return None
