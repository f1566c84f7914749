"""Requests of transactional producers, and producers that are brought to a state first.

``Producer`` is one life of a transactional id: what it sends unless told otherwise is right. The coordinator
answers EndTxn before the markers stand in the partitions: ``settled`` waits for them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.compat.side_by_side.batches import TRANSACTIONAL, Batch, records
from tests.compat.side_by_side.records_requests import (
    fetch,
    fetch_request,
    fetch_topic,
    offsets_request,
    produce,
    stored,
    wanted,
)
from tests.compat.side_by_side.side import TIMEOUT_S, Side

from tidelog.errors import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

READ_COMMITTED = 1
SECOND_VERSION = {"init": 5, "produce": 13, "offsets": 4, "commit_offsets": 5, "end": 5}
"""Request versions since which a client speaks transaction version 2 (KIP-890)."""
FIRST_VERSION = {"init": 4, "produce": 11, "offsets": 3, "commit_offsets": 4, "end": 4}
TRANSACTION_VERSIONS = {"tv1": FIRST_VERSION, "tv2": SECOND_VERSION}


def transactional_id(side: Side, stem: str = "x") -> str:
    """The transactional id under which this case knows ``stem``."""
    return f"{side.prefix}-{stem}"


@dataclass
class Producer:
    """One life of a transactional id; ``tv`` says in which versions it speaks."""

    side: Side
    stem: str = "x"
    tv: str = "tv2"
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    @property
    def name(self) -> str:
        return transactional_id(self.side, self.stem)

    def version(self, kind: str) -> int:
        return TRANSACTION_VERSIONS[self.tv][kind]

    # InitProducerId

    def init(self, version: int | None = None, **more: object) -> object:
        """Ask for an id and an epoch and take what comes."""
        version = self.version("init") if version is None else version
        found = self.side.ask_raw(version, self.init_request(**more))
        if isinstance(found, str):
            return found
        if found.error_code == 0:  # type: ignore[attr-defined]
            self.is_called(found.producer_id, found.producer_epoch)  # type: ignore[attr-defined]
        return self.side.plain(found, version)

    def init_request(self, **more: object) -> InitProducerIdRequest:
        fields: dict[str, object] = {"transactional_id": self.name, "transaction_timeout_ms": 60_000}
        return InitProducerIdRequest(**{**fields, **more})  # type: ignore[arg-type]

    def is_called(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequence = 0
        self.producer_id, self.epoch = producer_id, epoch
        self.side.call("producer", producer_id)

    def begun(self, **more: object) -> Producer:
        """Initialised, which has to work."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response = self.side.expect(self.version("init"), self.init_request(**more))
            code = ErrorCode(response.error_code)  # type: ignore[attr-defined]
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            assert time.monotonic() < deadline, f"{self.side.name}: {self.name} does not come to rest"
            time.sleep(0.01)
        assert code == ErrorCode.NONE, f"{self.side.name}: {code}"
        self.is_called(response.producer_id, response.producer_epoch)  # type: ignore[attr-defined]
        return self

    # AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit

    def add(self, topic: str, *partitions: int, version: int = 3, verify_only: bool = False) -> object:
        """Add partitions to the transaction."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))]
        return self.side.ask(version, self.add_request(topics, version, verify_only=verify_only))

    def add_request(
        self, topics: list[AddPartitionsToTxnTopic], version: int, *, verify_only: bool = False
    ) -> AddPartitionsToTxnRequest:
        if version < 4:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            )
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=topics,
        )
        return AddPartitionsToTxnRequest(transactions=[transaction])

    def add_offsets(self, group_id: str, version: int | None = None) -> object:
        """Add a group's offsets to the transaction."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return self.side.ask(self.version("offsets") if version is None else version, request)

    def commit_offsets(
        self, group_id: str, topic: str, offset: int = 7, version: int | None = None, **more: object
    ) -> object:
        """Commit an offset of a group as part of the transaction."""
        place = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "in transaction"}
        place |= {name: more.pop(name) for name in list(more) if name in place}
        part = TxnOffsetCommitRequestPartition(**place)  # type: ignore[arg-type]
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
            **more,  # type: ignore[arg-type]
        )
        return self.side.ask(self.version("commit_offsets") if version is None else version, request)

    # EndTxn

    def end(self, committed: bool = True, version: int | None = None) -> object:
        """End the transaction; since version 5 the answer brings the next epoch."""
        version = self.version("end") if version is None else version
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        found = self.side.ask_raw(version, request)
        if isinstance(found, str):
            return found
        if version >= 5 and found.error_code == 0:  # type: ignore[attr-defined]
            self.is_called(found.producer_id, found.producer_epoch)  # type: ignore[attr-defined]
        return self.side.plain(found, version)

    # Produce

    def batch(self, count: int = 1, **more: object) -> bytes:
        """The next transactional batch of this producer."""
        made = Batch(
            tuple(records(count)),
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        ).with_(**more)
        return made.bytes()

    def produce(
        self, topic: str, count: int = 1, *, partition: int = 0, version: int | None = None, **more: object
    ) -> object:
        """Send a batch within the transaction; sequences are one partition's."""
        version = self.version("produce") if version is None else version
        data = self.batch(count, **more)
        answer = produce(
            self.side, topic, data, version=version, partition=partition, transactional_id=self.name
        )
        if isinstance(answer, dict):
            (part,) = answer["responses"][0]["partition_responses"]
            if part["error_code"] == "NONE":
                self.sequence += count
        return answer

    def write(self, topic: str, count: int = 1, *, partition: int = 0) -> None:
        """Add the partition where this version needs it, and produce; has to work."""
        if self.tv == "tv1":
            with_retry(lambda: self.add(topic, partition), "CONCURRENT_TRANSACTIONS")
        answer = with_retry(
            lambda: self.produce(topic, count, partition=partition), "CONCURRENT_TRANSACTIONS"
        )
        assert "NONE" in str(answer), f"{self.side.name}: {answer}"

    # What is seen

    def described(self) -> object:
        """The transaction as the coordinator shows it."""
        return transactions(self.side, self.name)

    def settled(self) -> object:
        """The same, once no markers are under way."""
        deadline = time.monotonic() + TIMEOUT_S
        while "Prepare" in str(found := self.described()):
            assert time.monotonic() < deadline, f"{self.side.name}: {found}"
            time.sleep(0.01)
        return found


