"""A broker's place in its cluster: session, registration, election, control, following; begun and ended in
order.

``broker/app`` asks for one where ``zookeeper.connect`` is set, and wires the rest of the broker to it. When
the session expires the broker leads nothing from that moment on (others may have been told to); with the
next session it registers again, and the controller tells it what it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from tidelog.broker.cluster.channels import Channels
from tidelog.broker.cluster.controller_link import ControllerLink
from tidelog.broker.cluster.controller_requests import ControllerRequests
from tidelog.broker.cluster.isr_requests import IsrSender
from tidelog.broker.cluster.peer_broker import PeerBroker
from tidelog.broker.cluster.registration import register, wait_until_missed
from tidelog.broker.cluster.remote_leader import RemoteLeader
from tidelog.broker.cluster.remote_transactions import BrokerLinks
from tidelog.broker.cluster.throttles import Throttles
from tidelog.broker.network_settings import socket_buffer
from tidelog.client.address import Address
from tidelog.client.settings import NetworkSettings
from tidelog.clock import Clock
from tidelog.controller.cluster.context import LiveBroker
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.controller_term import ControllerSettings
from tidelog.controller.topics import TopicDefaults
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import TopicPartition
from tidelog.metadata import znode_requests, znodes
from tidelog.metadata.broker_config import BrokerConfig
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.store import SessionExpired, SessionState, SharedStore, StoreError
from tidelog.metadata.topic_options import TopicConfig
from tidelog.metadata.znodes import BrokerRegistration
from tidelog.replication.fetch_loop import FetchLoop, FetchLoops
from tidelog.replication.partitions import Partitions
from tidelog.replication.replication_context import ReplicationContext
from tidelog.storage.log_dirs import LogDirs
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

logger = logging.getLogger(__name__)

_INFORMED_TIMEOUT_S = 10.0
_UNCLEAN = "unclean.leader.election.enable"


class ClusterMembership:
    """One broker among others."""

    control: ControllerRequests
    controller: ClusterController

    def __init__(self, config: BrokerConfig, clock: Clock, store: SharedStore, feed: ClusterFeed) -> None:
        self.broker_epoch = -1
        self.given_up = False
        self._connected = True
        self._config = config
        self._clock = clock
        self._store = store
        self._feed = feed
        self._settings = NetworkSettings(
            client_id=f"broker-{config.node_id}",
            receive_buffer_bytes=socket_buffer(config, "replica.socket.receive.buffer.bytes"),
        )
        timeout_ms = config.int("controller.socket.timeout.ms")
        self.link = ControllerLink(self._controller_address, self._settings, timeout_ms)
        self.links = BrokerLinks(
            config.node_id,
            feed.image,
            store,
            lambda broker_id: PeerBroker(lambda: self._address_of(broker_id), self._settings),
        )
        self._isr = IsrSender(config.node_id, lambda: self.broker_epoch, lambda: self.link)
        self.replication_context = ReplicationContext(
            clock, self._isr, lambda: feed.image.brokers.keys(), config.int("replica.lag.time.max.ms")
        )
        self._stop_session: Callable[[], None] = lambda: None
        self._shrinking: asyncio.TimerHandle | None = None

    def attach(
        self,
        partitions: Partitions,
        log_dirs: LogDirs,
        configs: DynamicConfigs,
        on_offline: Callable[[LogDirOfflineError], None],
        on_roles: Callable[[ImageDelta], None],
    ) -> None:
        """The rest of the broker is there."""
        self._partitions = partitions
        partitions.on_lost = self._log_dir_failed
        self._log_dirs = log_dirs
        self.replication_context.truncation = log_dirs
        self._on_offline = on_offline
        self.throttles = Throttles(self._config, self._clock, self._feed, configs)
        self.loops = FetchLoops(self._fetch_loop)
        self.controller_requests = ControllerRequests(
            self._config.node_id,
            lambda: self.broker_epoch,
            self._feed,
            partitions,
            log_dirs,
            self.loops,
            on_roles,
        )
        self._configs = configs

    async def join(self, registration: BrokerRegistration, *, after_crash: bool = False) -> None:
        """Register and take part in the election."""
        self._registration = registration
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
        try:
            async with asyncio.timeout(_INFORMED_TIMEOUT_S):
                await self.controller_requests.informed.wait()
        except TimeoutError:
            self.controller_requests.expects_topics = False
            if self._feed.image.brokers:
                self.controller_requests.informed.set()
            else:
                logger.warning("No controller has told this broker anything yet; it turns clients away")

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
        for _ in range(1 + config.int("controlled.shutdown.max.retries")):
            if not waited:
                await asyncio.sleep(pause_ms / 1000)
            timeout_ms = config.int("controller.socket.timeout.ms")
            waited = not self._connected or self._controller_address() is None
            if waited:
                timeout_ms = min(timeout_ms, pause_ms)
            try:
                response = await self.link.request(
                    ControlledShutdownRequest(broker_id=config.node_id, broker_epoch=self.broker_epoch),
                    ControlledShutdownResponse,
                    timeout_ms=timeout_ms,
                )
            except KafkaError as error:
                logger.warning("Nobody takes over what this broker leads: %s", error)
                if not self._connected:
                    return
                continue
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                return
            waited = False
            logger.info(
                "The controller has not taken over everything yet: %s, %d partitions",
                ErrorCode(response.error_code).name,
                len(response.remaining_partitions),
            )
        logger.warning("This broker stops though it leads partitions still")

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
        await self.links.close()
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
            self._store, self._registration, patience_ms, lambda: self.given_up
        )
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
        for partition in self._partitions:
            partition.shrink_isr()

    # Ways to others

    def _fetch_loop(self, leader_id: int) -> FetchLoop:
        peer = PeerBroker(lambda: self._address_of(leader_id), self._settings)
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
        def listener_of(broker: LiveBroker) -> Address | None:
            return _address(broker.registration, self._control_listeners)

        timeout_ms = min(
            self._config.int("controller.socket.timeout.ms"), self._config.int("request.timeout.ms")
        )
        return Channels(listener_of, self._settings, timeout_ms)

    @property
    def _control_listeners(self) -> tuple[str, ...]:
        """The listeners by which the controller and brokers speak, the best first."""
        inter_broker = self._config.inter_broker_listener_name
        return (self._config.control_plane_listener_name or inter_broker, inter_broker)

    def _address_of(self, broker_id: int) -> Address | None:
        known: Mapping[int, BrokerRegistration] = self._feed.image.brokers
        registration = known.get(broker_id)
        if registration is None:
            return None
        return _address(registration, (self._config.inter_broker_listener_name,))

    def _controller_address(self) -> Address | None:
        if self.controller.is_active:
            return _address(self._registration, self._control_listeners)
        registration = self._feed.image.brokers.get(self.controller.active_id)
        return None if registration is None else _address(registration, self._control_listeners)


def _address(registration: BrokerRegistration, names: tuple[str, ...]) -> Address | None:
    for name in names:
        for endpoint in registration.endpoints:
            if endpoint.name == name:
                return Address(endpoint.host, endpoint.port)
    return None
