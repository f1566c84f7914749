"""What all fetch requests of a broker share: where partitions are, what may be sent, deadlines, long work.

Made by ``broker/app``; used by ``handlers/fetch``, ``delayed_fetch`` and ``follower_poll``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.broker.access.authorization import OPEN, READ_TOPIC, Authorization
from tidelog.broker.fetch.fetch_session import FetchContext, PartitionKey
from tidelog.broker.fetch.nearest_replica import NearestReplica
from tidelog.broker.network.answer import NotAnswerable, PromisedAnswer
from tidelog.broker.network.connection import Connection
from tidelog.broker.partition_errors import OnOffline
from tidelog.broker.quotas.client_quotas import UNLIMITED, ClientQuotas
from tidelog.broker.quotas.payer import Payer
from tidelog.clock import Clock
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid
from tidelog.metadata.image import MetadataImage
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.replication.throttle import ReplicationThrottle
from tidelog.scheduling.deadlines import Deadlines
from tidelog.scheduling.slices import clear_in_slices
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.fetch_request import FetchRequest

logger = logging.getLogger(__name__)


class FetchServices:
    """The parts of one broker that its fetch requests need."""

    def __init__(
        self,
        partitions: Partitions,
        image: MetadataImage,
        deadlines: Deadlines,
        clock: Clock,
        lane: SlowLane,
        max_bytes: int,
        on_offline: OnOffline,
        *,
        authorization: Authorization = OPEN,
        quotas: ClientQuotas = UNLIMITED,
        throttle: ReplicationThrottle | None = None,
        nearest: NearestReplica | None = None,
    ) -> None:
        self.by_name = partitions.by_name
        self.by_id = partitions.by_id
        self.current_leader = partitions.current_leader
        self.errors = partitions.counts.errors
        self.image = image
        self.deadlines = deadlines
        self.clock = clock
        self.max_bytes = max_bytes
        self.on_offline = on_offline
        self.lane = lane
        self.authorization = authorization
        self.quotas = quotas
        self.throttle = throttle
        """What a leader may send to followers, in a cluster."""
        self.nearest = nearest
        """Where consumers are sent to replicas near by."""
        self._partitions = partitions
        self._tasks: set[asyncio.Task[None]] = set()

    def work(
        self,
        work: Coroutine[Any, Any, None],
        answer: PromisedAnswer,
        connection: Connection,
        payer: Payer | None,
    ) -> None:
        """Do what takes several turns of the loop, and in the end resolves ``answer``.

        ``payer`` is charged for the time, where there is a quota of it; None for a follower.
        """

        async def watched() -> None:
            try:
                await work
            except Exception:
                # Nobody else is there to notice: without this the client would wait for ever.
                logger.exception("Unexpected error in a long fetch of %s", connection)
                if not answer.done:
                    answer.fail(NotAnswerable("its fetch could not be answered"))

        self._begin(self.quotas.timed(watched(), payer))

    def empty_soon(self, entries: dict[Any, Any]) -> None:
        """Let go of very many entries in slices."""
        self._begin(self.lane.run(clear_in_slices(entries)))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def guard(self, connection: Connection, request: FetchRequest) -> Callable[[PartitionKey], bool] | None:
        """What says whether a client may read a partition; None if it may read all that it asks for."""
        authorization = self.authorization
        if not authorization.is_on:
            return None
        session = connection.session
        if request.replica_id >= 0:
            is_broker = authorization.allows(session, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
            return None if is_broker else lambda key: False
        decisions = session.decisions
        topic_name = self._partitions.topic_name

        def may_read(key: PartitionKey) -> bool:
            topic = key[0]
            if not isinstance(topic, str):
                topic = topic_name(topic or b"")
                if topic is None:
                    # What does not exist is refused for that.
                    return True
            return decisions.get((READ_TOPIC, topic)) or authorization.allows_topic(
                session, Operation.READ, topic
            )

        return may_read

    def find(self, key: PartitionKey, context: FetchContext) -> Partition:
        """The partition that a client names."""
        topic, index = key
        partitions = self._partitions
        if isinstance(topic, str):
            return partitions.get(topic, index)
        try:
            return partitions.get_by_id(Uuid(topic or b""), index)
        except KafkaError as error:
            name = context.topic_of(key)
            if error.code != ErrorCode.UNKNOWN_TOPIC_ID or name is None:
                raise
            # The session knows the id from a topic that has been deleted since, and perhaps created again.
            if (name, index) in self.by_name:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    "Topic ID in the fetch session did not match the topic ID in the log.",
                ) from error
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index} is gone") from error
