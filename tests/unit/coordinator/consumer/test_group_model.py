"""Consumer groups under random members, topics, failures and restarts.

What must hold after every step: no partition is owned by two clients, and the log says what memory says. And
whatever has happened, once everybody heartbeats again every partition has an owner.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from tests.rigs.coordinator import answer
from tests.unit.coordinator.consumer.classic_consumer import ClassicConsumer
from tests.unit.coordinator.consumer.scene import Consumer, Scene, topic_name

from tidelog.coordinator.group.consumer.group import ConsumerGroup, GroupState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.slices import run_to_end

TOPICS = ("t1", "t2", "u1")
SUBSCRIPTIONS = (("t1",), ("t1", "t2"), ("u1",), ("t1", "t2", "u1"), ())
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID)
# Of a second each: a member whose leaving could not be written goes after 45 s; then the others settle.
STABLE_ROUNDS = 60


class Groups(RuleBasedStateMachine):
    """One group and its clients."""

    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene({"group.consumer.assignment.interval.ms": "0"})
        self.alive: list[Consumer | ClassicConsumer] = []
        self.count = 0

    @initialize()
    def topics(self) -> None:
        for name in TOPICS[:2]:
            self.scene.topic(name, 3)

    def _try(self, member: Consumer | ClassicConsumer, action: Callable[[], object]) -> bool:
        """Do as a client does: who is fenced owns nothing any longer."""
        try:
            action()
        except KafkaError as error:
            if error.code in GONE:
                self._drop(member)
            return False
        return True

    def _drop(self, member: Consumer | ClassicConsumer) -> None:
        member.owned = {}
        if member in self.alive:
            self.alive.remove(member)

    def _forget_the_dead(self) -> None:
        """A member that the coordinator has fenced without its knowing is past its session."""
        group = self.scene.shard_of("g").groups.get("g")
        for member in list(self.alive):
            if group is None or not group.has_member(member.member_id):
                self._drop(member)

    @rule(
        target=members,
        topics=st.sampled_from(SUBSCRIPTIONS),
        regex=st.sampled_from([None, None, "t.*", ".*1"]),
        static=st.booleans(),
        assignor=st.sampled_from([None, "range", "uniform"]),
    )
    def join(
        self, topics: tuple[str, ...], regex: str | None, static: bool, assignor: str | None
    ) -> Consumer:
        self.count += 1
        instance_id = f"i{self.count}" if static else None
        name = f"m{self.count}"
        member = Consumer(self.scene, name, *topics, regex=regex, instance_id=instance_id, assignor=assignor)
        if self._try(member, member.join):
            self.alive.append(member)
        return member

    @rule(topics=st.sampled_from(SUBSCRIPTIONS[:2]))
    def join_classic(self, topics: tuple[str, ...]) -> None:
        group = self.scene.shard_of("g").groups.get("g")
        if not isinstance(group, ConsumerGroup) or group.is_empty:
            return
        member = ClassicConsumer(self.scene, *topics)
        if self._try(member, member.join):
            self.alive.append(member)
            member.sync()

    @rule(member=members)
    def beat(self, member: Consumer) -> None:
        if member in self.alive:
            self._try(member, member.beat)

    @rule()
    def classic_members_keep_up(self) -> None:
        for member in list(self.alive):
            if isinstance(member, ClassicConsumer):
                self._keep_up(member)

    def _keep_up(self, member: ClassicConsumer) -> None:
        group = self.scene.shard_of("g").groups.get("g")
        if isinstance(group, ConsumerGroup):
            self._try(member, member.keep_up)
        else:
            self._drop(member)

    @rule(member=members, topics=st.sampled_from(SUBSCRIPTIONS), regex=st.sampled_from(["", "t.*"]))
    def resubscribe(self, member: Consumer, topics: tuple[str, ...], regex: str) -> None:
        if member in self.alive:
            self._try(member, lambda: member.resubscribe(*topics, regex=regex))

    @rule(member=members)
    def lose_an_answer(self, member: Consumer) -> None:
        """The coordinator has moved on and the client does not know."""
        if member in self.alive and self._try(member, lambda: self.scene.ask(member.request())):
            member.unsure = True

    @rule(member=consumes(members), for_good=st.booleans())
    def leave(self, member: Consumer, for_good: bool) -> None:
        if member not in self.alive:
            return
        away = not for_good and member.instance_id is not None
        self._try(member, lambda: member.leave(-2 if away else -1))
        self._drop(member)

    @rule(member=members)
    def come_again_under_the_same_id(self, member: Consumer) -> None:
        if member in self.alive:
            self._try(member, member.join)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 6))
    def change_topic(self, name: str, partitions: int) -> None:
        known = self.scene.image.topics.get(name)
        self.scene.topic(name, max(partitions, len(known.partitions) if known else 0))

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        found = self.scene.id_of(name)
        self.scene.delete_topic(name)
        for member in self.alive:
            if isinstance(member, Consumer):
                member.owned.pop(found, None)
            else:
                member.owned.pop(name, None)

    @rule(seconds=st.integers(1, 50))
    def time_passes(self, seconds: int) -> None:
        self.scene.advance(seconds * 1000)
        self._forget_the_dead()

    @rule()
    def next_write_fails(self) -> None:
        self.scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")

    @rule()
    def restart(self) -> None:
        group = self.scene.shard_of("g").groups.get("g")
        before = (group.epoch, group.members, group.targets) if isinstance(group, ConsumerGroup) else None
        self.scene.move()
        group = self.scene.shard_of("g").groups.get("g")
        after = (group.epoch, group.members, group.targets) if isinstance(group, ConsumerGroup) else None
        assert before == after

    @invariant()
    def no_partition_is_owned_twice(self) -> None:
        seen: dict[tuple[str, int], str] = {}
        for member in self.alive:
            for key, indexes in member.owned.items():
                name = key if isinstance(key, str) else topic_name(key)
                for index in indexes:
                    other = seen.setdefault((name, index), member.member_id)
                    assert other == member.member_id, f"{name}-{index}: {other} and {member.member_id}"

    def teardown(self) -> None:
        """Everybody heartbeats: what is subscribed to is owned."""
        self.scene.log_of("g").fail_next = None
        self._forget_the_dead()
        for _ in range(STABLE_ROUNDS):
            self.scene.advance(1000)
            for member in list(self.alive):
                if isinstance(member, ClassicConsumer):
                    self._keep_up(member)
                else:
                    self._try(member, member.beat)
            self._forget_the_dead()
            self.no_partition_is_owned_twice()
        group = self.scene.shard_of("g").groups.get("g")
        if isinstance(group, ConsumerGroup) and self.alive:
            assert group.state is GroupState.STABLE or len(group.members) > len(self.alive)
            if len(group.members) == len(self.alive):
                self._assert_all_is_owned(group)
        answer(run_to_end(self.scene.coordinator.list_groups([], [])))

    def _assert_all_is_owned(self, group: ConsumerGroup) -> None:
        owned = {
            (name, index)
            for member in self.alive
            for name in TOPICS
            for index in (
                member.owned.get(name, []) if isinstance(member, ClassicConsumer) else member.has(name)
            )
        }
        there = {name: self.scene.image.topics[name] for name in TOPICS if name in self.scene.image.topics}
        assert owned == {
            (name, index)
            for name, topic in there.items()
            if name in group.subscriptions
            for index in topic.partitions
        }


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
