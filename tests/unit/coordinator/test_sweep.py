"""Sweeps go over everything once, in slices that time bounds."""

from __future__ import annotations

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.coordinator import GroupHarness

from tidelog.coordinator import sweep
from tidelog.coordinator.group.offsets.committed_offset import commit_record
from tidelog.coordinator.group.shard import GroupShard
from tidelog.coordinator.runtime import Result
from tidelog.coordinator.sweep import Sweep
from tidelog.wire.internal_topics.consumer_offsets import OffsetCommitValue


class TickingClock(ManualClock):
    """A millisecond passes with every look."""

    def monotonic_ms(self) -> float:
        self.advance(1)
        return super().monotonic_ms()


def test_slices_end_with_their_time_and_leave_nothing_out() -> None:
    things = list(range(1000))
    round_of = Sweep(TickingClock(), lambda: things)
    for _ in range(2):
        slices: list[list[int]] = []
        while not slices or not round_of.is_done:
            slices.append(list(round_of.slice()))
        assert [each for found in slices for each in found] == things
        assert max(map(len, slices)) <= 200
        assert len(slices) > 4


def test_who_stops_earlier_goes_on_there() -> None:
    round_of = Sweep(ManualClock(), lambda: "abc")
    for thing in round_of.slice():
        assert thing == "a"
        break
    assert not round_of.is_done
    assert list(round_of.slice()) == ["b", "c"]
    assert round_of.is_done
    for _ in round_of.slice():
        break
    round_of.abandon()
    assert list(round_of.slice()) == ["a", "b", "c"]


def filled(harness: GroupHarness, groups: int) -> GroupShard:
    for number in range(groups):
        record = commit_record(f"g{number}", "t", 0, OffsetCommitValue(offset=1, leader_epoch=0))
        harness.write("g", lambda shard, record=record: Result([record], None))  # type: ignore[misc]
    return harness.shard_of("g")


def test_a_clean_up_of_many_groups_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All groups were gone over in one step of the loop, however many there were."""
    harness = GroupHarness({"offsets.retention.minutes": str(1 << 30)})
    shard = filled(harness, 300)
    looked_at = 0
    parts_of = shard.offsets.parts_of

    def counted(group_id: str) -> object:
        nonlocal looked_at
        looked_at += 1
        return parts_of(group_id)

    monkeypatch.setattr(shard.offsets, "parts_of", counted)
    monkeypatch.setattr(sweep, "SLICE_MS", 0)
    steps = [shard.clean_up()]
    while steps[-1].then is not None:
        steps.append(shard.clean_up())
    assert looked_at == 300
    assert len(steps) >= 9


def test_offsets_of_a_deleted_topic_go_in_several_steps() -> None:
    harness = GroupHarness()
    shard = filled(harness, 2500)
    shard.offsets._changed_topics.add("t")
    sizes = []
    result = shard.offsets._delete_for_changed()
    while result is not None:
        sizes.append(len(result.records))
        harness.write("g", lambda shard, found=result: found)  # type: ignore[misc]
        result = shard.offsets._delete_for_changed()
    assert sizes == [1000, 1000, 500]
    assert not shard.offsets.committed.groups
