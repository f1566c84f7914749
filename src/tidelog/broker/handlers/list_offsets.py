"""ListOffsets 1 to 11: offsets by position or by timestamp.

Timestamps below zero have meanings: -1 latest, -2 earliest, -3 the record with the highest timestamp (since
version 7), -4 earliest local (8), -5 latest tiered (9), -6 earliest pending upload (11); a later version's
meaning, and any other negative number, is UNSUPPORTED_VERSION, as in Kafka. Latest is the last stable
offset for readers of committed records and the high watermark for others; what a timestamp finds beyond
that is not told. A new leader whose high watermark has not come to where its epoch began answers
OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) to consumers that ask for the end, or for what is
beyond it: it could name an older offset than its predecessor did. Only leaders answer, but for replica id -2,
the one of debugging tools. There is no tiered storage: earliest local is earliest, and the offsets of -5 and
-6 are -1. Partitions named twice are INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter

from tidelog.broker.context import RequestContext
from tidelog.broker.partition_errors import error_code
from tidelog.broker.slow_lane import Work
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from tidelog.replication.partition import Partition
from tidelog.storage.log import TimestampAndOffset
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API = ApiKey.LIST_OFFSETS
VERSIONS = (1, 11)

# Which version knows which special timestamp.
_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
_LATEST = -1
_TIERED = (-5, -6)
_READ_COMMITTED = 1
_CONSUMER = -1
_DEBUGGER = -2
_NOT_AVAILABLE_SINCE = 5

_NOTHING = TimestampAndOffset(NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)


def handle(context: RequestContext, request: ListOffsetsRequest) -> Work[ListOffsetsResponse]:
    """Look the offsets up, partition by partition."""
    named: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        named.update((topic.name, each.partition_index) for each in topic.partitions)
        yield
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            twice = named[topic.name, wanted.partition_index] > 1
            answers.append(_answer(context, request, topic.name, wanted, twice=twice))
            yield
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def refuse(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    """The same error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_error(each.partition_index, error.code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    *,
    twice: bool,
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    if twice:
        return _error(index, ErrorCode.INVALID_REQUEST)
    if wanted.timestamp < 0 and _SINCE.get(wanted.timestamp, context.version + 1) > context.version:
        return _error(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = context.broker.partitions.get(topic, index)
        if request.replica_id == _DEBUGGER:
            partition.check_epoch(wanted.current_leader_epoch)
        else:
            partition.check_leader(wanted.current_leader_epoch)
        found = _find(partition, wanted.timestamp, _end(partition, request))
        if (
            request.replica_id == _CONSUMER
            and partition.is_behind_epoch
            and (wanted.timestamp == _LATEST or (found is _NOTHING and wanted.timestamp not in _TIERED))
        ):
            return _error(index, _not_available(context.version))
    except Exception as error:
        return _error(index, error_code(context.broker, error, "listing offsets of", f"{topic}-{index}"))
    response = ListOffsetsPartitionResponse(
        partition_index=index, timestamp=found.timestamp, offset=found.offset
    )
    if context.version >= 4:
        response.leader_epoch = found.leader_epoch
    return response


def _not_available(version: int) -> ErrorCode:
    if version >= _NOT_AVAILABLE_SINCE:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _end(partition: Partition, request: ListOffsetsRequest) -> int:
    """The end of the log as this client may see it."""
    if request.replica_id != _CONSUMER:
        return partition.log.log_end_offset
    if request.isolation_level == _READ_COMMITTED:
        return partition.log.last_stable_offset
    return partition.log.high_watermark


def _find(partition: Partition, timestamp: int, end: int) -> TimestampAndOffset:
    log = partition.log
    match timestamp:
        case -1:
            return TimestampAndOffset(NO_TIMESTAMP, end, partition.leader_epoch)
        case -2 | -4:
            if log.log_start_offset == log.log_end_offset:
                return TimestampAndOffset(NO_TIMESTAMP, log.log_start_offset, partition.leader_epoch)
            return log.earliest
        case -5 | -6:
            return _NOTHING
        case -3:
            found = log.offset_of_max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    return found if found is not None and found.offset < end else _NOTHING


def _error(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
