"""A follower as its leader sees it: what a fetch shows, when it has caught up, what a new epoch forgets."""

from __future__ import annotations

from tidelog.replication.followers import NO_BROKER_EPOCH, Follower, Followers

LAG_MS = 100.0
NEVER = float("-inf")


def known(*broker_ids: int) -> Followers:
    followers = Followers()
    followers.assign(broker_ids)
    return followers


def leading(*isr: int, end: int = 0, now_ms: float = 0.0) -> Followers:
    """Followers 2 and 3 of a leader that has just begun."""
    followers = known(2, 3)
    followers.begin_epoch(isr, end, now_ms, is_new_leader=True)
    return followers


def fetched(followers: Followers, broker: int, offset: int, end: int, now_ms: float, start: int = 0) -> None:
    follower = followers.get(broker)
    assert follower is not None
    follower.fetched(offset, start, end, now_ms, 70 + broker)


def caught_up_ms(followers: Followers, broker: int) -> float:
    follower = followers.get(broker)
    assert follower is not None
    return follower.caught_up_ms


def positions_of(follower: Follower) -> tuple[int, int, int]:
    return follower.log_end_offset, follower.log_start_offset, follower.leader_end_offset


def test_a_follower_that_has_not_fetched_is_nowhere_and_not_caught_up() -> None:
    follower = known(2).get(2)
    assert follower is not None
    assert positions_of(follower) == (-1, -1, -1)
    assert not follower.is_caught_up(0, 0.0, LAG_MS)


def test_a_fetch_at_the_end_has_caught_up_now() -> None:
    followers = leading()
    fetched(followers, 2, 5, 5, 30.0)
    assert caught_up_ms(followers, 2) == 30.0
    fetched(followers, 2, 7, 6, 40.0)
    assert caught_up_ms(followers, 2) == 40.0


def test_a_fetch_up_to_the_end_of_the_fetch_before_had_caught_up_then() -> None:
    followers = leading()
    fetched(followers, 2, 0, 5, 30.0)
    assert caught_up_ms(followers, 2) == NEVER
    fetched(followers, 2, 5, 9, 40.0)
    assert caught_up_ms(followers, 2) == 30.0
    fetched(followers, 2, 8, 12, 50.0)
    assert caught_up_ms(followers, 2) == 30.0, "it lacks one of those that there were at its last fetch"
    fetched(followers, 2, 12, 15, 60.0)
    assert caught_up_ms(followers, 2) == 50.0


def test_being_caught_up_is_not_taken_back_by_an_older_fetch() -> None:
    followers = leading(2, end=5, now_ms=90.0)
    fetched(followers, 2, 0, 5, 30.0)
    fetched(followers, 2, 5, 6, 40.0)
    assert caught_up_ms(followers, 2) == 90.0
    fetched(followers, 2, 6, 6, 50.0)
    assert caught_up_ms(followers, 2) == 90.0


def test_a_fetch_shows_where_the_follower_is_and_in_which_life() -> None:
    followers = leading()
    follower = followers.get(2)
    assert follower is not None
    fetched(followers, 2, 4, 9, 30.0, start=3)
    assert (follower.log_end_offset, follower.log_start_offset, follower.broker_epoch) == (4, 3, 72)
    assert (follower.leader_end_offset, follower.fetched_ms) == (9, 30.0)
    fetched(followers, 2, 4, 7, 31.0)
    assert follower.leader_end_offset == 9, "an answer may have been computed before another"


def test_who_has_all_is_caught_up_and_so_is_who_had_it_not_long_ago() -> None:
    followers = leading()
    follower = followers.get(2)
    assert follower is not None
    fetched(followers, 2, 5, 5, 30.0)
    assert follower.is_caught_up(5, 1e9, LAG_MS)
    assert follower.is_caught_up(6, 30.0 + LAG_MS, LAG_MS)
    assert not follower.is_caught_up(6, 31.0 + LAG_MS, LAG_MS)
    assert followers.lagging([2], 6, 31.0 + LAG_MS, LAG_MS) == [2]
    assert followers.lagging([2], 6, 30.0 + LAG_MS, LAG_MS) == []
    assert followers.lagging([3], 6, 31.0 + LAG_MS, LAG_MS) == [3]


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    followers = leading()
    for broker in (2, 3):
        fetched(followers, broker, 5, 5, 30.0, start=2)
    followers.begin_epoch((2,), 5, 40.0, is_new_leader=True)
    for broker in (2, 3):
        follower = followers.get(broker)
        assert follower is not None
        assert positions_of(follower) == (-1, -1, -1)
        assert (follower.fetched_ms, follower.broker_epoch) == (NEVER, NO_BROKER_EPOCH)
    assert (caught_up_ms(followers, 2), caught_up_ms(followers, 3)) == (40.0, NEVER)


def test_a_leader_that_stays_keeps_the_positions_and_starts_the_lag_anew() -> None:
    followers = leading()
    for broker in (2, 3):
        fetched(followers, broker, 5, 5, 30.0, start=2)
    followers.begin_epoch((2,), 8, 40.0, is_new_leader=False)
    for broker, since_ms in ((2, 40.0), (3, NEVER)):
        follower = followers.get(broker)
        assert follower is not None
        assert positions_of(follower) == (5, 2, 8)
        assert follower.broker_epoch == 70 + broker
        assert (follower.fetched_ms, follower.caught_up_ms) == (since_ms, since_ms)


def committed(
    followers: Followers, *maximal_isr: int, live: tuple[int, ...] = (2, 3), now_ms: float = 31.0
) -> int:
    return followers.committed_offset(9, maximal_isr, lambda: live, now_ms, LAG_MS)


def test_what_every_replica_in_sync_has_is_committed() -> None:
    followers = leading()
    fetched(followers, 2, 4, 9, 30.0)
    fetched(followers, 3, 6, 9, 30.0)
    assert committed(followers) == 9
    assert committed(followers, 3) == 6
    assert committed(followers, 2, 3) == committed(followers, 2) == 4
    assert committed(followers, 2, live=()) == 4, "in sync as long as nobody has put it out"


def test_who_may_be_in_sync_at_any_moment_counts_and_who_is_gone_does_not() -> None:
    followers = leading()
    fetched(followers, 2, 4, 4, 30.0)
    fetched(followers, 3, 9, 9, 30.0)
    assert committed(followers, 3) == 4
    assert committed(followers, 3, live=(3,)) == 9
    assert committed(followers, 3, now_ms=31.0 + LAG_MS) == 9


def test_readers_and_deletions_go_by_what_followers_have() -> None:
    followers = leading()
    fetched(followers, 2, 6, 9, 30.0, start=2)
    fetched(followers, 3, 9, 9, 30.0, start=5)

    def holding(offset: int, *isr: int) -> list[int]:
        return [each.broker_id for each in followers.holding(offset, isr)]

    assert [holding(at, 2, 3) for at in (1, 2, 5, 6, 7, 9, 10)] == [[], [2], [2, 3], [2, 3], [3], [3], []]
    assert holding(5, 3) == [3]
    assert [followers.low_watermark(7, alive) for alive in ((2, 3), (3,), ())] == [2, 5, 7]
    assert followers.low_watermark(1, (2, 3)) == 1


def test_replicas_that_stay_assigned_keep_what_is_known_of_them() -> None:
    followers = leading()
    fetched(followers, 2, 6, 9, 30.0)
    two = followers.get(2)
    assert followers
    followers.assign([2, 4])
    assert followers.get(2) is two
    assert followers.get(3) is None
    assert followers.get(4) is not None
    followers.assign([])
    assert not followers
