"""CreatePartitions, versions 0 to 3: gives topics more partitions, or says whether it could.

Behaviour as a Kafka 4 controller's; a topic that is named twice is INVALID_REQUEST, one that is too much for
its client's quota THROTTLING_QUOTA_EXCEEDED (before version 3 the client pauses afterwards). New partitions
take records when the answer leaves.
"""

from __future__ import annotations

from collections import Counter

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.controller.controller import MorePartitions
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

API = ApiKey.CREATE_PARTITIONS
VERSIONS = (0, 3)

_STRICT_QUOTA_SINCE = 3
_BATCH_SIZE = 64
_TWICE = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


async def handle(
    context: RequestContext,
    request: CreatePartitionsRequest,
    admin: Admin,
    image: MetadataImage,
    authorization: Authorization,
    quotas: ClientQuotas,
) -> CreatePartitionsResponse:
    """Add what can be added."""
    counts: Counter[str] = Counter()
    async for topic in yielding_every(_BATCH_SIZE, request.topics):
        counts[topic.name] += 1
    outcomes: dict[str, KafkaError | None] = {}
    denied: dict[str, KafkaError | None] = {}
    wanted: list[MorePartitions] = []
    async for topic in yielding_every(_BATCH_SIZE, request.topics):
        name = topic.name
        if counts[name] > 1:
            outcomes[name] = _TWICE
            continue
        try:
            authorization.require(context.session, Operation.ALTER, ResourceType.TOPIC, name)
        except KafkaError as error:
            denied[name] = error.without_history()
        else:
            assigned = topic.assignments
            placed = None if assigned is None else [each.broker_ids for each in assigned]
            wanted.append(MorePartitions(name, topic.count, placed))
    outcomes |= denied
    mutations = quotas.changes_partitions(context.payer, strict=context.version >= _STRICT_QUOTA_SINCE)
    if mutations is not None:
        # What cannot be added takes nothing of the quota.
        tried = await admin.create_partitions(wanted, validate_only=True, timeout_ms=request.timeout_ms)
        within: list[MorePartitions] = []
        async for more in yielding_every(_BATCH_SIZE, wanted):
            known = image.topics.get(more.topic)
            if known is not None and tried[more.topic] is None:
                try:
                    mutations.record(more.count - len(known.partitions))
                except KafkaError as error:
                    outcomes[more.topic] = error
                    continue
            within.append(more)
        wanted = within
        context.pause_ms = mutations.pause_ms
    outcomes |= await admin.create_partitions(
        wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    response = CreatePartitionsResponse()
    async for name, outcome in yielding_every(_BATCH_SIZE, outcomes.items()):
        response.results.append(_result(name, outcome))
    return response


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message or None)
