from __future__ import annotations

import logging

import pytest

from tidelog.client.consumer.ongoing_errors import OngoingErrors


def test_trouble_is_told_when_it_lasts_and_then_now_and_again(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    trouble = OngoingErrors(clock=lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for second in range(150):
            now[0] = float(second)
            trouble.note("fetching from broker 1", "connection refused")
    assert [record.getMessage() for record in caplog.records] == [
        f"fetching from broker 1: no success for {second} s, still trying: connection refused"
        for second in (10, 70, 130)
    ]


def test_the_longest_trouble_is_the_one_that_goes_on() -> None:
    now = [0.0]
    trouble = OngoingErrors(clock=lambda: now[0])
    assert trouble.longest is None
    trouble.note("a broker whose partitions move away", "refused")
    now[0] = 1.0
    trouble.note("a broker that is down", "no answer")
    now[0] = 41.0
    trouble.note("a broker that is down", "still no answer")
    assert trouble.longest == (40.0, "still no answer")
    trouble.over("a broker that is down")
    assert trouble.longest == (0.0, "refused")
    now[0] = 100.0
    assert trouble.longest is None


def test_trouble_that_passes_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    trouble = OngoingErrors(clock=lambda: now[0])
    trouble.note("a", "first")
    now[0] = 5.0
    trouble.note("b", "second")
    assert trouble.reason == "second"
    trouble.over("b")
    assert trouble.reason == "first"
    trouble.over("a")
    assert trouble.reason is None
    with caplog.at_level(logging.WARNING):
        now[0] = 12.0
        trouble.note("a", "again")
    assert not caplog.records
