"""Fetch requests in bytes, from version 4 (records of format 2) to the newest.

Topics are named by id since version 13; a session that knows no id of one of its topics stays below that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tidelog.client.consumer.fetch_config import FetchConfig
from tidelog.client.consumer.fetch_session import SessionRequest
from tidelog.ids import TopicPartition, Uuid
from tidelog.wire.codec import encode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

T = TypeVar("T")

LOWEST_VERSION = 4
NAMES_UNTIL = 12
"""The last version in which topics are named by name."""


def encode_fetch_request(request: SessionRequest, version: int, config: FetchConfig) -> bytes:
    """The body of a request; partitions stand in the order of ``request``, topic by topic."""
    asked = _by_topic(
        (
            partition,
            ask.topic_id,
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=ask.leader_epoch,
                fetch_offset=ask.fetch_offset,
                partition_max_bytes=ask.max_bytes,
            ),
        )
        for partition, ask in request.to_send.items()
    )
    forgotten = _by_topic(
        (partition, topic_id, partition.partition) for partition, topic_id in request.to_forget
    )
    return encode(
        FetchRequest(
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=config.isolation_level,
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=[
                FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
                for (name, topic_id), partitions in asked.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=topic_id, partitions=numbers)
                for (name, topic_id), numbers in forgotten.items()
            ]
            if version >= 7
            else [],
            rack_id=config.client_rack,
        ),
        version,
    )


def _by_topic(entries: Iterable[tuple[TopicPartition, Uuid, T]]) -> dict[tuple[str, Uuid], list[T]]:
    topics: dict[tuple[str, Uuid], list[T]] = {}
    for partition, topic_id, entry in entries:
        topics.setdefault((partition.topic, topic_id), []).append(entry)
    return topics
