"""The part of a produce request that is about transactions: who may write, and waiting to know it.

A request with a transactional id is looked through before anything of it is staged: each partition's batch
must be part of a transaction that is open there, or be verified with, or added by, the transaction
coordinator (``broker/transaction_verification``). As in Kafka

* all transactional batches of a request must be of one producer and epoch, else the whole request is
  INVALID_PRODUCER_ID_MAPPING;
* what the coordinator says is told in words that every producer tries again: an unavailable coordinator, and
  before Produce 12 CONCURRENT_TRANSACTIONS too, is NOT_ENOUGH_REPLICAS.

An answer that is not there at once makes the whole request wait, with a copy of its records; the ones behind
it on its connection wait too, so that sequence numbers stay in order.

Called by ``handlers/produce``.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable

from tidelog.broker.pending import Answer, NoAnswer, PendingAnswer
from tidelog.broker.slow_lane import Work
from tidelog.broker.transaction_verification import (
    UNVERIFIED_OK,
    Operation,
    TransactionVerification,
    Verified,
)
from tidelog.coordinator.reply import Reply
from tidelog.coordinator.runtime import Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid
from tidelog.records.batch import HEADER_SIZE, MAGIC_V2
from tidelog.replication.partition import Partition
from tidelog.wire.fetch_request import SLICE, drained
from tidelog.wire.produce import TopicRecords

logger = logging.getLogger(__name__)

FindPartition = Callable[[str | None, Uuid | None, int], Partition | None]

_MAGIC_AT = 16
_ATTRIBUTES_AT = 22
_TRANSACTIONAL = 0x10
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")
_NOT_REACHED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class NotVerifiedError(KafkaError):
    """A batch that was not even tried: its answer says nothing about the log."""


class TransactionalRequests:
    """Verifies the transactional batches of produce requests."""

    def __init__(self, verification: TransactionVerification, find: FindPartition) -> None:
        self._verification = verification
        self._find = find

    def verify(self, transactional_id: str, version: int, topics: Iterable[TopicRecords]) -> Reply[Verified]:
        """What is known of a request's batches; raises what refuses the whole request."""
        return drained(self.verify_in_slices(transactional_id, version, topics))

    def verify_in_slices(
        self, transactional_id: str, version: int, topics: Iterable[TopicRecords]
    ) -> Work[Reply[Verified]]:
        """The same, slowly, for a request with very many batches."""
        sequences: dict[TopicPartition, int] = {}
        producers: set[Producer] = set()
        seen = 0
        for name, topic_id, partitions in topics:
            for index, records in partitions:
                seen += 1
                if not seen % SLICE:
                    yield
                producer = producer_of(records)
                partition = self._find(name, topic_id, index) if producer is not None else None
                if producer is None or partition is None:
                    continue
                producers.add(producer[0])
                sequences.setdefault(partition.topic_partition, producer[1])
        if not sequences:
            return Reply.of(UNVERIFIED_OK)
        if len(producers) > 1:
            raise NotVerifiedError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "Transactional records contained more than one producer ID",
            )
        return self._verification.verify_patiently(
            transactional_id, producers.pop(), sequences, Operation.of_produce(version)
        )

    def check(self, partition: Partition, records: memoryview, verified: Verified, version: int) -> None:
        """Refuse a batch that is not, or not any longer, part of an open transaction."""
        name = partition.topic_partition
        code = verified.errors.get(name)
        producer = producer_of(records)
        if producer is None:
            return
        if code is not None:
            raise _refusal(code, version)
        self._verification.check(name, producer[0], verified)


def producer_of(records: memoryview | None) -> tuple[Producer, int] | None:
    """Who has written a transactional batch and its first sequence number; None for any other."""
    if (
        records is None
        or len(records) < HEADER_SIZE
        or records[_MAGIC_AT] != MAGIC_V2
        or not records[_ATTRIBUTES_AT] & _TRANSACTIONAL
    ):
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return (Producer(producer_id, epoch), sequence) if producer_id >= 0 else None


def _refusal(code: ErrorCode, version: int) -> NotVerifiedError:
    """The coordinator's error in words that a producer of that version knows."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return NotVerifiedError(code, "Partition was not added to the transaction")
    adds = Operation.of_produce(version) is Operation.ADD
    if code in _NOT_REACHED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return NotVerifiedError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return NotVerifiedError(code)


def answer_when_verified(
    asked: Reply[Verified],
    answer: Callable[[Verified], Answer | NoAnswer | PendingAnswer],
    release: Callable[[], None],
) -> PendingAnswer:
    """The answer of a request whose verification takes time; ``answer`` appends and settles it then.

    ``release`` is called if it does not come to that.
    """
    pending = PendingAnswer()

    def verified(reply: Reply[Verified]) -> None:
        try:
            known = reply.result()
        except Exception:
            release()
            logger.exception("The transaction of a produce request could not be verified")
            pending.fail("its transaction could not be verified")
            return
        try:
            outcome = answer(known)
        except Exception:
            logger.exception("Unexpected error in a produce request that waited for its verification")
            pending.fail("its produce request could not be handled")
            return
        pending.follow(outcome)

    asked.when_done(verified)
    return pending
