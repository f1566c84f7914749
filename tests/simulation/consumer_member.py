"""A consumer of the new protocol (KIP-848) as a generator: one heartbeat does joining, revoking and leaving.

It gives partitions up, committing first, before it says so; and takes the ones it is given at once, because
the coordinator promises that nobody else has them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tests.simulation.coordination import Coordination
from tests.simulation.group_history import BrokenPromise, GroupHistory
from tests.simulation.offsets import commit, fetch
from tests.simulation.world import Call, Life, Sleep

from tidelog.coordinator.group.group import Caller
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.scheduling.promise import Promise
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

CALLER = Caller("simulated", "/127.0.0.1", 1)
REBALANCE_MS, HEARTBEAT_MS = 8_000, 1_500
_LEAVE_EPOCH = -1
_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Ownership:
    """Who has which partition, as the members themselves see it."""

    def __init__(self, broker: Coordination, session_ms: int) -> None:
        self._broker = broker
        self._session_ms = session_ms
        self._members: list[NewConsumer] = []

    def add(self, member: NewConsumer) -> None:
        self._members.append(member)

    def check(self, taker: NewConsumer, partitions: set[TopicPartition]) -> None:
        """Nobody whom the coordinator cannot yet have given up may hold what another is given."""
        now = self._broker.world.clock.monotonic_ms()
        for other in self._members:
            still_member = now < other.heard_of_ms + self._session_ms and other.epoch > 0 and other.is_alive()
            shared = partitions & other.positions.keys()
            if other is not taker and still_member and shared:
                raise BrokenPromise(f"{taker.name} was given {shared}, which {other.name} has not given up")


class NewConsumer:
    """One member; its id is its own, its epoch starts anew whenever it is fenced."""

    def __init__(
        self,
        broker: Coordination,
        history: GroupHistory,
        ownership: Ownership,
        group_id: str,
        topic: str,
        name: str,
    ) -> None:
        self.broker = broker
        self.history = history
        self.ownership = ownership
        self.group_id = group_id
        self.topic = topic
        self.name = name
        self.member_id = name
        self.epoch = 0
        self.positions: dict[TopicPartition, int] = {}
        self.heard_of_ms = float("-inf")
        """When the last heartbeat that was answered had been sent."""
        self.leaving = False
        self.is_alive: Callable[[], bool] = lambda: True
        ownership.add(self)

    def life(self) -> Life:
        """Heartbeats for ever; work between them."""
        dice = self.broker.world.random
        while not self.leaving:
            sent_ms = self.broker.world.clock.monotonic_ms()
            reply = yield Call(f"heartbeat, epoch {self.epoch}", self._send_heartbeat)
            response = self._response(reply)
            if response is None:
                yield Sleep(dice.randint(20, 300))
                continue
            if response.error_code in _FENCED:
                self.epoch, self.positions = 0, {}
                continue
            if response.error_code:
                yield Sleep(dice.randint(20, 300))
                continue
            self.heard_of_ms = sent_ms
            if response.assignment is not None and (yield from self._reconcile(response)):
                continue
            self.epoch = response.member_epoch
            self._process()
            yield Sleep(dice.randint(HEARTBEAT_MS // 2, HEARTBEAT_MS))
            if self.broker.world.chance(0.5):
                yield from self._commit(dict(self.positions))
        self.positions = {}
        yield Call("leave", self._send_leave)

    def _reconcile(self, response: ConsumerGroupHeartbeatResponse) -> Generator[Call | Sleep, Any, bool]:
        """Give up and take; whether something has changed that the coordinator must hear of at once."""
        assert response.assignment is not None
        topic_id = self.broker.image.topics[self.topic].id
        wanted = {
            TopicPartition(self.topic, index)
            for each in response.assignment.topic_partitions
            if each.topic_id == topic_id
            for index in each.partitions
        }
        self.epoch = response.member_epoch
        given_up = {p: self.positions[p] for p in sorted(self.positions.keys() - wanted)}
        taken = wanted - self.positions.keys()
        if given_up:
            yield from self._commit(given_up)
            for partition in given_up:
                self.positions.pop(partition, None)
        if taken:
            self.ownership.check(self, taken)
            yield from self._take(taken)
        self.history.rebalances += bool(given_up or taken)
        return bool(given_up or taken)

    def _take(self, partitions: set[TopicPartition]) -> Generator[Call | Sleep, Any, None]:
        # They are its own from the moment it is told, though it reads them only when it knows from where.
        self.positions |= dict.fromkeys(sorted(partitions), 0)
        while True:
            known = dict(self.history.acknowledged)
            reply = yield Call("fetch offsets", lambda: fetch(self.broker, self.group_id, sorted(partitions)))
            offsets = self._response(reply)
            if offsets is not None:
                for partition, offset in offsets.items():
                    self.history.fetched(partition, max(offset, 0), known.get(partition, 0))
                    self.positions[partition] = max(offset, 0)
                return
            yield Sleep(50)

    def _process(self) -> None:
        for partition, first in self.positions.items():
            count = self.broker.world.random.randint(0, 5)
            self.history.process(partition, first, first + count)
            self.positions[partition] = first + count

    def _commit(self, wanted: dict[TopicPartition, int]) -> Generator[Call | Sleep, Any, None]:
        if not wanted or self.epoch <= 0:
            return
        yield Call(
            f"commit {wanted}",
            lambda: commit(self.broker, self.history, self.group_id, self.member_id, self.epoch, wanted),
        )

    def _response(self, reply: Promise[Any] | None) -> Any:
        if reply is None:
            return None
        if isinstance(reply.error, KafkaError):
            return (
                ConsumerGroupHeartbeatResponse(error_code=reply.error.code)
                if (reply.error.code in _FENCED)
                else None
            )
        return reply.result()

    def _send_heartbeat(self) -> Promise[Any]:
        topic_id = self.broker.image.topics[self.topic].id
        owned = sorted(partition.partition for partition in self.positions)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self.topic],
            topic_partitions=(
                [TopicPartitions(topic_id=topic_id, partitions=owned)] if owned and self.epoch > 0 else []
            ),
        )
        return self._heartbeat(request)

    def _send_leave(self) -> Promise[Any]:
        return self._heartbeat(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=_LEAVE_EPOCH
            )
        )

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Promise[Any]:
        groups = self.broker.groups
        return groups.write(self.group_id, lambda shard: shard.consumer.consumer_heartbeat(CALLER, request))
