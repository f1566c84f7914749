"""Timers by name that nobody's loop drives."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rigs.clock import ManualClock

from tidelog.scheduling.timers import Timers


class Alarm:
    """Timers on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.rung: list[str] = []

    def schedule(self, name: str, delay_ms: float) -> None:
        self.timers.schedule(name, delay_ms, lambda: self.rung.append(name))

    def pass_ms(self, delta_ms: int) -> list[str]:
        self.clock.advance(delta_ms)
        self.rung.clear()
        self.timers.run_due()
        return list(self.rung)


def test_timers_ring_in_the_order_of_their_deadlines() -> None:
    alarm = Alarm()
    alarm.schedule("late", 30)
    alarm.schedule("early", 10)
    assert alarm.pass_ms(9) == []
    assert alarm.pass_ms(21) == ["early", "late"]
    assert alarm.pass_ms(100) == []


def test_scheduling_again_moves_the_timer_both_ways() -> None:
    alarm = Alarm()
    alarm.schedule("a", 10)
    alarm.schedule("a", 30)
    assert alarm.pass_ms(20) == []
    alarm.schedule("a", 5)
    assert alarm.pass_ms(5) == ["a"]
    assert alarm.pass_ms(100) == []


def test_a_cancelled_timer_stays_silent_and_may_be_set_again() -> None:
    alarm = Alarm()
    alarm.schedule("a", 10)
    alarm.timers.cancel("a")
    assert "a" not in alarm.timers
    assert alarm.pass_ms(10) == []
    alarm.schedule("a", 10)
    assert alarm.pass_ms(10) == ["a"]


def test_who_drives_the_timers_hears_of_nearer_deadlines_only() -> None:
    alarm = Alarm()
    told: list[float | None] = []
    alarm.timers.on_earlier = lambda: told.append(alarm.timers.next_delay_ms)
    alarm.schedule("a", 100)
    alarm.schedule("b", 200)
    alarm.schedule("c", 50)
    alarm.schedule("c", 500)
    assert told == [100, 50]


def test_an_action_that_fails_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    alarm = Alarm()
    alarm.timers.schedule("bad", 1, lambda: 1 // 0)
    alarm.schedule("good", 2)
    assert alarm.pass_ms(5) == ["good"]
    assert "bad" in caplog.text


def test_an_action_may_schedule_itself_again() -> None:
    alarm = Alarm()

    def again() -> None:
        alarm.rung.append("again")
        alarm.timers.schedule("again", 10, again)

    alarm.timers.schedule("again", 10, again)
    assert alarm.pass_ms(10) == ["again"]
    assert alarm.pass_ms(10) == ["again"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("schedule"), st.sampled_from("abc"), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
            st.tuples(st.just("pass"), st.just(""), st.integers(0, 40)),
        ),
        max_size=40,
    )
)
def test_timers_ring_exactly_when_a_plain_table_of_deadlines_says(steps: list[tuple[str, str, int]]) -> None:
    alarm = Alarm()
    model: dict[str, float] = {}
    for action, name, number in steps:
        now = alarm.clock.monotonic_ms()
        if action == "schedule":
            alarm.schedule(name, number)
            model[name] = now + number
        elif action == "cancel":
            alarm.timers.cancel(name)
            model.pop(name, None)
        else:
            due = {key for key, deadline in model.items() if deadline <= now + number}
            assert set(alarm.pass_ms(number)) == due
            for key in due:
                del model[key]
        assert len(alarm.timers) == len(model)
        delay = alarm.timers.next_delay_ms
        if model:
            assert delay is not None
            assert delay <= max(min(model.values()) - alarm.clock.monotonic_ms(), 0)


def test_timers_that_are_due_in_thousands_run_in_several_goes() -> None:
    clock = ManualClock()
    timers = Timers(clock)
    rang: list[int] = []

    def ring(number: int) -> None:
        rang.append(number)
        clock.advance(1)

    for number in range(10):
        timers.schedule(number, 5, partial(ring, number))
    clock.advance(5)
    goes = []
    while timers.next_delay_ms == 0:
        goes.append(timers.run_due(2))
    assert goes == [3, 3, 3, 1]
    assert rang == list(range(10))
