"""Ends transactions in the partitions that this broker leads: the real ``MarkerWriter``.

A marker is a control batch, appended as the coordinator's own and counted as written once all in-sync
replicas have it. A marker for ``__consumer_offsets`` goes through the group coordinator, whose shard then
makes the offsets of the transaction count, or drops them.

What becomes of a partition, as in Kafka: UNKNOWN_TOPIC_OR_PARTITION if it is not here,
NOT_LEADER_OR_FOLLOWER if it is led elsewhere or its group coordinator does not serve yet,
INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED for markers that come too late, and what an append
with acks=all may meet. Repeated markers are written again.

Called by the transaction coordinator of this broker (``coordinator/transaction/completion``) and by the
WriteTxnMarkers handler, for coordinators on other brokers and for people who abort a hanging transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from tidelog.clock import Clock
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.markers import MarkerRequest
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.timers import Timers
from tidelog.storage.producers.producer_state import AppendOrigin

logger = logging.getLogger(__name__)

TIMEOUT_MS = 30_000
"""How long the in-sync replicas may take; Kafka's ``request.timeout.ms``."""

# What the transaction coordinator does not expect of a group coordinator, and tries again as this.
_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionMarkers:
    """Writes COMMIT and ABORT markers into local partitions."""

    def __init__(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        clock: Clock,
        timers: Timers,
        on_offline: Callable[[LogDirOfflineError], None],
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._timers = timers
        self._on_offline = on_offline

    def gone(self, partitions: frozenset[TopicPartition]) -> Promise[frozenset[TopicPartition]]:
        """All of them: a broker that is alone knows of everything."""
        return Promise.of(partitions)

    def write(self, request: MarkerRequest) -> Promise[dict[TopicPartition, ErrorCode]]:
        """What became of each partition, once all is committed or refused."""
        answer: Promise[dict[TopicPartition, ErrorCode]] = Promise()
        codes: dict[TopicPartition, ErrorCode] = {}
        names = dict.fromkeys(request.partitions)

        def settle(name: TopicPartition, committed: Promise[None]) -> None:
            codes[name] = ErrorCode.NONE if committed.error is None else self._code(name, committed.error)
            if len(codes) == len(names):
                answer.resolve({each: codes[each] for each in names})

        if not names:
            return Promise.of({})
        for name in names:
            self._write_one(name, request).when_done(partial(settle, name))
        return answer

    def _write_one(self, name: TopicPartition, request: MarkerRequest) -> Promise[None]:
        partition = self._partitions.by_name.get(name)
        if partition is None:
            return Promise.failed(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        try:
            partition.check_leader()
            _check_producer(request)
            partition.log.producers.check_marker(
                request.producer_id, request.producer_epoch, request.transaction_version
            )
            if name.topic == CONSUMER_OFFSETS_TOPIC:
                return self._groups.runtime.end_transaction(
                    name.partition,
                    Producer(request.producer_id, request.producer_epoch),
                    request.coordinator_epoch,
                    committed=request.committed,
                )
            return self._append(partition, request)
        except Exception as error:
            return Promise.failed(error)

    def _append(self, partition: Partition, request: MarkerRequest) -> Promise[None]:
        kind = ControlType.COMMIT if request.committed else ControlType.ABORT
        batch = encode_end_txn_marker(
            EndTxnMarker(kind, request.coordinator_epoch),
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            timestamp=self._clock.time_ms(),
        )
        info = partition.append(memoryview(bytearray(batch)), ACKS_ALL, AppendOrigin.COORDINATOR)
        if partition.log.high_watermark > info.last_offset:
            return Promise.of(None)
        return _CommitWait(partition, info.last_offset + 1, self._timers).committed

    def _code(self, name: TopicPartition, error: Exception) -> ErrorCode:
        match error:
            case KafkaError(code=code):
                return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
            case LogDirOfflineError():
                self._on_offline(error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        logger.error("Unexpected error in writing a transaction marker to %s", name, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _check_producer(request: MarkerRequest) -> None:
    """Refuse what no producer has; Kafka answers UNKNOWN_SERVER_ERROR."""
    if request.producer_id < 0:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"There is no producer id {request.producer_id}."
        )
    if request.producer_epoch < 0:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH, f"There is no producer epoch {request.producer_epoch}."
        )


class _CommitWait:
    """Waits, as a ``Waiter`` of its partition, until all in-sync replicas have what is before an offset."""

    def __init__(self, partition: Partition, end_offset: int, timers: Timers) -> None:
        self.committed: Promise[None] = Promise()
        self._partition = partition
        self._end_offset = end_offset
        self._timers = timers
        partition.watch(self)
        timers.schedule(self, TIMEOUT_MS, lambda: self._finish(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

    def partition_changed(self, partition: Partition) -> None:
        """Look whether the marker is committed, or never will be from here."""
        if partition.log.high_watermark >= self._end_offset:
            self._finish(None)
        elif partition.offline:
            self._finish(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        elif partition.closed or not partition.is_leader:
            self._finish(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _finish(self, error: KafkaError | None) -> None:
        self._partition.unwatch(self)
        self._timers.cancel(self)
        if error is None:
            self.committed.resolve(None)
        else:
            self.committed.fail(error)
