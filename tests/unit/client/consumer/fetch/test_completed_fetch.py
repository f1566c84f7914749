from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from benchmarks.codec_modules import CodecModules
from tests.unit.client.consumer.conftest import batch

from tidelog.client.consumer._fetch import completed_fetch
from tidelog.client.consumer._fetch.completed_fetch import CompletedFetch
from tidelog.client.consumer._fetch.fetch_buffer import FetchBuffer
from tidelog.client.consumer._fetch.fetch_collector import FetchCollector
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.consumer.errors import RecordDeserializationError, RecordTooLargeError
from tidelog.client.resources import IsolationLevel
from tidelog.client.subscription._partition_state import FetchPosition, PartitionState
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.errors import CorruptRecordError
from tidelog.ids import TopicPartition
from tidelog.records.batch import HEADER_SIZE, LENGTH_AT, RECORD_COUNT_AT, write_crc
from tidelog.records.column_codec import RecordColumns
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker

P = TopicPartition("t", 3)
COMMITTED = FetchConfig(isolation_level=IsolationLevel.READ_COMMITTED)


def fetched(
    *batches: bytes,
    at: int = 0,
    config: FetchConfig | None = None,
    aborted: Any = None,
    partition: TopicPartition = P,
    state: PartitionState | None = None,
) -> CompletedFetch:
    if state is None:
        state = PartitionState()
        state.seek(FetchPosition(at))
    return CompletedFetch(
        partition, state, at, config or FetchConfig(), memoryview(b"".join(batches)), aborted
    )


