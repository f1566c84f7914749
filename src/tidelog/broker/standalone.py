"""A broker alone: its metadata are its own, it is its own controller, and it tells its partitions itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.broker.membership import MetadataParts, RestOfBroker, Serve
from tidelog.broker.served import SERVED
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.controller import Controller
from tidelog.controller.takeover import take_over
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.ids import TopicPartition, random_uuid, uuid_to_text
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.embedded.embedded_store import JOURNAL_NAME, EmbeddedStore
from tidelog.metadata.feed import ImageDelta, MetadataFeed
from tidelog.metadata.store import MetadataStore, NoNode, put
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.replication.partitions import Partitions
from tidelog.replication.replication_context import STANDALONE
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log.log import Log

if TYPE_CHECKING:
    from tidelog.coordinator.transaction.markers import MarkerWriter
    from tidelog.coordinator.transaction.service import TransactionCoordinator
    from tidelog.metrics.page import Page
    from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse


async def open_standalone(config: BrokerConfig, clock: Clock, log_dirs: LogDirs) -> MetadataParts:
    """Open the store in the log directories, and become its controller."""
    identity = log_dirs.stored_identity()
    if identity.broker_id is not None and not {"node.id", "broker.id"} & config.raw.keys():
        config.node_id = identity.broker_id
    store = EmbeddedStore(_store_directory(log_dirs, known=identity.cluster_id is not None))
    try:
        cluster_id = await _cluster_id(store, identity.cluster_id)
        log_dirs.identify(broker_id=config.node_id, cluster_id=cluster_id)
        await take_over(store, config, clock, list(log_dirs.online))
        feed = await MetadataFeed.start(store)
    except BaseException:
        await store.close()
        raise
    configs = DynamicConfigs(store, feed, config)
    admin = Controller(store, feed, config, configs)
    return MetadataParts(store, feed, configs, admin, Standalone(config, store, feed))


class Standalone:
    """The membership of a broker that has nobody beside it."""

    served = SERVED
    replication_context = STANDALONE
    control_listener = None
    shared_store = None
    is_informed = True
    is_controller = True
    leader_throttle = None
    nearest_replica = None
    _partitions: Partitions

    def __init__(self, config: BrokerConfig, store: MetadataStore, feed: MetadataFeed) -> None:
        self.coordinator_links = HereOnly()
        self._config = config
        self._store = store
        self._feed = feed

    def attach(self, rest: RestOfBroker) -> None:
        """The rest of the broker is there."""
        self._partitions = rest.partitions

    def is_stray(self, log: Log) -> bool:
        """Whether a log belongs to no partition of the metadata."""
        return self._partitions.is_stray(log)

    def follow(self, delta: ImageDelta) -> Iterator[None]:
        """The metadata tell what partitions are to be."""
        if delta.topics:
            yield from self._partitions.apply_in_steps(sorted(delta.topics))

    async def wait_until_informed(self) -> bool:
        """Nothing has to come from elsewhere."""
        return True

    async def join(self, registration: BrokerRegistration, serve: Serve, *, after_crash: bool) -> None:
        """Register; nobody speaks to this broker before that."""
        await self._store.create(
            znodes.broker_path(self._config.node_id), registration.encode(), ephemeral=True
        )
        await self._feed.caught_up()
        serve()

    def figures(self, page: Page) -> Iterator[str]:
        """The families about the cluster, which is this broker."""
        from tidelog.broker.metrics.cluster_figures import alone

        return alone(page, self._feed.image)

    async def end_offsets(
        self, leader: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """There is no other broker."""
        return {}

    def give_up(self) -> None:
        """Nothing here waits for others."""

    async def leave(self) -> None:
        """There is nobody to take over."""

    async def close(self) -> None:
        """There is nothing to end."""


class HereOnly:
    """All partitions and coordinators are on this broker."""

    def markers(self, local: MarkerWriter) -> MarkerWriter:
        """The one for partitions here."""
        return local

    def transactions(self, local: TransactionCoordinator) -> TransactionCoordinator:
        """The one here."""
        return local

    async def produce(self, broker_id: int, request: ProduceRequest, timeout_ms: float) -> ProduceResponse:
        """There is nobody to ask."""
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")


def _store_directory(log_dirs: LogDirs, *, known: bool) -> Path:
    """The log directory that has the metadata, or the first one if there are none yet."""
    for path in log_dirs.online:
        if (path / JOURNAL_NAME).exists():
            return path
    if known and log_dirs.offline_dirs:
        offline = ", ".join(map(str, log_dirs.offline_dirs))
        raise StorageError(
            f"the metadata ({JOURNAL_NAME}) is in none of the log directories that can be used, so it "
            f"must be in {offline}: repair that disk, or restore the file from a backup into another one"
        )
    return next(iter(log_dirs.online))


async def _cluster_id(store: MetadataStore, stored: str | None) -> str:
    try:
        raw, _ = await store.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(raw)
    except NoNode:
        cluster_id = stored or uuid_to_text(random_uuid())
        await put(store, znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
        return cluster_id
