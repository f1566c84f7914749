"""CreatePartitions, versions 0 to 3: gives topics more partitions, or says whether it could.

Behaviour as a Kafka 4 controller's; a topic that is named twice is INVALID_REQUEST. New partitions take
records when the answer leaves.
"""

from __future__ import annotations

from collections import Counter

from tidelog.broker.context import RequestContext
from tidelog.controller.controller import MorePartitions
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

API = ApiKey.CREATE_PARTITIONS
VERSIONS = (0, 3)


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Add what can be added."""
    counts = Counter(topic.name for topic in request.topics)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    outcomes: dict[str, KafkaError | None] = {name: twice for name in counts if counts[name] > 1}
    wanted = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [each.broker_ids for each in topic.assignments],
        )
        for topic in request.topics
        if counts[topic.name] == 1
    ]
    outcomes |= await context.broker.controller.create_partitions(
        wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    return CreatePartitionsResponse(results=[_result(name, error) for name, error in outcomes.items()])


def refuse(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    """The same error for every topic."""
    return CreatePartitionsResponse(results=[_result(topic.name, error) for topic in request.topics])


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message or None)
