"""Creating, deleting, growing and describing topics.

Changes go to the controller; descriptions are metadata, which any broker has. Called by ``AsyncAdmin``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client.admin._config_changes import config_text
from tidelog.client.admin._quota_retry import Answer, until_admitted
from tidelog.client.errors import ClientError, error_from
from tidelog.client.metadata import TopicMetadata
from tidelog.client.resources import NewPartitions, NewTopic, TopicDescription, TopicResult
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, Uuid, uuid_to_text
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_BROKER_DEFAULTS_SINCE = 4
_DELETE_BY_STATE_SINCE = 6
_TOTALS_ARE = "create_partitions takes the number of partitions that each topic shall have, as {'orders': 6}"


async def create_topics(
    cluster: Cluster,
    topics: Sequence[NewTopic],
    *,
    validate_only: bool,
    retry_on_quota_violation: bool = True,
) -> list[TopicResult]:
    """See :meth:`AsyncAdmin.create_topics`."""
    deadline = cluster.deadline()

    async def ask(wanted: Sequence[NewTopic]) -> Answer:
        def build(version: int) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=[_creatable(topic, version) for topic in wanted],
                timeout_ms=deadline.remaining_ms,
                validate_only=validate_only,
            )

        response = await cluster.request_controller(
            build, CreateTopicsResponse, lambda r: (topic.error_code for topic in r.topics), deadline
        )
        results = [
            TopicResult(
                topic.name,
                error_from(topic.error_code, topic.error_message, f"topic {topic.name!r}"),
                _known(topic.topic_id),
                topic.num_partitions,
                topic.replication_factor,
            )
            for topic in response.topics
        ]
        return Answer(response.throttle_time_ms, results)

    wanted: dict[str | Uuid, NewTopic] = {topic.name: topic for topic in topics}
    if len(wanted) < len(topics):
        # A topic that is named twice is the broker's to refuse.
        return list((await ask(topics)).results)
    return await until_admitted(cluster, wanted, ask, deadline, retry=retry_on_quota_violation)


async def delete_topics(
    cluster: Cluster, topics: Sequence[str | Uuid], *, retry_on_quota_violation: bool = True
) -> list[TopicResult]:
    """See :meth:`AsyncAdmin.delete_topics`."""
    deadline = cluster.deadline()

    async def ask(wanted: Sequence[str | Uuid]) -> Answer:
        response = await cluster.request_controller(
            lambda version: _deletion(wanted, version, deadline),
            DeleteTopicsResponse,
            lambda r: (topic.error_code for topic in r.responses),
            deadline,
        )
        results = [
            TopicResult(
                topic.name or "",
                error_from(
                    topic.error_code,
                    topic.error_message,
                    f"topic {topic.name or uuid_to_text(topic.topic_id)!r}",
                ),
                _known(topic.topic_id),
            )
            for topic in response.responses
        ]
        return Answer(response.throttle_time_ms, results)

    wanted = {topic: topic for topic in topics}
    if len(wanted) < len(topics):
        return list((await ask(topics)).results)
    return await until_admitted(cluster, wanted, ask, deadline, retry=retry_on_quota_violation)


def _deletion(topics: Sequence[str | Uuid], version: int, deadline: Deadline) -> DeleteTopicsRequest:
    if version >= _DELETE_BY_STATE_SINCE:
        return DeleteTopicsRequest(
            topics=[_deletable(topic) for topic in topics], timeout_ms=deadline.remaining_ms
        )
    names = [topic for topic in topics if isinstance(topic, str)]
    if len(names) < len(topics):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "this broker is older than Kafka 2.8 and deletes topics by name only",
        )
    return DeleteTopicsRequest(topic_names=names, timeout_ms=deadline.remaining_ms)


def checked_totals(totals: Mapping[str, int | NewPartitions]) -> Mapping[str, int | NewPartitions]:
    """``totals``; raises ``ClientError`` where they are no numbers of partitions, which are 1 or more."""
    if not isinstance(totals, Mapping):
        raise ClientError(f"{_TOTALS_ARE}, not {totals!r}")
    for topic, wanted in totals.items():
        total = wanted.total if isinstance(wanted, NewPartitions) else wanted
        if not isinstance(topic, str) or not isinstance(total, int) or isinstance(total, bool):
            raise ClientError(f"{_TOTALS_ARE}, not {{{topic!r}: {wanted!r}}}")
        if total < 1:
            raise ClientError(
                f"topic {topic!r} cannot have {total} partitions: give the new total, which is "
                "above the present one"
            )
    return totals


async def create_partitions(
    cluster: Cluster,
    totals: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool,
    retry_on_quota_violation: bool = True,
) -> list[TopicResult]:
    """See :meth:`AsyncAdmin.create_partitions`."""
    deadline = cluster.deadline()

    async def ask(names: Sequence[str]) -> Answer:
        request = CreatePartitionsRequest(
            topics=[_growing(name, totals[name]) for name in names],
            timeout_ms=deadline.remaining_ms,
            validate_only=validate_only,
        )
        response = await cluster.request_controller(
            request, CreatePartitionsResponse, lambda r: (topic.error_code for topic in r.results), deadline
        )
        results = [
            TopicResult(
                topic.name, error_from(topic.error_code, topic.error_message, f"topic {topic.name!r}")
            )
            for topic in response.results
        ]
        return Answer(response.throttle_time_ms, results)

    wanted: dict[str | Uuid, str] = {name: name for name in totals}
    return await until_admitted(cluster, wanted, ask, deadline, retry=retry_on_quota_violation)


async def list_topics(cluster: Cluster, *, include_internal: bool) -> list[TopicDescription]:
    """See :meth:`AsyncAdmin.list_topics`."""
    metadata = await cluster.refresh(None)
    return [
        _description(topic)
        for _, topic in sorted(metadata.topics.items())
        if not topic.error and (include_internal or not topic.is_internal)
    ]


async def describe_topics(
    cluster: Cluster, names: Collection[str], *, by_controller: bool = False
) -> dict[str, TopicDescription]:
    """See :meth:`AsyncAdmin.describe_topics`."""
    metadata = await (cluster.controllers_metadata(names) if by_controller else cluster.refresh(list(names)))
    described: dict[str, TopicDescription] = {}
    for name in names:
        topic = metadata.topics.get(name)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
            described[name] = TopicDescription(name, error=missing)
        elif topic.error:
            refused = KafkaError(topic.error, f"topic {name!r} cannot be described")
            described[name] = TopicDescription(name, error=refused)
        else:
            described[name] = _description(topic)
    return described


def _known(topic_id: Uuid) -> Uuid | None:
    return None if topic_id == ZERO_UUID else topic_id


def _description(topic: TopicMetadata) -> TopicDescription:
    return TopicDescription(topic.name, topic.topic_id, topic.is_internal, tuple(topic.partitions.values()))


def _deletable(topic: str | Uuid) -> DeleteTopicState:
    if isinstance(topic, str):
        return DeleteTopicState(name=topic)
    return DeleteTopicState(name=None, topic_id=topic)


def _growing(name: str, wanted: int | NewPartitions) -> CreatePartitionsTopic:
    if isinstance(wanted, int):
        return CreatePartitionsTopic(name=name, count=wanted, assignments=None)
    assignments = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in wanted.assignments]
    return CreatePartitionsTopic(name=name, count=wanted.total, assignments=assignments or None)


def _creatable(topic: NewTopic, version: int) -> CreatableTopic:
    if version < _BROKER_DEFAULTS_SINCE and not topic.assignments:
        missing = [
            name
            for name, value in (
                ("partitions", topic.partitions),
                ("replication factor", topic.replication_factor),
            )
            if value == -1
        ]
        if missing:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this broker is older than Kafka 2.4 and has no defaults for new topics: give the number of "
                f"{' and the '.join(missing)} of {topic.name!r}",
            )
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=None if value is None else config_text(name, value))
            for name, value in topic.configs.items()
        ],
    )