def with_retry(ask: object, *codes: str) -> object:
    """Ask until the answer has none of these codes: Kafka asks its clients to try again."""
    assert callable(ask)
    deadline = time.monotonic() + TIMEOUT_S
    while any(code in str(answer := ask()) for code in codes):
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    return answer


def transactions(side: Side, *names: str) -> object:
    """Transactions as DescribeTransactions shows them, topics by name."""
    answer = side.ask(0, DescribeTransactionsRequest(transactional_ids=list(names)))
    if isinstance(answer, dict):
        for state in answer["transaction_states"]:
            state["topics"].sort(key=lambda each: str(each["topic"]))
            for topic in state["topics"]:
                topic["partitions"].sort()
    return answer


def log_of(side: Side, topic: str, partition: int = 0) -> dict[str, object]:
    """All that a partition shows: its batches, what is read as committed, its producers, its stable end."""
    return {
        "stored": [_named(side, each) for each in stored(side, topic, partition)],
        "committed": committed(side, topic, partition=partition),
        "producers": producers_of(side, topic, partition),
        "stable end": side.ask(5, offsets_request(topic, -1, partition=partition, isolation=1)),
        "end": side.ask(5, offsets_request(topic, -1, partition=partition)),
    }


def committed(side: Side, topic: str, offset: int = 0, *, partition: int = 0, version: int = 18) -> object:
    """A read_committed fetch: offsets of batches, the stable end, and what to skip."""
    place = fetch_topic(side, topic, wanted(offset, partition), version=version)
    answer = fetch(side, version, fetch_request(place, isolation_level=READ_COMMITTED))
    if isinstance(answer, dict):
        for named in answer["responses"]:
            for part in named["partitions"]:
                part["records"] = [each["base_offset"] for each in part["records"] or ()]
                if part["aborted_transactions"]:
                    part["aborted_transactions"].sort(key=lambda each: each["first_offset"])
    return answer


def producers_of(side: Side, topic: str, *partitions: int) -> object:
    """DescribeProducers, the producers in the order in which the case met them."""
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=list(partitions or (0,)))]
    )
    answer = side.ask(0, request)
    if isinstance(answer, dict):
        for named in answer["topics"]:
            for part in named["partitions"]:
                part["active_producers"].sort(key=lambda each: str(each["producer_id"]))
    return answer


def _named(side: Side, batch: dict[str, object]) -> dict[str, object]:
    producer_id = batch["producer_id"]
    return {**batch, "producer_id": side.call("producer", producer_id) if producer_id != -1 else -1}
