"""CreateTopics, versions 2 to 7: creates topics, or with ``validate_only`` says whether it could.

Behaviour as a Kafka 4 controller's: the topics of a request succeed and fail one by one, a name that comes
twice is INVALID_REQUEST and not created at all, -1 partitions or replicas mean the broker's default, the
answer from version 5 on has the topic's size and effective configs, from version 7 on its id. The topic is
durable, and its partitions take records, when the answer leaves. ``timeout_ms`` limits the wait for other
changes only; 0 is REQUEST_TIMED_OUT, as in Kafka.

Deviations: names of one request that collide with each other ("a.b", "a_b") are refused from the second on;
Kafka compares with existing topics only. ``create.topic.policy.class.name`` is not supported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidelog.broker.context import RequestContext
from tidelog.broker.slow_lane import Work
from tidelog.controller.controller import CreatedTopic
from tidelog.controller.topic_names import CLUSTER_METADATA_TOPIC
from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.config_entries import BrokerLayers, topic_entries
from tidelog.metadata.topic_options import TopicConfig
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


async def handle(context: RequestContext, request: CreateTopicsRequest) -> Work[CreateTopicsResponse]:
    """Create what can be created; every name of the request gets one answer."""
    counts = Counter(topic.name for topic in request.topics)
    wanted = [
        _new_topic(topic)
        for topic in request.topics
        if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC
    ]
    outcomes: dict[str, CreatedTopic | KafkaError] = dict(
        await context.broker.controller.create_topics(
            wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
        )
        if wanted
        else {}
    )
    for name, count in counts.items():
        if count > 1:
            outcomes[name] = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == CLUSTER_METADATA_TOPIC:
            outcomes[name] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
    return _response(context, outcomes)


def _response(
    context: RequestContext, outcomes: Mapping[str, CreatedTopic | KafkaError]
) -> Work[CreateTopicsResponse]:
    response = CreateTopicsResponse()
    for name, outcome in outcomes.items():
        response.topics.append(_result(context, name, outcome))
        yield
    return response


def refuse(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    """The same error for every topic."""
    return CreateTopicsResponse(topics=[_refusal(topic.name, error) for topic in request.topics])


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(context: RequestContext, name: str, outcome: CreatedTopic | KafkaError) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return _refusal(name, outcome)
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.id,
        error_message=None,
        num_partitions=len(outcome.assignment),
        replication_factor=len(outcome.assignment[0]),
        configs=_configs(context, outcome.configs),
    )


def _refusal(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message or None)


def _configs(context: RequestContext, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    """The effective configs of a topic that may only have been validated, sorted by name.

    What the request gave is told as it was given, while DescribeConfigs tells it as it is understood.
    """
    config, image = context.broker.config, context.broker.image
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
