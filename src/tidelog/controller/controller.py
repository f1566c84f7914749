"""The single writer of the cluster's metadata.

Every change goes the same way: wait for the turn, work out what changes (``topics``, ``config_changes``,
``features``: pure functions), write it to the store in one ``multi``, and wait until the image has it. The
store's write is durable when it returns, and whoever follows the image (partitions, dynamic configs) has
acted on a change before the call returns, so what a handler answers is what the next request finds.

Invariant: one change at a time. A change is computed from the image while holding the turn, and nobody else
writes topics, configs or features; so what was computed still holds when it is written. A ``multi`` that
the store refuses all the same (somebody else wrote to a shared ZooKeeper) changes nothing and is an error.

Results are per item: the item's outcome, or the :class:`KafkaError` that refuses it; the other items of
the request go on. Called by the admin handlers and by the metadata handler for auto-created topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import NoReturn

from msgspec import Struct

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_metrics import check_subscription
from tidelog.config.client_quotas import QuotaEntity
from tidelog.controller.assignment import Assignment, BrokerRack, validate_manual_assignment
from tidelog.controller.auto_topics import auto_topic
from tidelog.controller.features import SUPPORTED_FEATURES, FeatureUpdate, plan_feature_updates
from tidelog.controller.topic_names import collision_index, validate_no_collision, validate_topic_name
from tidelog.controller.topic_nodes import (
    add_partitions_ops,
    create_topic_ops,
    delete_topic_ops,
    first_state,
    set_leader_op,
)
from tidelog.controller.topics import (
    ElectionType,
    Leadership,
    NewTopic,
    TopicDefaults,
    check_total_changes,
    check_total_partitions,
    creation_configs,
    plan_assignment,
    plan_election,
    plan_more_partitions,
)
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.ids import TopicPartition, Uuid, random_uuid
from tidelog.metadata.dynamic_config import DynamicConfigs, Edit
from tidelog.metadata.feed import MetadataFeed
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import Create, Delete, MetadataStore, NoNode, Op, Set, StoreClosed
from tidelog.metadata.znodes import znodes

logger = logging.getLogger(__name__)

_OPS_AT_ONCE = 250
"""Many topics are written in transactions of about this size, between which others are served."""
_AT_ONCE = 64
"""After so many things that a request names others have their turn."""


class CreatedTopic(Struct, frozen=True):
    """A topic that was created, or with ``validate_only`` would have been."""

    id: Uuid
    assignment: Assignment
    configs: Mapping[str, str]


class MorePartitions(Struct, frozen=True):
    """A topic that is to have ``count`` partitions; ``assignments`` places the new ones by hand."""

    topic: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


class Controller:
    """Creates, grows and deletes topics, elects leaders, and changes configs and features."""

    def __init__(
        self,
        store: MetadataStore,
        feed: MetadataFeed,
        config: BrokerConfig,
        configs: DynamicConfigs,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._feed = feed
        self._config = config
        self._configs = configs
        self._rng = rng or random.Random()
        self._lock = asyncio.Lock()

    # -- topics -------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; names must differ from each other. The outcome of each is by its name."""
        async with self._turn(timeout_ms):
            check_total_partitions(topics, self._topic_defaults())
            results: dict[str, CreatedTopic | KafkaError] = {}
            collisions = collision_index(self._image.topics)
            for topic in topics:
                if results:
                    # Others are served while a long request is planned.
                    await asyncio.sleep(0)
                try:
                    planned = self._plan_topic(topic, collisions)
                except KafkaError as error:
                    results[topic.name] = error
                else:
                    results[topic.name] = planned
                    collisions.update(collision_index([topic.name]))
            created = {name: each for name, each in results.items() if isinstance(each, CreatedTopic)}
            check_total_changes(
                sum(1 + len(each.configs) + len(each.assignment) for each in created.values())
            )
            if created and not validate_only:
                results |= await self._create(created)
            return results

    async def _create(self, topics: Mapping[str, CreatedTopic]) -> dict[str, KafkaError]:
        """Write topics, many in several transactions; a failure is that of its own and those behind it."""
        left = list(topics)
        while left:
            ops: list[Op] = []
            names: list[str] = []
            while left and len(ops) < _OPS_AT_ONCE:
                names.append(left.pop(0))
                ops += self._creation(names[-1], topics[names[-1]])
            try:
                await self._write(ops)
            except KafkaError as error:
                return dict.fromkeys(names + left, error)
            logger.info("created topic(s) %s", ", ".join(names))
        return {}

    def _plan_topic(self, topic: NewTopic, collisions: Mapping[str, str]) -> CreatedTopic:
        validate_topic_name(topic.name)
        if topic.name in self._image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        validate_no_collision(topic.name, collisions)
        configs = creation_configs(topic)
        self._configs.check_topic(configs)
        assignment = plan_assignment(topic, self._brokers(), self._topic_defaults(), self._rng)
        return CreatedTopic(random_uuid(), assignment, configs)

    def _creation(self, name: str, topic: CreatedTopic) -> list[Op]:
        states = self._first_states(topic.assignment)
        ops = create_topic_ops(name, topic.id, topic.assignment, topic.configs, states)
        if name in self._image.deleting:
            # An older topic's mark, left there, would doom the new one at the next start.
            ops.insert(0, Delete(znodes.delete_topic_path(name)))
        return ops

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Create topics that a client needs and that are not there; one that is there by now is fine too.

        Whether ``auto.create.topics.enable`` allows it is for the caller to ask.
        """
        results = await self.create_topics([auto_topic(name, self._config) for name in dict.fromkeys(names)])
        return {
            name: outcome
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
            else None
            for name, outcome in results.items()
        }

    async def delete_topics(
        self, ids: Sequence[Uuid], *, timeout_ms: int | None = None
    ) -> dict[Uuid, KafkaError | None]:
        """Delete topics by id; the marks make sure that a crash half way leaves no topic half deleted."""
        async with self._turn(timeout_ms):
            found = {topic_id: self._image.topic_by_id.get(topic_id) for topic_id in ids}
            await self._delete([topic.name for topic in found.values() if topic is not None])
            unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            return {topic_id: None if topic is not None else unknown for topic_id, topic in found.items()}

    async def _delete(self, names: Sequence[str]) -> None:
        if not names:
            return
        marks = [znodes.delete_topic_path(name) for name in names]
        await self._write([Create(mark) for mark in marks if not await self._store.exists(mark)])
        # The marks are there: a deletion that ends between two of these writes goes on at the next start.
        ops: list[Op] = []
        for name in names:
            ops += await delete_topic_ops(self._store, name)
            if len(ops) >= _OPS_AT_ONCE:
                await self._write(ops)
                ops = []
        if ops:
            await self._write(ops)
        await self._write([Delete(mark) for mark in marks])
        logger.info("deleted topic(s) %s", ", ".join(names))

    async def create_partitions(
        self,
        requests: Sequence[MorePartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions; a topic may be named once. The outcome of each is by its name."""
        async with self._turn(timeout_ms):
            results: dict[str, KafkaError | None] = {}
            ops: list[Op] = []
            for count, request in enumerate(requests, 1):
                if not count % _AT_ONCE:
                    await asyncio.sleep(0)
                try:
                    ops += self._more_partitions(request)
                except KafkaError as error:
                    results[request.topic] = error.without_history()
                else:
                    results[request.topic] = None
            if ops and not validate_only:
                await self._write(ops)
            return results

    def _more_partitions(self, request: MorePartitions) -> list[Op]:
        topic = self._image.topics.get(request.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = {index: partition.replicas for index, partition in topic.partitions.items()}
        added = plan_more_partitions(
            topic.name, current, request.count, request.assignments, self._brokers(), self._rng
        )
        return add_partitions_ops(topic, added, self._first_states(added))

    async def elect_leaders(
        self,
        partitions: Sequence[TopicPartition],
        election: ElectionType,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect the leaders of partitions anew; one that needs no election is refused."""
        async with self._turn(timeout_ms):
            results: dict[TopicPartition, KafkaError | None] = {}
            ops: list[Op] = []
            for count, partition in enumerate(partitions, 1):
                if not count % _AT_ONCE:
                    await asyncio.sleep(0)
                try:
                    ops.append(self._elect(partition, election))
                except KafkaError as error:
                    results[partition] = error.without_history()
                else:
                    results[partition] = None
            if ops:
                await self._write(ops)
            return results

    def _elect(self, partition: TopicPartition, election: ElectionType) -> Op:
        topic = self._image.topics.get(partition.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {partition.topic}")
        found = topic.partitions.get(partition.partition)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {partition}")
        now = Leadership(found.leader, found.replicas, found.isr)
        leader = plan_election(now, election, list(self._image.brokers))
        return set_leader_op(partition, found, leader, self._image.controller_epoch)

    async def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """A broker alone has nowhere to move: a partition may be put where it is, no more."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        for count, (partition, replicas) in enumerate(targets.items(), 1):
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
            try:
                self._check_reassignment(partition, replicas)
            except KafkaError as error:
                outcomes[partition] = error.without_history()
            else:
                outcomes[partition] = None
        return outcomes

    def _check_reassignment(self, partition: TopicPartition, replicas: Sequence[int] | None) -> None:
        topic, index = partition
        if topic not in self._image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
        if self._image.partition(topic, index) is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
            )
        if replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        validate_manual_assignment(replicas, self._image.brokers, None)

    async def list_reassignments(self) -> Mapping[TopicPartition, NoReturn]:
        """None: a broker alone has nowhere to move anything."""
        return {}

    # -- configs and features ------------------------------------------------------------------------------

    async def change_topic_config(
        self,
        name: str,
        edit: Edit,
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace a topic's overrides with what ``edit`` makes of them; raises the refusal."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        validate_topic_name(name)
        async with self._turn(None):
            stored = self._image.topic_config(name)
            entries = edit(stored)
            self._configs.check_topic_change(stored, entries)
            if name not in self._image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            if not validate_only:
                with _storage_errors():
                    await self._configs.set_topic(name, entries)
                await self._feed.caught_up()

    async def change_group_config(
        self,
        name: str,
        edit: Edit,
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace a group's options with what ``edit`` makes of them; the group need not exist."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        async with self._turn(None):
            entries = edit(self._image.group_configs.get(name, {}))
            self._configs.check_group(entries)
            if not validate_only:
                with _storage_errors():
                    await self._configs.set_group(name, entries)
                await self._feed.caught_up()

    async def change_client_metrics(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a subscription to clients' metrics with what ``edit`` makes of it."""
        async with self._turn(None):
            entries = edit(self._image.client_metrics.get(name, {}))
            check_subscription(name, entries)
            if not validate_only:
                with _storage_errors():
                    await self._configs.set_client_metrics(name, entries)
                await self._feed.caught_up()

    async def change_user_config(self, name: str, edit: Edit) -> None:
        """Replace what is kept of a user with what ``edit`` makes of it; raises the refusal."""
        async with self._turn(None):
            entries = edit(self._image.user_configs.get(name, {}))
            with _storage_errors():
                await self._configs.set_user(name, entries)
            await self._feed.caught_up()

    async def change_quotas(self, entity: QuotaEntity, edit: Edit) -> None:
        """Replace what is kept of a user, a client id or an IP address with what ``edit`` makes of it."""
        path = znodes.quota_path(entity)
        async with self._turn(None):
            try:
                raw, _ = await self._store.get(path)
            except NoNode:
                raw = b""
            entries = znodes.decode_config(path, raw)
            edited = edit(entries)
            if edited != entries:
                with _storage_errors():
                    await self._configs.set_quotas(entity, edited)
                await self._feed.caught_up()

    async def change_broker_config(
        self,
        edit: Edit,
        *,
        every_broker: bool,
        validate_only: bool = False,
    ) -> None:
        """Replace the dynamic options of this or of every broker with what ``edit`` makes of them."""
        async with self._turn(None):
            stored = self._image.broker_config(None if every_broker else self._config.node_id)
            with _storage_errors():
                await self._configs.change_broker(
                    stored, edit, every_broker=every_broker, validate_only=validate_only
                )
            if not validate_only:
                await self._feed.caught_up()

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Finalize feature levels; raises the refusal, in which case none of them changed."""
        async with self._turn(None):
            planned = plan_feature_updates(
                self._image.features, SUPPORTED_FEATURES, updates, self._config.node_id
            )
            if validate_only or planned == self._image.features:
                return
            raw = znodes.encode_feature(planned)
            known = await self._store.exists(znodes.FEATURE)
            await self._write([Set(znodes.FEATURE, raw) if known else Create(znodes.FEATURE, raw)])

    # -- the common way ------------------------------------------------------------------------------------

    @property
    def _image(self) -> MetadataImage:
        return self._feed.image

    @contextlib.asynccontextmanager
    async def _turn(self, timeout_ms: int | None) -> AsyncIterator[None]:
        """Wait for all changes before this one; REQUEST_TIMED_OUT if the client does not allow that long.

        A change that has begun is never given up: its client would not know whether it happened.
        """
        if timeout_ms is None:
            await self._lock.acquire()
        else:
            if timeout_ms <= 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._lock.acquire()
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
        try:
            yield
        finally:
            self._lock.release()

    async def _write(self, ops: Sequence[Op]) -> None:
        with _storage_errors():
            await self._store.multi(ops)
        await self._feed.caught_up()

    def _topic_defaults(self) -> TopicDefaults:
        return TopicDefaults(
            self._config.int("num.partitions"), self._config.int("default.replication.factor")
        )

    def _brokers(self) -> list[BrokerRack]:
        return [BrokerRack(each.broker_id, each.rack) for each in self._image.brokers.values()]

    def _first_states(self, assignment: Assignment) -> dict[int, znodes.PartitionState]:
        return {
            index: first_state(replicas, self._image.brokers, self._image.controller_epoch)
            for index, replicas in assignment.items()
        }


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    """A store that cannot write is an error of its disk, and no bug."""
    try:
        yield
    except (StorageError, StoreClosed) as error:
        logger.error("A metadata change was refused: %s", error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
