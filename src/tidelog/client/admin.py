"""Administration of a cluster: topics, partitions, configs, records and offsets.

Everything goes in and comes out as the dataclasses of ``client.resources``. Calls act on several things at
once and report each one's own error; only what concerns the whole call (no broker, no time) is raised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.client.cluster import Cluster
from tidelog.client.config_changes import alter_configs, describe_configs
from tidelog.client.errors import error_from
from tidelog.client.offsets import delete_records, list_offsets
from tidelog.client.resources import (
    AlterConfigOp,
    ClusterDescription,
    ConfigResource,
    ConfigResult,
    DeletedRecords,
    IsolationLevel,
    NewTopic,
    OffsetResult,
    TopicDescription,
    TopicResult,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.wire.messages.create_partitions import (
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


class Admin:
    """The administrative side of ``cluster``, which stays the caller's to close."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Create topics, or only check that they could be created."""
        deadline = self.cluster.deadline()

        def build(version: int) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=[_creatable(topic, version) for topic in topics],
                timeout_ms=deadline.remaining_ms,
                validate_only=validate_only,
            )

        response = await self.cluster.request_controller(
            build, CreateTopicsResponse, lambda r: (topic.error_code for topic in r.topics), deadline
        )
        return [
            TopicResult(
                topic.name,
                error_from(topic.error_code, topic.error_message, f"topic {topic.name!r}"),
                None if topic.topic_id == ZERO_UUID else topic.topic_id,
                topic.num_partitions,
                topic.replication_factor,
            )
            for topic in response.topics
        ]

    async def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """Delete topics and everything in them."""
        deadline = self.cluster.deadline()

        def build(version: int) -> DeleteTopicsRequest:
            by_state = version >= _DELETE_BY_STATE_SINCE
            return DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in names] if by_state else [],
                topic_names=[] if by_state else list(names),
                timeout_ms=deadline.remaining_ms,
            )

        response = await self.cluster.request_controller(
            build, DeleteTopicsResponse, lambda r: (topic.error_code for topic in r.responses), deadline
        )
        return [
            TopicResult(
                topic.name or "",
                error_from(topic.error_code, topic.error_message, f"topic {topic.name!r}"),
            )
            for topic in response.responses
        ]

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Raise topics to the given numbers of partitions."""
        deadline = self.cluster.deadline()
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in totals.items()
            ],
            timeout_ms=deadline.remaining_ms,
            validate_only=validate_only,
        )
        response = await self.cluster.request_controller(
            request, CreatePartitionsResponse, lambda r: (topic.error_code for topic in r.results), deadline
        )
        return [
            TopicResult(
                topic.name, error_from(topic.error_code, topic.error_message, f"topic {topic.name!r}")
            )
            for topic in response.results
        ]

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Every topic that may be seen, by name."""
        metadata = await self.cluster.refresh(None)
        return [
            TopicDescription(topic.name, topic.topic_id, topic.is_internal, tuple(topic.partitions.values()))
            for _, topic in sorted(metadata.topics.items())
            if not topic.error and (include_internal or not topic.is_internal)
        ]

    async def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription | KafkaError]:
        """Each of ``names`` with its description, or why there is none; never creates a topic."""
        metadata = await self.cluster.refresh(list(names))
        described: dict[str, TopicDescription | KafkaError] = {}
        for name in names:
            topic = metadata.topics.get(name)
            if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                described[name] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"
                )
            elif topic.error:
                described[name] = KafkaError(topic.error, f"topic {name!r} cannot be described")
            else:
                described[name] = TopicDescription(
                    topic.name, topic.topic_id, topic.is_internal, tuple(topic.partitions.values())
                )
        return described

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers that are alive and which of them is the controller."""
        metadata = await self.cluster.refresh([])
        return ClusterDescription(
            metadata.cluster_id,
            metadata.nodes.get(metadata.controller_id),
            tuple(node for _, node in sorted(metadata.nodes.items())),
        )

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_documentation: bool = False,
    ) -> list[ConfigResult]:
        """The configs of each resource, all of them or only those in ``names``, with their synonyms."""
        return await describe_configs(
            self.cluster, resources, names=names, include_documentation=include_documentation
        )

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[AlterConfigOp]], *, validate_only: bool = False
    ) -> list[ConfigResult]:
        """Change single configs and leave the others alone; works on brokers older than KIP-339 too."""
        return await alter_configs(self.cluster, changes, validate_only=validate_only)

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetResult]:
        """The offset at a time in ms, or at an ``OffsetSpec``, in each partition."""
        return await list_offsets(self.cluster, partitions, isolation_level=isolation_level)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete all records before the given offsets; -1 stands for all there are."""
        return await delete_records(self.cluster, before)


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
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
