"""Every broker of a cluster has one of these; at any time one of them is the controller.

The election is ZooKeeper's: who creates ``/controller`` holds office as long as its session lives. The same
transaction raises ``/controller_epoch``; every write of a controller checks that node's version, so that a
predecessor which has not heard of its end can change nothing, and brokers refuse requests with a smaller
epoch.

Requests that only the controller serves run as events of its term; elsewhere they are refused with
NOT_CONTROLLER, and clients ask the one that metadata name.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tidelog.clock import Clock
from tidelog.controller.cluster.context import ControllerContext, Leadership, ReplicaAssignment
from tidelog.controller.cluster.control_batch import BrokerChannels
from tidelog.controller.cluster.controller_term import ControllerSettings, ControllerTerm
from tidelog.controller.cluster.events import EventQueue, not_controller
from tidelog.controller.cluster.isr_changes import IsrChange
from tidelog.controller.cluster.leadership_nodes import ControllerMoved
from tidelog.controller.cluster.reassignment import TargetReplicas
from tidelog.controller.controller import CreatedTopic, MorePartitions
from tidelog.controller.topics import ElectionType, NewTopic
from tidelog.errors import ConfigError, ErrorCode, KafkaError, TidelogError
from tidelog.ids import NO_LEADER_EPOCH, TopicPartition, Uuid
from tidelog.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Set,
    SharedStore,
    StoreClosed,
    StoreError,
)
from tidelog.metadata.znodes import znodes
from tidelog.metrics.controller_counts import ControllerCounts

logger = logging.getLogger(__name__)

NOBODY = -1
_RETRY_S = 1.0

T = TypeVar("T")


class ClusterController:
    """A broker's part in the election, and its term of office if it wins."""

    def __init__(
        self,
        store: SharedStore,
        channels: Callable[[], BrokerChannels],
        settings: ControllerSettings,
        clock: Clock,
        register: Callable[[], Awaitable[None]],
        *,
        rng: random.Random | None = None,
    ) -> None:
        """``register`` puts this broker's registration into ZooKeeper, at the start of every session."""
        self.active_id = NOBODY
        self._store = store
        self._channels = channels
        self._settings = settings
        self._clock = clock
        self._register = register
        self._rng = rng or random.Random()
        self._events = EventQueue(self._moved)
        self._term: ControllerTerm | None = None
        self._terms = 0
        self._expired = False
        self._registered = False
        self._retry: asyncio.TimerHandle | None = None
        self._standing_back: asyncio.TimerHandle | None = None
        """Set for a while after a term of office that could not begin."""
        self._stops: list[Callable[[], None]] = []

    @property
    def counts(self) -> ControllerCounts:
        """What was done here, in this and in earlier terms."""
        return self._events.counts

    @property
    def waiting_events(self) -> int:
        """Events that wait for their turn."""
        return len(self._events)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None

    @property
    def term(self) -> ControllerTerm:
        """The present term of office; raises NOT_CONTROLLER if there is none."""
        if self._term is None:
            raise not_controller()
        return self._term

    async def start(self) -> None:
        """Register, and take part in the election."""
        while not self._registered:
            try:
                await self._register()
                self._registered = True
            except SessionExpired as error:
                logger.info("Broker %d registers in the next session: %s", self._settings.broker_id, error)
        self._stops.append(self._store.on_session(self._session_changed))
        self._events.start()
        self._stops.append(self._store.watch_node(znodes.CONTROLLER, self._look))

    async def close(self) -> None:
        """Leave office, if held, and take no part any more.

        The node stays until the session ends, and the broker's registration with it: a successor that comes
        before would still take this broker for a live one.
        """
        self.abandon()
        await self._events.close()

    def abandon(self) -> None:
        """Send and watch nothing any more, from one moment to the next, as if the process had died."""
        for stop in self._stops:
            stop()
        self._stops.clear()
        for timer in (self._retry, self._standing_back):
            if timer is not None:
                timer.cancel()
        self._resign()

    # The election

    def _look(self) -> None:
        self._events.post_always("election", self._elect)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired = True
            self._registered = False
            self.active_id = NOBODY
            self._resign()
        elif state is SessionState.CONNECTED and self._expired:
            self._expired = False
            self._events.post_always("registration", self._come_back)

    async def _come_back(self) -> None:
        """Register in a new session; what keeps this broker from it may pass (another one with its id)."""
        try:
            await self._register()
        except (SessionExpired, StoreClosed):
            raise  # The next session begins with another try.
        except (StoreError, ConfigError) as error:
            logger.error("Broker %d cannot register again yet: %s", self._settings.broker_id, error)
            self._retry = asyncio.get_running_loop().call_later(
                _RETRY_S, self._events.post_always, "registration", self._come_back
            )
            return
        self._registered = True
        await self._elect()

    def _moved(self) -> None:
        """Somebody else is the controller."""
        self._resign()
        self._look()

    def _resign(self) -> None:
        self._events.term = 0
        if self._term is not None:
            logger.info("Broker %d is not the controller any more", self._settings.broker_id)
            self._term.end()
            self._term = None

    async def _elect(self) -> None:
        if not self._registered:
            return  # Nobody may hold office whom the cluster does not know; its registration is on the way.
        try:
            raw, _ = await self._store.get(znodes.CONTROLLER)
        except NoNode:
            self.active_id = NOBODY
            self._resign()
        else:
            # This broker's id without a term is what an earlier session left, which will end soon.
            self.active_id = znodes.decode_controller(raw)
            if self.active_id != self._settings.broker_id:
                self._resign()
            return
        if self._standing_back is not None:
            return  # What kept it from office would so again; others may do better.
        try:
            context = await self._claim()
        except (NodeExists, BadVersion):
            return  # Somebody was faster; the watch tells who.
        self.active_id = self._settings.broker_id
        await self._begin(context)

    async def _claim(self) -> ControllerContext:
        epoch, version = await self._epoch()
        claim = znodes.encode_controller(self._settings.broker_id, self._clock.time_ms())
        await self._store.multi(
            [
                Create(znodes.CONTROLLER, claim, ephemeral=True),
                Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version),
            ]
        )
        return ControllerContext(epoch + 1, version + 1)

    async def _epoch(self) -> tuple[int, int]:
        while True:
            try:
                raw, version = await self._store.get(znodes.CONTROLLER_EPOCH)
                return znodes.decode_controller_epoch(raw), version
            except NoNode:
                try:
                    await self._store.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
                except NodeExists:
                    continue

    async def _begin(self, context: ControllerContext) -> None:
        self._terms += 1
        self._events.term = self._terms
        term = ControllerTerm(context, self._store, self._channels(), self._events, self._settings, self._rng)
        self._term = term
        try:
            await term.begin()
        except Exception as error:
            known = isinstance(error, TidelogError)
            logger.error(
                "Broker %d cannot serve as controller: %s",
                self._settings.broker_id,
                error if known else repr(error),
                exc_info=None if known else error,
            )
            if self._term is term:
                self._resign()
            if not isinstance(error, ControllerMoved | SessionExpired | StoreClosed):
                self._stand_back()
            await self._give_up(context)

    def _stand_back(self) -> None:
        """Take no part in elections for a moment: whoever fails at once would be elected without end."""

        def stand_again() -> None:
            self._standing_back = None
            self._look()

        self._standing_back = asyncio.get_running_loop().call_later(_RETRY_S, stand_again)

    async def _give_up(self, context: ControllerContext) -> None:
        """Let somebody else be elected, unless somebody has been."""
        try:
            await self._store.multi(
                [Check(znodes.CONTROLLER_EPOCH, context.epoch_version), Delete(znodes.CONTROLLER)]
            )
        except StoreError as error:
            logger.debug("The controller's node is not this broker's any more: %s", error)

    # Requests

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; names must differ from each other. The outcome of each is by its name."""
        return await self._run(
            "create topics", lambda: self.term.topics.create(topics, validate_only=validate_only), timeout_ms
        )

    async def delete_topics(
        self, ids: Sequence[Uuid], *, timeout_ms: int | None = None
    ) -> dict[Uuid, KafkaError | None]:
        """Begin to delete topics."""
        return await self._run("delete topics", lambda: self.term.topics.delete(ids), timeout_ms)

    async def create_partitions(
        self,
        requests: Sequence[MorePartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions."""
        return await self._run(
            "create partitions",
            lambda: self.term.topics.grow(requests, validate_only=validate_only),
            timeout_ms,
        )

    async def elect_leaders(
        self,
        partitions: Sequence[TopicPartition],
        election: ElectionType,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders anew."""
        return await self._run(
            "elect leaders", lambda: self.term.topics.elect(partitions, election), timeout_ms
        )

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The epoch of a partition's leader; below all others where this is no longer the controller."""
        return NO_LEADER_EPOCH if self._term is None else self._term.context.leader_epoch(partition)

    async def reassign(
        self,
        targets: Mapping[TopicPartition, TargetReplicas],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin, replace or take back reassignments."""
        return await self._run(
            "reassign partitions",
            lambda: self.term.reassignments.start(
                targets, allow_replication_factor_change=allow_replication_factor_change
            ),
            timeout_ms,
        )

    async def list_reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Reassignments that are under way."""

        async def listed() -> dict[TopicPartition, ReplicaAssignment]:
            context = self.term.context
            return {each: context.assignment(each) for each in context.being_reassigned()}

        return await self._events.run("list reassignments", listed)

    async def alter_isrs(
        self,
        broker: int,
        broker_epoch: int,
        changes: Callable[[ControllerContext], Mapping[TopicPartition, IsrChange]],
    ) -> dict[TopicPartition, Leadership | ErrorCode]:
        """AlterPartition of one broker; ``changes`` reads the request in the light of the context."""

        async def altered() -> dict[TopicPartition, Leadership | ErrorCode]:
            term = self.term
            known = term.context.brokers.get(broker)
            if known is None or known.epoch != broker_epoch:
                raise KafkaError(
                    ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker} is not in epoch {broker_epoch}"
                )
            outcomes = await term.alter_isrs(changes(term.context))
            # Answered first: what the leader learns must not wait for what follows from it.
            self._events.post("caught up", lambda: term.reassignments.caught_up(outcomes))
            return outcomes

        return await self._events.run("alter partition", altered)

    async def shut_down_broker(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """ControlledShutdown: what the broker leads still."""
        return await self._events.run(
            "controlled shutdown", lambda: self.term.brokers.shut_down(broker, broker_epoch)
        )

    def unclean_allowed(self, topics: Sequence[str] | None) -> None:
        """Unclean elections are allowed now, for some topics or with None for all: try those without a
        leader."""
        if self._term is not None:
            term = self._term

            async def elect() -> None:
                await term.brokers.elect_missing(topics)

            self._events.post("unclean elections", elect)

    async def _run(self, name: str, work: Callable[[], Awaitable[T]], timeout_ms: int | None) -> T:
        """Run an event; what has begun goes on though its client does not wait for it any longer."""
        running = asyncio.ensure_future(self._events.run(name, work))
        if timeout_ms is None:
            return await running
        try:
            return await asyncio.wait_for(asyncio.shield(running), timeout_ms / 1000)
        except TimeoutError:
            # Nobody waits for its outcome any more, whatever that is.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
