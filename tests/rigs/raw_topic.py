"""A topic driven with raw requests, in any version: for tests that must see what is on the wire.

topic = RawTopic(client, "orders", cleanup_policy="compact")
answer = topic.produce(batch(b"value"), version=7, acks=1)
assert values(topic.fetch(version=11, offset=answer.base_offset)) == [b"value"]
"""

from __future__ import annotations

import time

from tests.rigs.raw_client import RawClient

from tidelog.ids import ZERO_UUID
from tidelog.records.compression import Codec
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_TOPIC_IDS_SINCE = 13


class RawTopic:
    """A topic that is created with this object."""

    def __init__(self, client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
        """Create it; ``configs`` are topic options with underscores for dots."""
        self.client = client
        self.name = name
        created = client.ask(
            7,
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            CreatableTopicConfig(name=key.replace("_", "."), value=value)
                            for key, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=10_000,
            ),
            CreateTopicsResponse,
        )
        assert created.topics[0].error_code == 0, created
        self.id = created.topics[0].topic_id

    def delete(self) -> None:
        """Delete the topic."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=self.name)], timeout_ms=10_000)
        deleted = self.client.ask(6, request, DeleteTopicsResponse)
        assert deleted.responses[0].error_code == 0, deleted

    def produce_request(
        self, *records: bytes | None, version: int = 9, acks: int = -1, partition: int = 0
    ) -> ProduceRequest:
        """A request with each of ``records`` as the records of the same partition."""
        by_id = version >= _TOPIC_IDS_SINCE
        return ProduceRequest(
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name="" if by_id else self.name,
                    topic_id=self.id if by_id else ZERO_UUID,
                    partition_data=[PartitionProduceData(index=partition, records=each) for each in records],
                )
            ],
        )

    def produce(
        self, *records: bytes | None, version: int = 9, acks: int = -1, partition: int = 0
    ) -> PartitionProduceResponse:
        """Send ``records``; the answer for the last of them."""
        request = self.produce_request(*records, version=version, acks=acks, partition=partition)
        response = self.client.ask(version, request, ProduceResponse)
        return response.responses[0].partition_responses[-1]

    def fetch_topic(self, version: int, *partitions: FetchPartition) -> FetchTopic:
        """The topic's part of a fetch request."""
        by_id = version >= _TOPIC_IDS_SINCE
        return FetchTopic(
            topic="" if by_id else self.name,
            topic_id=self.id if by_id else ZERO_UUID,
            partitions=list(partitions),
        )

    def fetch(
        self,
        *,
        version: int = 13,
        offset: int = 0,
        partition: int = 0,
        partition_max_bytes: int = 1 << 20,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        replica_id: int = -1,
        isolation_level: int = 0,
        client: RawClient | None = None,
    ) -> PartitionData:
        """Fetch from one partition outside any session."""
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            replica_id=replica_id,
            isolation_level=isolation_level,
            topics=[self.fetch_topic(version, wanted)],
        )
        response = (client or self.client).ask(version, request, FetchResponse)
        assert response.error_code == 0, response
        return response.responses[0].partitions[0]


def batch(
    *values: bytes,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch with these values and the time of now."""
    now_ms = time.time_ns() // 1_000_000
    return encode_batch(
        [Record(timestamp=now_ms, value=value) for value in values],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def values(data: PartitionData) -> list[bytes | None]:
    """The values in the whole batches of an answer."""
    found: list[bytes | None] = []
    raw = data.records or b""
    while len(raw) >= 12 and len(raw) >= (size := 12 + int.from_bytes(raw[8:12], "big")):
        found += [record.value for record in decode_batch(raw[:size])]
        raw = raw[size:]
    return found
