"""What a broker is among others: the parts that each way to run a broker brings, with the same interfaces.

``standalone`` is a broker alone, ``cluster/membership`` one of a cluster that ZooKeeper coordinates.
``composition`` chooses; nothing below it asks which way it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.broker.coordination.coordinator_links import CoordinatorLinks
from tidelog.broker.fetch.nearest_replica import NearestReplica
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_quotas import QuotaEntity
from tidelog.controller.controller import CreatedTopic, MorePartitions
from tidelog.controller.features import FeatureUpdate
from tidelog.controller.topics import ElectionType, NewTopic
from tidelog.errors import KafkaError, LogDirOfflineError
from tidelog.ids import TopicPartition, Uuid
from tidelog.metadata.dynamic_config import DynamicConfigs, Edit
from tidelog.metadata.feed import Feed, ImageDelta
from tidelog.metadata.store import MetadataStore, SharedStore
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.replication.partitions import Partitions
from tidelog.replication.replication_context import ReplicationContext
from tidelog.replication.throttle import ReplicationThrottle
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log.log import Log
from tidelog.wire.api import ApiKey

if TYPE_CHECKING:
    # A sixth of all modules, which a broker needs when it is ready, and not before.
    from tidelog.controller.cluster.context import ReplicaAssignment
    from tidelog.metrics.page import Page


ServedApis = tuple[ApiKey, ...]


class Admin(Protocol):
    """What admin requests change: ``controller.Controller`` alone, ``cluster.ClusterAdmin`` in a cluster."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; names must differ from each other. The outcome of each is by its name."""

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Create topics that a client needs and that are not there; one that is there by now is fine too."""

    async def delete_topics(
        self, ids: Sequence[Uuid], *, timeout_ms: int | None = None
    ) -> dict[Uuid, KafkaError | None]:
        """Delete topics by id."""

    async def create_partitions(
        self,
        requests: Sequence[MorePartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions; a topic may be named once."""

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: ElectionType, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect the leaders of partitions anew; one that needs no election is refused."""

    async def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin, replace or (None) take back reassignments."""

    async def list_reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Reassignments that are under way."""

    async def change_topic_config(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a topic's overrides with what ``edit`` makes of them; raises the refusal."""

    async def change_group_config(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a group's options with what ``edit`` makes of them; the group need not exist."""

    async def change_client_metrics(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a subscription to clients' metrics with what ``edit`` makes of it."""

    async def change_user_config(self, name: str, edit: Edit) -> None:
        """Replace what is kept of a user (SCRAM credentials, quotas) with what ``edit`` makes of it."""

    async def change_quotas(self, entity: QuotaEntity, edit: Edit) -> None:
        """Replace what is kept of a user, a client id or an IP address with what ``edit`` makes of it."""

    async def change_broker_config(
        self, edit: Edit, *, every_broker: bool, validate_only: bool = False
    ) -> None:
        """Replace the dynamic options of this or of every broker with what ``edit`` makes of them."""

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Finalize feature levels; raises the refusal, in which case none of them changed."""


class Serve(Protocol):
    """Opens the listeners of a broker."""

    def __call__(self, only: Collection[str] | None = None) -> None:
        """Accept connections by the listeners with these names, or by all."""


class RestOfBroker(NamedTuple):
    """What a membership works on."""

    partitions: Partitions
    log_dirs: LogDirs
    configs: DynamicConfigs
    on_offline: Callable[[LogDirOfflineError], None]
    on_roles: Callable[[ImageDelta], None]
    """Told when partitions are what they are to be."""


class Membership(Protocol):
    """A broker's place among others, or alone."""

    @property
    def served(self) -> ServedApis:
        """The APIs that the broker serves."""

    @property
    def replication_context(self) -> ReplicationContext:
        """What all its partitions share."""

    @property
    def coordinator_links(self) -> CoordinatorLinks:
        """How its coordinators reach others."""

    @property
    def control_listener(self) -> str | None:
        """The listener that is kept apart for the controller."""

    @property
    def shared_store(self) -> SharedStore | None:
        """The metadata store, if others write to it too."""

    @property
    def is_informed(self) -> bool:
        """Whether this broker can say what there is."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the active controller."""

    @property
    def leader_throttle(self) -> ReplicationThrottle | None:
        """What bounds how much followers get."""

    @property
    def nearest_replica(self) -> NearestReplica | None:
        """Who sends consumers to a replica near by."""

    def attach(self, rest: RestOfBroker) -> None:
        """The rest of the broker is there."""

    def is_stray(self, log: Log) -> bool:
        """Whether a log that is being loaded belongs to nothing that this broker has, as far as is known."""

    def follow(self, delta: ImageDelta) -> Iterator[None]:
        """Bring partitions in line with changed metadata, if it is these that tell; one log at a time."""

    async def wait_until_informed(self) -> bool:
        """Wait for a bounded time until this broker can say what there is; whether it can."""

    async def join(self, registration: BrokerRegistration, serve: Serve, *, after_crash: bool) -> None:
        """Register, and ``serve`` when requests may come."""

    def give_up(self) -> None:
        """The broker is told to stop while it starts."""

    async def leave(self) -> None:
        """Hand over what this broker leads."""

    def figures(self, page: Page) -> Iterator[str]:
        """The families about the cluster, as this broker sees it."""

    async def end_offsets(
        self, leader: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Where partitions end that another broker leads, as far as it says."""

    async def close(self) -> None:
        """End everything."""


class MetadataParts(NamedTuple):
    """The parts of a broker that its way to run brings."""

    store: MetadataStore
    feed: Feed
    configs: DynamicConfigs
    admin: Admin
    membership: Membership


OpenMetadata = Callable[[BrokerConfig, Clock, LogDirs], Awaitable[MetadataParts]]
"""Opens the metadata, and settles who this broker is; the log directories are open and say what they know."""
