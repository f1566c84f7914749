"""DeleteRecords, versions 0 to 2: moves the start of partitions forward, so that older records are gone.

Behaviour as in Kafka: offset -1 means the high watermark, an offset beyond it or below zero is
OFFSET_OUT_OF_RANGE, a topic without ``delete`` in its cleanup policy is POLICY_VIOLATION, internal topics are
INVALID_TOPIC_EXCEPTION. The answer is the low watermark of all replicas, which on one broker is the start of
its log. With followers it waits until those that are alive have deleted, too: they learn of the start with
the leader's next answer, and tell theirs with the fetch behind that. When ``timeout_ms`` are over first, the
partition's error is REQUEST_TIMED_OUT, though the leader has deleted. Of a partition that is named twice the
last offset counts. Records are unreachable when the answer leaves; segments go with the next retention run.
"""

from __future__ import annotations

import asyncio
import logging

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.partition_errors import OnOffline
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import INTERNAL_TOPICS
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

API = ApiKey.DELETE_RECORDS
VERSIONS = (0, 2)

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1

# Each takes some 50 µs, most of them for its line in the log.
_AT_ONCE = 10

logger = logging.getLogger(__name__)


def handle(
    context: RequestContext,
    request: DeleteRecordsRequest,
    partitions: Partitions,
    on_offline: OnOffline,
    authorization: Authorization,
) -> Slices[Promise[DeleteRecordsResponse]]:
    """Delete, partition by partition; then wait for the followers."""
    wanted = [
        (topic, each.partition_index, each.offset)
        for topic in request.topics
        for each in {each.partition_index: each for each in topic.partitions}.values()
    ]
    results = {
        id(topic): DeleteRecordsTopicResult(name=topic.name, partitions=[]) for topic in request.topics
    }
    delayed = DelayedDelete(DeleteRecordsResponse(topics=list(results.values())))

    def delete(topic: DeleteRecordsTopic, index: int, offset: int) -> None:
        if authorization.allows_topic(context.session, Operation.DELETE, topic.name):
            result = _delete(topic.name, index, offset, delayed, partitions, on_offline)
        else:
            result = _refusal(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        results[id(topic)].partitions.append(result)

    for number, (topic, index, offset) in enumerate(wanted, 1):
        delete(topic, index, offset)
        if not number % _AT_ONCE:
            yield
    return delayed.start(request.timeout_ms)


class _Unfinished:
    """A partition whose followers have not deleted yet."""

    __slots__ = ("partition", "result", "target")

    def __init__(self, partition: Partition, target: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.target = target
        self.result = result
        result.error_code = ErrorCode.REQUEST_TIMED_OUT

    def look(self) -> bool:
        """Whether the outcome is known now."""
        partition = self.partition
        if partition.offline:
            self._settle(ErrorCode.KAFKA_STORAGE_ERROR, NO_LOW_WATERMARK)
        elif partition.closed:
            self._settle(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_LOW_WATERMARK)
        elif not partition.is_leader:
            self._settle(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_LOW_WATERMARK)
        elif partition.low_watermark >= self.target:
            self._settle(ErrorCode.NONE, partition.low_watermark)
        else:
            return False
        return True

    def _settle(self, code: ErrorCode, low_watermark: int) -> None:
        self.result.error_code = code
        self.result.low_watermark = low_watermark


class DelayedDelete:
    """The answer to a request, which waits for followers; a waiter of its partitions."""

    def __init__(self, response: DeleteRecordsResponse) -> None:
        self._reply: Promise[DeleteRecordsResponse] = Promise()
        self._response = response
        self._waiting: dict[Partition, list[_Unfinished]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, unfinished: _Unfinished) -> None:
        """Wait for a partition, too; from now on, though others may be added in later turns of the loop."""
        self._waiting.setdefault(unfinished.partition, []).append(unfinished)
        unfinished.partition.watch(self)

    def start(self, timeout_ms: int) -> Promise[DeleteRecordsResponse]:
        """All are known; the answer."""
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._finish)
        else:
            self._reply.resolve(self._response)
        return self._reply

    def partition_changed(self, partition: Partition) -> None:
        """Look whether its followers have deleted now."""
        left = [each for each in self._waiting.pop(partition, ()) if not each.look()]
        if left:
            self._waiting[partition] = left
            return
        partition.unwatch(self)
        if not self._waiting and self._timer is not None:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._waiting:
            partition.unwatch(self)
        if not self._reply.done:
            self._reply.resolve(self._response)


def refuse(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    """The same error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_refusal(each.partition_index, error.code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    topic: str,
    index: int,
    offset: int,
    delayed: DelayedDelete,
    partitions: Partitions,
    on_offline: OnOffline,
) -> DeleteRecordsPartitionResult:
    try:
        partition = partitions.get(topic, index)
        target = _delete_before(partition, offset)
    except LogDirOfflineError as error:
        on_offline(error)
        return _refusal(index, ErrorCode.KAFKA_STORAGE_ERROR)
    except KafkaError as error:
        logger.debug("records of %s-%d are not deleted: %s", topic, index, error)
        return _refusal(index, error.code)
    low_watermark = partition.low_watermark
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
    if low_watermark < target:
        delayed.add(_Unfinished(partition, target, result))
    return result


def _delete_before(partition: Partition, offset: int) -> int:
    """Delete the records before ``offset``; returns the offset that is meant."""
    name = partition.topic_partition
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {name.topic}"
        )
    partition.check_leader()
    if not partition.log.config.delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {name} can not be deleted due to the configured policy",
        )
    target = partition.log.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {target} for partition {name} is not valid"
        )
    partition.log.increment_log_start_offset(target, "a client asked to delete records")
    partition.changed()
    return target


def _refusal(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )
