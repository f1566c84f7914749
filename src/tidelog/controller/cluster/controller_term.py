"""One broker's term of office as controller: everything that lives from its election to its end.

A term begins by reading the whole of ZooKeeper, after watching it, so that no change falls between; then
every broker is told who is there, replicas and partitions are taken to the phases that fit, and what the
predecessor left undone (elections, reassignments, deletions) goes on. From then on watches, answers of
brokers and requests become events.

Owned by ``controller``. Methods run as events, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from tidelog.controller.cluster.balance import Balance
from tidelog.controller.cluster.broker_changes import BrokerChanges
from tidelog.controller.cluster.context import (
    ControllerContext,
    Leadership,
    LiveBroker,
    Replica,
    ReplicaAssignment,
)
from tidelog.controller.cluster.control_batch import BrokerChannels, ControlBatch
from tidelog.controller.cluster.events import EventQueue
from tidelog.controller.cluster.isr_changes import IsrChange, change_isrs
from tidelog.controller.cluster.leadership_nodes import controller_write, read_leaderships
from tidelog.controller.cluster.notices import delete_notices, read_notices, read_request
from tidelog.controller.cluster.reassignment import Reassignments
from tidelog.controller.cluster.state_changes import StateChanges
from tidelog.controller.cluster.states import PartitionPhase, ReplicaPhase
from tidelog.controller.cluster.term_answers import directory_answers, failed_deletions
from tidelog.controller.cluster.topic_admin import TopicAdmin
from tidelog.controller.cluster.topic_deletion import TopicDeletion
from tidelog.controller.topics import ElectionType, TopicDefaults
from tidelog.errors import ErrorCode, StorageError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.store import Delete, NoNode, Set, SharedStore
from tidelog.metadata.znodes import znode_requests, znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration, TopicAssignment
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrResponse
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What a controller is told by its broker's configuration, read anew whenever it is needed."""

    broker_id: int
    inter_broker_listener: str
    topic_defaults: Callable[[], TopicDefaults]
    check_topic_configs: Callable[[Mapping[str, str | None]], None]
    unclean_topics: Callable[[Iterable[str]], set[str]]
    """Which of some topics allow unclean elections."""
    delete_topics: bool = True
    auto_balance: bool = True
    balance_interval_s: float = 300.0
    imbalance_percentage: int = 10


