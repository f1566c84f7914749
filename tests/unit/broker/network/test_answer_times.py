from __future__ import annotations

from typing import Any

from tidelog.broker.network.answer import PromisedAnswer
from tidelog.broker.network.answer_times import AnswerTimes
from tidelog.scheduling.promise import Promise

FETCH = memoryview(b"\0\x01\0\x12")
PRODUCE = memoryview(b"\0\0\0\x0d")


class Observer:
    def __init__(self) -> None:
        self.answered_now: list[tuple[int, list[int] | None]] = []
        self.answered_later: list[int] = []

    def answered(self, connection: Any, frames: Any, done: int, later: Any, *times: float) -> None:
        self.answered_now.append((done, later))

    def waited(self, connection: Any, key: int, *times: float) -> None:
        assert list(times) == sorted(times)
        self.answered_later.append(key)

    def throttled(self, connection: Any, key: int, throttle_ms: float) -> None:
        raise AssertionError


def test_what_is_answered_at_once_is_told_at_once() -> None:
    observer = Observer()
    times = AnswerTimes(None, observer)
    times.handled([PRODUCE, PRODUCE], 2, 1.0, 1.1, unsent=False)
    assert observer.answered_now == [(2, None)]


def test_what_is_promised_is_told_when_it_is_out() -> None:
    observer = Observer()
    times = AnswerTimes(None, observer)
    pending: PromisedAnswer = Promise()
    times.promised(pending, FETCH, 1.0)
    times.handled([FETCH], 1, 1.0, 1.1, unsent=False)
    assert observer.answered_now == [(1, [1])]
    pending.resolve(b"")
    ready_s = times.settled()
    times.handed_over([pending], ready_s, unsent=False)
    assert observer.answered_later == [1]
    assert times.settled() == 0.0


def test_what_the_socket_does_not_take_is_out_when_it_has() -> None:
    observer = Observer()
    times = AnswerTimes(None, observer)
    pending: PromisedAnswer = Promise()
    times.promised(pending, None, 1.0)
    times.handled([FETCH, PRODUCE], 2, 1.0, 1.1, unsent=True)
    assert observer.answered_now == [(2, [1, 0])]
    pending.resolve(b"")
    times.handed_over([pending], times.settled(), unsent=True)
    assert observer.answered_later == []
    times.sent()
    assert sorted(observer.answered_later) == [0, 1]


def test_who_was_told_of_a_request_is_told_of_its_answer_though_others_have_taken_over() -> None:
    before, after = Observer(), Observer()
    times = AnswerTimes(None, before)
    waiting: PromisedAnswer = Promise()
    times.promised(waiting, FETCH, 1.0)
    times.handled([FETCH], 1, 1.0, 1.1, unsent=False)
    times.handled([PRODUCE], 1, 1.0, 1.1, unsent=True)
    times.observer = after
    waiting.resolve(b"")
    times.handed_over([waiting], times.settled(), unsent=False)
    times.sent()
    assert before.answered_later == [1, 0]
    assert after.answered_later == []


def test_nothing_is_told_of_a_connection_that_has_gone() -> None:
    observer = Observer()
    times = AnswerTimes(None, observer)
    times.promised(Promise(), FETCH, 1.0)
    times.forget()
    times.sent()
    times.handled([FETCH], 1, 1.0, 1.1, unsent=False)
    assert observer.answered_now == [(1, None)]
    assert observer.answered_later == []


def test_requests_and_bytes_of_a_connection_are_counted_and_its_client_is_known() -> None:
    times = AnswerTimes(None, Observer())
    nameless = memoryview(b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff")
    named = memoryview(b"\x00\x03\x00\x01\x00\x00\x00\x02\x00\x04caf\xe9 and so on")
    other = memoryview(b"\x00\x03\x00\x01\x00\x00\x00\x02\x00\x05other")
    times.count([nameless], 1)
    assert times.client_id is None
    times.count([memoryview(b"\xf0\x0f\x00\x01\x00\x00\x00\x02\x00\x04what")], 1)
    assert times.client_id is None
    times.count([named, other], 2)
    times.count([other], 0)
    times.count([other, named], 1)
    assert times.client_id == "caf�"
    assert times.requests == 5
    assert times.received_bytes == len(nameless) + 14 + len(named) + 2 * len(other)


def test_an_endless_client_id_is_cut() -> None:
    times = AnswerTimes(None, Observer())
    times.count([memoryview(b"\x00\x03\x00\x01\x00\x00\x00\x02\x7f\xff" + b"x" * 32767)], 1)
    assert times.client_id == "x" * 256
