"""What admin requests change in a cluster: topics through the controller, configs and features through
ZooKeeper.

Has the methods of ``controller.Controller``, which a broker alone has in this place. What only the
controller may do is refused elsewhere with NOT_CONTROLLER, and clients ask the one that metadata name;
topics that a broker needs by itself it asks the controller for. A request is answered when this broker's
own metadata show what it has changed, or its time is up.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tidelog.broker.cluster.membership import ClusterMembership
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_metrics import check_subscription
from tidelog.config.client_quotas import QuotaEntity
from tidelog.controller.auto_topics import auto_topic
from tidelog.controller.cluster.context import ReplicaAssignment
from tidelog.controller.controller import CreatedTopic, MorePartitions
from tidelog.controller.features import (
    SUPPORTED_FEATURES,
    FeatureRange,
    FeatureUpdate,
    plan_feature_updates,
)
from tidelog.controller.topic_names import validate_topic_name
from tidelog.controller.topics import ElectionType, NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.dynamic_config import DynamicConfigs, Edit
from tidelog.metadata.empty_configs import drop_empty_above
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    SharedStore,
    TooLargeError,
    ensure_path,
    parent_of,
    put,
)
from tidelog.metadata.znodes import znodes
from tidelog.scheduling.yielding import yielding_every
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger(__name__)

_AUTO_CREATE_TIMEOUT_MS = 10_000
_DEFAULT_WAIT_MS = 30_000
_BATCH_SIZE = 100
_TRIES = 10


class ClusterAdmin:
    """One broker's side of admin requests."""

    def __init__(
        self,
        store: SharedStore,
        feed: ClusterFeed,
        config: BrokerConfig,
        configs: DynamicConfigs,
        membership: ClusterMembership,
    ) -> None:
        self._store = store
        self._feed = feed
        self._config = config
        self._configs = configs
        self._membership = membership

    @property
    def _image(self) -> MetadataImage:
        return self._feed.image

    # Topics

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; answered when they have leaders."""
        outcomes = await self._membership.controller.create_topics(
            topics, validate_only=validate_only, timeout_ms=timeout_ms
        )
        made = {name: each for name, each in outcomes.items() if isinstance(each, CreatedTopic)}
        if not validate_only:
            await self._wait(lambda: all(self._is_led(*each) for each in made.items()), timeout_ms)
        return outcomes

    def _is_led(self, name: str, topic: CreatedTopic) -> bool:
        found = self._image.topics.get(name)
        return found is not None and found.id == topic.id and len(found.partitions) >= len(topic.assignment)

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Have the controller create topics that a client needs; one that is there by now is fine too."""
        wanted = [auto_topic(name, self._config) for name in dict.fromkeys(names)]
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[
                        CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()
                    ],
                )
                for topic in wanted
            ],
            timeout_ms=_AUTO_CREATE_TIMEOUT_MS,
        )
        try:
            response = await self._membership.link.request(
                request,
                CreateTopicsResponse,
                timeout_ms=_AUTO_CREATE_TIMEOUT_MS,
                is_elsewhere=lambda answer: any(
                    each.error_code == ErrorCode.NOT_CONTROLLER for each in answer.topics
                ),
            )
        except KafkaError as error:
            return dict.fromkeys(names, error)
        fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        return {
            each.name: None
            if each.error_code in fine
            else KafkaError(ErrorCode(each.error_code), each.error_message or "")
            for each in response.topics
        }

    async def delete_topics(
        self, ids: Sequence[Uuid], *, timeout_ms: int | None = None
    ) -> dict[Uuid, KafkaError | None]:
        """Delete topics; answered when nobody can use them any more."""
        outcomes = await self._membership.controller.delete_topics(ids, timeout_ms=timeout_ms)
        going = [topic_id for topic_id, error in outcomes.items() if error is None]
        await self._wait(lambda: not any(each in self._image.topic_by_id for each in going), timeout_ms)
        return outcomes

    async def create_partitions(
        self,
        requests: Sequence[MorePartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions; answered when they have leaders."""
        outcomes = await self._membership.controller.create_partitions(
            requests, validate_only=validate_only, timeout_ms=timeout_ms
        )
        grown = [each for each in requests if outcomes.get(each.topic) is None]
        if not validate_only:
            await self._wait(lambda: all(self._has_grown(each) for each in grown), timeout_ms)
        return outcomes

    def _has_grown(self, request: MorePartitions) -> bool:
        found = self._image.topics.get(request.topic)
        return found is not None and len(found.partitions) >= request.count

    async def elect_leaders(
        self,
        partitions: Sequence[TopicPartition],
        election: ElectionType,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders anew; answered when this broker knows who was elected.

        What it does not hear of in time is REQUEST_TIMED_OUT, and no other partition with it.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        controller = self._membership.controller
        outcomes = await controller.elect_leaders(partitions, election, timeout_ms=timeout_ms)
        elected: list[tuple[TopicPartition, int]] = []
        async for partition, error in yielding_every(_BATCH_SIZE, outcomes.items()):
            if error is None:
                epoch = controller.leader_epoch(partition)
                if self._leader_epoch(partition) < epoch:
                    elected.append((partition, epoch))
        # Brokers are told in this order, too: each time the end of the list is what is known next.
        elected.reverse()

        def are_known() -> bool:
            while elected and self._leader_epoch(elected[-1][0]) >= elected[-1][1]:
                elected.pop()
            return not elected

        left_ms = None if timeout_ms is None else max(timeout_ms - (loop.time() - begun) * 1000, 0)
        if not await self._shows(are_known, left_ms):
            async for partition, epoch in yielding_every(_BATCH_SIZE, elected):
                if self._leader_epoch(partition) < epoch:
                    outcomes[partition] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return outcomes

    def _leader_epoch(self, partition: TopicPartition) -> int:
        """That of this broker's metadata; of a topic that is gone nothing more is to come."""
        topic = self._image.topics.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return sys.maxsize if found is None else found.leader_epoch

    async def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin, replace or take back reassignments; does not wait for replicas to catch up."""
        return await self._membership.controller.reassign(
            targets, allow_replication_factor_change=allow_replication_factor_change, timeout_ms=timeout_ms
        )

    async def list_reassignments(self) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Reassignments that are under way."""
        return await self._membership.controller.list_reassignments()

    # Configs and features

    async def change_topic_config(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a topic's overrides with what ``edit`` makes of them; any broker may."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        validate_topic_name(name)

        def checked(stored: Mapping[str, str]) -> Mapping[str, str]:
            entries = edit(stored)
            self._configs.check_topic_change(stored, entries)
            if name not in self._image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            return entries

        path = znodes.topic_config_path(name)
        if validate_only:
            checked(await self._stored(path))
        else:
            await self._change(path, checked, f"the topic {name}")

    async def change_group_config(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a group's options with what ``edit`` makes of them."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

        def checked(stored: Mapping[str, str]) -> Mapping[str, str]:
            entries = edit(stored)
            self._configs.check_group(entries)
            return entries

        path = znodes.group_config_path(name)
        if validate_only:
            checked(await self._stored(path))
        else:
            await self._change(path, checked, f"the group {name}")

    async def change_client_metrics(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a subscription to clients' metrics with what ``edit`` makes of it."""

        def checked(now: Mapping[str, str]) -> Mapping[str, str]:
            entries = edit(now)
            check_subscription(name, entries)
            return entries

        path = znodes.client_metrics_path(name)
        if validate_only or not name:
            checked(await self._stored(path) if name else {})
        else:
            await self._change_or_drop(path, checked, f"the subscription {name}")

    async def change_user_config(self, name: str, edit: Edit) -> None:
        """Replace what is kept of a user with what ``edit`` makes of it, whoever else changes it now."""
        await self._change_or_drop(znodes.user_config_path(name), edit, f"user {name}")

    async def change_quotas(self, entity: QuotaEntity, edit: Edit) -> None:
        """Replace what is kept of a user, a client id or an IP address with what ``edit`` makes of it."""
        await self._change_or_drop(znodes.quota_path(entity), edit, f"the quotas of {dict(entity)}")

    async def change_broker_config(
        self, edit: Edit, *, every_broker: bool, validate_only: bool = False
    ) -> None:
        """Replace the dynamic options of this or of every broker with what ``edit`` makes of them."""
        path = znodes.broker_config_path(None if every_broker else self._config.node_id)
        for _ in range(_TRIES):
            stored, version = await self._read(path)
            if await self._configs.change_broker(
                stored,
                edit,
                every_broker=every_broker,
                validate_only=validate_only,
                write=partial(self._replace, path, version),
            ):
                return
        raise _contended("the options of brokers")

    async def _change(self, path: str, edit: Edit, what: str) -> None:
        """Edit the entries of a node that other brokers, too, may be changing."""
        for _ in range(_TRIES):
            before, version = await self._read(path)
            if await self._replace(path, version, edit(before)):
                return
        raise _contended(what)

    async def _change_or_drop(self, path: str, edit: Edit, what: str) -> None:
        """The same; the node goes with its last entry, and what is no change is not told to anybody."""
        for _ in range(_TRIES):
            before, version = await self._read(path)
            entries = edit(before)
            if entries == before or await self._replace(path, version, entries, drop_empty=True):
                return
        raise _contended(what)

    async def _replace(
        self, path: str, version: int | None, entries: Mapping[str, str], *, drop_empty: bool = False
    ) -> bool:
        """Write the entries of a node, and tell all brokers; False if it is not at ``version`` any more."""
        entity = path.removeprefix(znodes.CONFIG + "/")
        data = znodes.encode_config(entries)
        try:
            if version is None:
                await ensure_path(self._store, parent_of(path))
                await self._feed.announce(entity, Create(path, data))
            elif drop_empty and not entries:
                try:
                    await self._feed.announce(entity, Delete(path, version))
                    await drop_empty_above(self._store, path)
                except NotEmpty:
                    await self._feed.announce(entity, Set(path, data, version))
            else:
                await self._feed.announce(entity, Set(path, data, version))
        except (BadVersion, NodeExists, NoNode):
            return False
        except TooLargeError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        return True

    async def _read(self, path: str) -> tuple[dict[str, str], int | None]:
        """What is in ZooKeeper now: another broker may have changed it without this one knowing yet."""
        try:
            raw, version = await self._store.get(path)
        except NoNode:
            return {}, None
        return znodes.decode_config(path, raw), version

    async def _stored(self, path: str) -> dict[str, str]:
        entries, _ = await self._read(path)
        return entries

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Finalize feature levels; the controller's to do."""
        term = self._membership.controller.term
        brokers = {
            broker_id: {
                name: FeatureRange(levels.get("min_version", 0), levels.get("max_version", 0))
                for name, levels in each.registration.features.items()
            }
            for broker_id, each in term.context.brokers.items()
        }
        planned = plan_feature_updates(
            self._image.features, SUPPORTED_FEATURES, updates, self._config.node_id, brokers
        )
        if not validate_only and planned != self._image.features:
            await put(self._store, znodes.FEATURE, znodes.encode_feature(planned))
            await self._wait(lambda: self._image.features == planned, None)

    # Waiting

    async def _wait(self, holds: Callable[[], bool], timeout_ms: int | None) -> None:
        """Wait until this broker's metadata show something; a client that cannot wait asks again."""
        if not await self._shows(holds, timeout_ms):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    async def _shows(self, holds: Callable[[], bool], timeout_ms: float | None) -> bool:
        """Whether this broker's metadata show something in time."""
        if holds():
            return True
        seen = asyncio.Event()

        def look(_: ImageDelta) -> None:
            if holds():
                seen.set()

        stop = self._feed.subscribe(look)
        try:
            async with asyncio.timeout((_DEFAULT_WAIT_MS if timeout_ms is None else timeout_ms) / 1000):
                await seen.wait()
        except TimeoutError:
            return False
        finally:
            stop()
        return True


def _contended(what: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"others change {what} all the time: try again")