class ControllerTerm:
    """The active controller."""

    def __init__(
        self,
        context: ControllerContext,
        store: SharedStore,
        channels: BrokerChannels,
        events: EventQueue,
        settings: ControllerSettings,
        rng: random.Random,
    ) -> None:
        self.context = context
        self._store = store
        self._channels = channels
        self._events = events
        self._settings = settings
        self._stops: dict[str, Callable[[], None]] = {}
        self._over = False
        self._changes = StateChanges(
            context, store, self._new_batch, self._send, settings.unclean_topics, events.counts
        )
        self.balance = Balance(
            context,
            self._changes,
            events,
            interval_s=settings.balance_interval_s,
            imbalance_percentage=settings.imbalance_percentage,
        )
        self._deletion = TopicDeletion(
            context, store, self._changes, self._tell_all, self._unwatch_topic, enabled=settings.delete_topics
        )
        self.reassignments = Reassignments(context, store, self._changes, self._new_batch, self._send)
        self.brokers = BrokerChanges(
            context, self._changes, self._deletion, self.reassignments, self._new_batch, self._send
        )
        self.topics = TopicAdmin(
            context,
            store,
            self._changes,
            self._deletion,
            settings.topic_defaults,
            settings.check_topic_configs,
            self._watch_topic,
            rng,
        )

    # Beginning and end

    async def begin(self) -> None:
        """Take office."""
        self._watch()
        for parent in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
            await delete_notices(self._store, self.context, parent, await self._store.children(parent))
        await self._read_everything()
        self._channels.set_brokers(self.context.brokers)
        marked = await self._store.children(znodes.DELETE_TOPICS)
        self._queue_deletions(marked)
        self.brokers.tell(self.context.brokers)
        await self._set_phases()
        await self.reassignments.start_requested()
        await self.reassignments.resume(self.context.being_reassigned())
        await self._deletion.enqueue(marked)
        await self.preferred_election_asked()
        if self._settings.auto_balance:
            self.balance.start()
        logger.info(
            "Broker %d is the controller, in epoch %d, of brokers %s and %d topics",
            self._settings.broker_id,
            self.context.epoch,
            sorted(self.context.brokers),
            len(self.context.assignments),
        )

    def end(self) -> None:
        """Leave office: nothing is sent, watched or written any more."""
        self._over = True
        for stop in self._stops.values():
            stop()
        self._stops.clear()
        self.balance.stop()
        self._channels.close()

    def _watch(self) -> None:
        for path, work in (
            (znodes.BROKER_IDS, self.brokers_changed),
            (znodes.TOPICS, self.topics_changed),
            (znodes.DELETE_TOPICS, self.deletions_asked),
            (znodes.LOG_DIR_EVENTS, self.log_dir_events),
            (znodes.ISR_CHANGES, self.isr_notices),
        ):
            self._stops[path] = self._store.watch_children(path, self._poster(path, work))
        for path, work in (
            (znodes.PREFERRED_REPLICA_ELECTION, self.preferred_election_asked),
            (znodes.REASSIGN_PARTITIONS, self.reassignments_asked),
        ):
            self._stops[path] = self._store.watch_node(path, self._poster(path, work))

    def _poster(self, name: str, work: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        def changed() -> None:
            # A watch that was set while the term ended must not reach into the next one.
            if not self._over:
                self._events.post(name, work, once=True)

        return changed

    def _watch_topic(self, topic: str) -> None:
        path = znodes.topic_path(topic)
        if path not in self._stops:
            work = self._poster(path, lambda: self.partitions_changed(topic))
            self._stops[path] = self._store.watch_node(path, work)

    def _watch_broker(self, broker: int) -> None:
        path = znodes.broker_path(broker)
        if path not in self._stops:
            work = self._poster(path, lambda: self.broker_modified(broker))
            self._stops[path] = self._store.watch_node(path, work)

    def _unwatch(self, path: str) -> None:
        stop = self._stops.pop(path, None)
        if stop is not None:
            stop()

    def _unwatch_topic(self, topic: str) -> None:
        self._unwatch(znodes.topic_path(topic))

    async def _read_everything(self) -> None:
        self.context.brokers = await self._registered()
        for broker in self.context.brokers:
            self._watch_broker(broker)
        topics = await self._store.children(znodes.TOPICS)
        await asyncio.gather(*map(self._read_topic, topics))
        self.context.leaderships = await read_leaderships(self._store, self.context.all_partitions())

    async def _registered(self) -> dict[int, LiveBroker]:
        async def read(broker: int) -> LiveBroker | None:
            try:
                raw, stat = await self._store.get_with_stat(znodes.broker_path(broker))
            except NoNode:
                return None
            try:
                return LiveBroker(BrokerRegistration.decode(broker, raw), stat.created_zxid)
            except StorageError as error:
                logger.error("The registration of broker %d is passed over: %s", broker, error)
            known = self.context.brokers.get(broker)
            if known is not None and known.epoch == stat.created_zxid:
                return known
            # It counts once it can be read.
            self._watch_broker(broker)
            return None

        names = await self._store.children(znodes.BROKER_IDS)
        ids = [int(name) for name in names if name.isdecimal()]
        found = await asyncio.gather(*map(read, ids))
        return {broker: each for broker, each in zip(ids, found, strict=True) if each is not None}

    async def _read_topic(self, topic: str) -> None:
        """Take over a topic's node; one from before topic ids gets an id."""
        self._watch_topic(topic)
        path = znodes.topic_path(topic)
        try:
            raw, version = await self._store.get(path)
            node = TopicAssignment.decode(topic, raw)
        except NoNode:
            return
        except StorageError as error:
            logger.error("Topic %s is passed over: %s", topic, error)
            return
        if node.topic_id is None:
            node = msgspec.structs.replace(node, topic_id=random_uuid())
            await controller_write(self._store, self.context, [Set(path, node.encode(), version)])
        self.context.put_topic(topic, node)

    def _queue_deletions(self, marked: Iterable[str]) -> None:
        if not self._settings.delete_topics:
            return
        self.context.deleting |= set(marked) & self.context.assignments.keys()
        replicas = self.context.replicas_of(self.context.all_partitions())
        away = {
            each.partition.topic
            for each in replicas
            if not self.context.is_online(each.broker, each.partition)
        }
        self._deletion.halt(away, "a replica is offline")

    async def _set_phases(self) -> None:
        online: list[Replica] = []
        offline: list[Replica] = []
        for replica in self.context.replicas_of(self.context.all_partitions()):
            if self.context.is_online(replica.broker, replica.partition):
                self.context.replica_phases[replica] = ReplicaPhase.ONLINE
                online.append(replica)
            else:
                # From here a replica may be deleted, or come back.
                self.context.replica_phases[replica] = ReplicaPhase.DELETION_INELIGIBLE
                if replica.partition.topic not in self.context.deleting:
                    offline.append(replica)
        await self._changes.replicas_to(ReplicaPhase.ONLINE, online)
        await self._changes.replicas_to(ReplicaPhase.OFFLINE, offline)
        for partition in self.context.all_partitions():
            known = self.context.leaderships.get(partition)
            if known is None:
                phase = PartitionPhase.NEW
            elif self.context.is_online(known.state.leader, partition):
                phase = PartitionPhase.ONLINE
            else:
                phase = PartitionPhase.OFFLINE
            self.context.partition_phases[partition] = phase
        await self.brokers.elect_missing()

    # Sending

    def _new_batch(self) -> ControlBatch:
        return ControlBatch(self.context, self._settings.broker_id, self._settings.inter_broker_listener)

    def _send(self, batch: ControlBatch) -> None:
        if self._over:
            return
        for broker, request in batch.requests():
            self._channels.send(broker, request, self._answerer(broker, request))

    def _answerer(self, broker: int, request: Payload) -> Callable[[Payload], None]:
        def answered(response: Payload) -> None:
            self._events.post(f"answer of {broker}", lambda: self._answered(broker, request, response))

        return answered

    async def _answered(self, broker: int, request: Payload, response: Payload) -> None:
        known = self.context.brokers.get(broker)
        if known is None or getattr(request, "broker_epoch", known.epoch) != known.epoch:
            # It was said in an earlier life of the broker; what has become of that was dealt with.
            return
        code = getattr(response, "error_code", ErrorCode.NONE)
        if code != ErrorCode.NONE:
            logger.warning("Broker %d refuses %s: %s", broker, type(request).__name__, ErrorCode(code).name)
        if isinstance(response, LeaderAndIsrResponse) and code == ErrorCode.NONE:
            await self.brokers.directories_answered(broker, directory_answers(self.context, response))
        elif isinstance(response, StopReplicaResponse) and isinstance(request, StopReplicaRequest):
            deleted, failed = failed_deletions(self.context, broker, request, response)
            await self._deletion.failed(failed)
            if deleted:
                await self._deletion.deleted(deleted)

    def _tell_all(self, partitions: Iterable[TopicPartition]) -> None:
        self.brokers.tell(self.context.brokers, partitions)

    # Events

    async def brokers_changed(self) -> None:
        """Brokers came or went."""
        registered = await self._registered()
        for broker in self.context.brokers.keys() - registered.keys():
            self._unwatch(znodes.broker_path(broker))
        await self.brokers.registered(registered, self._channels.set_brokers)
        for broker in registered:
            self._watch_broker(broker)

    async def broker_modified(self, broker: int) -> None:
        """A broker's registration has changed: its addresses, say."""
        if broker not in self.context.brokers:
            # It could not be read before.
            await self.brokers_changed()
            return
        try:
            raw, stat = await self._store.get_with_stat(znodes.broker_path(broker))
            now = LiveBroker(BrokerRegistration.decode(broker, raw), stat.created_zxid)
        except NoNode:
            return
        except StorageError as error:
            logger.error("The registration of broker %d stays what it was: %s", broker, error)
            return
        if self.brokers.modified(broker, now):
            self._channels.set_brokers(self.context.brokers)

    async def topics_changed(self) -> None:
        """Somebody else has made or removed the nodes of topics."""
        topics = await self._store.children(znodes.TOPICS)
        for topic in self.context.assignments.keys() - set(topics):
            self._unwatch_topic(topic)
            self.context.drop_topic(topic)
        fresh = [topic for topic in topics if topic not in self.context.assignments]
        await asyncio.gather(*map(self._read_topic, fresh))
        await self.topics.bring_up(each for topic in fresh for each in self.context.partitions_of(topic))

    async def partitions_changed(self, topic: str) -> None:
        """Somebody else has given a topic more partitions."""
        if topic not in self.context.assignments:
            return
        try:
            raw, _ = await self._store.get(znodes.topic_path(topic))
            node = TopicAssignment.decode(topic, raw)
        except NoNode:
            return
        except StorageError as error:
            logger.error("Topic %s stays what it was: %s", topic, error)
            return
        added = {
            index: each
            for index, each in node.partitions.items()
            if index not in self.context.assignments[topic]
        }
        if not added:
            return
        if topic in self.context.deleting:
            logger.warning("Topic %s is being deleted and gets no partitions", topic)
            restored = self.context.topic_node(topic).encode()
            await controller_write(self._store, self.context, [Set(znodes.topic_path(topic), restored)])
            return
        for index, replicas in added.items():
            self.context.put_assignment(TopicPartition(topic, index), ReplicaAssignment(replicas))
        await self.topics.bring_up(TopicPartition(topic, index) for index in added)

    async def deletions_asked(self) -> None:
        """Topics are marked for deletion."""
        marked = await self._store.children(znodes.DELETE_TOPICS)
        fresh = [topic for topic in marked if topic not in self.context.deleting]
        if fresh:
            await self._deletion.enqueue(fresh)

    async def log_dir_events(self) -> None:
        """Log directories of brokers have failed."""
        names = await self._store.children(znodes.LOG_DIR_EVENTS)
        brokers = await read_notices(
            self._store, znodes.LOG_DIR_EVENTS, names, znode_requests.decode_log_dir_event
        )
        if brokers:
            await self.brokers.log_dirs_failed(brokers)
        await delete_notices(self._store, self.context, znodes.LOG_DIR_EVENTS, names)

    async def isr_notices(self) -> None:
        """Leaders have written their in-sync replicas themselves, as brokers before AlterPartition do."""
        names = await self._store.children(znodes.ISR_CHANGES)
        notices = await read_notices(self._store, znodes.ISR_CHANGES, names, znode_requests.decode_isr_change)
        partitions = {each for changed in notices for each in changed}
        known = [each for each in partitions if each in self.context.leaderships]
        if known:
            self.context.leaderships |= await read_leaderships(self._store, known)
            self._tell_all(known)
            await self.reassignments.caught_up(known)
        await delete_notices(self._store, self.context, znodes.ISR_CHANGES, names)

    async def preferred_election_asked(self) -> None:
        """A tool asks through ``/admin/preferred_replica_election``."""
        path = znodes.PREFERRED_REPLICA_ELECTION
        asked = await read_request(self._store, self.context, path, znode_requests.decode_preferred_election)
        if asked is not None:
            await self.topics.elect(asked, ElectionType.PREFERRED)
            await controller_write(self._store, self.context, [Delete(path)])

    async def reassignments_asked(self) -> None:
        """A tool asks through ``/admin/reassign_partitions``."""
        await self.reassignments.start_requested()

    async def alter_isrs(
        self, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, Leadership | ErrorCode]:
        """Leaders ask for other in-sync replicas; see ``isr_changes``."""
        outcomes = await change_isrs(self.context, self._store, changes)
        self._tell_all(changes)
        return outcomes
