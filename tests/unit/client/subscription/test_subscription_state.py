from __future__ import annotations

import re

import pytest

from tidelog.client.consumer.errors import IllegalStateError, LogTruncationError, NoOffsetForPartitionError
from tidelog.client.resources import IsolationLevel
from tidelog.client.subscription._partition_state import (
    FetchPosition,
    FetchState,
    LeaderAndEpoch,
    PartitionState,
)
from tidelog.client.subscription._reset_strategy import (
    EARLIEST,
    LATEST,
    NONE,
    ResetStrategy,
    parse_reset_strategy,
)
from tidelog.client.subscription._subscription_state import SubscriptionPattern, SubscriptionState
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def assigned(*partitions: TopicPartition, reset: ResetStrategy = LATEST) -> SubscriptionState:
    subscription = SubscriptionState(reset)
    subscription.assign(partitions)
    return subscription


def test_the_three_ways_to_subscribe_exclude_one_another() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["a"])
    with pytest.raises(IllegalStateError, match=r"subscribed to a.*unsubscribe first"):
        subscription.assign([A0])
    with pytest.raises(IllegalStateError, match="exclude"):
        subscription.subscribe_pattern(re.compile("a.*"))
    subscription.unsubscribe()
    subscription.assign([A0])
    assert subscription.assignment == {A0}
    assert subscription.topics == frozenset()


def test_a_change_of_subscription_is_told_by_its_id() -> None:
    subscription = SubscriptionState()
    assert subscription.subscribe(["a", "b"])
    before = subscription.subscription_id
    assert not subscription.subscribe(["b", "a"])
    assert subscription.subscription_id == before
    assert subscription.subscribe(["a"])
    assert subscription.subscription_id > before


def test_a_pattern_takes_topics_by_their_whole_names_as_they_become_known() -> None:
    subscription = SubscriptionState()
    subscription.subscribe_pattern(re.compile("log-[0-9]+"))
    assert subscription.match_topics(["log-1", "log-1-old", "other"])
    assert subscription.topics == {"log-1"}
    assert subscription.match_topics(["log-1", "log-22"])
    assert not subscription.match_topics(["log-22", "log-1"])
    assert subscription.accepts([TopicPartition("log-9", 0)])
    assert not subscription.accepts([TopicPartition("other", 0)])


def test_a_pattern_for_the_broker_accepts_what_the_broker_gives() -> None:
    subscription = SubscriptionState()
    subscription.subscribe_broker_pattern(SubscriptionPattern("a.*"))
    assert subscription.is_auto_assigned
    assert subscription.accepts([B0])
    assert "'a.*'" in subscription.describe()


def test_a_rebalance_keeps_the_state_of_partitions_that_stay() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["a", "b"])
    subscription.assign_from_group([A0, A1])
    subscription.seek(A0, FetchPosition(5))
    subscription.pause([A0])
    gone = subscription.state(A1)
    before = gone.generation
    subscription.mark_pending_revocation([A1])
    assert not gone.is_fetchable
    subscription.assign_from_group([A0, B0])
    assert subscription.state(A0).require_position().offset == 5
    assert subscription.paused == {A0}
    assert subscription.initializing() == [B0]
    assert gone.generation != before
    with pytest.raises(IllegalStateError, match="a-1 is not assigned"):
        subscription.state(A1)


def test_a_group_cannot_assign_what_is_assigned_by_hand() -> None:
    with pytest.raises(IllegalStateError, match="assigned a-0"):
        assigned(A0).assign_from_group([A1])


def test_a_leader_knows_the_topics_of_all_members() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["a"])
    assert subscription.set_group_topics(["a", "b"])
    assert subscription.metadata_topics == {"a", "b"}
    assert not subscription.set_group_topics(["a"])


def test_a_partition_moves_through_its_states() -> None:
    state = PartitionState()
    assert state.fetch_state is FetchState.INITIALIZING
    assert not state.is_fetchable
    with pytest.raises(IllegalStateError, match="initializing"):
        state.require_position()
    state.reset(EARLIEST)
    assert (state.fetch_state, state.reset_strategy) == (FetchState.AWAIT_RESET, EARLIEST)
    state.seek(FetchPosition(3))
    assert state.is_fetchable
    state.advance(5, 2)
    assert state.position == FetchPosition(5, 2)
    state.paused = True
    assert not state.is_fetchable
    assert state.has_valid_position


def test_a_new_leader_makes_a_position_with_an_epoch_doubtful() -> None:
    state = PartitionState()
    state.seek(FetchPosition(3))
    assert not state.leader_seen(LeaderAndEpoch(1, 4))
    state.advance(10, 4)
    before = state.generation
    assert not state.leader_seen(LeaderAndEpoch(1, 4))
    assert state.generation == before
    assert state.leader_seen(LeaderAndEpoch(2, 5))
    assert state.fetch_state is FetchState.AWAIT_VALIDATION
    assert state.generation != before
    state.validated()
    assert state.is_fetchable
    assert not state.leader_seen(LeaderAndEpoch(1, 6), can_validate=False)
    assert state.is_fetchable
    assert state.require_position().leader == LeaderAndEpoch(1, 6)


