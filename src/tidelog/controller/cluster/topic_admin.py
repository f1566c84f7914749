"""Topics as people want them: created, grown, deleted, and the leaders that they ask for.

The rules are those of a single broker (``controller.topics``: pure functions); here they are applied to the
controller's context and written under its fence. A topic is there when its nodes are written; its leaders
follow in the same event, and the brokers hear of them right after.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tidelog.controller.assignment import BrokerRack
from tidelog.controller.cluster.context import ControllerContext, ReplicaAssignment
from tidelog.controller.cluster.leadership_nodes import controller_write
from tidelog.controller.cluster.state_changes import Election, StateChanges
from tidelog.controller.cluster.states import PartitionPhase, ReplicaPhase
from tidelog.controller.cluster.topic_deletion import TopicDeletion
from tidelog.controller.controller import CreatedTopic, MorePartitions
from tidelog.controller.topic_names import collision_index, validate_no_collision, validate_topic_name
from tidelog.controller.topics import (
    ElectionType,
    NewTopic,
    TopicDefaults,
    check_total_changes,
    check_total_partitions,
    creation_configs,
    plan_assignment,
    plan_more_partitions,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid, random_uuid
from tidelog.metadata.store import Create, NodeExists, Op, Set, SharedStore, TooLargeError
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import TopicAssignment

logger = logging.getLogger(__name__)

_AT_ONCE = 64
"""After so many things that a request names others have their turn."""


class TopicAdmin:
    """What clients ask of the controller about topics, in one term of office."""

    def __init__(
        self,
        context: ControllerContext,
        store: SharedStore,
        changes: StateChanges,
        deletion: TopicDeletion,
        defaults: Callable[[], TopicDefaults],
        check_configs: Callable[[Mapping[str, str | None]], None],
        on_topic: Callable[[str], None],
        rng: random.Random,
    ) -> None:
        """``on_topic`` hears of every topic that this controller comes to know."""
        self._context = context
        self._store = store
        self._changes = changes
        self._deletion = deletion
        self._defaults = defaults
        self._check_configs = check_configs
        self._on_topic = on_topic
        self._rng = rng

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; the outcome of each is by its name."""
        check_total_partitions(topics, self._defaults())
        results: dict[str, CreatedTopic | KafkaError] = {}
        collisions = collision_index(self._context.assignments)
        for topic in topics:
            try:
                results[topic.name] = self._plan(topic, collisions)
                collisions |= collision_index([topic.name])
            except KafkaError as error:
                results[topic.name] = error
        planned = {name: each for name, each in results.items() if isinstance(each, CreatedTopic)}
        check_total_changes(sum(1 + len(each.configs) + len(each.assignment) for each in planned.values()))
        if validate_only:
            return results
        for name, each in planned.items():
            try:
                await controller_write(self._store, self._context, await self._creation(name, each))
            except TooLargeError as error:
                results[name] = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
                continue
            except NodeExists:
                results[name] = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
                continue
            self._context.put_topic(name, TopicAssignment(topic_id=each.id, partitions=each.assignment))
            self._on_topic(name)
        await self.bring_up(
            TopicPartition(name, index)
            for name, each in results.items()
            if isinstance(each, CreatedTopic)
            for index in each.assignment
        )
        return results

    def _plan(self, topic: NewTopic, collisions: Mapping[str, str]) -> CreatedTopic:
        validate_topic_name(topic.name)
        if topic.name in self._context.assignments:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        validate_no_collision(topic.name, collisions)
        configs = creation_configs(topic)
        self._check_configs(configs)
        assignment = plan_assignment(topic, self._racks(), self._defaults(), self._rng)
        return CreatedTopic(random_uuid(), assignment, configs)

    async def _creation(self, name: str, topic: CreatedTopic) -> list[Op]:
        node = TopicAssignment(topic_id=topic.id, partitions=topic.assignment)
        config_path = znodes.topic_config_path(name)
        config = znodes.encode_config(topic.configs)
        # Configs of an earlier topic of that name may have been left behind.
        known = await self._store.exists(config_path)
        return [
            Set(config_path, config) if known else Create(config_path, config),
            Create(znodes.topic_path(name), node.encode()),
        ]

    async def bring_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Give new partitions their first leaders."""
        fresh = list(partitions)
        if not fresh:
            return
        replicas = self._context.replicas_of(fresh)
        await self._changes.partitions_to(PartitionPhase.NEW, fresh)
        await self._changes.replicas_to(ReplicaPhase.NEW, replicas)
        await self._changes.partitions_to(PartitionPhase.ONLINE, fresh)
        await self._changes.replicas_to(ReplicaPhase.ONLINE, replicas)

    async def delete(self, ids: Sequence[Uuid]) -> dict[Uuid, KafkaError | None]:
        """Mark topics for deletion and begin with it; they go when their replicas have gone."""
        by_id = {topic_id: name for name, topic_id in self._context.topic_ids.items()}
        outcomes: dict[Uuid, KafkaError | None] = {}
        marked: list[str] = []
        for topic_id in ids:
            name = by_id.get(topic_id)
            if name is None:
                outcomes[topic_id] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
                )
                continue
            if not await self._store.exists(znodes.delete_topic_path(name)):
                await controller_write(self._store, self._context, [Create(znodes.delete_topic_path(name))])
            marked.append(name)
            outcomes[topic_id] = None
        await self._deletion.enqueue(marked)
        return outcomes

    async def grow(
        self, requests: Sequence[MorePartitions], *, validate_only: bool
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions."""
        outcomes: dict[str, KafkaError | None] = {}
        for count, request in enumerate(requests, 1):
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
            try:
                added = self._plan_more(request)
            except KafkaError as error:
                outcomes[request.topic] = error.without_history()
                continue
            outcomes[request.topic] = None
            if not validate_only:
                try:
                    await self._add_partitions(request.topic, added)
                except TooLargeError as error:
                    outcomes[request.topic] = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
        return outcomes

    async def _add_partitions(self, topic: str, added: Mapping[int, tuple[int, ...]]) -> None:
        node = self._context.topic_node(topic)
        raw = msgspec.structs.replace(node, partitions={**node.partitions, **added}).encode()
        await controller_write(self._store, self._context, [Set(znodes.topic_path(topic), raw)])
        for index, replicas in added.items():
            self._context.put_assignment(TopicPartition(topic, index), ReplicaAssignment(replicas))
        await self.bring_up(TopicPartition(topic, index) for index in added)

    def _plan_more(self, request: MorePartitions) -> dict[int, tuple[int, ...]]:
        known = self._context.assignments.get(request.topic)
        if known is None or request.topic in self._context.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if any(each.is_being_reassigned for each in known.values()):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{request.topic}'.",
            )
        current = {index: each.replicas for index, each in known.items()}
        added = plan_more_partitions(
            request.topic, current, request.count, request.assignments, self._racks(), self._rng
        )
        return dict(added)

    async def elect(
        self, partitions: Sequence[TopicPartition], election: ElectionType
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders anew; a partition that needs no election is refused."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        electable: list[TopicPartition] = []
        for count, partition in enumerate(partitions, 1):
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
            refusal = self._no_election(partition, election)
            if refusal is None:
                electable.append(partition)
            else:
                outcomes[partition] = refusal
        kind = Election.PREFERRED if election is ElectionType.PREFERRED else Election.UNCLEAN
        elected = await self._changes.partitions_to(PartitionPhase.ONLINE, electable, kind)
        for partition in electable:
            outcome = elected.get(partition)
            if outcome is not None and kind is Election.PREFERRED:
                outcome = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, outcome.message)
            outcomes[partition] = outcome
        return outcomes

    def _no_election(self, partition: TopicPartition, election: ElectionType) -> KafkaError | None:
        known = self._context.leaderships.get(partition)
        if known is None or not self._context.assignment(partition).replicas:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if partition.topic in self._context.deleting:
            return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        leader = known.state.leader
        if election is ElectionType.PREFERRED:
            needed = leader != self._context.assignment(partition).replicas[0]
        else:
            needed = leader not in self._context.live_ids
        return None if needed else KafkaError(ErrorCode.ELECTION_NOT_NEEDED)

    def _racks(self) -> list[BrokerRack]:
        return [
            BrokerRack(broker, each.registration.rack)
            for broker, each in self._context.brokers.items()
            if broker not in self._context.shutting_down
        ]
