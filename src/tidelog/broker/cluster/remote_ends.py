"""Where partitions end that other brokers lead: for the lag of groups that are coordinated here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.broker.cluster.peer_broker import PeerBroker
from tidelog.ids import TopicPartition
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LATEST = -1
_TIMEOUT_MS = 5000.0


async def ask(peer: PeerBroker, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The high watermarks that a leader tells; partitions that it does not lead any more are left out."""
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index in partitions:
        wanted = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        wanted.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
    response = await peer.request(request, ListOffsetsResponse, _TIMEOUT_MS)
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code and each.offset >= 0
    }
