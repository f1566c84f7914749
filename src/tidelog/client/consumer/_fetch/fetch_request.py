"""Fetch requests in bytes, from version 4 (records of format 2) to the newest.

Topics are named by id since version 13; a session that knows no id of one of its topics stays below that.
What a consumer says in the versions since 15 all have the same layout: those are written by hand, as there is
one with every answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeVar

from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.consumer._fetch.fetch_session import SessionRequest
from tidelog.ids import TopicPartition, Uuid
from tidelog.wire.codec import encode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.wire.varint import uvarint

T = TypeVar("T")

LOWEST_VERSION = 4
NAMES_UNTIL = 12
"""The last version in which topics are named by name."""
_BY_HAND = range(15, 19)

# Longest wait, least and most bytes, isolation level, session id and epoch.
_HEAD = struct.Struct(">iiibii")
# Number, leader epoch, offset, last fetched epoch, log start offset, most bytes; no tags.
_PARTITION = struct.Struct(">iiqiqix")
_NUMBER = struct.Struct(">i")


def encode_fetch_request(request: SessionRequest, version: int, config: FetchConfig) -> bytes:
    """The body of a request; partitions stand in the order of ``request``, topic by topic."""
    if version in _BY_HAND:
        return _write(request, config)
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


def _write(request: SessionRequest, config: FetchConfig) -> bytes:
    asked: dict[Uuid, list[bytes]] = {}
    for partition, (topic_id, offset, max_bytes, epoch) in request.to_send.items():
        entry = _PARTITION.pack(partition[1], epoch, offset, -1, -1, max_bytes)
        if topic_id in asked:
            asked[topic_id].append(entry)
        else:
            asked[topic_id] = [entry]
    forgotten: dict[Uuid, list[bytes]] = {}
    for partition, topic_id in request.to_forget:
        forgotten.setdefault(topic_id, []).append(_NUMBER.pack(partition[1]))
    rack = config.client_rack.encode()
    isolation = config.isolation_level
    return b"".join(
        (
            _HEAD.pack(
                config.max_wait_ms,
                config.min_bytes,
                config.max_bytes,
                isolation,
                request.session_id,
                request.epoch,
            ),
            _topics(asked),
            _topics(forgotten),
            uvarint(len(rack) + 1),
            rack,
            b"\x00",
        )
    )


def _topics(topics: dict[Uuid, list[bytes]]) -> bytes:
    parts = [uvarint(len(topics) + 1)]
    for topic_id, entries in topics.items():
        parts += (topic_id, uvarint(len(entries) + 1), *entries, b"\x00")
    return b"".join(parts)


def _by_topic(entries: Iterable[tuple[TopicPartition, Uuid, T]]) -> dict[tuple[str, Uuid], list[T]]:
    topics: dict[tuple[str, Uuid], list[T]] = {}
    for partition, topic_id, entry in entries:
        topics.setdefault((partition.topic, topic_id), []).append(entry)
    return topics
