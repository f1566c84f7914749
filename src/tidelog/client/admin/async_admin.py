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

from collections.abc import Collection, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelog.client.admin import (
    acls,
    delegation_tokens,
    features,
    log_dirs,
    quotas,
    replicas,
    scram_users,
    topics,
)
from tidelog.client.admin.acls import AclResult, DeletedAcls
from tidelog.client.admin.cluster_resources import (
    BrokerLogDirs,
    ElectionType,
    FeatureMetadata,
    FeatureResult,
    FeatureUpdate,
    PartitionReassignment,
    ReplicaMove,
)
from tidelog.client.admin.config_changes import (
    alter_configs,
    checked_changes,
    describe_configs,
    list_config_resources,
)
from tidelog.client.admin.delegation_tokens import DelegationToken
from tidelog.client.admin.group_lag import describe_group_lag
from tidelog.client.admin.group_offsets import alter_group_offsets, delete_group_offsets, list_group_offsets
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
from tidelog.client.admin.groups import delete_groups, describe_groups, list_groups
from tidelog.client.admin.offset_reset import ResetPlan, ResetTarget, plan_offset_reset
from tidelog.client.admin.producer_states import describe_producers, find_hanging_transactions
from tidelog.client.admin.quotas import AnyName, ClientQuotas, QuotaAlteration, QuotaResult
from tidelog.client.admin.remove_members import remove_group_members
from tidelog.client.admin.scram_users import ScramDeletion, ScramUpsertion, ScramUser, ScramUserResult
from tidelog.client.admin.transaction_resources import (
    AbortMarker,
    HangingTransactions,
    ListedTransactions,
    PartitionProducers,
    TransactionDescription,
    TransactionState,
)
from tidelog.client.admin.transactions import (
    abort_transaction,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientClosedError, ClientError
from tidelog.client.foreign_methods import ADMIN, foreign_methods
from tidelog.client.metrics import Figures
from tidelog.client.offsets import delete_records, list_offsets
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
from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition, Uuid
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import AclBinding

Many = TypeVar("Many", bound=Collection[Any])

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client.consumer.partition_state import OffsetAndMetadata
    from tidelog.client.observers import Observers
    from tidelog.client.options import ClientConfig
    from tidelog.client.options.option_types import AdminOptions


class AsyncAdmin:
    """Administers a cluster from one event loop; options in Kafka's names, as a mapping or as keywords."""

    if not TYPE_CHECKING:
        __getattr__ = foreign_methods(ADMIN)

    def __init__(
        self, options: Mapping[str, object] | None = None, /, **keywords: Unpack[AdminOptions]
    ) -> None:
        # The command line, which comes by `of`, does not pay for the option tables.
        from tidelog.client.observers import Observers
        from tidelog.client.options import ADMIN, ClientConfig

        self.config: ClientConfig | None = ClientConfig.parse(ADMIN, options, **keywords)
        self._observers: Observers | None = Observers(self.config)
        self._cluster: Cluster | None = None
        self._borrowed = False
        self._closed = False

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """The administrative side of ``cluster``, which stays the caller's to close."""
        admin = cls.__new__(cls)
        admin.config = None
        admin._observers = None
        admin._cluster = cluster
        admin._borrowed = True
        admin._closed = False
        return admin

    # -- life

    @property
    def cluster(self) -> Cluster:
        """The way to the brokers; made when it is first needed, on the loop that needs it."""
        if self._closed:
            raise ClientClosedError("the admin client is closed")
        if self._cluster is None:
            from tidelog.client.options.network import network_settings

            assert self.config is not None
            assert self._observers is not None
            self._cluster = Cluster(self.config.list("bootstrap.servers"), network_settings(self.config))
            self._observers.start(self._cluster)
        return self._cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls under way fail."""
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
        """Figures about this client and its brokers, by Kafka's names; times in ms."""
        return Figures() if self._cluster is None else self._cluster.metrics.snapshot()

    async def client_instance_id(self, timeout: float = 30.0) -> Uuid:
        """The id that brokers know this client by in its telemetry (KIP-714); waits ``timeout`` seconds."""
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
        """Create topics, or only check that they could be created.

        What a quota puts off is tried again until the call's time is up, or told at once as
        ``ThrottlingQuotaExceededError`` where ``retry_on_quota_violation`` is False.
        """
        return await topics.create_topics(
            self.cluster,
            _listed(new_topics, NewTopic),
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )

    async def delete_topics(
        self, names: Sequence[str | Uuid], *, retry_on_quota_violation: bool = True
    ) -> list[TopicResult]:
        """Delete topics, by name or by id, and everything in them; quotas as in ``create_topics``."""
        return await topics.delete_topics(
            self.cluster, _listed(names, str | bytes), retry_on_quota_violation=retry_on_quota_violation
        )

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> list[TopicResult]:
        """Raise topics to the given numbers of partitions; quotas as in ``create_topics``."""
        return await topics.create_partitions(
            self.cluster,
            topics.checked_totals(totals),
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Every topic that may be seen, by name."""
        return await topics.list_topics(self.cluster, include_internal=include_internal)

    async def describe_topics(
        self, names: Collection[str], *, by_controller: bool = False
    ) -> dict[str, TopicDescription]:
        """Describe topics by name; each has its own ``error``. Never creates a topic.

        Any broker is asked. What was changed just now is known to the controller first: ``by_controller``.
        """
        return await topics.describe_topics(self.cluster, _listed(names, str), by_controller=by_controller)

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

    # -- configs

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_documentation: bool = False,
    ) -> list[ConfigResult]:
        """The configs of each resource, all of them or only those in ``names``, with their synonyms."""
        return await describe_configs(
            self.cluster,
            _listed(resources, ConfigResource),
            names=None if names is None else _listed(names, str),
            include_documentation=include_documentation,
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp] | Mapping[str, str | int | float | bool]],
        *,
        validate_only: bool = False,
    ) -> list[ConfigResult]:
        """Change single configs and leave the others alone; works on brokers older than KIP-339 too."""
        return await alter_configs(self.cluster, checked_changes(changes), validate_only=validate_only)

    async def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """What can have configs, of the given types or of all; needs Kafka 4.1."""
        return await list_config_resources(self.cluster, types)

    # -- groups

    async def list_groups(
        self,
        *,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
        broker_ids: Collection[int] | None = None,
    ) -> ListedGroups:
        """The groups of all brokers or some, in any of ``states`` and of any of ``types`` where given."""
        return await list_groups(self.cluster, states=states, types=types, broker_ids=broker_ids)

    async def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """Each group with its members and their assignments.

        A group that does not exist is an error, or on brokers before Kafka 4.0 a group in state ``DEAD``.
        """
        return await describe_groups(self.cluster, _listed(group_ids, str))

    async def describe_group_lag(self, group_ids: Collection[str]) -> dict[str, GroupLag]:
        """Each group with its committed offsets beside the ends of the logs."""
        return await describe_group_lag(self.cluster, _listed(group_ids, str))

    async def delete_groups(self, group_ids: Collection[str]) -> list[GroupResult]:
        """Delete groups that have no members, with their offsets."""
        return await delete_groups(self.cluster, _listed(group_ids, str))

    async def remove_group_members(
        self, group_id: str, instance_ids: Collection[str] | None = None, *, reason: str | None = None
    ) -> list[MemberResult]:
        """Remove static members from a group, or with None all of its members."""
        instances = None if instance_ids is None else _listed(instance_ids, str)
        return await remove_group_members(self.cluster, group_id, instances, reason)

    async def list_group_offsets(self, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        """All that each group has committed."""
        return await list_group_offsets(self.cluster, _listed(group_ids, str))

    async def plan_offset_reset(
        self, group_id: str, partitions: Collection[TopicPartition] | None, target: ResetTarget
    ) -> ResetPlan:
        """What moving the group's offsets to ``target`` would do; ``partitions`` None: all it committed."""
        return await plan_offset_reset(self.cluster, group_id, partitions, target)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> list[PartitionResult]:
        """Commit offsets for a group without members; one that does not exist is created."""
        return await alter_group_offsets(self.cluster, group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> list[PartitionResult]:
        """Forget what a group has committed for topics that none of its members reads."""
        return await delete_group_offsets(self.cluster, group_id, partitions)

    # -- producers and transactions

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
        return await describe_transactions(self.cluster, _listed(transactional_ids, str))

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

    # -- brokers

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers that are alive and which of them is the controller."""
        metadata = await self.cluster.refresh([])
        return ClusterDescription(
            metadata.cluster_id,
            metadata.nodes.get(metadata.controller_id),
            tuple(node for _, node in sorted(metadata.nodes.items())),
        )

    async def describe_features(self, broker_id: int | None = None) -> FeatureMetadata:
        """The features that a broker supports, and the levels that are in force in the cluster."""
        return await features.describe_features(self.cluster, broker_id)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> list[FeatureResult]:
        """Change the levels of features; most brokers change all or none."""
        return await features.update_features(self.cluster, updates, validate_only=validate_only)

    async def describe_user_scram_credentials(self, users: Sequence[str] = ()) -> list[ScramUser]:
        """The users who log in by SCRAM, or some of them, with their mechanisms; never their passwords."""
        return await scram_users.describe_user_scram_credentials(self.cluster, users)

    async def alter_user_scram_credentials(
        self, alterations: Sequence[ScramUpsertion | ScramDeletion]
    ) -> list[ScramUserResult]:
        """Set and remove SCRAM credentials; passwords stay here, brokers are sent what is made of them."""
        return await scram_users.alter_user_scram_credentials(self.cluster, alterations)

    async def describe_client_quotas(
        self, wanted: Mapping[str, str | AnyName | None] | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """The quotas of all, or of those that ``wanted`` means: names by kind (``user``, ``client-id``,
        ``ip``), None for the default, ``ANY_NAME`` for all of a kind; ``strict`` leaves out those who are
        of another kind besides."""
        return await quotas.describe_client_quotas(self.cluster, wanted or {}, strict=strict)

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[QuotaResult]:
        """Set and remove quotas; they hold on every broker a moment later."""
        return await quotas.alter_client_quotas(
            self.cluster, _listed(alterations, QuotaAlteration), validate_only=validate_only
        )

    async def describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        """The access rules that a filter means; raises what the broker refuses."""
        return await acls.describe_acls(self.cluster, wanted)

    async def create_acls(self, bindings: Sequence[AclBinding]) -> list[AclResult]:
        """Add access rules; those that are there already are fine."""
        return await acls.create_acls(self.cluster, bindings)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
        """Remove the access rules that filters mean, and say which they were."""
        return await acls.delete_acls(self.cluster, filters)

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """A new token by which others log in as this user, or as ``owner`` (``User:alice``).

        It ends at the broker's ``delegation.token.expiry.time.ms`` unless it is renewed, and after
        ``max_lifetime_ms``, or the broker's longest life, for good. ``renewers`` may renew and end it, too.
        """
        return await delegation_tokens.create_delegation_token(self.cluster, owner, renewers, max_lifetime_ms)

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Let a token end so long from now, or after the broker's usual time; gives when, in ms since 1970.

        It never ends later than its longest life lets it.
        """
        return await delegation_tokens.renew_delegation_token(self.cluster, hmac, period_ms)

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Let a token end so long from now, or at once; gives when, in ms since 1970.

        Who has logged in by it stays so until his session ends.
        """
        return await delegation_tokens.expire_delegation_token(self.cluster, hmac, period_ms)

    async def describe_delegation_tokens(self, owners: Sequence[str] | None = None) -> list[DelegationToken]:
        """The tokens that this user may know of, of all owners or of some, with what proves them."""
        return await delegation_tokens.describe_delegation_tokens(self.cluster, owners)

    async def describe_log_dirs(
        self,
        broker_ids: Collection[int] | None = None,
        *,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[int, BrokerLogDirs]:
        """The log directories of all brokers or some, with the sizes of all partitions or some."""
        return await log_dirs.describe_log_dirs(self.cluster, broker_ids, partitions)

    async def alter_replica_log_dirs(
        self, moves: Mapping[tuple[int, TopicPartition], str]
    ) -> list[ReplicaMove]:
        """Begin to move replicas, by broker and partition, to other log directories of their brokers."""
        return await log_dirs.alter_replica_log_dirs(self.cluster, moves)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> list[PartitionResult]:
        """Elect leaders anew, of some partitions or of all that need it (others are not in the answer)."""
        return await replicas.elect_leaders(self.cluster, partitions, election_type)

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions that are on their way to other brokers."""
        return await replicas.list_partition_reassignments(self.cluster, partitions)

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> list[PartitionResult]:
        """Begin to move partitions to other brokers; None gives up a move that is under way."""
        return await replicas.alter_partition_reassignments(self.cluster, targets)


def _listed(given: Many, kind: type | UnionType) -> Many:
    """``given``, if it is several of ``kind``; a lone str, which type checkers let pass, is letters."""
    if (
        isinstance(given, str | bytes)
        or not isinstance(given, Collection)
        or not all(isinstance(each, kind) for each in given)
    ):
        wanted = kind.__name__ if isinstance(kind, type) else str(kind)
        raise ClientError(f"give a list of {wanted}, even for one; {given!r} is none")
    return given
