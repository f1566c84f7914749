"""A cluster as a client sees it: connections to all brokers, metadata that stays fresh, requests.

Owns one connection per broker and channel (``client._network.node_connections``), the metadata
(``client._network.metadata_updater``) and the figures (``client.metrics``) of one producer, consumer or
admin client.

``exchange``, ``send`` and ``send_only`` move bytes for the hot paths, without decoding; ``ask_node`` and
``request_node_once`` move messages; each of them once. ``refresh``, ``topic``, ``request_any``,
``request_node`` and ``request_controller`` try again after errors that pass by themselves, with back-off,
until their deadline; then the last error is raised.

``connect`` reaches a bootstrap server now or fails; ``start`` returns at once and keeps metadata fresh from
then on.

A broker answers a connection's requests in order, so a request that waits there (a long poll, a JoinGroup)
holds up those behind it. ``channel`` names a connection beside the usual one: consumers talk to their
coordinator on ``channel=COORDINATOR``, as Java's do.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from tidelog.client._address import Address, parse_addresses, zookeeper_connect
from tidelog.client._network.connection import Body, Connection, RequestBuilder, ResponseT
from tidelog.client._network.metadata_updater import MetadataUpdater, UpdateListener
from tidelog.client._network.node_connection import NodeConnection
from tidelog.client._network.node_connections import MAIN, NodeConnections
from tidelog.client._network.ongoing_errors import OngoingErrors
from tidelog.client._network.retry import Backoff, Deadline, retrying
from tidelog.client._network.settings import NetworkSettings
from tidelog.client._network.traffic import Traffic, network_metrics
from tidelog.client.errors import NO_ANSWER, BrokerUnreachableError, NoLeaderError, is_retriable
from tidelog.client.metadata import (
    ClusterMetadata,
    LeaderHint,
    Node,
    PartitionMetadata,
    TopicMetadata,
    parse_metadata,
    topic_problem,
)
from tidelog.client.metrics import CLIENT, Family, Metrics, gauge
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.schema import Payload

COORDINATOR = "coordinator"
"""The channel for group and transaction coordinators."""

NodeRef = int | Node
"""A broker by its id in the metadata, or as FindCoordinator describes it."""

Parts = Sequence[bytes | bytearray | memoryview]
"""A request's body in pieces."""


METADATA = Family(
    "{client}-metrics",
    [gauge("metadata-age", lambda updates: updates.age_s, "Age of the metadata in seconds")],
)


