"""Many connections as one cluster: bootstrap, metadata, and requests to the right broker.

Owns one connection per broker and the last metadata. ``request_any``, ``request_node``,
``request_controller`` and ``leader_of`` try again after errors that pass by themselves, with back-off,
until their deadline; then the last error is raised. The admin client, producer and consumer share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Self

from tidelog.client.address import Address, parse_addresses
from tidelog.client.connection import Connection, RequestBuilder, ResponseT
from tidelog.client.errors import BrokerUnreachableError, NoLeaderError, error_code
from tidelog.client.metadata import (
    UNKNOWN_NODE,
    ClusterMetadata,
    Node,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.client.retry import Backoff, Deadline, retrying
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.wire.schema import Payload

_NO_METADATA = ClusterMetadata(None, UNKNOWN_NODE, {}, {})


class Cluster:
    """A Kafka cluster as seen by one client; ``async with Cluster("host:9092") as cluster:``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "tidelog",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
    ) -> None:
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.api_timeout_ms = api_timeout_ms
        self.metadata = _NO_METADATA
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._connect_timeout_ms = connect_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Reach one of the bootstrap servers and learn who is there; fails at once if none answers."""
        response = await self._metadata_from(await self._bootstrap_connection(), [], False, self.deadline())
        self.metadata = _parse_metadata(response)

    async def close(self) -> None:
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    def deadline(self, timeout_ms: float | None = None) -> Deadline:
        """A deadline of ``timeout_ms``, by default the time that one whole operation may take."""
        return Deadline(self.api_timeout_ms if timeout_ms is None else timeout_ms)

    def backoff(self) -> Backoff:
        return Backoff(self._retry_backoff_ms, self._retry_backoff_max_ms)

    async def refresh(
        self,
        topics: Collection[str] | None,
        *,
        allow_auto_create: bool = False,
        deadline: Deadline | None = None,
    ) -> ClusterMetadata:
        """Fresh metadata of ``topics`` (None: of all); errors of single topics are in the result."""
        deadline = deadline or self.deadline()

        async def attempt() -> MetadataResponse:
            connection = await self._any_connection()
            return await self._metadata_from(connection, topics, allow_auto_create, deadline)

        fresh = _parse_metadata(await retrying(attempt, deadline, backoff=self.backoff()))
        kept = {} if topics is None else self.metadata.topics
        self.metadata = ClusterMetadata(
            fresh.cluster_id, fresh.controller_id, fresh.nodes, {**kept, **fresh.topics}
        )
        return fresh

    async def request_any(
        self,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline | None = None,
    ) -> ResponseT:
        """Send to whichever broker answers."""
        deadline = deadline or self.deadline()

        async def attempt() -> ResponseT:
            connection = await self._any_connection()
            return await connection.request(build, response_type, self._step(deadline))

        return await retrying(attempt, deadline, backoff=self.backoff())

    async def request_controller(
        self,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        error_codes: Callable[[ResponseT], Iterable[int]],
        deadline: Deadline | None = None,
    ) -> ResponseT:
        """Send to the controller, and again to the new one where the old one says it no longer is.

        ``error_codes`` finds the codes in an answer.
        """
        deadline = deadline or self.deadline()

        async def attempt() -> ResponseT:
            node = self.metadata.nodes.get(self.metadata.controller_id)
            if node is None:
                await self.refresh([], deadline=deadline)
                node = self.metadata.nodes.get(self.metadata.controller_id)
            connection = await (self._any_connection() if node is None else self.connection_to(node))
            response = await connection.request(build, response_type, self._step(deadline))
            if ErrorCode.NOT_CONTROLLER in error_codes(response):
                await self.refresh([], deadline=deadline)
                raise KafkaError(
                    ErrorCode.NOT_CONTROLLER, f"{connection.address} is no longer the controller"
                )
            return response

        return await retrying(attempt, deadline, backoff=self.backoff())

    async def request_node(
        self,
        node_id: int,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline | None = None,
        *,
        max_version: int | None = None,
    ) -> ResponseT:
        """Send to the broker ``node_id``, in no version above ``max_version``."""
        deadline = deadline or self.deadline()

        async def attempt() -> ResponseT:
            if node_id not in self.metadata.nodes:
                await self.refresh([], deadline=deadline)
            node = self.metadata.nodes.get(node_id)
            if node is None:
                known = ", ".join(map(str, sorted(self.metadata.nodes)))
                raise KafkaError(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {node_id} among those alive: {known}"
                )
            connection = await self.connection_to(node)
            step = self._step(deadline)
            return await connection.request(build, response_type, step, max_version=max_version)

        return await retrying(attempt, deadline, backoff=self.backoff())

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
                raise KafkaError(error, _topic_problem(name, error))
            return topic

        return await retrying(attempt, deadline, backoff=self.backoff())

    def leader_of(self, partition: TopicPartition) -> tuple[Node, PartitionMetadata]:
        """The leader that the last metadata names; raises ``NoLeaderError`` where there is none."""
        topic = self.metadata.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
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

    async def connection_to(self, node: Node) -> Connection:
        """The connection to ``node``, opened if need be."""
        address = Address(node.host, node.port)
        try:
            return await self._connection(address)
        except BrokerUnreachableError as error:
            if address in self._bootstrap:
                raise
            raise BrokerUnreachableError(
                f"broker {node.id} is advertised as {address}, which cannot be reached from here ({error}); "
                "check advertised.listeners"
            ) from error

    def _step(self, deadline: Deadline) -> Deadline:
        return Deadline(min(self.request_timeout_ms, deadline.remaining_ms))

    async def _connection(self, address: Address) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await Connection.open(
                    address, client_id=self.client_id, deadline=Deadline(self._connect_timeout_ms)
                )
                self._connections[address] = connection
            return connection

    async def _bootstrap_connection(self) -> Connection:
        problems: list[BrokerUnreachableError] = []
        for address in self._bootstrap:
            try:
                return await self._connection(address)
            except BrokerUnreachableError as error:
                problems.append(error)
        if len(problems) == 1:
            raise problems[0]
        raise BrokerUnreachableError(
            f"none of {len(problems)} bootstrap servers can be reached; the last one: {problems[-1]}"
        )

    async def _any_connection(self) -> Connection:
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        for node in self.metadata.nodes.values():
            try:
                return await self._connection(Address(node.host, node.port))
            except BrokerUnreachableError:
                continue
        return await self._bootstrap_connection()

    async def _metadata_from(
        self,
        connection: Connection,
        topics: Collection[str] | None,
        allow_auto_create: bool,
        deadline: Deadline,
    ) -> MetadataResponse:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=allow_auto_create,
        )
        return await connection.request(request, MetadataResponse, self._step(deadline))


def _topic_problem(name: str, error: ErrorCode) -> str:
    match error:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"topic {name!r} does not exist"
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return f"{name!r} is no valid topic name"
    return f"topic {name!r} cannot be used now"


def _parse_metadata(response: MetadataResponse) -> ClusterMetadata:
    if response.error_code:
        raise KafkaError(error_code(response.error_code), "the broker cannot answer with metadata now")
    nodes = {
        broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in response.brokers
    }
    topics = {
        topic.name: _parse_topic(topic.name, topic) for topic in response.topics if topic.name is not None
    }
    return ClusterMetadata(response.cluster_id, response.controller_id, nodes, topics)


def _parse_topic(name: str, topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = {
        partition.partition_index: PartitionMetadata(
            partition.partition_index,
            None if partition.leader_id == UNKNOWN_NODE else partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            error_code(partition.error_code),
        )
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
    }
    return TopicMetadata(name, topic.topic_id, topic.is_internal, partitions, error_code(topic.error_code))
