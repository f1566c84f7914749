from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.consumer._delivered_records import DeliveredRecords
from tidelog.client.subscription._partition_state import FetchPosition
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import ConsumerRecord

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEFORE = {P0: FetchPosition(10, 1), P1: FetchPosition(20, 1)}


def record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(partition.topic, partition.partition, offset, 0, 0, None, b"", (), 3)


def records() -> list[ConsumerRecord]:
    return [record(P0, 10), record(P0, 11), record(P1, 20), record(P1, 22), record(P0, 12)]


def test_what_is_left_knows_the_true_positions() -> None:
    delivered = DeliveredRecords()
    iterator = delivered.start(records(), BEFORE)
    assert delivered.positions() == BEFORE
    assert [next(iterator).offset for _ in range(3)] == [10, 11, 20]
    assert delivered.positions() == {P0: FetchPosition(12, 3), P1: FetchPosition(21, 3)}
    assert next(iterator).offset == 22
    assert delivered.positions() == {P0: FetchPosition(12, 3)}
    assert next(iterator).offset == 12
    assert delivered.positions() == {}
    assert len(delivered) == 0


def test_what_is_left_can_be_taken_at_once() -> None:
    delivered = DeliveredRecords()
    iterator = delivered.start(records(), BEFORE)
    next(iterator)
    assert [each.offset for each in delivered.take_rest()] == [11, 20, 22, 12]
    assert list(iterator) == []
    assert len(delivered) == 0


def test_partitions_that_go_are_not_handed_out() -> None:
    delivered = DeliveredRecords()
    iterator = delivered.start(records(), BEFORE)
    next(iterator)
    delivered.drop_partitions([P0])
    assert [each.offset for each in iterator] == [20, 22]


@given(st.lists(st.sampled_from([P0, P1]), max_size=30), st.integers(0, 30))
def test_nothing_is_lost_between_what_was_handed_out_and_what_is_left(
    partitions: list[TopicPartition], taken: int
) -> None:
    offsets = {P0: 10, P1: 20}
    everything = []
    for partition in partitions:
        everything.append(record(partition, offsets[partition]))
        offsets[partition] += 1
    delivered = DeliveredRecords()
    iterator = delivered.start(list(everything), BEFORE)
    handed = list(itertools.islice(iterator, taken))
    for partition, position in delivered.positions().items():
        mine = [each.offset for each in handed if each.topic_partition == partition]
        expected = mine[-1] + 1 if mine else BEFORE[partition].offset
        assert position.offset == expected
    assert handed + delivered.take_rest() == everything
