"""Whatever members do, in whatever order: groups stay whole and nobody waits for ever."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.rigs.coordinator import GroupHarness
from tests.unit.coordinator.classic.members import subscription

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataValue
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.leave_group import MemberIdentity

STEPS = 150
HOUR_MS = 3_600_000
INSTANCES = (None, None, None, "i0", "i1")
PROTOCOLS: tuple[Any, ...] = (
    [("range", subscription("t"))],
    [("roundrobin", subscription("t")), ("range", subscription("t"))],
    [("range", subscription("t", "u"))],
)
REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE)


class Crowd:
    """Members that do anything at any time; what they know they have from answers, old ones too."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.harness = GroupHarness({"group.max.size": "4", "group.initial.rebalance.delay.ms": "500"})
        self.replies: list[Promise[Any]] = []
        self.known: list[tuple[str, str | None]] = [("", None), ("", "i0"), ("", "i1"), ("made-up", None)]

    def step(self) -> None:
        action = self.random.choices(
            [self.join, self.rejoin, self.sync, self.beat, self.leave, self.wait, self.fail, self.crash],
            [4, 8, 12, 6, 2, 6, 1, 0.3],
        )[0]
        action()
        self.check()

    def join(self) -> None:
        instance_id = self.random.choice(INSTANCES)
        self._joined(
            self.harness.join(
                "g",
                instance_id=instance_id,
                protocols=self.random.choice(PROTOCOLS),
                version=self.random.choice((3, 5, 9)) if instance_id is None else 9,
            ),
            instance_id,
        )

    def rejoin(self) -> None:
        member_id, instance_id = self.random.choice(self.known)
        reply = self.harness.join(
            "g", member_id, instance_id=instance_id, protocols=self.random.choice(PROTOCOLS)
        )
        self._joined(reply, instance_id)

    def _joined(self, reply: Promise[JoinGroupResponse], instance_id: str | None) -> None:
        def learn(settled: Promise[JoinGroupResponse]) -> None:
            if settled.error is None and settled.result().member_id:
                self.known.append((settled.result().member_id, instance_id))

        reply.when_done(learn)
        self.replies.append(reply)

    def sync(self) -> None:
        group = self.group
        if group is None or not group.members or self.random.random() < 0.1:
            member_id, instance_id = self.random.choice(self.known)
        else:
            member = self.random.choice(list(group.members.values()))
            member_id, instance_id = member.member_id, member.group_instance_id
        generation_id = group.generation_id if group is not None else 0
        reply = self.harness.sync(
            "g",
            member_id,
            generation_id - (self.random.random() < 0.1),
            {each: each.encode() for each in (group.members if group is not None else ())},
            instance_id=instance_id,
            protocol_name=group.protocol_name if group is not None else None,
            version=4,
        )
        self.replies.append(reply)

    def beat(self) -> None:
        member_id, instance_id = self.random.choice(self.known)
        generation_id = self.group.generation_id if self.group is not None else 0
        self.harness.heartbeat("g", member_id, generation_id, instance_id=instance_id)

    def leave(self) -> None:
        member_id, instance_id = self.random.choice(self.known)
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        self.replies.append(self.harness.leave("g", identity))

    def wait(self) -> None:
        self.harness.advance(self.random.choice((1, 400, 400, 3000, 3000, 9000, 31_000)))

    def fail(self) -> None:
        self.harness.logs[0].fail_next = KafkaError(self.random.choice(REFUSALS))

    def crash(self) -> None:
        self.harness.crash()

    @property
    def group(self) -> ClassicGroup | None:
        found = self.harness.shard_of("g").groups.get("g")
        assert found is None or isinstance(found, ClassicGroup)
        return found

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members
        joining = {each for each, member in members.items() if member.awaiting_join is not None}
        syncing = {each for each, member in members.items() if member.awaiting_sync is not None}
        assert group.members.awaiting_join_count == len(joining)
        assert group.members.leader_id in members if members else group.members.leader_id is None
        assert group.members.by_instance_id == {
            member.group_instance_id: each for each, member in members.items() if member.is_static
        }
        assert not group.members.pending_join & set(members)
        assert group.members.pending_sync <= set(members)
        if group.state is not ClassicState.PREPARING_REBALANCE:
            assert not joining
        if group.state is not ClassicState.COMPLETING_REBALANCE:
            assert not syncing
        assert bool(members) or group.state in (ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE)
        if group.state is ClassicState.STABLE:
            self.check_generation(group)

    def check_generation(self, group: ClassicGroup) -> None:
        """In Stable the log has what the members have."""
        assert len(group.members) <= 4
        values = [
            record.value for record in self.harness.records() if isinstance(record.value, GroupMetadataValue)
        ]
        assert values[-1].generation == group.generation_id
        assert {each.member_id: each.assignment for each in values[-1].members} == {
            each: member.assignment for each, member in group.members.items()
        }


@pytest.mark.parametrize("seed", range(60))
def test_groups_stay_whole_whatever_members_do(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(STEPS):
        crowd.step()
    crowd.harness.logs[0].fail_next = None
    crowd.harness.advance(HOUR_MS)
    assert all(reply.done for reply in crowd.replies), "somebody still waits"
    assert crowd.group is None or crowd.group.state is ClassicState.EMPTY