def marker(offset: int, producer_id: int, control_type: ControlType) -> bytes:
    return encode_end_txn_marker(
        EndTxnMarker(control_type, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=1,
        base_offset=offset,
    )


def drain(fetch: CompletedFetch, step: int = 100) -> list[int]:
    offsets = []
    while not fetch.is_drained:
        offsets += [record.offset for record in fetch.take(step)]
    return offsets


def test_records_before_the_offset_asked_for_are_left_out() -> None:
    fetch = fetched(batch(0, b"a", b"b", b"c"), batch(3, b"d"), at=2)
    assert fetch.end_offset == 4
    assert drain(fetch) == [2, 3]
    assert (fetch.next_offset, fetch.is_drained) == (4, True)


@pytest.mark.parametrize("writable", [True, False])
def test_columns_need_no_memory_of_their_own_where_the_answer_can_be_written_to(writable: bool) -> None:
    data = batch(0, b"a", b"b" * 300) + batch(2, b"c")
    memory = memoryview(bytearray(data) if writable else data)
    state = PartitionState()
    state.seek(FetchPosition(0))
    fetch = CompletedFetch(P, state, 0, FetchConfig(), memory)
    assert [each.offset for each in fetch.take(1)] == [0]
    columns = fetch.take_columns(with_headers=False)
    values = columns.values.buffers()[2]
    assert (columns.rows, bytes(values), fetch.next_offset) == (2, b"b" * 300 + b"c", 3)
    assert (values.obj is memory.obj) == writable


def test_records_are_handed_out_in_pieces_and_the_position_follows() -> None:
    fetch = fetched(batch(0, *[b"%d" % each for each in range(5)], leader_epoch=7), batch(5, b"5"))
    assert [each.offset for each in fetch.take(2)] == [0, 1]
    assert (fetch.next_offset, fetch.last_epoch) == (2, 7)
    assert [each.offset for each in fetch.take(4)] == [2, 3, 4, 5]
    assert fetch.take(10) == []
    assert fetch.next_offset == 6


def test_a_batch_that_is_cut_short_at_the_end_waits_for_the_next_fetch() -> None:
    fetch = fetched(batch(0, b"a"), batch(1, b"b")[:-1])
    assert drain(fetch) == [0]
    assert fetch.end_offset == 1


def test_an_answer_with_no_whole_batch_is_told() -> None:
    with pytest.raises(RecordTooLargeError, match=r"offset 0 of t-3.*fetch\.max\.bytes"):
        fetched(batch(0, b"a" * 100)[:-1])


def test_control_batches_move_the_position_and_are_never_seen() -> None:
    fetch = fetched(
        batch(0, b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        marker(1, 1, ControlType.COMMIT),
    )
    assert [each.offset for each in fetch.take(10)] == [0]
    assert (fetch.next_offset, fetch.is_drained) == (2, True)


def transactional(offset: int, producer_id: int, *values: bytes) -> bytes:
    return batch(
        offset, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def test_aborted_transactions_are_hidden_up_to_their_marker() -> None:
    batches = [
        transactional(0, 1, b"aborted", b"aborted"),
        transactional(2, 2, b"kept"),
        batch(3, b"plain"),
        transactional(4, 1, b"aborted"),
        marker(5, 1, ControlType.ABORT),
        marker(6, 2, ControlType.COMMIT),
        transactional(7, 1, b"kept"),
        marker(8, 1, ControlType.COMMIT),
    ]
    assert drain(fetched(*batches, config=COMMITTED, aborted=[(1, 0)])) == [2, 3, 7]
    assert drain(fetched(*batches, aborted=[(1, 0)])) == [0, 1, 2, 3, 4, 7]


def test_an_aborted_transaction_of_which_only_the_marker_is_left_hides_nothing_else() -> None:
    batches = [
        marker(5, 1, ControlType.ABORT),
        transactional(6, 1, b"kept"),
        marker(7, 1, ControlType.COMMIT),
    ]
    assert drain(fetched(*batches, config=COMMITTED, aborted=[(1, 0)])) == [6]


def test_a_fetch_of_hidden_records_only_still_moves_on() -> None:
    fetch = fetched(transactional(0, 1, b"x"), config=COMMITTED, aborted=[(1, 0)])
    assert fetch.take(10) == []
    assert (fetch.next_offset, fetch.is_drained) == (1, True)


def test_a_corrupt_batch_raises_each_time_after_the_good_ones() -> None:
    broken = bytearray(batch(1, b"b"))
    broken[-3] ^= 0xFF
    fetch = fetched(batch(0, b"a"), bytes(broken))
    assert [each.offset for each in fetch.take(10)] == [0]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="t-3, offset 1"):
            fetch.take(10)
    assert not fetch.is_drained
    unchecked = fetched(batch(0, b"a"), bytes(broken[:-3]) + b"b" + bytes(broken[-2:]))
    assert unchecked.end_offset == 2


def test_what_comes_before_a_bad_value_is_handed_out_first() -> None:
    def number(topic: str, data: bytes | None) -> int:
        return int(data or b"")

    fetch = fetched(batch(0, b"1", b"2", b"x", b"4"), config=FetchConfig(value_deserializer=number))
    assert [each.value for each in fetch.take(10)] == [1, 2]
    assert fetch.next_offset == 2
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="value of t-3 at offset 2"):
            fetch.take(10)


def test_a_batch_emptied_by_compaction_moves_the_position() -> None:
    # What the cleaner leaves to keep a producer's last sequence: a header that counts no records.
    emptied = bytearray(batch(10, b"x"))[:HEADER_SIZE]
    struct.pack_into(">i", emptied, LENGTH_AT, HEADER_SIZE - 12)
    struct.pack_into(">i", emptied, RECORD_COUNT_AT, 0)
    write_crc(emptied, 0, HEADER_SIZE)
    fetch = fetched(bytes(emptied), batch(11, b"a"), at=10)
    assert drain(fetch) == [11]
    assert fetch.next_offset == 12


def test_old_messages_are_read() -> None:
    def message(offset: int, value: bytes) -> bytes:
        body = struct.pack(">bbqi", 1, 0, 1234, -1) + struct.pack(">i", len(value)) + value
        body = struct.pack(">I", zlib.crc32(body)) + body
        return struct.pack(">qi", offset, len(body)) + body

    fetch = fetched(message(0, b"a"), message(1, b"b"), batch(2, b"c"), at=1)
    assert [(each.offset, each.value) for each in fetch.take(1)] == [(1, b"b")]
    assert drain(fetch) == [2]
    broken = bytearray(message(0, b"a"))
    broken[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        fetched(bytes(broken)).take(1)


def buffered(buffer: FetchBuffer, number: int, *batches: bytes, at: int = 0) -> PartitionState:
    state = PartitionState()
    state.seek(FetchPosition(at))
    buffer.add(fetched(*batches, at=at, partition=TopicPartition("t", number), state=state))
    return state


def test_partitions_take_turns() -> None:
    buffer = FetchBuffer(FetchConfig())
    first = buffered(buffer, 0, batch(0, b"a"))
    buffer.add(fetched(batch(1, b"b"), at=1, partition=TopicPartition("t", 0), state=first))
    buffered(buffer, 1, batch(0, b"c"))
    order = []
    while (fetch := buffer.next_fetch()) is not None:
        order.append((fetch.partition.partition, fetch.fetch_offset))
        fetch.take(10)
        buffer.remove(fetch)
    assert order == [(0, 0), (1, 0), (0, 1)]
    assert (len(buffer), buffer.size_bytes) == (0, 0)


def test_what_is_paused_stays_and_what_was_left_is_dropped() -> None:
    buffer = FetchBuffer(FetchConfig())
    paused = buffered(buffer, 0, batch(0, b"a"))
    moved = buffered(buffer, 1, batch(0, b"b"))
    kept = buffered(buffer, 2, batch(0, b"c"))
    paused.paused = True
    moved.seek(FetchPosition(9))
    fetch = buffer.next_fetch()
    assert fetch is not None
    assert fetch.state is kept
    buffer.remove(fetch)
    assert buffer.next_fetch() is None
    paused.paused = False
    fetch = buffer.next_fetch()
    assert fetch is not None
    assert fetch.state is paused
    assert len(buffer) == 1


def test_the_next_fetch_begins_behind_what_is_buffered_and_only_while_there_is_room() -> None:
    buffer = FetchBuffer(FetchConfig(max_partition_bytes=100, max_bytes=150))
    partition = TopicPartition("t", 0)
    state = buffered(buffer, 0, batch(0, b"a"))
    assert buffer.next_position(partition, state).offset == 1
    assert buffer.room_for(partition, state)
    buffer.add(fetched(batch(1, b"b" * 80), at=1, partition=partition, state=state))
    assert not buffer.room_for(partition, state)
    assert buffer.is_full
    state.seek(FetchPosition(50))
    assert buffer.next_position(partition, state).offset == 50
    assert buffer.room_for(partition, state)
    buffer.drop_stale()
    assert not buffer.is_full


def test_columns_go_on_behind_the_records_that_were_taken_one_by_one() -> None:
    fetch = fetched(batch(0, b"a", b"b", b"c"), batch(3, b"d", b"e"))
    assert [each.offset for each in fetch.take(2)] == [0, 1]
    columns = fetch.take_columns(with_headers=False)
    assert columns.offsets.cast("q").tolist() == [2, 3, 4]
    assert (fetch.next_offset, fetch.is_drained) == (5, True)


@pytest.fixture
def small_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that can hold 3000 bytes instead of 2 GB."""
    columns = CodecModules("interpreted").columns.RecordColumns
    # In the compiled module the limit is a constant.
    monkeypatch.setitem(columns.append_batch.__globals__, "_MAX_BYTES", 3000)
    monkeypatch.setattr(completed_fetch, "RecordColumns", columns)


def compressed(offset: int, size: int = 1000) -> bytes:
    return batch(offset, b"v" * size, codec=Codec.ZSTD)


@pytest.mark.usefixtures("small_columns")
def test_records_for_which_a_column_has_no_room_come_with_the_next_columns() -> None:
    fetch = fetched(*map(compressed, range(5)))
    found = []
    while not fetch.is_drained:
        columns = fetch.take_columns(with_headers=False)
        found.append(columns.offsets.cast("q").tolist())
        assert fetch.next_offset == found[-1][-1] + 1
    assert found == [[0, 1], [2, 3], [4]]


@pytest.mark.usefixtures("small_columns")
def test_a_batch_too_large_for_columns_is_told_after_what_comes_before_it() -> None:
    fetches = {
        TopicPartition("t", number): fetched(compressed(0, size), partition=TopicPartition("t", number))
        for number, size in enumerate([1000, 4000])
    }
    buffer = FetchBuffer(FetchConfig())
    for fetch in fetches.values():
        buffer.add(fetch)
    collector = FetchCollector(SubscriptionState(), buffer)
    good, large = fetches
    found = collector.take_columns(with_headers=False)
    assert [(partition, columns.rows) for partition, columns in found] == [(good, 1)]
    with pytest.raises(OverflowError, match="a column cannot hold"):
        collector.take_columns(with_headers=False)
    assert fetches[large].state.require_position().offset == 0
    assert [each.offset for each in collector.take(10)] == [0]


class ShortOfMemory:
    """Columns that find no memory for the batch at ``fails_at``, once."""

    def __init__(self, fails_at: int) -> None:
        self.fails_at = fails_at

    def __call__(self, **options: Any) -> Any:
        self.columns = RecordColumns(**options)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.columns, name)

    def append_batch(self, data: Any, start_offset: int, *, pos: int, check_crc: bool) -> int:
        if pos == self.fails_at:
            self.fails_at = -1
            raise MemoryError
        return self.columns.append_batch(data, start_offset, pos=pos, check_crc=check_crc)


def test_columns_in_the_memory_of_an_answer_stay_as_they_are_when_the_rest_is_read_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = batch(0, b"a" * 100), batch(1, b"b" * 100)
    monkeypatch.setattr(completed_fetch, "RecordColumns", ShortOfMemory(len(first)))
    state = PartitionState()
    state.seek(FetchPosition(0))
    fetch = CompletedFetch(P, state, 0, FetchConfig(), memoryview(bytearray(first + second)))
    earlier = fetch.take_columns(with_headers=False).values.buffers()[2]
    assert fetch.next_offset == 1
    later = fetch.take_columns(with_headers=False).values.buffers()[2]
    assert (bytes(earlier), bytes(later)) == (b"a" * 100, b"b" * 100)
    assert fetch.is_drained


def test_records_that_were_read_go_out_when_memory_ends_in_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = fetched(batch(0, b"a"), batch(1, b"b"))
    read = CompletedFetch._read_next
    failures = [MemoryError()]

    def read_next(self: CompletedFetch, max_records: int) -> Any:
        if self.next_offset == 1 and failures:
            raise failures.pop()
        return read(self, max_records)

    monkeypatch.setattr(CompletedFetch, "_read_next", read_next)
    assert [each.offset for each in fetch.take(10)] == [0]
    assert [each.offset for each in fetch.take(10)] == [1]


def test_a_bad_value_in_a_later_piece_of_a_batch_is_met_again_until_it_is_passed() -> None:
    def number(topic: str, data: bytes | None) -> int:
        return int(data or b"")

    fetch = fetched(batch(0, b"1", b"2", b"3", b"x"), config=FetchConfig(value_deserializer=number))
    assert [each.value for each in fetch.take(2)] == [1, 2]
    assert [each.value for each in fetch.take(2)] == [3]
    with pytest.raises(RecordDeserializationError, match="value of t-3 at offset 3"):
        fetch.take(2)
    assert fetch.next_offset == 3
