"""A coordinator with topics, and consumers that behave as clients do, for the tests of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.rigs.coordinator import GroupHarness, answer

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember
from tidelog.coordinator.group.group import Caller
from tidelog.ids import Uuid
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.znodes.znodes import TopicAssignment
from tidelog.scheduling.promise import Promise
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

Owned = dict[Uuid, set[int]]

SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 5_000
ASSIGNMENT_INTERVAL_MS = 1_000


def topic_id(name: str, generation: int = 0) -> Uuid:
    """The id that the scene gives a topic; another one each time it is made again."""
    return Uuid(name.encode().rjust(15, b"\1") + bytes([generation]))


def topic_name(found: Uuid) -> str:
    """The topic that the scene gave this id."""
    return found[:-1].lstrip(b"\1").decode()


class Scene(GroupHarness):
    """A coordinator, its topics, and raw heartbeats."""

    def __init__(self, options: Mapping[str, str] | None = None, *, autocommit: bool = True) -> None:
        super().__init__(options, autocommit=autocommit)
        self._deleted: list[str] = []
        self.hidden: set[str] = set()
        """Topics that callers may not describe."""

    def may_describe(self, topic: str) -> bool:
        """Whether callers may know of a topic."""
        return topic not in self.hidden

    def id_of(self, name: str) -> Uuid:
        """A topic's id, should it be made now."""
        known = self.image.topics.get(name)
        return known.id if known is not None else topic_id(name, self._deleted.count(name))

    def topic(self, name: str, partitions: int, *, quietly: bool = False) -> None:
        """Make a topic, or let it grow."""
        assignment = TopicAssignment(
            partitions=dict.fromkeys(range(partitions), (0,)), topic_id=self.id_of(name)
        )
        self.image.put_topic(name, assignment, {})
        if not quietly:
            self.coordinator.runtime.metadata_changed(ImageDelta(topics={name}))

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        if self.image.drop_topic(name):
            self._deleted.append(name)
        self.coordinator.runtime.metadata_changed(ImageDelta(topics={name}))

    def send(
        self, request: ConsumerGroupHeartbeatRequest, *, client_id: str = "client", version: int = 1
    ) -> Promise[ConsumerGroupHeartbeatResponse]:
        """One ConsumerGroupHeartbeat."""
        caller = Caller(client_id, "/127.0.0.1", version, self.may_describe)
        return self.write(request.group_id, lambda shard: shard.consumer.consumer_heartbeat(caller, request))

    def ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """One ConsumerGroupHeartbeat that must be answered at once; raises what it is refused with."""
        return answer(self.send(request))

    def group(self, group_id: str = "g") -> ConsumerGroup:
        """A consumer group."""
        found = self.shard_of(group_id).groups.get(group_id)
        assert isinstance(found, ConsumerGroup)
        return found

    def member(self, member_id: str, group_id: str = "g") -> ConsumerMember:
        """A member of one."""
        return self.group(group_id).members[member_id]

    def settle(self, *consumers: Consumer, rounds: int = 8) -> None:
        """Let consumers heartbeat in turn until all has been handed over."""
        for _ in range(rounds):
            self.advance(ASSIGNMENT_INTERVAL_MS)
            for consumer in consumers:
                consumer.beat()


class Consumer:
    """A client of the consumer protocol: gives up what it has to, and says so in its next heartbeat."""

    def __init__(
        self,
        scene: Scene,
        member_id: str,
        *topics: str,
        group_id: str = "g",
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 30_000,
    ) -> None:
        self.scene = scene
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Owned = {}
        self.stuck = False
        """Does not give up partitions."""
        self.unsure = False
        """Has missed an answer, and so tells everything the next time."""
        self._subscription: dict[str, object] = {"subscribed_topic_names": list(topics)}
        if regex is not None:
            self._subscription["subscribed_topic_regex"] = regex
        self._assignor = assignor
        self._rebalance_timeout_ms = rebalance_timeout_ms

    def join(self) -> Consumer:
        """Become a member."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=0,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            server_assignor=self._assignor,
            topic_partitions=[],
            **self._subscription,  # type: ignore[arg-type]
        )
        response = self.scene.ask(request)
        self.owned = {}
        self._take(response)
        return self

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        """Heartbeat with what is owned."""
        response = self.scene.ask(self.request())
        self._take(response)
        return response

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat as it would be now."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=[
                TopicPartitions(topic_id=each, partitions=sorted(indexes))
                for each, indexes in self.owned.items()
            ],
        )
        if self.unsure:
            request.rebalance_timeout_ms = self._rebalance_timeout_ms
            for name, value in self._subscription.items():
                setattr(request, name, value)
        return request

    def resubscribe(self, *topics: str, regex: str | None = None) -> None:
        """Subscribe to something else."""
        request = self.request()
        request.subscribed_topic_names = list(topics)
        request.subscribed_topic_regex = regex
        response = self.scene.ask(request)
        self._subscription["subscribed_topic_names"] = list(topics)
        if regex is not None:
            self._subscription["subscribed_topic_regex"] = regex
        self._take(response)

    def leave(self, epoch: int = -1) -> None:
        """Leave, for good or (-2) for a while."""
        self.scene.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
            )
        )
        self.owned = {}

    def has(self, topic: str) -> set[int]:
        """What it owns of a topic."""
        return self.owned.get(self.scene.id_of(topic), set())

    @property
    def size(self) -> int:
        """How many partitions it owns."""
        return sum(map(len, self.owned.values()))

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        assert response.member_id is not None
        self.member_id = response.member_id
        self.epoch = response.member_epoch
        self.unsure = False
        if response.assignment is not None and not self.stuck:
            self.owned = {
                each.topic_id: set(each.partitions) for each in response.assignment.topic_partitions
            }


def assert_no_partition_is_owned_twice(consumers: Iterable[Consumer]) -> None:
    """What every step must leave true."""
    seen: set[tuple[Uuid, int]] = set()
    for consumer in consumers:
        for each, indexes in consumer.owned.items():
            for index in indexes:
                assert (each, index) not in seen, f"{consumer.member_id} owns {each!r}-{index} as well"
                seen.add((each, index))


def subscription(*topics: str, owned: dict[str, list[int]] | None = None, version: int = 3) -> bytes:
    """What a consumer of the classic protocol tells in JoinGroup."""
    body = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=name, partitions=indexes)
            for name, indexes in (owned or {}).items()
        ],
    )
    return version.to_bytes(2, "big") + encode(body, version)


def assignment(data: bytes) -> dict[str, list[int]]:
    """What SyncGroup gave it."""
    version = int.from_bytes(data[:2], "big")
    body = decode(ConsumerProtocolAssignment, version, data, 2)[0]
    return {each.topic: sorted(each.partitions) for each in body.assigned_partitions}
