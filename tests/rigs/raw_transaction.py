"""A transactional producer driven with raw requests, in any version: for tests that must see the wire.

producer = RawTransactions(client, "my-id")
producer.init()
producer.produce(topic, b"value", version=12)      # adds its partition; before version 12: add() first
producer.end(committed=True, version=5)            # since version 5 the next transaction has a new epoch
"""

from __future__ import annotations

import time

from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch

from tidelog.errors import ErrorCode
from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.fetch import PartitionData
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

_TRANSACTIONS = 1
_RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_PATIENCE_S = 60.0


class RawTransactions:
    """One transactional id; producer id, epoch and sequence numbers are as the last answers left them."""

    def __init__(self, client: RawClient, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000) -> RawTransactions:
        """Look for the coordinator, and get a producer id and epoch; fences whoever had the id before."""
        deadline = time.monotonic() + _PATIENCE_S
        find = FindCoordinatorRequest(key_type=_TRANSACTIONS, coordinator_keys=[self.transactional_id])
        while (found := self.client.ask(4, find, FindCoordinatorResponse).coordinators[0]).error_code:
            assert time.monotonic() < deadline, found
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        while (response := self.client.ask(4, request, InitProducerIdResponse)).error_code in _RETRIED:
            assert time.monotonic() < deadline, response
        assert response.error_code == 0, response
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()
        return self

    def add(self, topic: RawTopic, *partitions: int) -> list[int]:
        """Add partitions to the transaction, as clients before transaction version 2 do; gives the codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic.name, partitions=list(partitions or (0,)))
            ],
        )
        response = self.client.ask(3, request, AddPartitionsToTxnResponse)
        return [
            each.partition_error_code
            for result in response.results_by_topic_v3_and_below
            for each in result.results_by_partition
        ]

    def batch(
        self, topic: RawTopic, *values: bytes, partition: int = 0, sequence: int | None = None
    ) -> bytes:
        """The next batch for a partition."""
        if sequence is None:
            sequence = self.sequences.get((topic.name, partition), 0)
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def request(
        self, topic: RawTopic, *values: bytes, partition: int = 0, version: int = 12, acks: int = -1
    ) -> ProduceRequest:
        """A request with the next batch for a partition."""
        records = self.batch(topic, *values, partition=partition)
        request = topic.produce_request(records, version=version, acks=acks, partition=partition)
        request.transactional_id = self.transactional_id
        return request

    def produce(
        self, topic: RawTopic, *values: bytes, partition: int = 0, version: int = 12
    ) -> PartitionProduceResponse:
        """Send one batch; the sequence number goes on if it is taken."""
        request = self.request(topic, *values, partition=partition, version=version)
        (answer,) = self.client.ask(version, request, ProduceResponse).responses[0].partition_responses
        if answer.error_code == 0:
            key = topic.name, partition
            self.sequences[key] = self.sequences.get(key, 0) + len(values)
        return answer

    def end(self, *, committed: bool, version: int = 5) -> int:
        """Commit or abort, and take over the next epoch if there is one; gives the code."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        deadline = time.monotonic() + _PATIENCE_S
        # After a restart each partition of the coordinator's topic is loaded for itself.
        while (response := self.client.ask(version, request, EndTxnResponse)).error_code == _LOADING:
            assert time.monotonic() < deadline, response
        if response.error_code == 0 and version >= 5:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return response.error_code


def committed_values(data: PartitionData) -> list[bytes | None]:
    """The values that a reader keeps of an answer which it fetched with isolation level 1."""
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or [])
    raw = data.records or b""
    kept: list[bytes | None] = []
    dropped: set[int] = set()
    for pos, header in iter_batches(raw):
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            kept += [record.value for record in decode_batch(raw[pos : pos + header.size_bytes])]
    return kept
