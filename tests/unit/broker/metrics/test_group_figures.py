from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.broker.metrics.group_figures import Ends, GroupFigures, timestamp_at
from tidelog.broker.metrics.observed import ObservedBroker
from tidelog.ids import TopicPartition
from tidelog.records.legacy import pack_legacy
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig


def test_a_lag_is_as_old_as_the_last_look_before_its_first_record() -> None:
    ends = Ends()
    ends.note(100, 0.0)
    ends.note(100, 5.0)
    ends.note(150, 10.0)
    assert ends.age_s(100, 12.0) == 7.0
    assert ends.age_s(120, 12.0) == 7.0
    assert ends.age_s(150, 12.0) == 0.0
    assert ends.last == 150


def test_what_was_there_at_the_first_look_is_at_least_as_old_as_that() -> None:
    ends = Ends()
    ends.note(100, 5.0)
    assert ends.age_s(20, 65.0) == 60.0


def test_the_lag_of_a_group_that_is_stuck_grows_though_nothing_more_comes() -> None:
    ends = Ends()
    for second in range(0, 601, 5):
        ends.note(100, float(second))
    assert ends.age_s(20, 602.0) == 602.0
    ends.date(30, 400.0)
    assert ends.age_s(30, 602.0) == 602.0, "it was there at the first look"
    ends.note(150, 605.0)
    assert ends.age_s(20, 606.0) == 606.0
    assert ends.age_s(100, 606.0) == 6.0


def test_nothing_is_known_of_a_partition_that_nobody_has_looked_at() -> None:
    assert Ends().age_s(0, 10.0) == 0.0
    assert Ends().last == -1


def test_ends_reach_far_back_though_few_are_kept() -> None:
    ends = Ends()
    for second in range(10_000):
        ends.note(second * 10, float(second))
    assert ends.age_s(0, 10_000.0) >= 9_990.0
    assert ends.age_s(99_985, 10_000.0) <= 3.0


def test_a_log_that_was_cut_ends_earlier_again() -> None:
    ends = Ends()
    ends.note(100, 0.0)
    ends.note(200, 5.0)
    ends.note(50, 10.0)
    assert ends.last == 50
    assert ends.age_s(60, 20.0) == 0.0


def test_records_of_before_the_first_look_are_as_old_as_somebody_says() -> None:
    ends = Ends()
    assert not ends.is_undated(0)
    ends.note(100, 50.0)
    assert ends.is_undated(20)
    assert not ends.is_undated(100)
    ends.date(20, 10.0)
    assert not ends.is_undated(20)
    assert ends.age_s(20, 65.0) == 55.0
    # Others are still as old as the first look, and so is what claims to come from the future.
    assert ends.age_s(21, 65.0) == 15.0
    ends.date(30, 1e9)
    assert ends.age_s(30, 65.0) == 15.0
    ends.note(10, 70.0)
    assert ends.age_s(5, 75.0) == 5.0


def test_not_more_dates_are_kept_than_a_few() -> None:
    ends = Ends()
    ends.note(10_000, 50.0)
    for offset in range(5000):
        ends.date(offset, 1.0)
    assert sum(not ends.is_undated(offset) for offset in range(5000)) <= 32


def test_after_a_restart_a_lag_is_as_old_as_its_record(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(
        LogContext(tmp_path / "orders-0", LogConfig(), clock, FaultyDisk()),
        clean_shutdown=True,
        recovery_point=0,
        log_start_offset=0,
    )
    try:
        for age_ms in (90_000, 60_000, 30_000):
            record = Record(0, clock.time_ms() - age_ms, None, b"x" * 500)
            log.append_as_leader(memoryview(encode_batch([record])), 0)
        log.update_high_watermark(log.log_end_offset)
        assert timestamp_at(log, 1) == clock.time_ms() - 60_000
        assert timestamp_at(log, 3) is None
        name = TopicPartition("orders", 0)
        committed = SimpleNamespace(offset=1)
        shard = SimpleNamespace(
            offsets=SimpleNamespace(committed=SimpleNamespace(groups={"billing": {"orders": {0: committed}}}))
        )
        broker: Any = SimpleNamespace(
            config=SimpleNamespace(int=lambda _: 100),
            clock=clock,
            image=SimpleNamespace(partition=lambda *_: None, brokers={}),
            partitions=SimpleNamespace(by_name={name: SimpleNamespace(log=log)}),
            running_coordinators=SimpleNamespace(
                groups=SimpleNamespace(runtime=SimpleNamespace(shards=[("active", shard)]))
            ),
        )
        figures = GroupFigures(cast(ObservedBroker, broker))
        asyncio.run(figures.look())
        ends = figures._ends[name]
        assert 60.0 <= ends.age_s(1, ends._seen_s[-1] + 1) < 62.0
        # It has read further: the next record is younger.
        committed.offset = 2
        asyncio.run(figures.look())
        assert 30.0 <= ends.age_s(2, ends._seen_s[-1] + 1) < 32.0
    finally:
        log.close(clean=False)


def test_old_messages_are_as_old_as_their_timestamp_says(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(LogContext(tmp_path / "orders-0", LogConfig(), clock, FaultyDisk()), clean_shutdown=True)
    try:
        log.append_as_follower(pack_legacy(0, 1, 0, 1234, b"k", b"v" * 500))
        log.append_as_follower(pack_legacy(1, 0, 0, -1, None, None))
        log.append_as_follower(pack_legacy(2, 1, 0, 5678, None, None))
        assert [timestamp_at(log, offset) for offset in range(3)] == [1234, None, 5678]
    finally:
        log.close()
