"""ElectLeaders, versions 0 to 2: elects the leaders of partitions anew.

Version 0 knows preferred elections only, and no error beside those of the partitions. With null instead of
partitions every partition is considered and those that need no election are left out of the answer; a
partition that is named and needs none is ELECTION_NOT_NEEDED, which on a single broker is every one that has
its leader.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.controller.topics import ElectionType
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

API = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)

_BATCH_SIZE = 64

_OWN_ERROR_SINCE = 1


async def handle(
    context: RequestContext,
    request: ElectLeadersRequest,
    admin: Admin,
    image: MetadataImage,
    authorization: Authorization,
) -> ElectLeadersResponse:
    """Elect, and answer for each partition."""
    try:
        authorization.require(context.session, Operation.ALTER, ResourceType.CLUSTER)
        return await _elect(context, request, admin, image)
    except KafkaError as error:
        response = refuse(request, error)
        if context.version < _OWN_ERROR_SINCE:
            response.error_code = ErrorCode.NONE
        return response


async def _elect(
    context: RequestContext, request: ElectLeadersRequest, admin: Admin, image: MetadataImage
) -> ElectLeadersResponse:
    if request.election_type not in ElectionType.__members__.values():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    if request.topic_partitions is None:
        topics = {topic.name: list(topic.partitions) for topic in image.topics.values()}
    else:
        topics = {topic.topic: topic.partitions for topic in request.topic_partitions}
    partitions: list[TopicPartition] = []
    named = ((name, index) for name, indexes in topics.items() for index in indexes)
    async for name, index in yielding_every(_BATCH_SIZE, named):
        partitions.append(TopicPartition(name, index))
    outcomes = await admin.elect_leaders(
        partitions, ElectionType(request.election_type), timeout_ms=request.timeout_ms
    )
    results = {name: ReplicaElectionResult(topic=name) for name in topics}
    async for (name, index), error in yielding_every(_BATCH_SIZE, outcomes.items()):
        if request.topic_partitions is not None or not _needs_none(error):
            results[name].partition_result.append(_result(index, error))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def refuse(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """The error itself, and once for every partition that was named."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic, partition_result=[_result(index, error) for index in topic.partitions]
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _needs_none(error: KafkaError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED


def _result(index: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=index, error_message=None)
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message or None)
