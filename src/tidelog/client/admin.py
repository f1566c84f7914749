"""Administration of a cluster: topics, partitions, configs, records, offsets, groups and transactions.

Everything goes in and comes out as the dataclasses of ``client.resources``, ``client.group_resources`` and
``client.transaction_resources``. Calls act on several things at once and report each one's own error; only
what concerns the whole call (no broker, no time) is raised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.client.cluster import Cluster
from tidelog.client.config_changes import alter_configs, describe_configs
from tidelog.client.errors import error_from
from tidelog.client.group_lag import describe_group_lag
from tidelog.client.group_offsets import alter_group_offsets, delete_group_offsets, list_group_offsets
from tidelog.client.group_resources import (
    GroupDescription,
    GroupLag,
    GroupOffsets,
    GroupResult,
    GroupState,
    GroupType,
    ListedGroups,
    PartitionResult,
)
from tidelog.client.groups import delete_groups, describe_groups, list_groups
from tidelog.client.offset_reset import ResetPlan, ResetTarget, plan_offset_reset
from tidelog.client.offsets import delete_records, list_offsets
from tidelog.client.producer_states import describe_producers, find_hanging_transactions
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
from tidelog.client.transaction_resources import (
    AbortMarker,
    HangingTransactions,
    ListedTransactions,
    PartitionProducers,
    TransactionDescription,
    TransactionState,
)
from tidelog.client.transactions import (
    abort_transaction,
    describe_transactions,
    fence_producer,
    list_transactions,
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

    async def list_groups(
        self, *, states: Collection[GroupState] = (), types: Collection[GroupType] = ()
    ) -> ListedGroups:
        """The groups of all brokers, those in any of ``states`` and of any of ``types`` where given."""
        return await list_groups(self.cluster, states=states, types=types)

    async def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """Each group with its members and their assignments.

        A group that does not exist is an error, or on brokers before Kafka 4.0 a group in state ``DEAD``.
        """
        return await describe_groups(self.cluster, group_ids)

    async def describe_group_lag(self, group_ids: Collection[str]) -> dict[str, GroupLag]:
        """Each group with its committed offsets beside the ends of the logs."""
        return await describe_group_lag(self.cluster, group_ids)

    async def delete_groups(self, group_ids: Collection[str]) -> list[GroupResult]:
        """Delete groups that have no members, with their offsets."""
        return await delete_groups(self.cluster, group_ids)

    async def list_group_offsets(self, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        """All that each group has committed."""
        return await list_group_offsets(self.cluster, group_ids)

    async def plan_offset_reset(
        self, group_id: str, partitions: Collection[TopicPartition] | None, target: ResetTarget
    ) -> ResetPlan:
        """What moving the group's offsets to ``target`` would do; ``partitions`` None: all it committed."""
        return await plan_offset_reset(self.cluster, group_id, partitions, target)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> list[PartitionResult]:
        """Commit offsets for a group without members; one that does not exist is created."""
        return await alter_group_offsets(self.cluster, group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> list[PartitionResult]:
        """Forget what a group has committed for topics that none of its members reads."""
        return await delete_group_offsets(self.cluster, group_id, partitions)

    async def list_transactions(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> ListedTransactions:
        """The transactional ids of all brokers; ``pattern`` is a regular expression for the whole id."""
        return await list_transactions(
            self.cluster,
            states=states,
            producer_ids=producer_ids,
            running_longer_than_ms=running_longer_than_ms,
            pattern=pattern,
        )

    async def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription]:
        """Each transactional id with its producer, state and open partitions."""
        return await describe_transactions(self.cluster, transactional_ids)

    async def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducers]:
        """The producers that each partition's leader knows, or the replica on ``broker_id``."""
        return await describe_producers(self.cluster, partitions, broker_id=broker_id)

    async def find_hanging_transactions(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker_id: int | None = None,
        idle_longer_than_ms: int = 15 * 60_000,
    ) -> HangingTransactions:
        """Open transactions that no coordinator will end, in one partition, topic, broker or everywhere.

        Only those without a new record for ``idle_longer_than_ms``, which should be the longest transaction
        timeout in use: younger ones may be on their way to their coordinator.
        """
        return await find_hanging_transactions(
            self.cluster,
            topic=topic,
            partition=partition,
            broker_id=broker_id,
            idle_longer_than_ms=idle_longer_than_ms,
        )

    async def abort_transaction(self, marker: AbortMarker) -> None:
        """Write an abort marker into one partition, past any coordinator: for hanging transactions only."""
        await abort_transaction(self.cluster, marker)

    async def fence_producer(self, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        """Make the coordinator abort what is open and fence the producer that holds the transactional id.

        ``timeout_ms`` becomes the id's transaction timeout. An unknown id is created.
        """
        await fence_producer(self.cluster, transactional_id, timeout_ms=timeout_ms)


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
