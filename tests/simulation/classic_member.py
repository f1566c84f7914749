"""A consumer of the classic protocol as a generator: join, sync, fetch offsets, work, commit, heartbeat."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

from tests.simulation.coordination import Coordination
from tests.simulation.group_history import GroupHistory
from tests.simulation.offsets import commit, fetch
from tests.simulation.world import Call, Life, Sleep

from tidelog.coordinator.group.group import Caller
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.scheduling.promise import Promise
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CALLER = Caller("simulated", "/127.0.0.1", 9)
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS = 6_000, 8_000, 1_500
_VERSION = b"\x00\x00"
_FORGET = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class ClassicConsumer:
    """One member, which comes back under a new id whenever it is fenced."""

    def __init__(
        self, broker: Coordination, history: GroupHistory, group_id: str, topic: str, name: str
    ) -> None:
        self.broker = broker
        self.history = history
        self.group_id = group_id
        self.topic = topic
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.positions: dict[TopicPartition, int] = {}
        self.leaving = False

    def life(self) -> Life:
        """Join, work until the group rebalances, and again; leave when told to."""
        while not self.leaving:
            self.positions = {}
            joined = yield from self._join()
            if joined is None or not (yield from self._sync(joined)):
                yield Sleep(self.broker.world.random.randint(20, 200))
                continue
            if (yield from self._find_positions()):
                yield from self._work()
        yield Call("leave", self._leave)

    def _join(self) -> Generator[Call | Sleep, Any, JoinGroupResponse | None]:
        reply = yield Call("join", self._send_join)
        response = self._response(reply)
        if response is None:
            return None
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code in _FORGET:
            self.member_id = ""
        if code:
            return None
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.history.joined(self.generation)
        return cast(JoinGroupResponse, response)

    def _sync(self, joined: JoinGroupResponse) -> Generator[Call | Sleep, Any, bool]:
        assignments = self._assign(joined) if joined.leader == self.member_id else []
        reply = yield Call("sync", lambda: self._send_sync(assignments))
        response = self._response(reply)
        if response is None or response.error_code:
            if response is not None and response.error_code in _FORGET:
                self.member_id = ""
            return False
        assignment, _ = decode(ConsumerProtocolAssignment, 0, response.assignment, len(_VERSION))
        mine = {
            TopicPartition(each.topic, index)
            for each in assignment.assigned_partitions
            for index in each.partitions
        }
        self.history.assigned(self.generation, self.member_id, mine)
        self.positions = dict.fromkeys(sorted(mine), 0)
        return True

    def _find_positions(self) -> Generator[Call | Sleep, Any, bool]:
        while True:
            known = dict(self.history.acknowledged)
            reply = yield Call(
                "fetch offsets", lambda: fetch(self.broker, self.group_id, list(self.positions))
            )
            offsets = self._response(reply)
            if offsets is not None:
                for partition, offset in offsets.items():
                    self.history.fetched(partition, max(offset, 0), known.get(partition, 0))
                    self.positions[partition] = max(offset, 0)
                return True
            yield Sleep(50)

    def _work(self) -> Generator[Call | Sleep, Any, None]:
        dice = self.broker.world.random
        while not self.leaving:
            for partition in self.positions:
                count = dice.randint(0, 5)
                first = self.positions[partition]
                self.history.process(partition, first, first + count)
                self.positions[partition] = first + count
            yield Sleep(dice.randint(HEARTBEAT_MS // 2, HEARTBEAT_MS))
            if self.broker.world.chance(0.6) and not (yield from self._commit()):
                return
            reply = yield Call("heartbeat", self._send_heartbeat)
            response = self._response(reply)
            if response is None:
                continue
            if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                yield from self._commit()
                return
            if response.error_code in _FORGET:
                self.member_id = ""
            if response.error_code:
                return

    def _commit(self) -> Generator[Call | Sleep, Any, bool]:
        wanted = dict(self.positions)
        reply = yield Call(
            f"commit {list(wanted.values())}",
            lambda: commit(self.broker, self.history, self.group_id, self.member_id, self.generation, wanted),
        )
        codes = self._response(reply)
        if codes is None:
            return True
        if any(code in _FORGET for code in codes.values()):
            self.member_id = ""
        return all(code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) for code in codes.values())

    # Requests

    def _response(self, reply: Promise[Any] | None) -> Any:
        """The response, or None where there is none and the same may be tried again."""
        if reply is None:
            return None
        if isinstance(reply.error, KafkaError):
            return None
        return reply.result()

    def _send_join(self) -> Promise[Any]:
        subscription = encode(ConsumerProtocolSubscription(topics=[self.topic]), 0)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_VERSION + subscription)],
        )
        return self.broker.groups.write(self.group_id, lambda shard: shard.join(CALLER, request))

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(member.member_id for member in joined.members)
        count = len(self.broker.image.topics[self.topic].partitions)
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=_VERSION
                + encode(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            ConsumerProtocolAssignmentTopicPartition(
                                topic=self.topic, partitions=list(range(number, count, len(members)))
                            )
                        ]
                    ),
                    0,
                ),
            )
            for number, member in enumerate(members)
        ]

    def _send_sync(self, assignments: list[SyncGroupRequestAssignment]) -> Promise[Any]:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        caller = CALLER._replace(api_version=5)
        return self.broker.groups.write(self.group_id, lambda shard: shard.sync(caller, request))

    def _send_heartbeat(self) -> Promise[Any]:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )
        caller = CALLER._replace(api_version=4)
        return self.broker.groups.write(self.group_id, lambda shard: shard.heartbeat(caller, request))

    def _leave(self) -> Promise[Any]:
        request = LeaveGroupRequest(
            group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)]
        )
        caller = CALLER._replace(api_version=5)
        return self.broker.groups.write(self.group_id, lambda shard: shard.leave(caller, request))
