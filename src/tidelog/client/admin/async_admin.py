"""Administration of a cluster: topics, configs, records, offsets, groups, transactions, brokers.

    async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
        for result in await admin.create_topics([NewTopic("orders", partitions=3)]):
            result.raise_for_error()

Everything goes in and comes out as the dataclasses of ``client.resources`` and ``client.admin.*_resources``.
Calls act on several things at once and report each one's own error; only what concerns the whole call (no
broker, no time) is raised. Nothing is sent before the first call.

The methods of ``Admin`` are generated from those of ``AsyncAdmin``: after a change here run ``make format``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from tidelog.client._foreign_methods import ADMIN, foreign_methods
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import check_loop, running_loop
from tidelog.client._offsets import delete_records, list_offsets
from tidelog.client.admin import _acls as acls
from tidelog.client.admin import _features as features
from tidelog.client.admin import _log_dirs as log_dirs
from tidelog.client.admin import _replicas as replicas
from tidelog.client.admin import _topics as topics
from tidelog.client.admin import delegation_tokens, quotas, scram_users
from tidelog.client.admin._acls import AclResult, DeletedAcls
from tidelog.client.admin._arguments import (
    by_partition,
    is_broker_list,
    is_number,
    is_replica,
    listed,
    listed_or_none,
    mapping,
    members,
    one,
    partitions_of,
    partitions_or_none,
)
from tidelog.client.admin._config_changes import (
    alter_configs,
    checked_changes,
    describe_configs,
    list_config_resources,
)
from tidelog.client.admin._group_lag import describe_group_lag
from tidelog.client.admin._group_offsets import alter_group_offsets, delete_group_offsets, list_group_offsets
from tidelog.client.admin._groups import delete_groups, describe_groups, list_groups
from tidelog.client.admin._producer_states import describe_producers, find_hanging_transactions
from tidelog.client.admin._remove_members import remove_group_members
from tidelog.client.admin._transactions import (
    abort_transaction,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from tidelog.client.admin.cluster_resources import (
    BrokerLogDirs,
    ElectionType,
    FeatureMetadata,
    FeatureResult,
    FeatureUpdate,
    PartitionReassignment,
    ReplicaMove,
)
from tidelog.client.admin.delegation_tokens import DelegationToken
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
from tidelog.client.admin.offset_reset import ResetPlan, ResetTarget, plan_offset_reset
from tidelog.client.admin.quotas import AnyName, ClientQuotas, QuotaAlteration, QuotaResult
from tidelog.client.admin.scram_users import ScramDeletion, ScramUpsertion, ScramUser, ScramUserResult
from tidelog.client.admin.transaction_resources import (
    AbortMarker,
    HangingTransactions,
    ListedTransactions,
    PartitionProducers,
    TransactionDescription,
    TransactionState,
)
from tidelog.client.errors import ClientClosedError, ClientError
from tidelog.client.metrics import Figures
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
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition, Uuid
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import AclBinding

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client._telemetry.observers import Observers
    from tidelog.client.admin.option_types import AdminOptions
    from tidelog.client.options import ClientConfig


class AsyncAdmin:
    """Administers a cluster from one event loop.

    Calls act on several things at once and report the ``error`` of each; only the failure of a whole call is
    raised. Nothing is sent before the first call.

    Args:
        options: Options by Kafka's names, or by those of the keyword arguments; keywords win.
        keywords: Options with underscores: ``AdminOptions`` has all of them.

    Raises:
        ConfigError: An option is unknown or has a value that it cannot have.

    Example:
        async with AsyncAdmin(bootstrap_servers="127.0.0.1:9092") as admin:
            for result in await admin.create_topics([NewTopic("orders", partitions=3)]):
                result.raise_for_error()
    """

    if not TYPE_CHECKING:
        __getattr__ = foreign_methods(ADMIN)

    def __init__(
        self, options: Mapping[str, object] | None = None, /, **keywords: Unpack[AdminOptions]
    ) -> None:
        # The command line, which comes by `of`, does not pay for the option tables.
        from tidelog.client._telemetry.observers import Observers
        from tidelog.client.options import ADMIN, ClientConfig

        self.config: ClientConfig | None = ClientConfig.parse(ADMIN, options, **keywords)
        self._observers: Observers | None = Observers(self.config)
        self._cluster: Cluster | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._borrowed = False
        self._closed = False

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Make an admin client over an existing ``Cluster``, which stays the caller's to close.

        Args:
            cluster: The connections to use.

        Returns:
            The admin client.

        Example:
            admin = AsyncAdmin.of(consumer.cluster)
        """
        admin = cls.__new__(cls)
        admin._loop = None
        admin.config = None
        admin._observers = None
        admin._cluster = cluster
        admin._borrowed = True
        admin._closed = False
        return admin

    # -- life

    @property
    def cluster(self) -> Cluster:
        """The connections to the brokers, made when they are first needed."""
        if self._closed:
            raise ClientClosedError("the admin client is closed")
        if self._cluster is None:
            from tidelog.client._network.from_options import network_settings

            assert self.config is not None
            assert self._observers is not None
            self._loop = running_loop("an AsyncAdmin")
            self._cluster = Cluster(self.config.list("bootstrap.servers"), network_settings(self.config))
            self._observers.start(self._cluster)
        elif self._loop is not None:
            check_loop(self._loop, "an AsyncAdmin")
        return self._cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls under way fail.

        Example:
            await admin.close()
        """
        if self._closed:
            return
        self._closed = True
        if self._observers is not None:
            await self._observers.close()
        if self._cluster is not None and not self._borrowed:
            await self._cluster.close()

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    def metrics(self) -> Figures:
        """Return the metrics of this client and its brokers.

        Returns:
            Values by Kafka's names; times are in milliseconds.

        Example:
            print(admin.metrics().get("request-total"))
        """
        return Figures() if self._cluster is None else self._cluster.metrics.snapshot()

    async def client_instance_id(self, timeout: float = 30.0) -> Uuid:
        """Return the id by which brokers know this client in its telemetry (KIP-714).

        Args:
            timeout: Seconds to wait for the id.

        Returns:
            The id, 16 bytes.

        Raises:
            ConfigError: The client was made by ``of`` and sends no telemetry.
            RequestTimeoutError: No broker has given one within ``timeout``.

        Example:
            print((await admin.client_instance_id()).hex())
        """
        cluster = self.cluster
        if self._observers is None:
            raise ConfigError("this client was made without options and sends no telemetry")
        await cluster.refresh([])
        return await self._observers.client_instance_id(timeout)

    # -- topics and records

    async def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> list[TopicResult]:
        """Create topics.

        Args:
            new_topics: The topics, as ``NewTopic``.
            validate_only: Only check that the call would succeed.
            retry_on_quota_violation: Whether to try again, until the call's time is up, what a quota delays;
                False reports it as ``ThrottlingQuotaExceededError``.

        Returns:
            One result per topic, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            for result in await admin.create_topics([NewTopic("bills", partitions=3)]):
                result.raise_for_error()
        """
        return await topics.create_topics(
            self.cluster,
            listed(new_topics, NewTopic),
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )

    async def delete_topics(
        self, names: Sequence[str | Uuid], *, retry_on_quota_violation: bool = True
    ) -> list[TopicResult]:
        """Delete topics and all their records.

        Args:
            names: Names or ids of topics.
            retry_on_quota_violation: Whether to try again, until the call's time is up, what a quota delays;
                False reports it as ``ThrottlingQuotaExceededError``.

        Returns:
            One result per topic, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            await admin.create_topics([NewTopic("old")])
            for result in await admin.delete_topics(["old"]):
                result.raise_for_error()
        """
        return await topics.delete_topics(
            self.cluster, listed(names, str | bytes), retry_on_quota_violation=retry_on_quota_violation
        )

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> list[TopicResult]:
        """Add partitions to topics.

        Args:
            totals: The new total of each topic, as a number or as ``NewPartitions``.
            validate_only: Only check that the call would succeed.
            retry_on_quota_violation: Whether to try again, until the call's time is up, what a quota delays;
                False reports it as ``ThrottlingQuotaExceededError``.

        Returns:
            One result per topic, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            for result in await admin.create_partitions({"orders": 6}):
                result.raise_for_error()
        """
        return await topics.create_partitions(
            self.cluster,
            topics.checked_totals(totals),
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Return every topic that this user may see, in the order of their names.

        Args:
            include_internal: Whether to include ``__consumer_offsets`` and its like.

        Returns:
            The descriptions of the topics.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print([topic.name for topic in await admin.list_topics()])
        """
        return await topics.list_topics(self.cluster, include_internal=include_internal)

    async def describe_topics(
        self, names: Collection[str], *, by_controller: bool = False
    ) -> dict[str, TopicDescription]:
        """Describe topics; never creates one.

        Args:
            names: The names of the topics.
            by_controller: Whether to ask the controller, which knows recent changes first, instead of any
                broker.

        Returns:
            The description of each topic, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            described = (await admin.describe_topics(["orders"]))["orders"]
            described.raise_for_error()
            print(len(described.partitions))
        """
        return await topics.describe_topics(self.cluster, listed(names, str), by_controller=by_controller)

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetResult]:
        """Return the offset at a time, or at an end of the log, in each partition.

        Args:
            partitions: Milliseconds since 1970 or an ``OffsetSpec``, by partition.
            isolation_level: Whether the end is that of committed records.

        Returns:
            One result per partition, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            place = TopicPartition("orders", 0)
            print((await admin.list_offsets({place: OffsetSpec.LATEST}))[place].offset)
        """
        wanted = by_partition(
            "list_offsets",
            partitions,
            is_number,
            "{TopicPartition('orders', 0): OffsetSpec.LATEST}, or a time in milliseconds",
        )
        return await list_offsets(self.cluster, wanted, isolation_level=isolation_level)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete all records before an offset in each partition.

        Args:
            before: The first offset to keep, by partition; -1 deletes everything.

        Returns:
            One result per partition, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            place = TopicPartition("orders", 0)
            (await admin.delete_records({place: 0}))[place].raise_for_error()
        """
        wanted = by_partition("delete_records", before, is_number, "{TopicPartition('orders', 0): 100}")
        return await delete_records(self.cluster, wanted)

    # -- configs

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_documentation: bool = False,
    ) -> list[ConfigResult]:
        """Return the configs of topics, brokers or groups.

        Args:
            resources: The resources, as ``ConfigResource``.
            names: The names of the configs; None means all.
            include_documentation: Whether to include the text that describes each config.

        Returns:
            One result per resource with its ``entries``, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            topic = ConfigResource(ResourceType.TOPIC, "orders")
            (result,) = await admin.describe_configs([topic], names=["retention.ms"])
            print(result.entries[0].value)
        """
        return await describe_configs(
            self.cluster,
            listed(resources, ConfigResource),
            names=None if names is None else listed(names, str),
            include_documentation=include_documentation,
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp] | Mapping[str, str | int | float | bool]],
        *,
        validate_only: bool = False,
    ) -> list[ConfigResult]:
        """Change some configs and leave the others alone, also on brokers before Kafka 2.3.

        Args:
            changes: By resource: values by the names of the configs, or a list of ``AlterConfigOp``.
            validate_only: Only check that the call would succeed.

        Returns:
            One result per resource, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            topic = ConfigResource(ResourceType.TOPIC, "orders")
            for result in await admin.alter_configs({topic: {"retention.ms": 60_000}}):
                result.raise_for_error()
        """
        return await alter_configs(self.cluster, checked_changes(changes), validate_only=validate_only)

    async def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """Return the resources that have configs; needs Kafka 4.1.

        Args:
            types: Their types; none means all.

        Returns:
            The resources.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.list_config_resources([ResourceType.GROUP]))
        """
        return await list_config_resources(self.cluster, members(types, ResourceType))

    # -- groups

    async def list_groups(
        self,
        *,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
        broker_ids: Collection[int] | None = None,
    ) -> ListedGroups:
        """Return the groups of all brokers, or of some.

        Args:
            states: States to include; none means all.
            types: Types to include; none means all.
            broker_ids: Brokers to ask; None means all.

        Returns:
            The groups, and the errors of brokers that did not answer.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print([group.group_id for group in (await admin.list_groups()).groups])
        """
        return await list_groups(
            self.cluster,
            states=members(states, GroupState),
            types=members(types, GroupType),
            broker_ids=listed_or_none(broker_ids, int),
        )

    async def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """Describe groups with their members and assignments.

        Args:
            group_ids: The ids of the groups.

        Returns:
            The description of each group, each with its own ``error``. A group that does not exist is an
            error, or on brokers before Kafka 4.0 in state ``DEAD``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print((await admin.describe_groups(["kitchen"]))["kitchen"].state)
        """
        return await describe_groups(self.cluster, listed(group_ids, str))

    async def describe_group_lag(self, group_ids: Collection[str]) -> dict[str, GroupLag]:
        """Return the committed offsets of groups with the ends of the logs.

        Args:
            group_ids: The ids of the groups.

        Returns:
            The lag of each group, by partition and in total.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print((await admin.describe_group_lag(["kitchen"]))["kitchen"].total)
        """
        return await describe_group_lag(self.cluster, listed(group_ids, str))

    async def delete_groups(self, group_ids: Collection[str]) -> list[GroupResult]:
        """Delete groups without members, with their offsets.

        Args:
            group_ids: The ids of the groups.

        Returns:
            One result per group, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            for result in await admin.delete_groups(["kitchen"]):
                print(result.group_id, result.error)
        """
        return await delete_groups(self.cluster, listed(group_ids, str))

    async def remove_group_members(
        self, group_id: str, instance_ids: Collection[str] | None = None, *, reason: str | None = None
    ) -> list[MemberResult]:
        """Remove static members from a group, or all members.

        Args:
            group_id: The id of the group.
            instance_ids: The ``group.instance.id`` of each member; None removes all members.
            reason: A text for the coordinator's log.

        Returns:
            One result per member, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            for result in await admin.remove_group_members("kitchen", ["cook-1"]):
                print(result.instance_id, result.error)
        """
        instances = listed_or_none(instance_ids, str)
        group_id = one("remove_group_members", "group_id", group_id, str)
        return await remove_group_members(self.cluster, group_id, instances, reason)

    async def list_group_offsets(self, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        """Return the offsets that groups have committed.

        Args:
            group_ids: The ids of the groups.

        Returns:
            The offsets of each group; empty for a group that does not exist.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print((await admin.list_group_offsets(["kitchen"]))["kitchen"].offsets)
        """
        return await list_group_offsets(self.cluster, listed(group_ids, str))

    async def plan_offset_reset(
        self, group_id: str, partitions: Collection[TopicPartition] | None, target: ResetTarget
    ) -> ResetPlan:
        """Return what moving a group's offsets would do; changes nothing.

        Args:
            group_id: The id of the group.
            partitions: The partitions; None means all that the group has committed.
            target: Where to move to: a class of ``tidelog.client.admin.offset_reset``.

        Returns:
            The plan, with the new offset of each partition.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            from tidelog.client.admin.offset_reset import ToPlace

            start = ToPlace(OffsetSpec.EARLIEST)
            plan = await admin.plan_offset_reset("kitchen", [TopicPartition("orders", 0)], start)
        """
        group_id = one("plan_offset_reset", "group_id", group_id, str)
        named = partitions_or_none("plan_offset_reset", partitions)
        return await plan_offset_reset(self.cluster, group_id, named, target)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> list[PartitionResult]:
        """Commit offsets for a group without members; creates a group that does not exist.

        Args:
            group_id: The id of the group.
            offsets: The offset of the next record to read, by partition.

        Returns:
            One result per partition, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            place = TopicPartition("orders", 0)
            for result in await admin.alter_group_offsets("kitchen", {place: 0}):
                result.raise_for_error()
        """
        group_id = one("alter_group_offsets", "group_id", group_id, str)
        wanted = by_partition(
            "alter_group_offsets", offsets, _is_offset_to_commit, "{TopicPartition('orders', 0): 100}"
        )
        return await alter_group_offsets(self.cluster, group_id, wanted)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> list[PartitionResult]:
        """Delete offsets that a group has committed for topics that no member reads.

        Args:
            group_id: The id of the group.
            partitions: The partitions.

        Returns:
            One result per partition, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            place = TopicPartition("orders", 0)
            for result in await admin.delete_group_offsets("kitchen", [place]):
                print(result.partition, result.error)
        """
        group_id = one("delete_group_offsets", "group_id", group_id, str)
        named = partitions_of("delete_group_offsets", partitions)
        return await delete_group_offsets(self.cluster, group_id, named)

    # -- producers and transactions

    async def list_transactions(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> ListedTransactions:
        """Return the transactional ids of all brokers.

        Args:
            states: States to include; none means all.
            producer_ids: Producer ids to include; none means all.
            running_longer_than_ms: The least age of an open transaction.
            pattern: A regular expression for the whole id.

        Returns:
            The ids with their states, and the errors of brokers that did not answer.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print((await admin.list_transactions()).transactions)
        """
        return await list_transactions(
            self.cluster,
            states=members(states, TransactionState),
            producer_ids=listed(producer_ids, int),
            running_longer_than_ms=running_longer_than_ms,
            pattern=pattern,
        )

    async def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription]:
        """Describe transactional ids with their producers, states and open partitions.

        Args:
            transactional_ids: The ids.

        Returns:
            The description of each id, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print((await admin.describe_transactions(["bar-1"]))["bar-1"].error)
        """
        return await describe_transactions(self.cluster, listed(transactional_ids, str))

    async def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducers]:
        """Return the producers that write to each partition.

        Args:
            partitions: The partitions.
            broker_id: The replica to ask; None means the leader.

        Returns:
            The producers of each partition, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            place = TopicPartition("orders", 0)
            print((await admin.describe_producers([place]))[place].producers)
        """
        named = partitions_of("describe_producers", partitions)
        return await describe_producers(self.cluster, named, broker_id=broker_id)

    async def find_hanging_transactions(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker_id: int | None = None,
        idle_longer_than_ms: int = 15 * 60_000,
    ) -> HangingTransactions:
        """Find open transactions that no coordinator will end.

        A younger transaction may be on its way to its coordinator: ``idle_longer_than_ms`` should be the
        longest transaction timeout in use.

        Args:
            topic: The topic to search; None means all.
            partition: The partition of ``topic``; None means all.
            broker_id: The broker to ask; None means all.
            idle_longer_than_ms: The least time without a new record.

        Returns:
            The transactions, and the errors of what could not be searched.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print((await admin.find_hanging_transactions(topic="orders")).hanging)
        """
        return await find_hanging_transactions(
            self.cluster,
            topic=topic,
            partition=partition,
            broker_id=broker_id,
            idle_longer_than_ms=idle_longer_than_ms,
        )

    async def abort_transaction(self, marker: AbortMarker) -> None:
        """Write an abort marker into one partition, past any coordinator: for hanging transactions only.

        Args:
            marker: The partition and the producer of the transaction.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            from tidelog.client.admin.transaction_resources import AbortMarker

            for found in (await admin.find_hanging_transactions()).hanging:
                producer = found.producer
                await admin.abort_transaction(
                    AbortMarker(found.partition, producer.producer_id, producer.producer_epoch)
                )
        """
        await abort_transaction(self.cluster, one("abort_transaction", "marker", marker, AbortMarker))

    async def fence_producer(self, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        """Abort the open transaction of a transactional id, and fence the producer that holds it.

        Args:
            transactional_id: The id; an unknown one is created.
            timeout_ms: The id's new transaction timeout.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            await admin.fence_producer("bar-1")
        """
        transactional_id = one("fence_producer", "transactional_id", transactional_id, str)
        await fence_producer(self.cluster, transactional_id, timeout_ms=timeout_ms)

    # -- brokers

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers that are alive and the controller.

        Returns:
            The cluster's id, its controller and its brokers.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print((await admin.describe_cluster()).nodes)
        """
        metadata = await self.cluster.refresh([])
        return ClusterDescription(
            metadata.cluster_id,
            metadata.nodes.get(metadata.controller_id),
            tuple(node for _, node in sorted(metadata.nodes.items())),
        )

    async def describe_features(self, broker_id: int | None = None) -> FeatureMetadata:
        """Return the features that a broker supports, and their levels in the cluster.

        Args:
            broker_id: The broker to ask; None means any.

        Returns:
            The features.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.describe_features())
        """
        return await features.describe_features(self.cluster, broker_id)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> list[FeatureResult]:
        """Change the levels of features; most brokers change all or none.

        Args:
            updates: The new levels, by the names of the features.
            validate_only: Only check that the call would succeed.

        Returns:
            One result per feature, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.update_features({}, validate_only=True))
        """
        levels = mapping("update_features", updates, FeatureUpdate, "{'metadata.version': FeatureUpdate(20)}")
        return await features.update_features(self.cluster, levels, validate_only=validate_only)

    async def describe_user_scram_credentials(self, users: Sequence[str] = ()) -> list[ScramUser]:
        """Return the users that log in by SCRAM, with their mechanisms; never their passwords.

        Args:
            users: Names of users; none means all.

        Returns:
            The users, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.describe_user_scram_credentials())
        """
        return await scram_users.describe_user_scram_credentials(self.cluster, listed(users, str))

    async def alter_user_scram_credentials(
        self, alterations: Sequence[ScramUpsertion | ScramDeletion]
    ) -> list[ScramUserResult]:
        """Set and remove SCRAM credentials; brokers receive a salted hash instead of the password.

        Args:
            alterations: ``ScramUpsertion`` and ``ScramDeletion`` of ``tidelog.client.admin.scram_users``.

        Returns:
            One result per user, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            from tidelog.client.admin.scram_users import ScramDeletion

            print(await admin.alter_user_scram_credentials([ScramDeletion("ann", "SCRAM-SHA-512")]))
        """
        changes = listed(alterations, ScramUpsertion | ScramDeletion)
        return await scram_users.alter_user_scram_credentials(self.cluster, changes)

    async def describe_client_quotas(
        self, wanted: Mapping[str, str | AnyName | None] | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """Return client quotas.

        Args:
            wanted: Names by kind (``user``, ``client-id``, ``ip``): None is the default, ``ANY_NAME`` all of
                a kind. Without it, all quotas.
            strict: Whether to leave out quotas that have further kinds.

        Returns:
            The quotas.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.describe_client_quotas())
        """
        entity = mapping(
            "describe_client_quotas", wanted or {}, str | AnyName | None, "{'user': 'ann', 'client-id': None}"
        )
        return await quotas.describe_client_quotas(self.cluster, entity, strict=strict)

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[QuotaResult]:
        """Set and remove quotas; they hold on every broker a moment later.

        Args:
            alterations: ``QuotaAlteration`` of ``tidelog.client.admin.quotas``.
            validate_only: Only check that the call would succeed.

        Returns:
            One result per alteration, each with its own ``error``.

        Raises:
            ClientError: An argument has another form; the text says which it takes.
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.alter_client_quotas([], validate_only=True))
        """
        return await quotas.alter_client_quotas(
            self.cluster, listed(alterations, QuotaAlteration), validate_only=validate_only
        )

    async def describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the access rules that a filter matches.

        Args:
            wanted: The filter, of ``tidelog.security.acls``; ``AclFilter()`` matches all.

        Returns:
            The rules.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            from tidelog.security.acls import AclFilter

            print(await admin.describe_acls(AclFilter()))
        """
        return await acls.describe_acls(self.cluster, one("describe_acls", "wanted", wanted, AclFilter))

    async def create_acls(self, bindings: Sequence[AclBinding]) -> list[AclResult]:
        """Add access rules; those that exist already are no error.

        Args:
            bindings: The rules, of ``tidelog.security.acls``.

        Returns:
            One result per rule, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            from tidelog.security.acls import AclBinding, AclEntry, Operation, Permission, ResourcePattern
            from tidelog.security.acls import ResourceType as AclResourceType

            orders = ResourcePattern(AclResourceType.TOPIC, "orders")
            rule = AclBinding(orders, AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW))
            for result in await admin.create_acls([rule]):
                result.raise_for_error()
        """
        return await acls.create_acls(self.cluster, listed(bindings, AclBinding))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
        """Remove the access rules that filters match.

        Args:
            filters: The filters, of ``tidelog.security.acls``.

        Returns:
            The rules that each filter has removed, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            from tidelog.security.acls import AclFilter

            for deleted in await admin.delete_acls([AclFilter(principal="User:ann")]):
                print(deleted.results)
        """
        return await acls.delete_acls(self.cluster, listed(filters, AclFilter))

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """Create a token by which other programs log in as this user.

        It expires after the broker's ``delegation.token.expiry.time.ms`` unless it is renewed.

        Args:
            owner: Another user to log in as, as ``User:alice``.
            renewers: Users that may renew and end it, too.
            max_lifetime_ms: The longest life; None means the broker's.

        Returns:
            The token, with ``token_id`` and ``password``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            token = await admin.create_delegation_token()
            print(token.token_id)
        """
        return await delegation_tokens.create_delegation_token(self.cluster, owner, renewers, max_lifetime_ms)

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Postpone the end of a token, but not past its longest life.

        Args:
            hmac: The token's ``hmac``.
            period_ms: Milliseconds from now; None means the broker's usual time.

        Returns:
            When it ends, in milliseconds since 1970.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            token = await admin.create_delegation_token()
            print(await admin.renew_delegation_token(token.hmac))
        """
        return await delegation_tokens.renew_delegation_token(
            self.cluster, one("renew_delegation_token", "hmac", hmac, bytes), period_ms
        )

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """End a token; clients that have logged in by it keep their sessions.

        Args:
            hmac: The token's ``hmac``.
            period_ms: Milliseconds from now; None means at once.

        Returns:
            When it ends, in milliseconds since 1970.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            token = await admin.create_delegation_token()
            print(await admin.expire_delegation_token(token.hmac))
        """
        return await delegation_tokens.expire_delegation_token(
            self.cluster, one("expire_delegation_token", "hmac", hmac, bytes), period_ms
        )

    async def describe_delegation_tokens(self, owners: Sequence[str] | None = None) -> list[DelegationToken]:
        """Return the tokens that this user may see.

        Args:
            owners: Their owners; None means all.

        Returns:
            The tokens.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.describe_delegation_tokens())
        """
        return await delegation_tokens.describe_delegation_tokens(self.cluster, listed_or_none(owners, str))

    async def describe_log_dirs(
        self,
        broker_ids: Collection[int] | None = None,
        *,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[int, BrokerLogDirs]:
        """Return the log directories of brokers, with the sizes of partitions.

        Args:
            broker_ids: The brokers; None means all.
            partitions: The partitions; None means all.

        Returns:
            The directories of each broker, each broker with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            for broker_id, found in (await admin.describe_log_dirs()).items():
                print(broker_id, found)
        """
        ids = listed_or_none(broker_ids, int)
        named = partitions_or_none("describe_log_dirs", partitions)
        return await log_dirs.describe_log_dirs(self.cluster, ids, named)

    async def alter_replica_log_dirs(
        self, moves: Mapping[tuple[int, TopicPartition], str]
    ) -> list[ReplicaMove]:
        """Begin to move replicas to other log directories of their brokers.

        Args:
            moves: The directory, by broker and partition.

        Returns:
            One result per replica, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            moves = {(0, TopicPartition("orders", 0)): "/data/two"}
            for result in await admin.alter_replica_log_dirs(moves):
                print(result.error)
        """
        if not isinstance(moves, Mapping) or not all(map(is_replica, moves)):
            raise ClientError(
                "alter_replica_log_dirs takes a mapping of replicas, as "
                f"{{(0, TopicPartition('orders', 0)): '/data/two'}}, got {moves!r}"
            )
        return await log_dirs.alter_replica_log_dirs(self.cluster, moves)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> list[PartitionResult]:
        """Elect leaders.

        Args:
            partitions: The partitions; None means all that need it.
            election_type: Whether to elect the preferred replica, or any that is alive.

        Returns:
            One result per partition that needed an election, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.elect_leaders())
        """
        named = partitions_or_none("elect_leaders", partitions)
        kind = one("elect_leaders", "election_type", election_type, ElectionType)
        return await replicas.elect_leaders(self.cluster, named, kind)

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions that are being moved to other brokers.

        Args:
            partitions: The partitions; None means all.

        Returns:
            The moves, by partition.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            print(await admin.list_partition_reassignments())
        """
        named = partitions_or_none("list_partition_reassignments", partitions)
        return await replicas.list_partition_reassignments(self.cluster, named)

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> list[PartitionResult]:
        """Begin to move partitions to other brokers.

        Args:
            targets: The brokers of each partition's replicas; None cancels a move that is under way.

        Returns:
            One result per partition, each with its own ``error``.

        Raises:
            KafkaError: The broker refuses the call as a whole.
            RequestTimeoutError: There is no answer within ``default.api.timeout.ms``.
            ClientClosedError: The client is closed.

        Example:
            for result in await admin.alter_partition_reassignments({TopicPartition("orders", 0): None}):
                print(result.error)
        """
        wanted = by_partition(
            "alter_partition_reassignments", targets, is_broker_list, "{TopicPartition('orders', 0): [1, 2]}"
        )
        return await replicas.alter_partition_reassignments(self.cluster, wanted)


def _is_offset_to_commit(given: object) -> bool:
    return is_number(given.offset if isinstance(given, OffsetAndMetadata) else given)
