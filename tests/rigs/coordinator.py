"""A group coordinator without a broker: every partition on a log in memory, the clock moved by hand.

    harness = GroupHarness({"group.initial.rebalance.delay.ms": "0"})
    first = harness.join("g", member_id="", version=9)
    harness.advance(3000)
    assert first.result().error_code == ErrorCode.MEMBER_ID_REQUIRED

Requests give the coordinator's ``Promise``, which is settled when it is: look at ``done``, or at ``answer``
for those that must be. ``advance`` runs what falls due on the way, in order. ``crash`` loses what was not
committed and loads again; ``move`` loses nothing that is in the log. Both answer who waits with
NOT_COORDINATOR, in the place of the connection that a dead broker breaks. The state machines' tests and the
seeded simulation are built on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tests.rigs.clock import ManualClock
from tests.rigs.memory_log import MemoryLog

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.group.group import Caller
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.coordinator.group.shard import SCHEMAS, GroupShard
from tidelog.coordinator.runtime import Producer, Result
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.ids import Uuid, random_uuid
from tidelog.metadata.image import MetadataImage
from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.timers import Timers
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

R = TypeVar("R")

LATEST_JOIN = 9
LATEST_SYNC = 5
LATEST_HEARTBEAT = 4
LATEST_LEAVE = 5


def answer(reply: Promise[R]) -> R:
    """The answer that must be there by now."""
    assert reply.done, "the request still waits"
    return reply.result()


class GroupHarness:
    """A ``GroupCoordinator`` with ``partitions`` shards on logs in memory."""

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        partitions: int = 1,
        autocommit: bool = True,
        clock: ManualClock | None = None,
        new_member_uuid: Callable[[], Uuid] = random_uuid,
    ) -> None:
        self.clock = clock or ManualClock()
        self.timers = Timers(self.clock)
        self.image = MetadataImage()
        self.config = BrokerConfig(
            {"log.dirs": "unused", "offsets.topic.num.partitions": str(partitions), **(options or {})}
        )
        self.coordinator = GroupCoordinator(
            self.config, self.clock, self.image, self.timers, new_member_uuid=new_member_uuid
        )
        self.logs = [MemoryLog(autocommit=autocommit) for _ in range(partitions)]
        self.epoch = 0
        for partition, log in enumerate(self.logs):
            self._load(partition, log)

    # Time and failures

    def advance(self, delta_ms: int) -> None:
        """Let time pass; what falls due runs when it is due, as far as the clock's milliseconds allow."""
        left = delta_ms
        while True:
            self.timers.run_due()
            delay_ms = self.timers.next_delay_ms
            step = left if delay_ms is None else min(left, max(1, math.ceil(delay_ms)))
            if left == 0:
                return
            self.clock.advance(step)
            left -= step

    def crash(self, partition: int = 0) -> None:
        """The broker dies and another takes over: only what was committed is left."""
        self.logs[partition] = self.logs[partition].crash()
        self._load(partition, self.logs[partition])

    def unload(self, partition: int = 0) -> None:
        """The partition is led elsewhere."""
        self.coordinator.runtime.unload(partition)

    def move(self, partition: int = 0) -> None:
        """Another broker leads, and then this one again: the log is as it was."""
        self.unload(partition)
        self._load(partition, self.logs[partition])

    def _load(self, partition: int, log: MemoryLog) -> None:
        self.epoch += 1
        assert self.coordinator.runtime.load_nowait(partition, self.epoch, log), "the log cannot be loaded"

    # What is there

    def log_of(self, group_id: str) -> MemoryLog:
        """The log of a group's shard."""
        return self.logs[self.coordinator.partition_for(group_id)]

    def records(self, partition: int = 0) -> list[StoredRecord]:
        """Everything in a log, decoded; markers of transactions left out."""
        raw = b"".join(self.logs[partition].batches)
        found = []
        for pos, header in iter_batches(raw):
            if header.is_control:
                continue
            for record in decode_batch(raw[pos : pos + header.size_bytes]):
                assert record.key is not None
                key = SCHEMAS.decode_key(record.key)
                version = 0 if record.value is None else int.from_bytes(record.value[:2], "big")
                found.append(StoredRecord(key, SCHEMAS.decode_value(key, record.value), version))
        return found

    def shard_of(self, group_id: str) -> GroupShard:
        """The shard itself, to look into, with what is not committed yet."""
        found: list[GroupShard] = []
        reply = self.coordinator.read(group_id, found.append)
        if not found:
            reply.result()
        return found[0]

    def write(
        self, group_id: str, command: Callable[[GroupShard], Result[R]], producer: Producer | None = None
    ) -> Promise[R]:
        """Run any command on a group's shard."""
        return self.coordinator.write(group_id, command, producer)

    # The classic protocol

    def join(
        self,
        group_id: str,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (("range", b""),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        client_id: str = "client",
        version: int = LATEST_JOIN,
    ) -> Promise[JoinGroupResponse]:
        """JoinGroup."""
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self.coordinator.join(_caller(client_id, version), request)

    def sync(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = LATEST_SYNC,
    ) -> Promise[SyncGroupResponse]:
        """SyncGroup."""
        request = SyncGroupRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id=generation_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        return self.coordinator.sync(_caller("client", version), request)

    def heartbeat(
        self, group_id: str, member_id: str, generation_id: int, *, instance_id: str | None = None
    ) -> HeartbeatResponse:
        """Heartbeat, which never waits."""
        request = HeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id=generation_id,
            group_instance_id=instance_id,
        )
        return answer(self.coordinator.heartbeat(_caller("client", LATEST_HEARTBEAT), request))

    def leave(
        self,
        group_id: str,
        *members: str | MemberIdentity,
        version: int = LATEST_LEAVE,
    ) -> Promise[LeaveGroupResponse]:
        """LeaveGroup of members by their ids, or as they are to be named."""
        identities = [
            each if isinstance(each, MemberIdentity) else MemberIdentity(member_id=each) for each in members
        ]
        request = LeaveGroupRequest(group_id=group_id, members=identities)
        if version < 3:
            request = LeaveGroupRequest(group_id=group_id, member_id=identities[0].member_id)
        return self.coordinator.leave(_caller("client", version), request)


def _caller(client_id: str, version: int) -> Caller:
    return Caller(client_id, "/127.0.0.1", version)
