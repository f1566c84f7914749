"""The part of a produce request that is about transactions: who may write, and waiting to know it.

A request with a transactional id is looked through before anything of it is staged: each partition's batch
must be part of a transaction that is open there, or be verified with, or added by, the transaction
coordinator (``broker/coordination/transaction_verification``). As in Kafka

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
from typing import NamedTuple

from tidelog.broker.coordination.transaction_verification import (
    UNVERIFIED_OK,
    Operation,
    TransactionVerification,
    Verified,
)
from tidelog.broker.network.answer import Answer, NoAnswer, NotAnswerable, PromisedAnswer
from tidelog.coordinator.runtime import Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid
from tidelog.records.batch import (
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
)
from tidelog.replication.partition import Partition
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.wire.fetch_request import SLICE
from tidelog.wire.produce import TopicRecords

logger = logging.getLogger(__name__)

FindPartition = Callable[[str | None, Uuid | None, int], Partition | None]

# Producer id, epoch and first sequence number lie side by side.
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

    def verify(
        self, transactional_id: str, version: int, topics: Iterable[TopicRecords]
    ) -> Promise[Verified]:
        """What is known of a request's batches; raises what refuses the whole request."""
        return run_to_end(self.verify_in_slices(transactional_id, version, topics))

    def verify_in_slices(
        self, transactional_id: str, version: int, topics: Iterable[TopicRecords]
    ) -> Slices[Promise[Verified]]:
        """The same, slowly, for a request with very many batches."""
        sequences: dict[TopicPartition, int] = {}
        producers: set[Producer] = set()
        seen = 0
        for name, topic_id, partitions in topics:
            for index, records in partitions:
                seen += 1
                if not seen % SLICE:
                    yield
                origin = producer_of(records)
                partition = self._find(name, topic_id, index) if origin is not None else None
                if origin is None or partition is None:
                    continue
                producers.add(origin.producer)
                sequences.setdefault(partition.topic_partition, origin.first_sequence)
        if not sequences:
            return Promise.of(UNVERIFIED_OK)
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
        origin = producer_of(records)
        if origin is None:
            return
        if code is not None:
            raise _refusal(code, version)
        self._verification.check(name, origin.producer, verified)


class BatchOrigin(NamedTuple):
    """Who has written a transactional batch, and where it stands among those of its producer."""

    producer: Producer
    first_sequence: int


def producer_of(records: memoryview | None) -> BatchOrigin | None:
    """Who has written a transactional batch and its first sequence number; None for any other."""
    if (
        records is None
        or len(records) < HEADER_SIZE
        or records[MAGIC_AT] != MAGIC_V2
        or not records[FLAGS_AT] & TRANSACTIONAL_BIT
    ):
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    return BatchOrigin(Producer(producer_id, epoch), sequence) if producer_id >= 0 else None


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
    asked: Promise[Verified],
    answer: Callable[[Verified], Answer | NoAnswer | PromisedAnswer],
    release: Callable[[], None],
) -> PromisedAnswer:
    """The answer of a request whose verification takes time; ``answer`` appends and settles it then.

    ``release`` is called if it does not come to that.
    """

    def unverified(error: Exception) -> Verified:
        release()
        logger.error("The transaction of a produce request could not be verified", exc_info=error)
        raise NotAnswerable("its transaction could not be verified")

    def verified(known: Verified) -> Answer | NoAnswer | PromisedAnswer:
        try:
            return answer(known)
        except Exception:
            logger.exception("Unexpected error in a produce request that waited for its verification")
            raise NotAnswerable("its produce request could not be handled") from None

    return asked.recover(unverified).then(verified)
