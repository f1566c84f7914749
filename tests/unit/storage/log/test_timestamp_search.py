"""Records looked up by time: what may take long goes on in a thread, in little memory, past damage."""

from __future__ import annotations

import asyncio
import logging
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.batch import HEADER_SIZE, parse_header, write_crc
from tidelog.records.batch_walk import BatchWalk
from tidelog.records.compression import Codec
from tidelog.records.record import Record, assemble_batch, encode_batch
from tidelog.storage.log.log import Log
from tidelog.storage.log.timestamp_search import TimestampSearch

OpenLog = Callable[..., Log]
NOW = 1_700_000_000_000
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def stored(log: Log, batch: bytes | bytearray) -> int:
    """Put a batch into a log as it is, whatever is wrong inside; gives its offset."""
    info = log.append_as_follower(numbered(batch, log.log_end_offset))
    assert info is not None
    log.update_high_watermark(log.log_end_offset)
    return info.first_offset


def numbered(batch: bytes | bytearray, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + bytes(batch[8:])


def crowd(codec: Codec, count: int = 300_000) -> bytearray:
    """A small batch that unpacks to many records; the last is a millisecond younger than the others."""
    header = parse_header(encode_batch([Record(timestamp=NOW)], codec=codec))
    record = bytes([12, 0, 0, 0, 1, 1, 0])
    last = bytes([12, 0, 2, 0, 1, 1, 0])
    return assemble_batch(
        header._replace(
            last_offset_delta=count - 1, record_count=count, base_timestamp=NOW, max_timestamp=NOW + 1
        ),
        record * (count - 1) + last,
    )


def poisoned(how: str) -> bytearray:
    """A batch whose header and checksum are right, and whose records are not."""
    batch = bytearray(
        encode_batch(
            [Record(timestamp=NOW, value=b"v" * 50)] * 3,
            codec=Codec.GZIP if how == "cannot be unpacked" else Codec.NONE,
        )
    )
    match how:
        case "a wrong length":
            batch[HEADER_SIZE] = 0x7E
        case "a wrong count":
            batch[57:61] = (9).to_bytes(4, "big")
        case "bytes behind the last":
            batch += b"tail"
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        case "cannot be unpacked":
            batch[HEADER_SIZE + 8 : HEADER_SIZE + 20] = b"\xff" * 12
    # All are too young by their header, so that they are looked into.
    batch[35:43] = (NOW + 1000).to_bytes(8, "big")
    write_crc(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_with_many_records_is_searched_in_a_thread(
    open_log: OpenLog, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    stored(log, crowd(codec))
    finished_in: list[int] = []
    real = BatchWalk.advance

    def advance(walk: BatchWalk, steps: int | None = None) -> bool:
        done = real(walk, steps if steps is None else 0)
        if done:
            finished_in.append(threading.get_ident())
        return done

    monkeypatch.setattr(BatchWalk, "advance", advance)

    async def scenario() -> None:
        search = log.search_timestamp(NOW + 1)
        assert not search.advance(), "it cannot be over in one turn of the loop"
        found = await search.run()
        assert found is not None
        assert found.timestamp == NOW + 1
        assert await log.search_timestamp(None).run() == found
        assert await log.search_timestamp(NOW + 2).run() is None

    asyncio.run(scenario())
    assert finished_in
    assert threading.get_ident() not in finished_in


def test_a_small_batch_is_searched_where_the_request_is_handled(open_log: OpenLog) -> None:
    log = open_log()
    stored(log, encode_batch([Record(timestamp=NOW + number) for number in range(10)]))
    search = log.search_timestamp(NOW + 4)
    assert search.advance()
    assert search.result == (NOW + 4, 4, -1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_that_unpacks_to_much_takes_little_memory(open_log: OpenLog, codec: Codec) -> None:
    log = open_log()
    size = 64 * 1024 * 1024
    stored(
        log, encode_batch([Record(timestamp=NOW, value=bytes(size)), Record(timestamp=NOW + 5)], codec=codec)
    )
    tracemalloc.start()
    try:
        found = log.offset_for_timestamp(NOW + 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == (NOW + 5, 1, -1)
    assert peak < size // 4


@pytest.mark.parametrize(
    "how", ["a wrong length", "a wrong count", "bytes behind the last", "cannot be unpacked"]
)
def test_records_that_cannot_be_read_are_stepped_over_and_named_once(
    open_log: OpenLog, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(directory=None, segment_bytes=1 << 20)
    stored(log, encode_batch([Record(timestamp=NOW)]))
    bad = stored(log, poisoned(how))
    good = stored(log, encode_batch([Record(timestamp=NOW + 1000)]))
    log.files.topic_partition = log.topic_partition._replace(topic=how.replace(" ", "-"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert log.offset_for_timestamp(NOW + 500) == (NOW + 1000, good, -1)
        assert log.offset_of_max_timestamp() == (NOW + 1000, good, -1)
    assert caplog.text.count(f"the batch at offset {bad} is passed over") == 1


def test_many_segments_are_looked_at_a_few_at_a_time(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=100)
    for number in range(100):
        stored(log, encode_batch([Record(timestamp=NOW + number, value=b"v" * 20)]))
    log.close()
    log = open_log(segment_bytes=100)
    search = TimestampSearch(log.files, NOW + 90)
    turns = 1
    while not search.advance():
        turns += 1
    assert turns >= 3
    assert search.result == (NOW + 90, 90, -1)


def many_segments(open_log: OpenLog) -> Log:
    """A log of so many closed segments that a search takes more than one turn; the third is the youngest."""
    log = open_log(segment_bytes=100)
    for number in range(100):
        timestamp = NOW + (1000 if number == 2 else number)
        stored(log, encode_batch([Record(timestamp=timestamp, value=b"v" * 20)]))
    log.close()
    return open_log(segment_bytes=100)


@pytest.mark.parametrize("timestamp", [NOW + 2000, None])
def test_a_partition_that_is_deleted_under_a_search_is_not_a_fault_of_the_disk(
    open_log: OpenLog, timestamp: int | None
) -> None:
    log = many_segments(open_log)

    async def scenario() -> None:
        search = log.search_timestamp(timestamp)
        assert not search.advance()
        log.files.rename_for_delete()
        log.files.close_handles()
        with pytest.raises(KafkaError) as refused:
            await search.run()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_the_youngest_segment_goes_while_the_others_are_looked_at(open_log: OpenLog) -> None:
    log = many_segments(open_log)
    search = log.search_timestamp(None)
    assert not search.advance()
    log.increment_log_start_offset(10)
    assert log.delete_old_segments() == 10
    log.files.close_handles()
    while not search.advance():
        continue
    assert search.result == (NOW + 99, 99, -1)
