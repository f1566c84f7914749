"""What the controller tells a broker: LeaderAndIsr, UpdateMetadata, StopReplica; carried out, and answered.

A request of an older controller than one that has been heard is refused, and so is one that was meant for
an earlier life of this broker (its broker epoch is over). What it says about single partitions is refused
where the broker knows better by the leader epoch. Nothing that is carried out waits: a partition leads, or
follows, when the answer leaves. Only the configs of topics that are new here are read before
(:meth:`ControllerRequests.in_order`), for how a partition is kept depends on them from its first record on.

A request about thousands of partitions is carried out in several turns of the loop; what the controller says
next waits for it. How much fits into a turn is counted, not timed, so that the same seed simulates the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.image import PartitionImage
from tidelog.replication.fetch_loop import FetchLoops
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT")

UNKNOWN_BROKER_EPOCH = -1
EPOCH_DURING_DELETE = -2
_TOPIC_IDS_SINCE = 5
# What one turn of the loop is for, in partitions that change their role; making or opening a log, closing it
# or renaming it costs as much as many of these.
_PER_TURN: Final = 200
_COST_OF_LOG: Final = 20


class ControllerRequests:
    """One broker's obedience."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        feed: ClusterFeed,
        partitions: Partitions,
        log_dirs: LogDirs,
        loops: FetchLoops,
        on_roles: Callable[[ImageDelta], None],
    ) -> None:
        """``on_roles`` hears which topics have partitions whose role here has changed."""
        self.controller_epoch = 0
        self.informed = asyncio.Event()
        """Set once the controller has told what there is."""
        self.expects_topics = False
        """Whether there are topics, so that brokers alone are not all that the controller will tell."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._feed = feed
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._loops = loops
        self._on_roles = on_roles
        self._last: asyncio.Task[object] | None = None
        self._registered = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        """Carry out nothing more of what is under way."""
        self._closed = True

    def registered(self) -> None:
        """This broker knows its epoch, and so what is meant for it and what for an earlier life."""
        self._registered.set()

    def in_order(
        self, topics: Mapping[str, Uuid], apply: Callable[[], ResponseT | Slices[ResponseT]]
    ) -> ResponseT | Awaitable[ResponseT]:
        """Carry out a request about ``topics`` once their configs are known, and after those before it.

        ``apply`` does so, or gives work for several turns of the loop.
        """
        waiting = self._last is not None and not self._last.done()
        waiting = waiting or self._broker_epoch() == UNKNOWN_BROKER_EPOCH
        unread = self._feed.without_configs(topics)
        if waiting or unread:
            fresh = {name: topics[name] for name in unread}
            return self._in_task(self._after(self._last, fresh, apply))
        begun = apply()
        if not isinstance(begun, Generator):
            return begun
        try:
            next(begun)
        except StopIteration as end:
            return cast(ResponseT, end.value)
        return self._in_task(self._go_on(begun))

    def _in_task(self, work: Coroutine[Any, Any, ResponseT]) -> asyncio.Task[ResponseT]:
        task = asyncio.get_running_loop().create_task(work)
        self._last = task
        return task

    async def _after(
        self,
        earlier: asyncio.Task[object] | None,
        fresh: Mapping[str, Uuid],
        apply: Callable[[], ResponseT | Slices[ResponseT]],
    ) -> ResponseT:
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
        if self._broker_epoch() == UNKNOWN_BROKER_EPOCH:
            await self._registered.wait()
        if fresh:
            await self._feed.read_configs(fresh)
        begun = apply()
        return await self._go_on(begun) if isinstance(begun, Generator) else begun

    async def _go_on(self, work: Slices[ResponseT]) -> ResponseT:
        while True:
            await asyncio.sleep(0)
            if self._closed:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This broker is shutting down")
            try:
                next(work)
            except StopIteration as end:
                return cast(ResponseT, end.value)

    def _check(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if broker_epoch != UNKNOWN_BROKER_EPOCH and broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    @property
    def is_informed(self) -> bool:
        """Whether a controller has told this broker what there is.

        That there are no brokers is nothing to tell clients: librdkafka (2.10 and later) forgets all that it
        knew of on such an answer, and never asks again.
        """
        return self.informed.is_set() and bool(self._feed.image.brokers)

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Know what the controller knows."""
        return run_to_end(self.update_metadata_in_slices(request))

    def update_metadata_in_slices(self, request: UpdateMetadataRequest) -> Slices[UpdateMetadataResponse]:
        """The same, with turns for others where it is much."""
        code = self._check(request.controller_epoch, request.broker_epoch)
        if code is ErrorCode.NONE:
            delta = yield from self._feed.update_in_slices(request)
            if delta.brokers:
                for count, partition in enumerate(tuple(self._partitions.by_name.values()), 1):
                    partition.brokers_changed()
                    if not count % _PER_TURN:
                        yield
            if request.topic_states or not self.expects_topics:
                self.informed.set()
        return UpdateMetadataResponse(error_code=code)

    # LeaderAndIsr

    def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        """Lead or follow partitions."""
        return run_to_end(self.leader_and_isr_in_slices(request, version))

    def leader_and_isr_in_slices(
        self, request: LeaderAndIsrRequest, version: int
    ) -> Slices[LeaderAndIsrResponse]:
        """The same, with turns for others where it is much."""
        code = self._check(request.controller_epoch, request.broker_epoch)
        if code is not ErrorCode.NONE:
            return LeaderAndIsrResponse(error_code=code)
        changed = ImageDelta()
        response = LeaderAndIsrResponse()
        left = _PER_TURN
        for topic in request.topic_states:
            errors: list[LeaderAndIsrPartitionError] = []
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                if left <= 0:
                    changed = self._tell_of_roles(changed)
                    yield
                    left = _PER_TURN
                left -= 1 if name in self._partitions.by_name else _COST_OF_LOG
                outcome = self._become(name, topic.topic_id, state)
                if outcome is ErrorCode.NONE:
                    changed.topics.add(topic.topic_name)
                errors.append(
                    LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name, partition_index=name.partition, error_code=outcome
                    )
                )
            if version >= _TOPIC_IDS_SINCE:
                response.topics.append(
                    LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
                )
            else:
                response.partition_errors += errors
        self._loops.close_idle()
        self._log_roles(request)
        self._tell_of_roles(changed)
        return response

    def _tell_of_roles(self, changed: ImageDelta) -> ImageDelta:
        """Have others hear whose roles have changed; gives a note with nothing on it."""
        if changed:
            self._on_roles(changed)
        return ImageDelta()

    def _log_roles(self, request: LeaderAndIsrRequest) -> None:
        states = [each for topic in request.topic_states for each in topic.partition_states]
        led = sum(each.leader == self._broker_id for each in states)
        logger.info(
            "The controller, broker %d in epoch %d, has this one lead %d and follow %d partitions",
            request.controller_id,
            request.controller_epoch,
            led,
            len(states) - led,
        )

    def _become(self, name: TopicPartition, topic_id: Uuid, state: LeaderAndIsrPartitionState) -> ErrorCode:
        known = self._partitions.by_name.get(name)
        if known is None and name in self._log_dirs.offline_partitions:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if known is not None:
            if topic_id == ZERO_UUID:
                # A controller that does not know of ids: it means the topic that is here.
                topic_id = known.topic_id
            has_resigned = known.leader < 0 and state.leader_epoch == known.leader_epoch
            is_same = topic_id == known.topic_id
            if is_same and state.leader_epoch <= known.leader_epoch and not has_resigned:
                return ErrorCode.STALE_CONTROLLER_EPOCH
        elif topic_id == ZERO_UUID:
            logger.error(
                "Partition %s cannot be served: its controller gives topics no ids; set "
                "inter.broker.protocol.version of every Apache Kafka broker to 2.8 or later",
                name,
            )
            return ErrorCode.UNSUPPORTED_VERSION
        if self._broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition, is_news = self._partitions.assign(name, topic_id, _image(state), is_new=state.is_new)
        except LogDirOfflineError as error:
            self._log_dirs.mark_offline(Path(error.log_dir or ""), error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except KafkaError as error:
            logger.error("Partition %s cannot be served: %s", name, error)
            return error.code
        if partition.is_leader or partition.leader < 0:
            self._loops.stop(name)
        elif is_news:
            self._loops.follow(partition)
        return ErrorCode.NONE

    # StopReplica

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete their logs where that is said."""
        return run_to_end(self.stop_replica_in_slices(request))

    def stop_replica_in_slices(self, request: StopReplicaRequest) -> Slices[StopReplicaResponse]:
        """The same, with turns for others where it is much."""
        code = self._check(request.controller_epoch, request.broker_epoch)
        if code is not ErrorCode.NONE:
            return StopReplicaResponse(error_code=code)
        changed = ImageDelta()
        errors: list[StopReplicaPartitionError] = []
        left = _PER_TURN
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                if left <= 0:
                    changed = self._tell_of_roles(changed)
                    yield
                    left = _PER_TURN
                left -= _COST_OF_LOG if name in self._partitions.by_name else 1
                outcome = self._stop(name, state)
                changed.topics.add(topic.topic_name)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=name.topic, partition_index=name.partition, error_code=outcome
                    )
                )
        self._loops.close_idle()
        self._tell_of_roles(changed)
        return StopReplicaResponse(partition_errors=errors)

    def _stop(self, name: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        known = self._partitions.by_name.get(name)
        if known is None and name in self._log_dirs.offline_partitions:
            return ErrorCode.KAFKA_STORAGE_ERROR
        sentinel = state.leader_epoch in (NO_LEADER_EPOCH, EPOCH_DURING_DELETE)
        if known is not None and not sentinel and state.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self._loops.stop(name)
        try:
            self._partitions.unassign(name, delete=state.delete_partition)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def _image(state: LeaderAndIsrPartitionState) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(state.replicas),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        controller_epoch=state.controller_epoch,
        leader_recovery_state=state.leader_recovery_state,
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        state_version=state.partition_epoch,
    )
