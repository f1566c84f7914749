"""The names behind topic ids: brokers assign by id (KIP-848), consumers read by name.

Metadata knows the subscribed topics. Others (a pattern that the broker matches) are asked for by id, in the
background. One that a broker does not know was deleted, or is so new that the broker has not heard of it yet:
it is asked for again until it has a name or the assignment changes, and what has names is read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client.group._consumer.consumer_member import HeartbeatAssignment
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition, Uuid
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

logger = logging.getLogger(__name__)


class TopicNames:
    """Names of topics by their ids, for one consumer."""

    def __init__(self, cluster: Cluster, retry_ms: float, on_news: Callable[[], None]) -> None:
        self._cluster = cluster
        self._retry_s = retry_ms / 1000
        self._on_news = on_news
        self._known: dict[Uuid, str] = {}
        self._missing: frozenset[Uuid] = frozenset()
        """What the broker that was asked last did not know."""
        self._task: asyncio.Task[None] | None = None

    def resolve(self, target: HeartbeatAssignment) -> bool:
        """Whether each of the target's topics has a name or has been asked for; asks for those without."""
        self._known.update(
            (topic_id, name)
            for topic_id, name in self._cluster.metadata.topic_names.items()
            if topic_id in target
        )
        unknown = [each for each in target if each not in self._known]
        if unknown and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._ask(unknown), name="find topic names")
            self._task.add_done_callback(lambda _: self._on_news())
        return self._missing.issuperset(unknown)

    def partitions(self, target: HeartbeatAssignment) -> frozenset[TopicPartition]:
        """The target by names, without topics that have none."""
        return frozenset(
            TopicPartition(self._known[topic_id], number)
            for topic_id, numbers in target.items()
            if topic_id in self._known
            for number in numbers
        )

    def resolved(self, target: HeartbeatAssignment) -> HeartbeatAssignment:
        """That part of the target which has names."""
        return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in self._known}

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self, topic_ids: list[Uuid]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=each, name=None) for each in topic_ids],
            allow_auto_topic_creation=False,
        )
        try:
            deadline = Deadline(self._cluster.request_timeout_ms)
            response = await self._cluster.request_any(request, MetadataResponse, deadline)
        except TidelogError as error:
            logger.debug("looking for topic names failed: %s", error)
            await asyncio.sleep(self._retry_s)
            return
        found = {each.topic_id: each.name for each in response.topics if each.name and not each.error_code}
        self._known.update(found)
        self._missing = frozenset(each for each in topic_ids if each not in found)
        if self._missing:
            self._on_news()
            await asyncio.sleep(self._retry_s)
