from __future__ import annotations

import pytest

from tidelog.client.consumer._metrics import ConsumerTimes, FetchStats, FetchTally, PartitionSource
from tidelog.client.subscription._partition_state import FetchPosition, PartitionState


def test_the_share_of_time_in_polls_is_of_the_time_since_the_poll_before() -> None:
    times = ConsumerTimes()
    assert times.last_poll_ago_s == -1
    times.polled(10.0, 11.0)
    times.polled(14.0, 15.0)
    times.polled(15.0, 15.0)
    assert (times.between_ms.count, times.between_ms.total, times.between_ms.longest) == (3, 5000, 4000)
    # All of the first, a fifth of the second, nothing of the third.
    assert (times.idle_ratio.count, times.idle_ratio.longest) == (3, 1)
    assert times.idle_ratio.total == pytest.approx(1.2)


def test_an_answer_is_counted_once_all_of_it_was_handed_out() -> None:
    stats = FetchStats()
    tally = FetchTally(stats)
    for _ in range(3):
        tally.begin()
    tally.drained("a", 10, 1000)
    tally.drained("b", 5, 500)
    assert not stats.all.fetch_bytes.count
    tally.drained("a", 20, 2000)
    assert (stats.all.fetch_bytes.count, stats.all.fetch_bytes.total) == (1, 3500)
    assert (stats.topic("a").records_per_request.longest, stats.topic("b").records_per_request.longest) == (
        30,
        5,
    )


@pytest.mark.parametrize(("read_committed", "lag"), [(False, 15), (True, 5)])
def test_lag_and_lead_are_how_far_it_is_to_the_ends_of_the_log(read_committed: bool, lag: int) -> None:
    stats, state = FetchStats(), PartitionState()
    changes: list[None] = []
    stats.on_change = lambda: changes.append(None)
    stats.note_place(state, read_committed=read_committed)
    assert not stats.lag.count
    state.position = FetchPosition(25)
    state.high_watermark, state.last_stable_offset, state.log_start_offset = 40, 30, 5
    for _ in range(2):
        stats.note_place(state, read_committed=read_committed)
    assert (stats.lag.longest, state.lag.longest, -state.lead.longest) == (lag, lag, 20)
    source = PartitionSource(state, read_committed)
    assert (source.lag, source.lead, source.replica) == (lag, 20, -1)
    assert len(changes) == 1
