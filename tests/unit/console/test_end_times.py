"""Lag in seconds: when the record at a committed offset was written."""

from __future__ import annotations

from tidelog.console.watching.end_times import EndTimes, LagTime
from tidelog.ids import TopicPartition

PLACE = TopicPartition("orders", 0)


def looks(*points: tuple[float, int]) -> EndTimes:
    ends = EndTimes()
    for at_s, end in points:
        ends.note(at_s, {PLACE: end}, [PLACE])
    return ends


def test_a_group_at_the_end_is_not_behind() -> None:
    assert looks((0.0, 10)).lag(PLACE, 10, 99.0) == LagTime(0.0)


def test_between_two_looks_the_time_is_interpolated() -> None:
    ends = looks((100.0, 0), (110.0, 100))
    assert ends.lag(PLACE, 50, 120.0) == LagTime(15.0)
    assert ends.lag(PLACE, 0, 120.0) == LagTime(20.0)


def test_records_after_a_quiet_time_count_from_its_end() -> None:
    ends = looks((0.0, 5), (10.0, 5), (20.0, 5), (30.0, 6))
    assert ends.lag(PLACE, 5, 31.0) == LagTime(11.0)


def test_what_was_written_before_the_first_look_is_at_least_so_old_until_a_record_tells() -> None:
    ends = looks((100.0, 50), (110.0, 60))
    assert ends.lag(PLACE, 20, 130.0) == LagTime(30.0, at_least=True)
    ends.learn(PLACE, 20, 40.0)
    assert ends.lag(PLACE, 20, 130.0) == LagTime(90.0)
    assert ends.lag(PLACE, 30, 130.0) == LagTime(30.0, at_least=True)


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    ends = looks((0.0, 100), (10.0, 3))
    assert ends.lag(PLACE, 1, 20.0) == LagTime(10.0, at_least=True)


def test_partitions_that_nobody_reads_are_forgotten_and_long_times_stay_bounded() -> None:
    ends = looks(*((float(at), at) for at in range(10_000)))
    times, offsets = ends._points[PLACE]
    assert len(times) == len(offsets) <= 121
    found = ends.lag(PLACE, 9_990, 10_000.0)
    assert found is not None
    assert abs(found.seconds - 10.0) < 1.0
    ends.note(10_001.0, {PLACE: 10_001}, [])
    assert ends.lag(PLACE, 0, 10_002.0) is None
