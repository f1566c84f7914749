"""The image of a broker in a cluster: topics and brokers as the controller tells them, configs as ZooKeeper
has them.

The controller sends UpdateMetadata; :meth:`ClusterFeed.update` puts it into the image. Configs and features
every broker reads for itself: all of them at the start, and afterwards those that a notice below
``/config/changes`` names. Notices are never waited for by their writer, and old ones are removed after a
quarter of an hour, as in Kafka; whoever was away for so long that its session expired reads everything
again. Nobody announces the configs that a topic is created with: they are read when
the controller first speaks of the topic (:meth:`ClusterFeed.read_configs`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Final

from tidelog.clock import Clock
from tidelog.config.listeners import Listener
from tidelog.config.options.network_options import SECURITY_PROTOCOLS
from tidelog.errors import StorageError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.metadata.feed import (
    ImageDelta,
    Subscriber,
    known_config_paths,
    load_configs,
    notify_in_slices,
    refresh,
    stored_config_paths,
    tell,
)
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.metadata.store import (
    Change,
    ChangeKind,
    Create,
    NoNode,
    Op,
    SessionState,
    SharedStore,
    StoreError,
    ensure_path,
)
from tidelog.metadata.znodes import znode_requests, znodes
from tidelog.metadata.znodes.token_znodes import TOKEN_CHANGE_PREFIX, TOKEN_CHANGES, token_path
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

logger = logging.getLogger(__name__)

LEADER_DURING_DELETE = -2
NOTICE_AGE_MS = 15 * 60 * 1000
_READ_TIMEOUT_S = 5.0
# The topics and partitions that are taken over in one turn of the loop.
_PER_TURN: Final = 500


class ClusterFeed:
    """Keeps one broker's image; made with :meth:`start`."""

    def __init__(self, store: SharedStore, clock: Clock) -> None:
        self.image = MetadataImage()
        self._store = store
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._stops: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._telling = asyncio.Lock()
        self._last_notice = ""
        self._last_token_notice = ""
        self._expiries = 0
        self._made_up_expiries = 0
        """Of how many expired sessions the missed notices have been made up for."""
        self._seen_ms: dict[str, dict[str, float]] = {}
        """When notices were first seen, by their parent."""
        self._configs_of: dict[str, Uuid] = {}
        """The topics whose configs have been read, with their ids where these were known by then."""

    @classmethod
    async def start(cls, store: SharedStore, clock: Clock) -> ClusterFeed:
        """Read what a broker reads for itself, and follow it from now on."""
        feed = cls(store, clock)
        feed._stops.append(store.on_session(feed._session_changed))
        notices = await feed._notices()
        feed._last_notice = notices[-1] if notices else ""
        await load_configs(store, feed.image)
        feed._configs_of = dict.fromkeys(await feed._configured(), ZERO_UUID)
        feed._stops.append(
            store.watch_children(znodes.CONFIG_CHANGES, lambda: feed._soon(feed._read_notices))
        )
        feed._stops.append(store.watch_children(TOKEN_CHANGES, lambda: feed._soon(feed._read_token_notices)))
        feed._stops.append(
            store.watch_node(znodes.FEATURE, lambda: feed._soon(partial(feed._reread, znodes.FEATURE)))
        )
        return feed

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def caught_up(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        for stop in self._stops:
            stop()
        for task in self._tasks:
            task.cancel()
        await self.caught_up()

    # What the controller tells

    def update(self, request: UpdateMetadataRequest) -> ImageDelta:
        """Take over what the controller says; subscribers have acted on it when this returns."""
        return run_to_end(self.update_in_slices(request))

    def update_in_slices(self, request: UpdateMetadataRequest) -> Generator[None, None, ImageDelta]:
        """The same, topic by topic, with turns for others where it is much: yields with nothing half told."""
        image = self.image
        delta = ImageDelta(controller=image.controller_id != request.controller_id)
        image.controller_id = request.controller_id
        image.controller_epoch = request.controller_epoch
        live = {broker.id: _registration(broker) for broker in request.live_brokers}
        for broker_id in image.brokers.keys() - live.keys():
            image.drop_broker(broker_id)
            delta.brokers.add(broker_id)
        for broker_id, registration in live.items():
            if image.put_broker(registration):
                delta.brokers.add(broker_id)
        told = ImageDelta()
        left = _PER_TURN
        for topic in request.topic_states:
            left -= 1
            partitions: dict[int, PartitionImage | None] = {}
            for state in topic.partition_states:
                if left <= 0:
                    told, delta = self._tell_all(told, delta), ImageDelta()
                    yield
                    left = _PER_TURN
                left -= 1
                deleted = state.leader == LEADER_DURING_DELETE
                partitions[state.partition_index] = None if deleted else _partition(state)
            if self._put_topic(topic.topic_name, topic.topic_id, partitions):
                delta.topics.add(topic.topic_name)
        return self._tell_all(told, delta)

    def _tell_all(self, told: ImageDelta, delta: ImageDelta) -> ImageDelta:
        """Tell subscribers; gives all that they have been told of one request."""
        if delta:
            tell(self._subscribers, delta)
        return ImageDelta(
            brokers=told.brokers | delta.brokers,
            topics=told.topics | delta.topics,
            controller=told.controller or delta.controller,
        )

    def _put_topic(self, name: str, topic_id: Uuid, told: Mapping[int, PartitionImage | None]) -> bool:
        """Take over partitions of a topic; None is one that is deleted."""
        old = self.image.topics.get(name)
        if topic_id == ZERO_UUID and old is not None:
            topic_id = old.id
        partitions = dict(old.partitions) if old is not None and old.id == topic_id else {}
        for index, partition in told.items():
            if partition is None:
                partitions.pop(index, None)
            else:
                partitions[index] = partition
        if not partitions:
            read_for = self._configs_of.pop(name, ZERO_UUID)
            if old is not None and read_for in (ZERO_UUID, old.id):
                # Nobody leaves a notice of them, and one that is made anew may have its own by now.
                self.image.put_topic_config(name, {})
            return self.image.drop_topic(name)
        return self.image.install(TopicImage(name, topic_id, dict(sorted(partitions.items()))))

    # What every broker reads for itself

    async def announce(self, entity: str, *changes: Op) -> None:
        """Change the configs of ``entity``, and tell all brokers; here they hold when this returns.

        All at once: what was changed, but not told, nobody would tell any more, as the next try finds nothing
        to change; a user who was removed could go on logging in.
        """
        notice = znode_requests.encode_config_change(entity)
        await self._store.multi([*changes, Create(znodes.CONFIG_CHANGE_PREFIX, notice, sequential=True)])
        await self._reread(f"{znodes.CONFIG}/{entity}")

    async def write_token(self, token_id: str, change: Op) -> None:
        """Write or remove a delegation token's node, and tell all brokers; here it holds afterwards.

        All at once: nobody would tell others of a token that is gone, but whose notice could not be left.
        """
        await ensure_path(self._store, TOKEN_CHANGES)
        await self._store.multi([change, Create(TOKEN_CHANGE_PREFIX, token_id.encode(), sequential=True)])
        await self._reread(token_path(token_id))

    def without_configs(self, topics: Mapping[str, Uuid]) -> list[str]:
        """Those of some topics, given with their ids, whose configs have not been read: they are new."""
        unread: list[str] = []
        for name, topic_id in topics.items():
            known = self._configs_of.get(name)
            if known is None or (ZERO_UUID not in (known, topic_id) and known != topic_id):
                unread.append(name)
            elif known == ZERO_UUID:
                self._configs_of[name] = topic_id
        return unread

    async def read_configs(self, topics: Mapping[str, Uuid]) -> None:
        """Read the configs of new topics; without ZooKeeper they have none until it is back."""
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                # The controller may have written them through another server than this broker reads from.
                await self._store.sync(f"{znodes.CONFIG}/topics")
                await asyncio.gather(*(self._reread(znodes.topic_config_path(name)) for name in topics))
        except (StoreError, TimeoutError) as error:
            logger.warning("The configs of topics %s are not known yet: %s", ", ".join(topics), error)
        else:
            self._configs_of |= topics

    async def _read_missing(self) -> None:
        missing = {name: each.id for name, each in self.image.topics.items() if name not in self._configs_of}
        if missing:
            await self.read_configs(missing)

    async def _configured(self) -> Iterable[str]:
        try:
            return await self._store.children(f"{znodes.CONFIG}/topics")
        except NoNode:
            return ()

    async def _notices(self, parent: str = znodes.CONFIG_CHANGES) -> list[str]:
        try:
            return await self._store.children(parent)
        except NoNode:
            return []

    async def _read_notices(self) -> None:
        async with self._turn:
            await self._make_up()
            await self._read_missing()
            names = await self._notices()
            for name in names:
                if name > self._last_notice:
                    await self._read_notice(f"{znodes.CONFIG_CHANGES}/{name}")
                    self._last_notice = name
            await self._remove_old(znodes.CONFIG_CHANGES, names)

    def _session_changed(self, state: SessionState) -> None:
        # The next session sets the watches again, and with that notices are read.
        self._expiries += state is SessionState.EXPIRED

    async def _make_up(self) -> None:
        """Read everything again after a session has expired: notices of that time may be gone by now."""
        expiries = self._expiries
        if expiries == self._made_up_expiries:
            return
        stored = dict.fromkeys(await stored_config_paths(self._store))
        # What is gone comes first: it may be a user who must not get in any more.
        for path in (*(each for each in known_config_paths(self.image) if each not in stored), *stored):
            await self._reread(path)
        self._made_up_expiries = expiries

    async def _read_token_notices(self) -> None:
        """Read the tokens that notices name; those from before the start are read once more, in vain."""
        async with self._turn:
            names = await self._notices(TOKEN_CHANGES)
            for name in names:
                if name > self._last_token_notice:
                    try:
                        raw, _ = await self._store.get(f"{TOKEN_CHANGES}/{name}")
                    except NoNode:
                        continue
                    await self._reread(token_path(raw.decode(errors="replace")))
                    self._last_token_notice = name
            await self._remove_old(TOKEN_CHANGES, names)

    async def _read_notice(self, path: str) -> None:
        try:
            raw, _ = await self._store.get(path)
            entity = znode_requests.decode_config_change(path, raw)
        except NoNode:
            return
        except StorageError as error:
            logger.error("A notice of changed configs is passed over: %s", error)
            return
        await self._reread(f"{znodes.CONFIG}/{entity}")

    async def _remove_old(self, parent: str, names: list[str]) -> None:
        now_ms = self._clock.monotonic_ms()
        before = self._seen_ms.get(parent, {})
        seen = self._seen_ms[parent] = {name: before.get(name, now_ms) for name in names}
        for name, seen_ms in seen.items():
            if now_ms - seen_ms > NOTICE_AGE_MS:
                try:
                    await self._store.delete(f"{parent}/{name}")
                except NoNode:
                    continue

    async def _reread(self, path: str) -> None:
        delta = await refresh(self._store, self.image, [Change(ChangeKind.CHANGED, path)])
        if delta:
            # A change of configs may concern every topic; the next one is told when that is done.
            async with self._telling:
                await notify_in_slices(self._subscribers, delta)

    def _soon(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except StoreError as error:
        # The watch is set again, and fires again, when ZooKeeper is back.
        logger.info("Configs are not read now: %s", error)


def _registration(broker: UpdateMetadataBroker) -> BrokerRegistration:
    endpoints = tuple(
        Listener(each.listener, each.host, each.port, SECURITY_PROTOCOLS[each.security_protocol])
        for each in broker.endpoints
    )
    return BrokerRegistration(broker_id=broker.id, endpoints=endpoints, rack=broker.rack)


def _partition(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(state.replicas),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        controller_epoch=state.controller_epoch,
        state_version=state.zk_version,
        offline_replicas=tuple(state.offline_replicas),
    )
