from __future__ import annotations

import asyncio

import pytest

from tidelog.client._network.retry import Backoff, Deadline, retrying
from tidelog.client.errors import ConnectionLostError, RequestTimeoutError, error_from, is_retriable
from tidelog.errors import ErrorCode, KafkaError


class Flaky:
    """Fails with the given errors, one per call, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_retriable_errors_are_tried_again_until_it_works() -> None:
    attempt = Flaky(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionLostError("gone"))
    assert asyncio.run(retrying(attempt, Deadline(10_000), backoff=Backoff(1, 1))) == "done"
    assert attempt.calls == 3


@pytest.mark.parametrize("retries", [0, 2])
def test_the_last_retry_is_the_last(retries: int) -> None:
    attempt = Flaky(*(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"try {n}") for n in range(100)))
    with pytest.raises(KafkaError, match=f"try {retries}"):
        asyncio.run(retrying(attempt, Deadline(10_000), backoff=Backoff(1, 1, retries)))
    assert attempt.calls == retries + 1


def test_other_errors_are_raised_at_once() -> None:
    attempt = Flaky(KafkaError(ErrorCode.INVALID_CONFIG, "bad"))
    with pytest.raises(KafkaError, match="bad"):
        asyncio.run(retrying(attempt, Deadline(10_000), backoff=Backoff(1, 1)))
    assert attempt.calls == 1


def test_at_the_deadline_the_last_error_itself_is_raised() -> None:
    attempt = Flaky(*(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"try {n}") for n in range(100)))
    with pytest.raises(KafkaError, match="try"):
        asyncio.run(retrying(attempt, Deadline(20), backoff=Backoff(5, 5)))
    assert 1 <= attempt.calls < 100


def test_a_last_try_that_only_timed_out_does_not_hide_what_was_wrong() -> None:
    attempt = Flaky(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "why"), *[RequestTimeoutError("late")] * 100)
    with pytest.raises(KafkaError, match="why"):
        asyncio.run(retrying(attempt, Deadline(60), backoff=Backoff(10, 10)))


def test_back_off_doubles_up_to_its_limit_with_a_fifth_of_jitter() -> None:
    backoff = Backoff(100, 1000)
    for expected in (100, 200, 400, 800, 1000, 1000):
        assert 0.8 * expected <= backoff.next_ms() <= 1.2 * expected


def test_back_off_stays_at_its_limit_however_often_something_fails() -> None:
    backoff = Backoff(100, 1000)
    waits = [backoff.next_ms() for _ in range(3000)]
    assert all(800 <= each <= 1200 for each in waits[4:])


def test_an_error_code_of_a_newer_kafka_is_an_unknown_server_error_with_its_number() -> None:
    error = error_from(9999, None, "topic 'a'")
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in str(error)
    assert not is_retriable(error)


def test_no_error_code_is_no_error() -> None:
    assert error_from(0, "ignored", "topic") is None


def test_a_silent_broker_gets_a_sentence_that_names_what_was_asked_for() -> None:
    error = error_from(ErrorCode.OFFSET_OUT_OF_RANGE, None, "partition a-0")
    assert error is not None
    assert error.message == "partition a-0: offset out of range"
