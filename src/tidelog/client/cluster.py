"""A cluster as a client sees it: requests to the right broker, tried again until a deadline.

The network client (``client.network_client``: connections, metadata, one attempt at a time) with patience:
``refresh``, ``topic``, ``request_any``, ``request_node`` and ``request_controller`` try again after errors
that pass by themselves, with back-off, until their deadline; then the last error is raised. Producers,
consumers and admin clients each have one.

``connect`` reaches a bootstrap server now or fails; ``start`` returns at once and keeps metadata fresh from
then on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Self

from tidelog.client.connection import RequestBuilder, ResponseT
from tidelog.client.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    NoLeaderError,
    RequestTimeoutError,
    is_retriable,
)
from tidelog.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata, topic_problem
from tidelog.client.network_client import COORDINATOR, NetworkClient, NodeRef
from tidelog.client.node_connections import MAIN
from tidelog.client.retry import Backoff, Deadline, retrying
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.schema import Payload

__all__ = ["COORDINATOR", "Cluster", "NodeRef"]


class Cluster(NetworkClient):
    """A Kafka cluster as seen by one client; ``async with Cluster("host:9092") as cluster:``."""

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Reach one of the bootstrap servers and learn who is there; fails at once if none answers."""
        deadline = self.deadline()
        connection = await self.peers.bootstrapped(deadline)
        fresh = await self._metadata_from(connection, [], False, deadline)
        self.updates.take(fresh, keep_other_topics=True)

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
        """As :meth:`ask_node`, and again after errors of the network until ``deadline``."""
        deadline = deadline or self.deadline()

        async def attempt() -> ResponseT:
            if self._find(node) is None:
                await self.refresh([], deadline=deadline)
            step = self._one_request(deadline)
            return await self.ask_node(
                node, build, response_type, step, max_version=max_version, channel=channel
            )

        return await retrying(attempt, deadline, backoff=self.backoff())

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
            except (BrokerUnreachableError, ConnectionLostError, RequestTimeoutError):
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
