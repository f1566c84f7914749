"""Replies that are settled once, and timers by name that nobody's loop drives."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.reply import Reply, gather
from tidelog.coordinator.timers import Timers
from tidelog.errors import ErrorCode, KafkaError
from tidelog.testing.clock import ManualClock


def test_a_reply_tells_those_who_wait_and_those_who_come_late() -> None:
    reply: Reply[int] = Reply()
    seen: list[int] = []
    reply.when_done(lambda settled: seen.append(settled.result()))
    assert not reply.done
    reply.resolve(7)
    reply.when_done(lambda settled: seen.append(settled.result()))
    assert seen == [7, 7]


def test_a_reply_is_settled_once() -> None:
    reply = Reply.of(1)
    with pytest.raises(RuntimeError):
        reply.resolve(2)
    assert reply.result() == 1


def test_the_result_of_an_unsettled_reply_is_a_bug() -> None:
    with pytest.raises(RuntimeError):
        Reply[int]().result()


def test_then_passes_errors_on_and_catches_those_of_the_change() -> None:
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert Reply[int].failed(error).then(lambda value: value + 1).error is error
    assert isinstance(Reply.of(0).then(lambda value: 1 // value).error, ZeroDivisionError)
    assert Reply.of(1).then(lambda value: value + 1).result() == 2


def test_recover_turns_an_error_into_a_value_and_leaves_values_alone() -> None:
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert Reply[int].failed(error).recover(lambda _: 5).result() == 5
    assert Reply.of(1).recover(lambda _: 5).result() == 1


def test_gather_waits_for_all_and_keeps_the_order() -> None:
    first, second = Reply[int](), Reply[int]()
    both = gather([first, second])
    second.resolve(2)
    assert not both.done
    first.resolve(1)
    assert both.result() == [1, 2]
    assert gather([]).result() == []


def test_gather_fails_with_the_first_error_once_all_are_settled() -> None:
    first, second = Reply[int](), Reply[int]()
    both = gather([first, second])
    first.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert not both.done
    second.resolve(2)
    assert isinstance(both.error, KafkaError)


def test_a_reply_can_be_awaited_before_and_after_it_is_settled() -> None:
    async def body() -> None:
        reply: Reply[int] = Reply()
        asyncio.get_running_loop().call_soon(reply.resolve, 3)
        assert await reply == 3
        assert await reply == 3

    asyncio.run(body())


def test_giving_up_the_wait_for_a_reply_does_not_disturb_whoever_settles_it() -> None:
    async def body() -> None:
        reply: Reply[int] = Reply()

        async def wait() -> int:
            return await reply

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reply.resolve(1)
        assert reply.result() == 1

    asyncio.run(body())


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
