"""Keeps a :class:`MetadataImage` equal to the store, and tells the broker what changed.

``MetadataFeed.start`` reads the whole store once, then follows its watch: changed paths are queued and one
task re-reads them in order, so the image goes through the store's states and never backwards. Subscribers
get one :class:`ImageDelta` for each step, after the image has it. A writer that wants to see its own write
in the image awaits :meth:`MetadataFeed.caught_up`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct, field

from tidelog.config.client_quotas import QuotaEntity, parse_quotas
from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import Change, LocalStore, MetadataStore, NoNode, Op
from tidelog.metadata.znodes import znodes

logger = logging.getLogger(__name__)


class ImageDelta(Struct):
    """What one step changed."""

    topics: set[str] = field(default_factory=set)
    """Topics that came, went, or changed in partitions, leaders or replicas."""
    topic_configs: set[str] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    broker_configs: set[int | None] = field(default_factory=set)
    """Brokers whose dynamic options changed; None for those of every broker."""
    group_configs: set[str] = field(default_factory=set)
    client_metrics: set[str] = field(default_factory=set)
    user_configs: set[str] = field(default_factory=set)
    quotas: set[QuotaEntity] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)
    controller: bool = False
    features: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.topics
            or self.topic_configs
            or self.brokers
            or self.broker_configs
            or self.group_configs
            or self.client_metrics
            or self.user_configs
            or self.quotas
            or self.delegation_tokens
            or self.controller
            or self.features
        )


Subscriber = Callable[[ImageDelta], Iterator[None] | None]
"""Acts on a change, at once or, where that may take long, step by step: the next change comes after that."""

_PATHS_AT_ONCE = 256


class Feed(Protocol):
    """An image that is kept up to date, and those who hear of its changes."""

    image: MetadataImage

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` after every step; returns how to stop it."""

    async def caught_up(self) -> None:
        """Wait until every write that has been acknowledged before this call is in the image."""

    async def write_token(self, token_id: str, change: Op) -> None:
        """Write or remove a delegation token's node, and tell all who use the store; here it holds
        afterwards."""

    async def close(self) -> None:
        """Stop following."""


