"""The synchronous admin client: the same methods as ``AsyncAdmin``, for any number of threads.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        for topic in admin.list_topics():
            print(topic.name, len(topic.partitions))

The core runs on a background thread; a call waits for its answer there, at most ``default.api.timeout.ms``
for each step. Every method is written out, so that type checkers and editors know its arguments; a unit test
compares the signatures of both faces.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import (
    BrokerLogDirs,
    ElectionType,
    FeatureMetadata,
    FeatureResult,
    FeatureUpdate,
    PartitionReassignment,
    ReplicaMove,
)
from tidelog.client.admin.group_resources import (
    GroupDescription,
    GroupLag,
    GroupOffsets,
    GroupResult,
    GroupState,
    GroupType,
    ListedGroups,
    MemberResult,
    PartitionResult,
)
from tidelog.client.admin.offset_reset import ResetPlan, ResetTarget
from tidelog.client.admin.transaction_resources import (
    AbortMarker,
    HangingTransactions,
    ListedTransactions,
    PartitionProducers,
    TransactionDescription,
    TransactionState,
)
from tidelog.client.loop_thread import LoopThread
from tidelog.client.options import ClientConfig
from tidelog.client.resources import (
    AlterConfigOp,
    ClusterDescription,
    ConfigResource,
    ConfigResult,
    DeletedRecords,
    IsolationLevel,
    NewPartitions,
    NewTopic,
    OffsetResult,
    ResourceType,
    TopicDescription,
    TopicResult,
)
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition, Uuid

if TYPE_CHECKING:
    from tidelog.client.consumer.partition_state import OffsetAndMetadata


T = TypeVar("T")


class Admin:
    """Administers a cluster; options in Kafka's names, as a mapping or as keywords."""

    def __init__(self, options: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        self._core = AsyncAdmin(options, **keywords)
        assert self._core.config is not None
        self._name = f"admin client {self._core.config.str('client.id')}"
        self._thread = LoopThread(self._name, at_exit=self._core.close)

    # -- life

    @property
    def config(self) -> ClientConfig | None:
        """The options in use."""
        return self._core.config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop the thread; calls under way fail."""
        if self._core.is_closed:
            return
        try:
            self._call(self._core.close(), "close")
        finally:
            self._thread.close()

    def metrics(self) -> dict[str, float]:
        """See :meth:`AsyncAdmin.metrics`."""
        return self._core.metrics()

    def _call(self, coroutine: Coroutine[Any, Any, T], what: str) -> T:
        return self._thread.call(coroutine, what=what)

    # -- topics and records

    def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """See :meth:`AsyncAdmin.create_topics`."""
        return self._call(self._core.create_topics(new_topics, validate_only=validate_only), "create_topics")

    def delete_topics(self, names: Sequence[str | Uuid]) -> list[TopicResult]:
        """See :meth:`AsyncAdmin.delete_topics`."""
        return self._call(self._core.delete_topics(names), "delete_topics")

    def create_partitions(
        self, totals: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """See :meth:`AsyncAdmin.create_partitions`."""
        return self._call(
            self._core.create_partitions(totals, validate_only=validate_only), "create_partitions"
        )

    def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """See :meth:`AsyncAdmin.list_topics`."""
        return self._call(self._core.list_topics(include_internal=include_internal), "list_topics")

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription | KafkaError]:
        """See :meth:`AsyncAdmin.describe_topics`."""
        return self._call(self._core.describe_topics(names), "describe_topics")

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetResult]:
        """See :meth:`AsyncAdmin.list_offsets`."""
        return self._call(
            self._core.list_offsets(partitions, isolation_level=isolation_level), "list_offsets"
        )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, DeletedRecords]:
        """See :meth:`AsyncAdmin.delete_records`."""
        return self._call(self._core.delete_records(before), "delete_records")

    # -- configs

    def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_documentation: bool = False,
    ) -> list[ConfigResult]:
        """See :meth:`AsyncAdmin.describe_configs`."""
        return self._call(
            self._core.describe_configs(resources, names=names, include_documentation=include_documentation),
            "describe_configs",
        )

    def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[AlterConfigOp]], *, validate_only: bool = False
    ) -> list[ConfigResult]:
        """See :meth:`AsyncAdmin.alter_configs`."""
        return self._call(self._core.alter_configs(changes, validate_only=validate_only), "alter_configs")

    def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """See :meth:`AsyncAdmin.list_config_resources`."""
        return self._call(self._core.list_config_resources(types), "list_config_resources")

    # -- groups

    def list_groups(
        self, *, states: Collection[GroupState] = (), types: Collection[GroupType] = ()
    ) -> ListedGroups:
        """See :meth:`AsyncAdmin.list_groups`."""
        return self._call(self._core.list_groups(states=states, types=types), "list_groups")

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """See :meth:`AsyncAdmin.describe_groups`."""
        return self._call(self._core.describe_groups(group_ids), "describe_groups")

    def describe_group_lag(self, group_ids: Collection[str]) -> dict[str, GroupLag]:
        """See :meth:`AsyncAdmin.describe_group_lag`."""
        return self._call(self._core.describe_group_lag(group_ids), "describe_group_lag")

    def delete_groups(self, group_ids: Collection[str]) -> list[GroupResult]:
        """See :meth:`AsyncAdmin.delete_groups`."""
        return self._call(self._core.delete_groups(group_ids), "delete_groups")

    def remove_group_members(
        self, group_id: str, instance_ids: Collection[str] | None = None, *, reason: str | None = None
    ) -> list[MemberResult]:
        """See :meth:`AsyncAdmin.remove_group_members`."""
        return self._call(
            self._core.remove_group_members(group_id, instance_ids, reason=reason), "remove_group_members"
        )

    def list_group_offsets(self, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        """See :meth:`AsyncAdmin.list_group_offsets`."""
        return self._call(self._core.list_group_offsets(group_ids), "list_group_offsets")

    def plan_offset_reset(
        self, group_id: str, partitions: Collection[TopicPartition] | None, target: ResetTarget
    ) -> ResetPlan:
        """See :meth:`AsyncAdmin.plan_offset_reset`."""
        return self._call(self._core.plan_offset_reset(group_id, partitions, target), "plan_offset_reset")

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> list[PartitionResult]:
        """See :meth:`AsyncAdmin.alter_group_offsets`."""
        return self._call(self._core.alter_group_offsets(group_id, offsets), "alter_group_offsets")

    def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> list[PartitionResult]:
        """See :meth:`AsyncAdmin.delete_group_offsets`."""
        return self._call(self._core.delete_group_offsets(group_id, partitions), "delete_group_offsets")

    # -- producers and transactions

    def list_transactions(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> ListedTransactions:
        """See :meth:`AsyncAdmin.list_transactions`."""
        return self._call(
            self._core.list_transactions(
                states=states,
                producer_ids=producer_ids,
                running_longer_than_ms=running_longer_than_ms,
                pattern=pattern,
            ),
            "list_transactions",
        )

    def describe_transactions(self, transactional_ids: Collection[str]) -> dict[str, TransactionDescription]:
        """See :meth:`AsyncAdmin.describe_transactions`."""
        return self._call(self._core.describe_transactions(transactional_ids), "describe_transactions")

    def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducers]:
        """See :meth:`AsyncAdmin.describe_producers`."""
        return self._call(
            self._core.describe_producers(partitions, broker_id=broker_id), "describe_producers"
        )

    def find_hanging_transactions(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker_id: int | None = None,
        idle_longer_than_ms: int = 15 * 60000,
    ) -> HangingTransactions:
        """See :meth:`AsyncAdmin.find_hanging_transactions`."""
        return self._call(
            self._core.find_hanging_transactions(
                topic=topic, partition=partition, broker_id=broker_id, idle_longer_than_ms=idle_longer_than_ms
            ),
            "find_hanging_transactions",
        )

    def abort_transaction(self, marker: AbortMarker) -> None:
        """See :meth:`AsyncAdmin.abort_transaction`."""
        self._call(self._core.abort_transaction(marker), "abort_transaction")

    def fence_producer(self, transactional_id: str, *, timeout_ms: int = 60000) -> None:
        """See :meth:`AsyncAdmin.fence_producer`."""
        self._call(self._core.fence_producer(transactional_id, timeout_ms=timeout_ms), "fence_producer")

    # -- brokers

    def describe_cluster(self) -> ClusterDescription:
        """See :meth:`AsyncAdmin.describe_cluster`."""
        return self._call(self._core.describe_cluster(), "describe_cluster")

    def describe_features(self, broker_id: int | None = None) -> FeatureMetadata:
        """See :meth:`AsyncAdmin.describe_features`."""
        return self._call(self._core.describe_features(broker_id), "describe_features")

    def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> list[FeatureResult]:
        """See :meth:`AsyncAdmin.update_features`."""
        return self._call(self._core.update_features(updates, validate_only=validate_only), "update_features")

    def describe_log_dirs(
        self,
        broker_ids: Collection[int] | None = None,
        *,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[int, BrokerLogDirs]:
        """See :meth:`AsyncAdmin.describe_log_dirs`."""
        return self._call(
            self._core.describe_log_dirs(broker_ids, partitions=partitions), "describe_log_dirs"
        )

    def alter_replica_log_dirs(self, moves: Mapping[tuple[int, TopicPartition], str]) -> list[ReplicaMove]:
        """See :meth:`AsyncAdmin.alter_replica_log_dirs`."""
        return self._call(self._core.alter_replica_log_dirs(moves), "alter_replica_log_dirs")

    def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> list[PartitionResult]:
        """See :meth:`AsyncAdmin.elect_leaders`."""
        return self._call(self._core.elect_leaders(partitions, election_type), "elect_leaders")

    def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """See :meth:`AsyncAdmin.list_partition_reassignments`."""
        return self._call(self._core.list_partition_reassignments(partitions), "list_partition_reassignments")

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> list[PartitionResult]:
        """See :meth:`AsyncAdmin.alter_partition_reassignments`."""
        return self._call(self._core.alter_partition_reassignments(targets), "alter_partition_reassignments")
