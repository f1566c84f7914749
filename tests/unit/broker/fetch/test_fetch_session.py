"""Incremental fetch sessions: what is remembered, what is answered, who makes room for whom."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.fetch import fetch_session
from tidelog.broker.fetch.fetch_session import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessions,
    FullFetch,
    IncrementalFetch,
    PartitionKey,
    SessionError,
    next_epoch,
)
from tidelog.errors import ErrorCode
from tidelog.scheduling.slices import clear_in_slices, run_to_end
from tidelog.wire.fetch import FetchPartition, FileRange, PartitionAnswer

A: PartitionKey = ("a", 0)
B: PartitionKey = ("b", 0)
C: PartitionKey = ("c", 0)
BY_NAME, BY_ID = 12, 13


def wanted(*keys: PartitionKey, offset: int = 0) -> dict[PartitionKey, FetchPartition]:
    return {key: FetchPartition(key[1], -1, offset, -1, -1, 1000) for key in keys}


def answer(
    *, high_watermark: int = 10, start: int = 0, size: int = 0, error: int = 0, diverging: bool = False
) -> PartitionAnswer:
    records = FileRange(3, 0, size) if size else b""
    return (0, error, high_watermark, -1, start, None, -1, records, (1, 2) if diverging else None, None, None)


class Sessions:
    """A cache with one way to make a session of each kind."""

    def __init__(self, slots: int = 10) -> None:
        self.clock = ManualClock()
        self.cache = FetchSessions(slots, self.clock, lambda topic: str(topic), random.Random(1))

    def create(self, *keys: PartitionKey, version: int = BY_NAME, follower: bool = False) -> int:
        context = run_to_end(
            self.cache.open(version, NO_SESSION, INITIAL_EPOCH, wanted(*keys), (), from_follower=follower)
        )
        assert isinstance(context, FullFetch)
        error, session_id, selected = run_to_end(context.select({key: answer() for key in keys}))
        assert error == ErrorCode.NONE
        assert list(selected) == list(keys)
        return session_id

    def resume(
        self,
        session_id: int,
        epoch: int,
        *changed: PartitionKey,
        forget: tuple[PartitionKey, ...] = (),
        version: int = BY_NAME,
        offset: int = 0,
    ) -> FetchContext:
        return run_to_end(
            self.cache.open(version, session_id, epoch, wanted(*changed, offset=offset), forget)
        )


def test_a_full_fetch_creates_a_session_with_all_its_partitions() -> None:
    sessions = Sessions()
    session_id = sessions.create(A, B)
    assert session_id > 0
    assert len(sessions.cache) == 1
    context = sessions.resume(session_id, 1)
    assert isinstance(context, IncrementalFetch)
    assert [key for key, _ in run_to_end(context.partitions())] == [A, B]


def test_a_final_fetch_is_sessionless_and_ends_the_session_it_names() -> None:
    sessions = Sessions()
    session_id = sessions.create(A)
    context = sessions.resume(session_id, FINAL_EPOCH, B)
    assert type(context) is FetchContext
    assert run_to_end(context.select({B: answer()})) == (ErrorCode.NONE, NO_SESSION, {B: answer()})
    assert len(sessions.cache) == 0


def test_a_full_fetch_replaces_the_session_it_names() -> None:
    sessions = Sessions()
    old = sessions.create(A)
    context = sessions.resume(old, INITIAL_EPOCH, B)
    _, new, _ = run_to_end(context.select({B: answer()}))
    assert new not in (old, NO_SESSION)
    assert len(sessions.cache) == 1


@pytest.mark.parametrize(
    ("session_offset", "epoch", "version", "error"),
    [
        (1, 1, BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, BY_NAME, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, BY_ID, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_session_that_does_not_fit_is_an_error_without_partitions(
    session_offset: int, epoch: int, version: int, error: ErrorCode
) -> None:
    sessions = Sessions()
    session_id = sessions.create(A)
    context = sessions.resume(session_id + session_offset, epoch, version=version)
    assert isinstance(context, SessionError)
    assert list(run_to_end(context.partitions())) == []
    assert run_to_end(context.select({})) == (error, NO_SESSION, ())


def test_only_partitions_with_news_are_answered() -> None:
    sessions = Sessions()
    session_id = sessions.create(A, B, C)
    context = sessions.resume(session_id, 1)
    answers = {A: answer(), B: answer(high_watermark=11), C: answer(size=100)}
    assert run_to_end(context.select(answers)) == (ErrorCode.NONE, session_id, [B, C])
    assert (
        run_to_end(sessions.resume(session_id, 2).select({A: answer(), B: answer(high_watermark=11)}))[2]
        == []
    )


@pytest.mark.parametrize("news", [{"start": 5}, {"error": 6}, {"diverging": True}, {"size": 1}])
def test_whatever_a_client_must_know_is_news(news: dict[str, Any]) -> None:
    sessions = Sessions()
    session_id = sessions.create(A)
    assert run_to_end(sessions.resume(session_id, 1).select({A: answer(**news)}))[2] == [A]


def test_a_partition_is_answered_again_when_its_error_has_gone() -> None:
    sessions = Sessions()
    session_id = sessions.create(A)
    assert run_to_end(sessions.resume(session_id, 1).select({A: answer(error=6)}))[2] == [A]
    assert run_to_end(sessions.resume(session_id, 2).select({A: answer()}))[2] == [A]
    assert run_to_end(sessions.resume(session_id, 3).select({A: answer()}))[2] == []


def test_partitions_with_records_move_behind_the_others() -> None:
    sessions = Sessions()
    session_id = sessions.create(A, B, C)
    run_to_end(sessions.resume(session_id, 1).select({A: answer(size=1), B: answer(), C: answer()}))
    assert [key for key, _ in run_to_end(sessions.resume(session_id, 2).partitions())] == [B, C, A]


def test_partitions_are_changed_added_and_forgotten() -> None:
    sessions = Sessions()
    session_id = sessions.create(A, B)
    context = sessions.resume(session_id, 1, B, C, forget=(A,), offset=7)
    assert [(key, want.fetch_offset) for key, want in run_to_end(context.partitions())] == [(B, 7), (C, 7)]
    assert sessions.cache.cached_partitions == 2


def test_a_session_without_partitions_is_over() -> None:
    sessions = Sessions()
    session_id = sessions.create(A)
    context = sessions.resume(session_id, 1, forget=(A,))
    assert type(context) is FetchContext
    assert len(sessions.cache) == 0


def test_an_answer_that_comes_after_the_next_request_is_refused() -> None:
    sessions = Sessions()
    session_id = sessions.create(A)
    slow = sessions.resume(session_id, 1)
    sessions.resume(session_id, 2)
    assert run_to_end(slow.select({A: answer(size=5)})) == (
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        session_id,
        (),
    )


# -- very many partitions ------------------------------------------------------------------------------

MANY: list[PartitionKey] = [("many", index) for index in range(5000)]


def slices(work: Generator[None, None, object]) -> int:
    """In how many slices the work is done, between which others have their turn."""
    return 1 + sum(1 for _ in work)


def test_a_long_session_is_listed_and_changed_in_slices() -> None:
    sessions = Sessions()
    session_id = sessions.create(*MANY)
    assert slices(sessions.cache.open(BY_NAME, session_id, 1, wanted(*MANY), ())) >= len(MANY) // 256
    context = sessions.resume(session_id, 2)
    assert context.partition_count == len(MANY)
    assert slices(context.partitions()) >= len(MANY) // 256
    assert [key for key, _ in run_to_end(context.partitions())] == MANY
    assert slices(sessions.cache.open(BY_NAME, session_id, 3, {}, MANY)) >= len(MANY) // 256
    assert len(sessions.cache) == 0


def test_a_session_that_is_changed_meanwhile_is_listed_as_it_was() -> None:
    sessions = Sessions()
    session_id = sessions.create(*MANY)
    listing = sessions.resume(session_id, 1).partitions()
    next(listing)
    sessions.resume(session_id, 2, A, forget=tuple(MANY[100:]))
    assert len(run_to_end(listing)) == len(MANY)


def test_a_request_that_comes_while_another_is_taken_in_does_not_fit_the_session() -> None:
    sessions = Sessions()
    session_id = sessions.create(*MANY)
    changing = sessions.cache.open(BY_NAME, session_id, 1, wanted(A, B), MANY)
    next(changing)
    for epoch in (1, 2):
        error, _, _ = run_to_end(sessions.resume(session_id, epoch, C).select({}))
        assert error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    context = run_to_end(changing)
    assert [key for key, _ in run_to_end(context.partitions())] == [A, B]
    assert isinstance(sessions.resume(session_id, 2), IncrementalFetch)


def test_a_session_that_ends_while_it_is_changed_is_not_found() -> None:
    sessions = Sessions()
    session_id = sessions.create(*MANY)
    changing = sessions.cache.open(BY_NAME, session_id, 1, wanted(A), MANY)
    next(changing)
    sessions.resume(session_id, FINAL_EPOCH)
    error, _, _ = run_to_end(run_to_end(changing).select({}))
    assert error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions.cache) == 0


def test_a_long_session_that_has_ended_is_let_go_of_in_slices() -> None:
    sessions = Sessions()
    ended: list[dict[PartitionKey, Any]] = []
    sessions.cache.on_long_ended = ended.append
    for keys in ([A], MANY):
        sessions.resume(sessions.create(*keys), FINAL_EPOCH)
    assert [list(each) for each in ended] == [MANY]
    assert slices(clear_in_slices(ended[0])) >= len(MANY) // 256
    assert ended == [{}]


def test_a_session_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "MAX_PARTITIONS", 2)
    sessions = Sessions()
    session_id = sessions.create(A, B)
    assert isinstance(sessions.resume(session_id, 1, B, C, forget=(A,)), IncrementalFetch)
    error, _, _ = run_to_end(sessions.resume(session_id, 2, A).select({}))
    assert error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (
        "the client then lists all, which says what is wrong"
    )
    assert len(sessions.cache) == 0


def test_the_session_remembers_topic_names() -> None:
    sessions = Sessions()
    session_id = sessions.create(A)
    assert sessions.resume(session_id, 1).topic_of(A) == "a"


def test_epochs_go_round() -> None:
    assert [next_epoch(0), next_epoch(1), next_epoch(2**31 - 1), next_epoch(-1)] == [1, 2, 1, -1]


def test_without_room_a_client_is_served_without_session() -> None:
    sessions = Sessions(slots=1)
    first = sessions.create(A)
    assert sessions.create(B) == NO_SESSION
    assert isinstance(sessions.resume(first, 1), IncrementalFetch)


def test_no_slots_mean_no_sessions() -> None:
    sessions = Sessions(slots=0)
    assert sessions.create(A) == NO_SESSION


def test_a_session_unused_for_long_makes_room() -> None:
    sessions = Sessions(slots=2)
    old, fresh = sessions.create(A, B), sessions.create(B)
    sessions.clock.advance(EVICTION_MS)
    sessions.resume(fresh, 1)
    sessions.clock.advance(1)
    assert sessions.create(C) != NO_SESSION
    assert isinstance(sessions.resume(old, 1), SessionError)
    assert isinstance(sessions.resume(fresh, 2), IncrementalFetch)


def test_an_old_smaller_session_makes_room_for_a_larger_one() -> None:
    sessions = Sessions(slots=1)
    small = sessions.create(A)
    sessions.clock.advance(EVICTION_MS + 1)
    sessions.resume(small, 1)
    assert sessions.create(A, B) != NO_SESSION
    assert isinstance(sessions.resume(small, 2), SessionError)


def test_an_old_larger_session_stays() -> None:
    sessions = Sessions(slots=1)
    large = sessions.create(A, B)
    sessions.clock.advance(EVICTION_MS + 1)
    sessions.resume(large, 1)
    assert sessions.create(C) == NO_SESSION


def test_followers_push_out_consumers_at_once_and_never_the_other_way_round() -> None:
    sessions = Sessions(slots=1)
    consumer = sessions.create(A, B)
    follower = sessions.create(A, follower=True)
    assert follower != NO_SESSION
    assert isinstance(sessions.resume(consumer, 1), SessionError)
    sessions.clock.advance(EVICTION_MS)
    sessions.resume(follower, 1)
    sessions.clock.advance(1)
    assert sessions.create(A, B, C) == NO_SESSION
