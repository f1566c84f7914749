"""OffsetForLeaderEpoch 2 to 4: where a leader epoch ended, so that a client can tell whether its log was cut.

Behaviour as in Kafka: only the leader answers, fenced by the epoch that the client believes in; an epoch
that is not known is answered with -1 for both fields and no error.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = (2, 4)


def handle(
    context: RequestContext,
    request: OffsetForLeaderEpochRequest,
    partitions: Partitions,
    authorization: Authorization,
) -> Slices[OffsetForLeaderEpochResponse]:
    """Look the epochs up, partition by partition."""
    session = context.session
    is_broker = authorization.allows(session, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, instead=True)

    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        allowed = is_broker or authorization.allows_topic(session, Operation.DESCRIBE, topic.topic)
        answer = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        yield
        for wanted in topic.partitions:
            answer.partitions.append(
                _end_offset(topic.topic, wanted, partitions)
                if allowed
                else _refused(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
            yield
    return response


def _refused(wanted: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=wanted.partition, error_code=code)


def _end_offset(topic: str, wanted: OffsetForLeaderPartition, partitions: Partitions) -> EpochEndOffset:
    try:
        partition = partitions.get(topic, wanted.partition)
        partition.check_leader(wanted.current_leader_epoch)
    except KafkaError as error:
        return _refused(wanted, error.code)
    epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
