"""Promises: settled once, told to all who wait, passed on, followed, and given up."""

from __future__ import annotations

import asyncio
import gc
import traceback

import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise, gather


def test_a_promise_tells_those_who_wait_and_those_who_come_late() -> None:
    promise: Promise[int] = Promise()
    seen: list[int] = []
    promise.when_done(lambda settled: seen.append(settled.result()))
    assert not promise.done
    promise.resolve(7)
    promise.when_done(lambda settled: seen.append(settled.result()))
    assert seen == [7, 7]


def test_a_promise_is_settled_once() -> None:
    promise = Promise.of(1)
    with pytest.raises(RuntimeError):
        promise.resolve(2)
    assert promise.result() == 1


def test_the_result_of_an_unsettled_promise_is_a_bug() -> None:
    with pytest.raises(RuntimeError):
        Promise[int]().result()


def test_then_passes_errors_on_and_catches_those_of_the_change() -> None:
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert Promise[int].failed(error).then(lambda value: value + 1).error is error
    assert isinstance(Promise.of(0).then(lambda value: 1 // value).error, ZeroDivisionError)
    assert Promise.of(1).then(lambda value: value + 1).result() == 2


def test_recover_turns_an_error_into_a_value_and_leaves_values_alone() -> None:
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert Promise[int].failed(error).recover(lambda _: 5).result() == 5
    assert Promise.of(1).recover(lambda _: 5).result() == 1


def test_gather_waits_for_all_and_keeps_the_order() -> None:
    first, second = Promise[int](), Promise[int]()
    both = gather([first, second])
    second.resolve(2)
    assert not both.done
    first.resolve(1)
    assert both.result() == [1, 2]
    assert gather([]).result() == []


def test_gather_fails_with_the_first_error_once_all_are_settled() -> None:
    first, second = Promise[int](), Promise[int]()
    both = gather([first, second])
    first.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert not both.done
    second.resolve(2)
    assert isinstance(both.error, KafkaError)


def test_a_promise_can_be_awaited_before_and_after_it_is_settled() -> None:
    async def body() -> None:
        promise: Promise[int] = Promise()
        asyncio.get_running_loop().call_soon(promise.resolve, 3)
        assert await promise == 3
        assert await promise == 3

    asyncio.run(body())


def test_giving_up_the_wait_for_a_promise_does_not_disturb_whoever_settles_it() -> None:
    async def body() -> None:
        promise: Promise[int] = Promise()

        async def wait() -> int:
            return await promise

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        promise.resolve(1)
        assert promise.result() == 1

    asyncio.run(body())


def test_all_who_wait_are_told_in_order() -> None:
    promise: Promise[int] = Promise()
    seen: list[int] = []
    for number in range(3):
        promise.when_done(lambda _, number=number: seen.append(number))  # type: ignore[misc]
    promise.resolve(7)
    assert seen == [0, 1, 2]


def test_then_takes_the_promise_of_a_change_for_its_value() -> None:
    later: Promise[str] = Promise()
    promise: Promise[int] = Promise()
    changed: Promise[str] = promise.then(lambda _: later)
    promise.resolve(1)
    assert not changed.done
    later.resolve("there")
    assert changed.result() == "there"


@pytest.mark.parametrize("settled_before", [True, False])
def test_a_promise_follows_values_promises_and_their_errors(settled_before: bool) -> None:
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    follower: Promise[int] = Promise()
    follower.follow(1)
    assert follower.result() == 1
    kept, broken = Promise[int](), Promise[int]()
    after_kept, after_broken = Promise[int](), Promise[int]()
    if settled_before:
        kept.resolve(2)
        broken.fail(error)
    after_kept.follow(kept)
    after_broken.follow(broken)
    if not settled_before:
        assert not after_kept.done
        kept.resolve(2)
        broken.fail(error)
    assert after_kept.result() == 2
    assert after_broken.error is error


def test_work_is_not_given_up_and_a_wait_is() -> None:
    told: list[str] = []
    work: Promise[int] = Promise()
    assert not work.cancellable
    work.cancel()
    wait: Promise[int] = Promise(lambda: told.append("wait"))
    assert wait.cancellable
    wait.cancel()
    wait.cancel()
    follower: Promise[int] = Promise()
    follower.follow(Promise(lambda: told.append("followed")))
    assert follower.cancellable
    follower.cancel()
    done: Promise[int] = Promise(lambda: told.append("done"))
    done.resolve(1)
    done.cancel()
    assert told == ["wait", "followed"]


def test_what_was_given_up_may_still_be_settled_and_tells_nobody() -> None:
    promise: Promise[int] = Promise()
    promise.when_done(lambda _: pytest.fail("nobody wants it"))
    promise.cancel()
    promise.resolve(1)
    assert promise.result() == 1


def test_a_wait_that_becomes_work_cannot_be_given_up() -> None:
    promise: Promise[int] = Promise()
    promise.only_waits()
    assert promise.cancellable
    promise.works()
    assert not promise.cancellable


def refuse() -> int:
    raise KafkaError(ErrorCode.NOT_COORDINATOR)


def test_an_error_that_is_a_bug_keeps_its_history_and_a_refusal_does_not() -> None:
    bug = Promise.of(0).then(lambda value: 1 // value).error
    assert bug is not None
    assert "1 // value" in "".join(traceback.format_exception(bug))
    refused = Promise.of(0).then(lambda _: refuse()).then(lambda value: value).error
    assert refused is not None
    assert refused.__traceback__ is None
    assert refused.__context__ is None


def test_a_refusal_that_is_passed_on_leaves_nothing_to_the_garbage_collector() -> None:
    def pass_on() -> None:
        promise: Promise[int] = Promise()
        changed = gather([promise.then(lambda _: refuse()).recover(lambda _: refuse())]).then(len)
        promise.resolve(1)
        assert isinstance(changed.error, KafkaError)

    pass_on()
    gc.disable()
    try:
        gc.collect()
        for _ in range(50):
            pass_on()
        assert gc.collect() < 50
    finally:
        gc.enable()