def test_a_seek_with_an_epoch_is_validated_and_one_without_is_not() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, FetchPosition(3, 1, LeaderAndEpoch(1, 2)))
    assert list(subscription.needing_validation(0)) == [A0]
    subscription.seek(A0, FetchPosition(3))
    assert not subscription.needing_validation(0)
    assert subscription.has_all_positions


def test_a_log_that_was_cut_back_takes_the_position_with_it() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, FetchPosition(10, 3, LeaderAndEpoch(1, 4)))
    assert subscription.diverged(A0, 3, 10) is None
    assert subscription.state(A0).is_fetchable
    assert subscription.diverged(A0, 2, 7) is None
    assert subscription.state(A0).require_position()[:2] == (7, 2)
    assert subscription.diverged(A0, -1, -1) is None
    assert subscription.state(A0).fetch_state is FetchState.AWAIT_RESET


def test_a_log_that_was_cut_back_is_told_where_there_is_no_policy() -> None:
    subscription = assigned(A0, reset=NONE)
    subscription.seek(A0, FetchPosition(10, 3, LeaderAndEpoch(1, 4)))
    lost = subscription.diverged(A0, 2, 7)
    assert isinstance(lost, LogTruncationError)
    assert lost.divergent_offsets == {A0: 7}
    unknown = subscription.diverged(A0, -1, -1)
    assert unknown is not None
    assert unknown.divergent_offsets == {A0: None}


def test_without_a_policy_a_partition_without_an_offset_is_an_error() -> None:
    subscription = assigned(A0, A1, reset=NONE)
    subscription.seek(A1, FetchPosition(0))
    with pytest.raises(NoOffsetForPartitionError, match="a-0") as raised:
        subscription.reset_initializing([A0, A1])
    assert raised.value.partitions == {A0}


def test_resets_wait_out_their_back_off() -> None:
    subscription = assigned(A0)
    subscription.request_reset(A0)
    assert subscription.needing_reset(now=0) == {A0: LATEST}
    assert subscription.state(A0).failed(100, 10, 1000) == 110
    assert subscription.state(A0).failed(100, 10, 1000) == 120
    assert not subscription.needing_reset(now=100)
    assert subscription.needing_reset(now=120)
    subscription.request_reset(A0, EARLIEST)
    assert subscription.needing_reset(now=0) == {A0: EARLIEST}


def test_only_what_was_handed_out_may_be_committed() -> None:
    subscription = assigned(A0, A1, B0)
    subscription.seek(A0, FetchPosition(5, 1))
    subscription.seek(A1, FetchPosition(9))
    subscription.held_back = {A0: FetchPosition(3, 1)}
    assert subscription.all_consumed() == {A0: OffsetAndMetadata(3, 1), A1: OffsetAndMetadata(9)}
    subscription.seek(A0, FetchPosition(4))
    assert subscription.all_consumed()[A0].offset == 4


def test_lag_is_counted_to_the_end_that_the_isolation_level_sees() -> None:
    subscription = assigned(A0)
    subscription.seek(A0, FetchPosition(5))
    assert subscription.lag(A0, IsolationLevel.READ_UNCOMMITTED) is None
    state = subscription.state(A0)
    state.high_watermark, state.last_stable_offset = 20, 12
    assert subscription.lag(A0, IsolationLevel.READ_UNCOMMITTED) == 15
    assert subscription.lag(A0, IsolationLevel.READ_COMMITTED) == 7


def test_a_preferred_replica_is_read_until_its_time_is_up() -> None:
    state = PartitionState()
    state.prefer_replica(3, until=100)
    assert state.replica_to_read(99) == 3
    assert state.replica_to_read(100) is None
    assert state.replica_to_read(0) is None


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT1M0.5S", 86_460_500),
        ("by_duration:P2D", 172_800_000),
    ],
)
def test_durations_are_read(text: str, duration_ms: int) -> None:
    strategy = parse_reset_strategy(text)
    assert strategy.duration_ms == duration_ms
    assert strategy.timestamp(now_ms=10**12) == 10**12 - duration_ms


def test_special_places_are_read_in_any_case() -> None:
    assert parse_reset_strategy("Earliest") is EARLIEST
    assert (EARLIEST.timestamp(5), LATEST.timestamp(5)) == (-2, -1)


@pytest.mark.parametrize(
    "text", ["first", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h"]
)
def test_other_policies_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        parse_reset_strategy(text)
