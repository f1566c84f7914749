"""CreateTopics, versions 2 to 7: creates topics, or with ``validate_only`` says whether it could.

Behaviour as a Kafka 4 controller's: the topics of a request succeed and fail one by one, a name that comes
twice is INVALID_REQUEST and not created at all, -1 partitions or replicas mean the broker's default, the
answer from version 5 on has the topic's size and effective configs, from version 7 on its id. The topic is
durable, and its partitions take records, when the answer leaves. ``timeout_ms`` limits the wait for other
changes only; 0 is REQUEST_TIMED_OUT, as in Kafka. A topic that is too much for its client's quota is
THROTTLING_QUOTA_EXCEEDED (KIP-599); before version 6 it is created, and the client pauses afterwards.

Deviations: names of one request that collide with each other ("a.b", "a_b") are refused from the second on;
Kafka compares with existing topics only. ``create.topic.policy.class.name`` is not supported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidelog.broker.access.authorization import Authorization, refusal
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.config_entries import BrokerLayers, topic_entries
from tidelog.config.options.topic_options import TopicConfig
from tidelog.controller.controller import CreatedTopic
from tidelog.controller.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

API = ApiKey.CREATE_TOPICS
VERSIONS = (2, 7)

_AT_ONCE = 256
# Each comes with all configs that hold for it.
_DESCRIBED_AT_ONCE = 8
_STRICT_QUOTA_SINCE = 6


async def handle(
    context: RequestContext,
    request: CreateTopicsRequest,
    admin: Admin,
    image: MetadataImage,
    config: BrokerConfig,
    authorization: Authorization,
    quotas: ClientQuotas,
) -> CreateTopicsResponse:
    """Create what can be created; every name of the request gets one answer."""
    counts = Counter(topic.name for topic in request.topics)
    session = context.session
    denied: dict[str, KafkaError] = {}
    if not authorization.allows(session, Operation.CREATE, ResourceType.CLUSTER, instead=True):
        async for name in yielding_every(_AT_ONCE, counts):
            if not authorization.allows_topic(session, Operation.CREATE, name):
                denied[name] = refusal(session, Operation.CREATE, ResourceType.TOPIC, name)
    wanted = [
        _new_topic(topic)
        for topic in request.topics
        if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC and topic.name not in denied
    ]
    outcomes: dict[str, CreatedTopic | KafkaError] = {}
    mutations = quotas.changes_partitions(context.payer, strict=context.version >= _STRICT_QUOTA_SINCE)
    if mutations is not None:
        # What cannot be created takes nothing of the quota.
        tried = await admin.create_topics(wanted, validate_only=True, timeout_ms=request.timeout_ms)
        for name, outcome in tried.items():
            if isinstance(outcome, CreatedTopic):
                try:
                    mutations.record(len(outcome.assignment))
                except KafkaError as error:
                    outcomes[name] = error
        wanted = [topic for topic in wanted if topic.name not in outcomes]
        context.pause_ms = mutations.pause_ms
    if wanted:
        outcomes |= await admin.create_topics(
            wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
        )
    for name, count in counts.items():
        if count > 1:
            outcomes[name] = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == CLUSTER_METADATA_TOPIC:
            outcomes[name] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        elif name in denied:
            outcomes[name] = denied[name]
    return await _response(context, outcomes, image, config, authorization)


async def _response(
    context: RequestContext,
    outcomes: Mapping[str, CreatedTopic | KafkaError],
    image: MetadataImage,
    config: BrokerConfig,
    authorization: Authorization,
) -> CreateTopicsResponse:
    response = CreateTopicsResponse()
    async for name, outcome in yielding_every(_DESCRIBED_AT_ONCE, outcomes.items()):
        may_see = authorization.allows_topic(context.session, Operation.DESCRIBE_CONFIGS, name, quiet=True)
        if isinstance(outcome, CreatedTopic) and not may_see:
            response.topics.append(_without_configs(name, outcome))
        else:
            response.topics.append(_result(context, name, outcome, image, config))
    return response


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(
    context: RequestContext,
    name: str,
    outcome: CreatedTopic | KafkaError,
    image: MetadataImage,
    config: BrokerConfig,
) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return _refusal(name, outcome)
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.id,
        error_message=None,
        num_partitions=len(outcome.assignment),
        replication_factor=len(outcome.assignment[0]),
        configs=_configs(context, outcome.configs, image, config),
    )


def _without_configs(name: str, created: CreatedTopic) -> CreatableTopicResult:
    """What is told of a new topic to whom its configs are not."""
    return CreatableTopicResult(
        name=name,
        topic_id=created.id,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _refusal(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message or None)


def _configs(
    context: RequestContext, overrides: Mapping[str, str], image: MetadataImage, config: BrokerConfig
) -> list[CreatableTopicConfigs]:
    """The effective configs of a topic that may only have been validated, sorted by name.

    What the request gave is told as it was given, while DescribeConfigs tells it as it is understood.
    """
    config, image = config, image
    layers = BrokerLayers(config, image.broker_config(config.node_id), image.broker_config(None))
    entries = topic_entries(TopicConfig(config.topic_defaults(), overrides), layers)
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=overrides.get(entry.name, entry.value),
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in sorted(entries)
    ]