class Cluster:
    """A Kafka cluster as seen by one client; ``async with Cluster("host:9092") as cluster:``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        settings: NetworkSettings | None = None,
        **overrides: Any,
    ) -> None:
        """``overrides`` are fields of :class:`NetworkSettings`."""
        self.settings = dataclasses.replace(settings or NetworkSettings(), **overrides)
        zookeeper = zookeeper_connect(bootstrap_servers)
        bootstrap = [] if zookeeper is not None else parse_addresses(bootstrap_servers)
        self.peers = NodeConnections(bootstrap, self.settings, zookeeper)
        self.ongoing_errors = OngoingErrors()
        self.updates = MetadataUpdater(self.settings, self._ask_for_metadata, self.ongoing_errors)
        self.metrics = Metrics(
            self.settings.client_kind,
            self.settings.client_id,
            window_s=self.settings.metrics_sample_window_ms / 1000,
            samples=self.settings.metrics_num_samples,
        )
        self._asking_since: float | None = None
        for family in CLIENT:
            self.metrics.add_one(family, self.metrics)
        network_metrics(self.metrics, self._traffic)
        self.metrics.add_one(METADATA, self.updates)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Reach one of the bootstrap servers and learn who is there; fails at once if none answers."""
        deadline = self.deadline()
        with self.peers.failures.raised():
            connection = await self.peers.bootstrapped(deadline)
        fresh = await self._metadata_from(connection, [], False, deadline)
        self.updates.take(fresh, keep_other_topics=True)

    async def start(self) -> None:
        """Keep metadata fresh in the background; does not wait for a broker."""
        self.updates.start()

    async def close(self) -> None:
        """End the updates and close every connection; requests in flight fail."""
        await self.updates.close()
        await self.peers.close()

    @property
    def request_timeout_ms(self) -> int:
        """How long one request may take."""
        return self.settings.request_timeout_ms

    @property
    def api_timeout_ms(self) -> int:
        """How long one whole operation may take."""
        return self.settings.api_timeout_ms

    def deadline(self, timeout_ms: float | None = None) -> Deadline:
        """A deadline of ``timeout_ms``, by default the time that one whole operation may take."""
        return Deadline(self.settings.api_timeout_ms if timeout_ms is None else timeout_ms)

    def backoff(self) -> Backoff:
        """The pauses between the attempts of one operation."""
        settings = self.settings
        return Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, settings.retries)

    # -- requests to one broker, once

    @property
    def client_id(self) -> str:
        return self.settings.client_id

    @property
    def metadata(self) -> ClusterMetadata:
        """What is known now: an immutable snapshot."""
        return self.updates.metadata

    def request_update(self) -> int:
        """Ask for an update soon; the result is for :meth:`wait_for_update`."""
        return self.updates.request_update()

    async def wait_for_update(self, version: int, deadline: Deadline, what: str) -> ClusterMetadata:
        """Wait for metadata newer than ``version``; ``what`` it is needed for is named when time is up."""
        return await self.updates.wait_for_update(version, deadline, what)

    async def wait_for_topic(
        self, name: str, deadline: Deadline, partition: int | None = None
    ) -> TopicMetadata:
        """Use a topic and wait until it is known (with ``partition``); for clusters that are started."""
        return await self.updates.wait_for_topic(name, deadline, partition)

    def subscribe_updates(self, listener: UpdateListener) -> Callable[[], None]:
        """Have ``listener`` called with every new snapshot; the result unsubscribes it."""
        return self.updates.subscribe(listener)

    def note_leader(
        self, partition: TopicPartition, leader: int, leader_epoch: int, nodes: Iterable[Node] = ()
    ) -> bool:
        """Take over a leader that a produce or fetch response names (KIP-951); whether it was news."""
        return self.updates.note_leaders({partition: LeaderHint(leader, leader_epoch)}, nodes)

    def note_leaders(self, hints: Mapping[TopicPartition, LeaderHint], nodes: Iterable[Node] = ()) -> bool:
        """As :meth:`note_leader`, for all hints of one response."""
        return self.updates.note_leaders(hints, nodes)

    def ready(self, node: NodeRef, channel: str = MAIN) -> bool:
        """Whether a request can be sent to ``node`` now; begins to connect to it where that makes sense."""
        known = self._find(node)
        return known is not None and self.peers.at(known.host, known.port, channel).ready()

    def ready_connection(self, node: NodeRef, channel: str = MAIN) -> Connection | None:
        """The connection to send on now, where :meth:`ready` holds."""
        known = self._find(node)
        if known is None:
            return None
        peer = self.peers.at(known.host, known.port, channel)
        return peer.connection if peer.ready() else None

    def delay_ms(self, node: NodeRef, channel: str = MAIN) -> float:
        """How long until it makes sense to ask :meth:`ready` again (back-off, throttling); 0: at once."""
        return self._peer(node, channel).delay_ms

    def in_flight(self, node: NodeRef, channel: str = MAIN) -> int:
        """How many requests to ``node`` wait for their answers."""
        known = self._find(node)
        return 0 if known is None else self.peers.at(known.host, known.port, channel).in_flight

    def least_loaded_node(self) -> Node | None:
        """The broker to ask when any will do; None where all are in their reconnect back-off."""
        return self.peers.least_loaded(self.metadata.nodes)

    def throttle(self, node: NodeRef, throttle_time_ms: int, channel: str = MAIN) -> None:
        """Send nothing to ``node`` for so long, as its response asked for (KIP-219)."""
        if throttle_time_ms > 0:
            self._peer(node, channel).throttle(throttle_time_ms)

    def api_version(self, node: NodeRef, api_key: int, lowest: int, highest: int) -> int:
        """The newest version from ``lowest`` to ``highest`` that ``node``, once connected to, speaks.

        Raises UNSUPPORTED_VERSION where there is none.
        """
        peer = self._peer(node, MAIN)
        connection = peer.last_connection or self._sibling(peer)
        if connection is None:
            raise BrokerUnreachableError(f"there was no connection to {peer.address} yet")
        return connection.require_version(api_key, lowest, highest)

    def offers(self, api_key: int) -> bool:
        """Whether a broker that there was a connection to offers an API."""
        return any(
            peer.last_connection is not None and peer.last_connection.offers(api_key) for peer in self.peers
        )

    def connection_offering(self, api: type[Payload]) -> Connection | None:
        """The least busy of the open connections to brokers that offer an API; None where there is none."""
        usable = [peer.connection for peer in self.peers if not peer.delay_ms]
        offering = [each for each in usable if each is not None and each.offers(api.API_KEY)]
        return min(offering, key=lambda connection: connection.in_flight, default=None)

    def finalized_feature(self, name: str) -> int:
        """The level of a cluster feature (``transaction.version``), by the newest word of any; 0: none."""
        known = [peer.last_connection for peer in self.peers if peer.last_connection is not None]
        newest = max(known, key=lambda connection: connection.finalized_features_epoch, default=None)
        return 0 if newest is None else newest.finalized_features.get(name, 0)

    async def connection_to(
        self, node: NodeRef, deadline: Deadline | None = None, *, channel: str = MAIN
    ) -> Connection:
        """The connection to ``node``, opened if need be."""
        peer = self._peer(node, channel)
        try:
            return await peer.connected(deadline or Deadline(self.settings.api_timeout_ms))
        except BrokerUnreachableError as error:
            if peer.address in self.peers.bootstrap:
                raise
            node_id = node if isinstance(node, int) else node.id
            raise BrokerUnreachableError(
                f"broker {node_id} is advertised as {peer.address}, which cannot be reached from here "
                f"({error}); check advertised.listeners"
            ) from error

    def send(
        self,
        node: NodeRef,
        api_key: int,
        version: int,
        parts: Parts,
        *,
        timeout_ms: float | None = None,
        channel: str = MAIN,
    ) -> asyncio.Future[Body]:
        """Send a request body at once to a broker that is :meth:`ready`; the future gets the answer's body.

        Requests leave in the order of the calls. A future that is cancelled drops its answer, nothing else.
        """
        timeout = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        return self._open_connection(node, channel).send(api_key, version, parts, timeout / 1000)

    def send_only(
        self,
        node: NodeRef,
        api_key: int,
        version: int,
        parts: Parts,
        *,
        channel: str = MAIN,
    ) -> None:
        """Send a request that gets no answer (a Produce with acks=0) to a broker that is :meth:`ready`."""
        self._open_connection(node, channel).send_only(api_key, version, parts)

    async def exchange(
        self,
        node: NodeRef,
        api_key: int,
        version: int,
        parts: Parts,
        *,
        timeout_ms: float | None = None,
        channel: str = MAIN,
    ) -> Body:
        """Send a request body, connecting if need be, and wait for the body of the answer; one attempt."""
        timeout = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        peer = self._peer(node, channel)
        connection = peer.connection
        if connection is None or not peer.ready():
            deadline = Deadline(timeout)
            connection = await self.connection_to(node, deadline, channel=channel)
            timeout = deadline.remaining * 1000
        return await connection.send(api_key, version, parts, timeout / 1000)

    async def ask_node(
        self,
        node: NodeRef,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline | None = None,
        *,
        max_version: int | None = None,
        channel: str = MAIN,
    ) -> ResponseT:
        """Send to one broker, once, in no version above ``max_version``; connects if need be.

        ``deadline`` is for all of it, the answer included; by default ``request.timeout.ms``.
        """
        deadline = deadline or Deadline(self.settings.request_timeout_ms)
        connection = await self.connection_to(node, deadline, channel=channel)
        return await connection.request(build, response_type, deadline, max_version=max_version)

    # -- requests that are tried again

    async def refresh(
        self,
        topics: Collection[str] | None,
        *,
        allow_auto_create: bool = False,
        deadline: Deadline | None = None,
    ) -> ClusterMetadata:
        """Fresh metadata of ``topics`` (None: of all); errors of single topics are in the result."""
        deadline = deadline or self.deadline()

        async def attempt() -> ClusterMetadata:
            return await self._ask_for_metadata(topics, allow_auto_create, deadline)

        fresh = await retrying(attempt, deadline, backoff=self.backoff())
        self.updates.take(fresh, keep_other_topics=topics is not None)
        return fresh

    async def controllers_metadata(self, topics: Collection[str]) -> ClusterMetadata:
        """What the controller tells of ``topics``: it is the first to know of what it has changed."""
        request = _metadata_request(topics, allow_auto_create=False)
        return parse_metadata(await self.request_controller(request, MetadataResponse, lambda _: ()))

    async def topic(
        self, name: str, *, allow_auto_create: bool = False, deadline: Deadline | None = None
    ) -> TopicMetadata:
        """The metadata of one topic, waiting for a topic that is being created until ``deadline``."""
        deadline = deadline or self.deadline()

        async def attempt() -> TopicMetadata:
            fresh = await self.refresh([name], allow_auto_create=allow_auto_create, deadline=deadline)
            topic = fresh.topics.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if topic is None or error:
                raise topic_problem(name, error)
            return topic

        return await retrying(attempt, deadline, backoff=self.backoff())

    async def existing_topic(self, name: str, *, deadline: Deadline | None = None) -> TopicMetadata:
        """The metadata of a topic that must be there now; only what passes by itself is waited out."""
        deadline = deadline or self.deadline()

        async def attempt() -> TopicMetadata:
            topic = (await self.refresh([name], deadline=deadline)).topics.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if topic is None or error:
                raise topic_problem(name, error)
            return topic

        def passes(error: BaseException) -> bool:
            unknown = isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return is_retriable(error) and not unknown

        return await retrying(attempt, deadline, backoff=self.backoff(), retriable=passes)

    def leader_of(self, partition: TopicPartition) -> tuple[Node, PartitionMetadata]:
        """The leader that the last metadata names; raises ``NoLeaderError`` where there is none."""
        known = self.metadata.partition(partition)
        if known is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic!r} has no partition {partition.partition}",
            )
        node = None if known.leader is None else self.metadata.nodes.get(known.leader)
        if node is None:
            raise NoLeaderError(
                f"partition {partition} has no leader: start one of its brokers {list(known.replicas)}"
            )
        return node, known

    async def request_any(
        self,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline | None = None,
    ) -> ResponseT:
        """Send to whichever broker answers."""
        deadline = deadline or self.deadline()

        async def attempt() -> ResponseT:
            connection = await self.peers.any(self.metadata.nodes, deadline)
            return await connection.request(build, response_type, self._one_request(deadline))

        return await retrying(attempt, deadline, backoff=self.backoff())

    async def request_node(
        self,
        node: NodeRef,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline | None = None,
        *,
        max_version: int | None = None,
        channel: str = MAIN,
    ) -> ResponseT:
        """As :meth:`ask_node`, and again after errors of the network until ``deadline``.

        For requests about the broker itself: what another one may be responsible for by then, its partitions
        or groups, is asked for by :meth:`request_node_once`.
        """
        deadline = deadline or self.deadline()

        async def attempt() -> ResponseT:
            if self._find(node) is None:
                await self.refresh([], deadline=deadline)
            step = self._one_request(deadline)
            return await self.ask_node(
                node, build, response_type, step, max_version=max_version, channel=channel
            )

        return await retrying(attempt, deadline, backoff=self.backoff())

    async def request_node_once(
        self,
        node: NodeRef,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline,
        *,
        max_version: int | None = None,
    ) -> ResponseT:
        """As :meth:`ask_node`, within ``deadline`` and the time that one request may take."""
        step = self._one_request(deadline)
        return await self.ask_node(node, build, response_type, step, max_version=max_version)

    async def request_controller(
        self,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        error_codes: Callable[[ResponseT], Iterable[int]],
        deadline: Deadline | None = None,
    ) -> ResponseT:
        """Send to the controller, and again to the new one where the old one is gone or says it no longer is.

        ``error_codes`` finds the codes in an answer.
        """
        deadline = deadline or self.deadline()

        async def attempt() -> ResponseT:
            node = self.metadata.nodes.get(self.metadata.controller_id)
            if node is None:
                await self.refresh([], deadline=deadline)
                node = self.metadata.nodes.get(self.metadata.controller_id)
            try:
                if node is None:
                    connection = await self.peers.any(self.metadata.nodes, deadline)
                else:
                    connection = await self.connection_to(node, deadline)
                response = await connection.request(build, response_type, self._one_request(deadline))
            except NO_ANSWER:
                if not deadline.expired:
                    await self.refresh([], deadline=deadline)
                raise
            if ErrorCode.NOT_CONTROLLER in error_codes(response):
                await self.refresh([], deadline=deadline)
                raise KafkaError(
                    ErrorCode.NOT_CONTROLLER, f"{connection.address} is no longer the controller"
                )
            return response

        return await retrying(attempt, deadline, backoff=self.backoff())

    def _find(self, node: NodeRef) -> Node | None:
        return self.metadata.nodes.get(node) if isinstance(node, int) else node

    def known_node(self, node: NodeRef) -> Node:
        """The broker that ``node`` names; an error that says who is alive if none does."""
        known = self._find(node)
        if known is None:
            alive = ", ".join(map(str, sorted(self.metadata.nodes)))
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {node} among those alive: {alive}"
            )
        return known

    def _peer(self, node: NodeRef, channel: str) -> NodeConnection:
        known = self.known_node(node)
        return self.peers.at(known.host, known.port, channel)

    def _sibling(self, peer: NodeConnection) -> Connection | None:
        """A connection to the same broker on another channel."""
        for other in self.peers:
            if other.address == peer.address and other.last_connection is not None:
                return other.last_connection
        return None

    def _open_connection(self, node: NodeRef, channel: str) -> Connection:
        peer = self._peer(node, channel)
        connection = peer.connection
        if connection is None:
            raise BrokerUnreachableError(f"there is no connection to {peer.address} now")
        return connection

    async def _ask_for_metadata(
        self, topics: Collection[str] | None, allow_auto_create: bool, deadline: Deadline
    ) -> ClusterMetadata:
        await self._rebootstrap_if_due()
        connection = await self.peers.any(self.metadata.nodes, deadline)
        fresh = await self._metadata_from(connection, topics, allow_auto_create, deadline)
        self._asking_since = None
        return fresh

    async def _metadata_from(
        self,
        connection: Connection,
        topics: Collection[str] | None,
        allow_auto_create: bool,
        deadline: Deadline,
    ) -> ClusterMetadata:
        request = _metadata_request(topics, allow_auto_create)
        response = await connection.request(request, MetadataResponse, self._one_request(deadline))
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            await self._rebootstrap()
        return parse_metadata(response)

    async def _rebootstrap_if_due(self) -> None:
        """Start again where brokers have accepted us but answered nothing useful for too long (KIP-1102)."""
        now = asyncio.get_running_loop().time()
        if self._asking_since is None:
            self._asking_since = now
        waited_ms = (now - self._asking_since) * 1000
        if waited_ms > self.settings.metadata_recovery_rebootstrap_trigger_ms:
            await self._rebootstrap()
            self._asking_since = now

    async def _rebootstrap(self) -> None:
        if self.settings.metadata_recovery_strategy == "rebootstrap":
            self.updates.forget_nodes()
            await self.peers.disconnect()

    def _one_request(self, deadline: Deadline) -> Deadline:
        """``deadline``, but no more time than one request may take."""
        return Deadline(min(self.settings.request_timeout_ms, deadline.remaining_ms))

    def _traffic(self) -> Mapping[str, Traffic]:
        ids = {address: f"node--{number}" for number, address in enumerate(self.peers.bootstrap, 1)}
        ids |= {Address(node.host, node.port): f"node-{node.id}" for node in self.metadata.nodes.values()}
        found = list(self.peers.traffic.items())
        return {ids.get(address, str(address)): each for address, each in found}


def _metadata_request(topics: Collection[str] | None, allow_auto_create: bool) -> MetadataRequest:
    return MetadataRequest(
        topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=allow_auto_create,
    )
