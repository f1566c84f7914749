"""What is buffered of some partitions decides whether their broker may be asked for more."""

from __future__ import annotations

import pytest
from tests.unit.client.consumer.conftest import batch

from tidelog.client.consumer._fetch.completed_fetch import CompletedFetch
from tidelog.client.consumer._fetch.fetch_buffer import FetchBuffer
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.subscription._partition_state import FetchPosition, PartitionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ANSWER_BYTES = len(batch(0, b"v"))


class Buffered:
    """A buffer in which two answers of a partition are one more than it has room for."""

    def __init__(self, max_partition_bytes: int = 2 * ANSWER_BYTES) -> None:
        self.config = FetchConfig(max_partition_bytes=max_partition_bytes)
        self.buffer = FetchBuffer(self.config)
        self.states: dict[TopicPartition, PartitionState] = {}

    def add(self, partition: TopicPartition, answers: int, *, error: KafkaError | None = None) -> None:
        state = self.states.get(partition)
        if state is None:
            state = self.states[partition] = PartitionState()
            state.seek(FetchPosition(0))
        for _ in range(answers):
            offset = self.buffer.next_position(partition, state).offset
            data = b"" if error else batch(offset, b"v")
            self.buffer.add(CompletedFetch(partition, state, offset, self.config, data, error=error))


@pytest.fixture
def full() -> Buffered:
    """A partition with room beside one without."""
    buffered = Buffered()
    buffered.add(T0, 1)
    buffered.add(T1, 2)
    return buffered


def test_nothing_and_a_single_answer_hold_nobody_back() -> None:
    buffered = Buffered(max_partition_bytes=1)
    assert not buffered.buffer.holds_back()
    buffered.add(T0, 1)
    assert not buffered.buffer.holds_back()


def test_one_full_partition_among_others_holds_their_broker_back(full: Buffered) -> None:
    assert full.buffer.holds_back()


def test_small_answers_hold_back_from_the_size_of_one_on() -> None:
    buffered = Buffered(max_partition_bytes=3 * ANSWER_BYTES)
    buffered.add(T0, 2)
    assert not buffered.buffer.holds_back()
    buffered.add(T0, 1)
    assert buffered.buffer.holds_back()


def test_a_partition_holds_back_no_longer_once_an_answer_of_it_is_used_up(full: Buffered) -> None:
    while (fetch := full.buffer.next_fetch()) is not None and fetch.partition != T1:
        full.buffer.remove(fetch)
    assert fetch is not None
    full.buffer.remove(fetch)
    assert not full.buffer.holds_back()


def test_a_full_partition_that_is_paused_holds_nobody_back(full: Buffered) -> None:
    full.states[T1].paused = True
    assert not full.buffer.holds_back()
    full.states[T1].paused = False
    assert full.buffer.holds_back()


def test_what_was_fetched_for_a_position_that_has_been_left_holds_nobody_back(full: Buffered) -> None:
    full.states[T1].seek(FetchPosition(7))
    assert not full.buffer.holds_back()


def test_an_error_that_waits_for_the_application_holds_back() -> None:
    buffered = Buffered()
    buffered.add(T0, 1, error=KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you"))
    assert buffered.buffer.holds_back()