class MetadataFeed:
    """One store's image; made with :meth:`start`."""

    def __init__(self, store: LocalStore, image: MetadataImage) -> None:
        self.image = image
        self._store = store
        self._subscribers: list[Subscriber] = []
        self._queued: list[Change] = []
        self._task: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] = lambda: None

    @classmethod
    async def start(cls, store: LocalStore) -> MetadataFeed:
        """Load the image and begin to follow the store."""
        feed = cls(store, MetadataImage())
        feed._unwatch = store.watch(feed._enqueue)
        await load(store, feed.image)
        return feed

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` after every step; returns how to stop it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def caught_up(self) -> None:
        """Wait until every write that has been acknowledged before this call is in the image."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def write_token(self, token_id: str, change: Op) -> None:
        """Nobody else uses the store: its watch tells of everything."""
        await self._store.multi([change])
        await self.caught_up()

    async def close(self) -> None:
        """Stop following, after what is already queued."""
        self._unwatch()
        await self.caught_up()

    def _enqueue(self, changes: Sequence[Change]) -> None:
        self._queued.extend(changes)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._queued:
                changes, self._queued = self._queued, []
                delta = await refresh(self._store, self.image, changes)
                if delta:
                    await notify_in_slices(self._subscribers, delta)
        finally:
            self._task = None


async def notify_in_slices(subscribers: Iterable[Subscriber], delta: ImageDelta) -> None:
    """Tell all subscribers; requests are served between the steps of those who take long."""
    for subscriber in tuple(subscribers):
        for _ in steps_of(subscriber, delta):
            await asyncio.sleep(0)


def tell(subscribers: Iterable[Subscriber], delta: ImageDelta) -> None:
    """Tell all subscribers of a step, and let them finish."""
    for subscriber in tuple(subscribers):
        for _ in steps_of(subscriber, delta):
            pass


def steps_of(subscriber: Subscriber, delta: ImageDelta) -> Iterator[None]:
    """What one subscriber does about a change."""
    try:
        yield from subscriber(delta) or ()
    except Exception:
        # One room's failure must not stop the others from hearing of the change.
        logger.exception("A metadata change could not be applied: %s", delta)


async def load(store: MetadataStore, image: MetadataImage) -> None:
    """Fill an image from everything in the store."""
    delta = ImageDelta()
    for path in (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH):
        await _refresh_single(store, image, path, delta)
    for name in await _children(store, znodes.BROKER_IDS):
        await _refresh_broker(store, image, int(name), delta)
    for topic in await _children(store, znodes.TOPICS):
        await _refresh_topic(store, image, topic, delta)
    image.deleting = set(await _children(store, znodes.DELETE_TOPICS))
    await load_configs(store, image)


async def load_configs(store: MetadataStore, image: MetadataImage) -> None:
    """Fill an image with what brokers of a cluster read for themselves: its id, features and configs."""
    delta = ImageDelta()
    for path in (znodes.CLUSTER_ID, znodes.FEATURE):
        await _refresh_single(store, image, path, delta)
    for path in await stored_config_paths(store):
        try:
            await _refresh_config(store, image, path, delta)
        except StorageError as error:
            if not path.startswith(znodes.DELEGATION_TOKENS):
                raise
            # Users make tokens: one that cannot be read is good for nobody, and stops no broker.
            logger.error("Delegation token %s is passed over: %s", path, error)


async def stored_config_paths(store: MetadataStore) -> list[str]:
    """Where the store has configs, quotas and delegation tokens."""
    paths: list[str] = []
    for parent in (
        f"{znodes.CONFIG}/topics",
        f"{znodes.CONFIG}/brokers",
        znodes.GROUP_CONFIGS,
        znodes.CLIENT_METRICS,
        znodes.CLIENT_CONFIGS,
        znodes.IP_CONFIGS,
        znodes.DELEGATION_TOKENS,
    ):
        paths += [f"{parent}/{name}" for name in await _children(store, parent)]
    for user in await _children(store, znodes.USER_CONFIGS):
        paths.append(path := f"{znodes.USER_CONFIGS}/{user}")
        paths += [f"{path}/clients/{name}" for name in await _children(store, f"{path}/clients")]
    return paths


def known_config_paths(image: MetadataImage) -> list[str]:
    """Where an image has its configs, quotas and delegation tokens from."""
    return [
        *map(znodes.user_config_path, image.user_configs),
        *(f"{znodes.DELEGATION_TOKENS}/{token_id}" for token_id in image.delegation_tokens),
        *map(znodes.quota_path, image.quotas),
        *map(znodes.topic_config_path, image.topic_configs),
        *map(znodes.broker_config_path, (None, *image.broker_configs)),
        *map(znodes.group_config_path, image.group_configs),
        *map(znodes.client_metrics_path, image.client_metrics),
    ]


async def refresh(store: MetadataStore, image: MetadataImage, changes: Sequence[Change]) -> ImageDelta:
    """Re-read the nodes that changed; each thing is read once however many of its nodes did."""
    delta = ImageDelta()
    paths = dict.fromkeys(change.path for change in changes)
    whole_topics = {_topic_of(path) for path in paths if _is_topic_node(path)}
    states: dict[str, set[int]] = defaultdict(set)
    for count, path in enumerate(paths, 1):
        if not count % _PATHS_AT_ONCE:
            # A store in memory lets nobody else run.
            await asyncio.sleep(0)
        try:
            match path[1:].split("/"):
                case ["brokers", "topics", topic, *_] if topic in whole_topics:
                    if _is_topic_node(path):
                        await _refresh_topic(store, image, topic, delta)
                case ["brokers", "topics", topic, "partitions", index, "state"]:
                    states[topic].add(int(index))
                case ["brokers", "ids", broker_id]:
                    await _refresh_broker(store, image, int(broker_id), delta)
                case ["config" | "delegation_token", *_]:
                    await _refresh_config(store, image, path, delta)
                case ["admin", "delete_topics", topic]:
                    await _refresh_deleting(store, image, topic, delta)
                case _:
                    await _refresh_single(store, image, path, delta)
        except (StorageError, ValueError) as error:
            # Somebody else wrote what nobody can read: keep what was known, and go on with the rest.
            logger.error("Metadata node %s is passed over: %s", path, error)
    for topic, indexes in states.items():
        if image.put_partition_states(topic, await _states(store, topic, indexes)):
            delta.topics.add(topic)
    return delta


async def _refresh_config(store: MetadataStore, image: MetadataImage, path: str, delta: ImageDelta) -> None:
    """The node of one topic, broker, user, …; others are nobody's configs."""
    match path[1:].split("/"):
        case ["config", "topics", topic]:
            await _refresh_topic_config(store, image, topic, delta)
        case ["config", "brokers", entity]:
            await _refresh_broker_config(store, image, entity, delta)
        case ["config", "groups", entity]:
            await _refresh_group_config(store, image, entity, delta)
        case ["config", "client-metrics", entity]:
            await _refresh_client_metrics(store, image, entity, delta)
        case ["config", "users", entity]:
            await _refresh_user_config(store, image, entity, delta)
        case ["config", "users", _, "clients", _] | ["config", "clients" | "ips", _]:
            await _refresh_quotas(store, image, path, delta)
        case ["delegation_token", "tokens", token_id]:
            await _refresh_token(store, image, token_id, delta)


def _is_topic_node(path: str) -> bool:
    return path.startswith(znodes.TOPICS + "/") and path.count("/") == 3


def _topic_of(path: str) -> str:
    return path[len(znodes.TOPICS) + 1 :].partition("/")[0]


async def _get(store: MetadataStore, path: str) -> tuple[bytes, int] | None:
    try:
        return await store.get(path)
    except NoNode:
        return None


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []


async def _refresh_single(store: MetadataStore, image: MetadataImage, path: str, delta: ImageDelta) -> None:
    """The nodes that stand alone: cluster id, controller, its epoch, features."""
    if path not in (znodes.CLUSTER_ID, znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, znodes.FEATURE):
        return
    found = await _get(store, path)
    raw = found[0] if found is not None else b""
    if path == znodes.CLUSTER_ID:
        image.cluster_id = znodes.decode_cluster_id(raw) if raw else None
    elif path == znodes.CONTROLLER:
        controller_id = znodes.decode_controller(raw) if raw else -1
        delta.controller |= controller_id != image.controller_id
        image.controller_id = controller_id
    elif path == znodes.CONTROLLER_EPOCH:
        image.controller_epoch = znodes.decode_controller_epoch(raw) if raw else 0
    else:
        features = znodes.decode_feature(raw) if raw else {}
        delta.features |= features != image.features
        image.features = features
        image.features_epoch = found[1] if found is not None else -1


async def _refresh_topic(store: MetadataStore, image: MetadataImage, topic: str, delta: ImageDelta) -> None:
    found = await _get(store, znodes.topic_path(topic))
    if found is None:
        changed = image.drop_topic(topic)
    else:
        assignment = znodes.TopicAssignment.decode(topic, found[0])
        changed = image.put_topic(topic, assignment, await _states(store, topic, assignment.partitions))
    if changed:
        delta.topics.add(topic)


async def _states(
    store: MetadataStore, topic: str, indexes: Iterable[int]
) -> dict[int, tuple[znodes.PartitionState, int]]:
    """States of a topic's partitions with the versions of their nodes; where there is none, nothing."""
    states: dict[int, tuple[znodes.PartitionState, int]] = {}
    for index in indexes:
        partition = TopicPartition(topic, index)
        found = await _get(store, znodes.partition_state_path(partition))
        if found is not None:
            states[index] = znodes.PartitionState.decode(partition, found[0]), found[1]
    return states


async def _refresh_broker(
    store: MetadataStore, image: MetadataImage, broker_id: int, delta: ImageDelta
) -> None:
    found = await _get(store, znodes.broker_path(broker_id))
    if found is None:
        changed = image.drop_broker(broker_id)
    else:
        changed = image.put_broker(znodes.BrokerRegistration.decode(broker_id, found[0]))
    if changed:
        delta.brokers.add(broker_id)


async def _config(store: MetadataStore, path: str) -> dict[str, str]:
    found = await _get(store, path)
    return znodes.decode_config(path, found[0]) if found is not None else {}


async def _refresh_topic_config(
    store: MetadataStore, image: MetadataImage, topic: str, delta: ImageDelta
) -> None:
    if image.put_topic_config(topic, await _config(store, znodes.topic_config_path(topic))):
        delta.topic_configs.add(topic)


async def _refresh_broker_config(
    store: MetadataStore, image: MetadataImage, entity: str, delta: ImageDelta
) -> None:
    if entity != znodes.DEFAULT_ENTITY and not entity.isdecimal():
        raise StorageError(f"metadata node {znodes.config_path('brokers', entity)} is named after no broker")
    broker_id = None if entity == znodes.DEFAULT_ENTITY else int(entity)
    if image.put_broker_config(broker_id, await _config(store, znodes.broker_config_path(broker_id))):
        delta.broker_configs.add(broker_id)


async def _refresh_group_config(
    store: MetadataStore, image: MetadataImage, entity: str, delta: ImageDelta
) -> None:
    group = znodes.group_of_config_node(entity)
    if image.put_group_config(group, await _config(store, znodes.config_path("groups", entity))):
        delta.group_configs.add(group)


async def _refresh_client_metrics(
    store: MetadataStore, image: MetadataImage, entity: str, delta: ImageDelta
) -> None:
    name = znodes.subscription_of_config_node(entity)
    if image.put_client_metrics(name, await _config(store, znodes.config_path("client-metrics", entity))):
        delta.client_metrics.add(name)


async def _refresh_user_config(
    store: MetadataStore, image: MetadataImage, entity: str, delta: ImageDelta
) -> None:
    path = znodes.config_path("users", entity)
    entries = await _config(store, path)
    _put_quotas(image, path, entries, delta)
    if entity == znodes.DEFAULT_ENTITY:
        # The quotas of users who have none; a user of that name is written otherwise.
        return
    user = znodes.user_of_config_node(entity)
    if image.put_user_config(user, entries):
        delta.user_configs.add(user)


async def _refresh_quotas(store: MetadataStore, image: MetadataImage, path: str, delta: ImageDelta) -> None:
    _put_quotas(image, path, await _config(store, path), delta)


def _put_quotas(image: MetadataImage, path: str, entries: dict[str, str], delta: ImageDelta) -> None:
    entity = znodes.quota_entity_of(path)
    if entity is not None and image.put_quotas(entity, parse_quotas(path, entries)):
        delta.quotas.add(entity)


async def _refresh_token(
    store: MetadataStore, image: MetadataImage, token_id: str, delta: ImageDelta
) -> None:
    # Few clusters have any.
    from tidelog.metadata.znodes.token_znodes import decode_token

    found = await _get(store, f"{znodes.DELEGATION_TOKENS}/{token_id}")
    token = decode_token(token_id, found[0]) if found is not None else None
    if image.put_delegation_token(token_id, token):
        delta.delegation_tokens.add(token_id)


async def _refresh_deleting(
    store: MetadataStore, image: MetadataImage, topic: str, delta: ImageDelta
) -> None:
    deleting = await store.exists(znodes.delete_topic_path(topic))
    if deleting != (topic in image.deleting):
        (image.deleting.add if deleting else image.deleting.discard)(topic)
        delta.topics.add(topic)
