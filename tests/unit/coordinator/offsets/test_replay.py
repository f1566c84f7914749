"""Loading: logs of all ages come to the state that they describe."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.coordinator.group.offsets.committed_offset import NO_EXPIRY
from tidelog.coordinator.stored_record import encode_key, encode_value
from tidelog.ids import ZERO_UUID, random_uuid
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.internal_topics.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

KEY = OffsetCommitKey(group="g", topic="orders", partition=1)


def written(
    coordinator: Coordinator, key: bytes | None, value: bytes | None, codec: Codec = Codec.NONE
) -> None:
    """Somebody else, a Kafka of some age perhaps, has written a record."""
    coordinator.log_of("g").append(encode_batch([Record(timestamp=1, key=key, value=value)], codec=codec))


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_values_of_all_versions_are_understood(coordinator: Coordinator, version: int, codec: Codec) -> None:
    topic_id = random_uuid()
    value = OffsetCommitValue(
        offset=9,
        leader_epoch=4,
        metadata="m",
        commit_timestamp=77,
        expire_timestamp=88,
        topic_id=topic_id,
    )
    written(coordinator, encode_key(KEY), encode_value(value, version), codec)
    coordinator.restart()
    found = coordinator.committed("g", "orders", 1)
    assert found is not None
    assert (found.offset, found.metadata, found.committed_at_ms) == (9, "m", 77)
    assert found.leader_epoch == (4 if version >= 3 else -1)
    assert found.expires_at_ms == (88 if version == 1 else NO_EXPIRY)
    assert found.topic_id == (topic_id if version >= 4 else ZERO_UUID)
    assert coordinator.shard().groups.require("g").state_name == "Empty"


def test_legacy_keys_are_understood_and_forgotten(coordinator: Coordinator) -> None:
    key = LegacyOffsetCommitKey(group="g", topic="orders", partition=1)
    value = LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=77)
    written(coordinator, encode_key(key), encode_value(value, 0))
    coordinator.restart()
    assert coordinator.offsets_of() == {("orders", 1): 9}
    written(coordinator, encode_key(key), None)
    coordinator.restart()
    assert coordinator.offsets_of() == {}


def test_records_of_unknown_types_and_without_keys_are_passed_over(coordinator: Coordinator) -> None:
    written(coordinator, b"\x7f\xff????", b"??")
    written(coordinator, None, b"??")
    written(coordinator, encode_key(KEY), encode_value(OffsetCommitValue(offset=3), 4))
    coordinator.restart()
    assert coordinator.offsets_of() == {("orders", 1): 3}


def test_a_record_that_cannot_be_read_is_named_and_the_rest_is_served(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    written(coordinator, encode_key(KEY), encode_value(OffsetCommitValue(offset=3), 4))
    written(coordinator, encode_key(KEY), b"\0\4\0")
    written(coordinator, encode_key(KEY)[:-1], b"\0\4\0")
    partition = coordinator.groups.partition_for("g")
    coordinator.restart()
    assert coordinator.offsets_of() == {("orders", 1): 3}
    (line,) = caplog.messages
    assert line.startswith(f"__consumer_offsets-{partition}: 2 records cannot be read, offset 1 (")


def test_a_group_that_has_a_static_member_twice_does_not_cost_the_others(coordinator: Coordinator) -> None:
    """The same instance id twice in one record made the whole partition unloadable."""
    twins = [MemberMetadata(member_id=name, group_instance_id="i") for name in ("a", "b")]
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", leader="a", members=twins)
    written(coordinator, encode_key(KEY), encode_value(OffsetCommitValue(offset=3), 4))
    written(coordinator, encode_key(GroupMetadataKey(group="g")), encode_value(value, 3))
    coordinator.restart()
    assert coordinator.offsets_of() == {("orders", 1): 3}


GROUPS = st.sampled_from(["a", "b", "c"])
PLACES = st.sampled_from([("orders", 0), ("orders", 1), ("payments", 0)])
PRODUCERS = st.integers(1, 3)
OFFSETS = st.integers(0, 1000)


class Commits(RuleBasedStateMachine):
    """Commits, transactions, deletions and crashes in any order, beside a model that is a few dictionaries.

    The model is written from the rules of KIP-98 and KIP-447, not from the code: of all commits of a
    partition that count, the one that was written last is the group's offset.
    """

    @initialize()
    def begin(self) -> None:
        self.coordinator = Coordinator()
        self.written = 0
        self.committed: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.open: dict[int, dict[tuple[str, str, int], tuple[int, int]]] = {}

    def _next(self) -> int:
        self.written += 1
        return self.written

    @rule(group=GROUPS, place=PLACES, offset=OFFSETS)
    def commit(self, group: str, place: tuple[str, int], offset: int) -> None:
        assert self.coordinator.commit({place: offset}, group) == {place: 0}
        self.committed[group, *place] = (self._next(), offset)

    @rule(group=GROUPS, place=PLACES, offset=OFFSETS, producer_id=PRODUCERS)
    def commit_in_transaction(
        self, group: str, place: tuple[str, int], offset: int, producer_id: int
    ) -> None:
        answer = self.coordinator.commit_in_transaction({place: offset}, group, producer_id=producer_id)
        assert answer == {place: 0}
        self.open.setdefault(producer_id, {})[group, *place] = (self._next(), offset)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), committed=st.booleans())
    def end(self, data: st.DataObject, committed: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open)))
        groups = {key[0]: None for key in self.open[producer_id]}
        for partition in {self.coordinator.groups.partition_for(group): group for group in groups}.values():
            self.coordinator.end(partition, producer_id=producer_id, committed=committed)
        for key, (number, offset) in self.open.pop(producer_id).items():
            if committed and number > self.committed.get(key, (0, 0))[0]:
                self.committed[key] = (number, offset)

    @rule(group=GROUPS, place=PLACES)
    def delete(self, group: str, place: tuple[str, int]) -> None:
        topic, partition = place
        if group not in self.coordinator.shard(group).groups:
            return
        assert self.coordinator.delete({topic: [partition]}, group) == {place: 0}
        self._forget((group, *place))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        run_to_end(self.coordinator.groups.delete_groups([group])).result()
        for key in [*self.committed, *(key for open_ in self.open.values() for key in open_)]:
            if key[0] == group:
                self._forget(key)

    def _forget(self, key: tuple[str, str, int]) -> None:
        self.committed.pop(key, None)
        for producer_id in list(self.open):
            self.open[producer_id].pop(key, None)
            if not self.open[producer_id]:
                del self.open[producer_id]

    @rule()
    def crash(self) -> None:
        self.coordinator.restart()

    @invariant()
    def the_coordinator_tells_what_the_model_knows(self) -> None:
        pending = {key for open_ in self.open.values() for key in open_}
        for group in ("a", "b", "c"):
            fetched = self.coordinator.fetch({"orders": [0, 1], "payments": [0]}, group, require_stable=True)
            for (topic, partition), (offset, _, _, code) in fetched.items():
                key = (group, topic, partition)
                if key in pending:
                    assert (offset, code) == (-1, 88), key
                else:
                    assert (offset, code) == (self.committed.get(key, (0, -1))[1], 0), key


Commits.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCommits = Commits.TestCase
