"""Consumers of the classic protocol, alone or in consumer groups."""

from __future__ import annotations

from tests.rigs.coordinator import answer
from tests.unit.coordinator.consumer.scene import (
    ASSIGNMENT_INTERVAL_MS,
    Consumer,
    Scene,
    assignment,
    subscription,
)

from tidelog.coordinator.group.classic.group import ClassicGroup
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.wire.codec import encode
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from tidelog.wire.messages.join_group import JoinGroupResponse

SESSION_MS = 10_000
REBALANCE_MS = 30_000


class ClassicConsumer:
    """A cooperative consumer of the classic protocol."""

    def __init__(
        self, scene: Scene, *topics: str, instance_id: str | None = None, group_id: str = "g"
    ) -> None:
        self.scene = scene
        self.group_id = group_id
        self.topics = topics
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}

    def ask_to_join(self) -> Promise[JoinGroupResponse]:
        data = subscription(*self.topics, owned=self.owned)
        return self.scene.join(
            self.group_id,
            self.member_id,
            instance_id=self.instance_id,
            protocols=[("cooperative-sticky", data), ("range", data)],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def join(self) -> JoinGroupResponse:
        """Join a group where that is answered at once: a consumer group."""
        response = answer(self.ask_to_join())
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = answer(self.ask_to_join())
        assert response.error_code == ErrorCode.NONE
        self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def sync(self, assignments: dict[str, bytes] | None = None) -> ErrorCode:
        reply = self.scene.sync(
            self.group_id,
            self.member_id,
            self.generation,
            assignments,
            instance_id=self.instance_id,
            protocol_name="cooperative-sticky",
        )
        if not reply.done:
            return ErrorCode.NONE
        if isinstance(reply.error, KafkaError):
            return reply.error.code
        response = reply.result()
        if not response.error_code:
            self.owned = assignment(response.assignment)
        return ErrorCode(response.error_code)

    def beat(self) -> ErrorCode:
        """Heartbeat, and do what it asks for."""
        try:
            response = self.scene.heartbeat(
                self.group_id, self.member_id, self.generation, instance_id=self.instance_id
            )
        except KafkaError as error:
            return error.code
        return ErrorCode(response.error_code)

    def keep_up(self) -> None:
        """Heartbeat; rejoin and sync if that is asked for, giving up what is not assigned any longer."""
        if self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()

    @property
    def size(self) -> int:
        return sum(map(len, self.owned.values()))


def given(*partitions: int) -> bytes:
    """An assignment as a classic leader writes it."""
    body = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=list(partitions))]
    )
    return b"\0\1" + encode(body, 1)


def classic_group(scene: Scene, *instance_ids: str | None) -> list[ClassicConsumer]:
    """A stable classic group of as many members, which share the topic."""
    members = [ClassicConsumer(scene, "t", instance_id=instance_id) for instance_id in instance_ids]
    for member in members:
        if member.instance_id is None:
            member.member_id = answer(member.ask_to_join()).member_id
    replies = [member.ask_to_join() for member in members]
    scene.advance(6_000)
    for member, reply in zip(members, replies, strict=True):
        response = answer(reply)
        member.member_id, member.generation = response.member_id, response.generation_id
    share = 6 // len(members)
    assignments = {
        member.member_id: given(*range(index * share, index * share + share))
        for index, member in enumerate(members)
    }
    syncs = [
        scene.sync(
            "g",
            member.member_id,
            member.generation,
            assignments if index == 0 else None,
            instance_id=member.instance_id,
            protocol_name="cooperative-sticky",
        )
        for index, member in enumerate(members)
    ]
    for member, sync in zip(members, syncs, strict=True):
        member.owned = assignment(answer(sync).assignment)
    return members


def found(scene: Scene) -> ClassicGroup | ConsumerGroup | None:
    group = scene.shard_of("g").groups.get("g")
    assert group is None or isinstance(group, ClassicGroup | ConsumerGroup)
    return group


def run(scene: Scene, *members: Consumer | ClassicConsumer, rounds: int = 8) -> None:
    for _ in range(rounds):
        scene.advance(ASSIGNMENT_INTERVAL_MS)
        for member in members:
            if isinstance(member, Consumer):
                member.beat()
            else:
                member.keep_up()
