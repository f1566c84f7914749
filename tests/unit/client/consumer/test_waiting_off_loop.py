"""The synchronous consumer waits in the application's thread, beside the loop: what it gets, what ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.errors import IllegalStateError

LONG_S = 3600.0
TIMEOUT_S = 20.0


class LoopNeeded:
    """Stands in for what else there is to do on the loop, which real time would bring about."""

    def __init__(self) -> None:
        self.in_s = LONG_S

    def __call__(self) -> float:
        return self.in_s


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    # Nothing listens there, and nothing is assigned: the consumer stays by itself.
    with Consumer(bootstrap_servers="127.0.0.1:1") as made:
        yield made


@pytest.fixture
def loop_needed(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> LoopNeeded:
    needed = LoopNeeded()
    monkeypatch.setattr(consumer, "_port", consumer._port._replace(needs_loop_in=needed))
    return needed


def tell(consumer: Consumer) -> None:
    """Have the loop tell news, and wait until it has."""
    told = threading.Event()
    consumer._thread.call_soon(consumer._port.wake_flag.tell)
    consumer._thread.call_soon(told.set)
    assert told.wait(TIMEOUT_S)


def taking(*results: list[str] | Callable[[], list[str]]) -> Callable[[], list[str]]:
    """What each call finds, one after another; a function may do something before it says so."""
    left = list(results)

    def take() -> list[str]:
        result = left.pop(0)
        return result() if callable(result) else result

    return take


def may_be_used_by_another_thread(consumer: Consumer) -> bool:
    refused: list[Exception] = []

    def use() -> None:
        try:
            consumer.pause([])
        except IllegalStateError as error:
            refused.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    return not refused


@pytest.mark.usefixtures("loop_needed")
def test_what_is_there_is_taken_without_waiting(consumer: Consumer) -> None:
    assert consumer._wait_off_loop(taking(["a"]), LONG_S) == ["a"]


@pytest.mark.usefixtures("loop_needed")
def test_what_arrives_while_it_looks_is_not_missed(consumer: Consumer) -> None:
    def told_meanwhile() -> list[str]:
        tell(consumer)
        return []

    assert consumer._wait_off_loop(taking(told_meanwhile, ["a"]), LONG_S) == ["a"]


@pytest.mark.usefixtures("loop_needed")
def test_it_goes_on_waiting_after_news_that_bring_nothing(consumer: Consumer) -> None:
    def told_meanwhile() -> list[str]:
        tell(consumer)
        return []

    take = taking(told_meanwhile, [], told_meanwhile, [], told_meanwhile, ["a"])
    assert consumer._wait_off_loop(take, LONG_S) == ["a"]


@pytest.mark.usefixtures("loop_needed")
def test_a_thread_that_sleeps_is_woken_by_the_loop(consumer: Consumer) -> None:
    looked = threading.Event()
    found: list[str] = []

    def nothing_yet() -> list[str]:
        looked.set()
        return []

    def wait() -> None:
        found.extend(consumer._wait_off_loop(taking(nothing_yet, ["a"]), LONG_S))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert looked.wait(TIMEOUT_S)
    tell(consumer)
    thread.join(TIMEOUT_S)
    assert found == ["a"]


def test_nothing_is_taken_while_the_loop_has_something_to_do_first(
    consumer: Consumer, loop_needed: LoopNeeded
) -> None:
    loop_needed.in_s = 0.0
    assert consumer._wait_off_loop(taking(), LONG_S) == []


def test_it_ends_when_the_loop_is_needed_meanwhile(consumer: Consumer, loop_needed: LoopNeeded) -> None:
    def woken_up() -> list[str]:
        loop_needed.in_s = 0.0
        tell(consumer)
        return []

    assert consumer._wait_off_loop(taking(woken_up, []), LONG_S) == []


def test_it_waits_no_longer_than_until_the_loop_is_needed(
    consumer: Consumer, loop_needed: LoopNeeded
) -> None:
    loop_needed.in_s = 0.01

    def needed_now() -> list[str]:
        loop_needed.in_s = 0.0
        return []

    assert consumer._wait_off_loop(taking([], needed_now), LONG_S) == []


@pytest.mark.usefixtures("loop_needed")
def test_it_waits_no_longer_than_it_was_told_to(consumer: Consumer) -> None:
    assert consumer._wait_off_loop(list, 0.01) == []


@pytest.mark.usefixtures("loop_needed")
def test_only_the_thread_that_waits_may_use_the_consumer_until_it_is_done(consumer: Consumer) -> None:
    allowed: list[bool] = []

    def look() -> list[str]:
        allowed.append(may_be_used_by_another_thread(consumer))
        return ["a"]

    consumer._wait_off_loop(look, LONG_S)
    allowed.append(may_be_used_by_another_thread(consumer))
    assert allowed == [False, True]


@pytest.mark.usefixtures("loop_needed")
def test_an_interrupt_leaves_the_consumer_free_and_nobody_waiting(consumer: Consumer) -> None:
    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consumer._wait_off_loop(interrupted, LONG_S)
    tell(consumer)
    assert consumer._port.wake_flag._for_thread.empty()
    assert may_be_used_by_another_thread(consumer)
