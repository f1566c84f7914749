"""Which batches a leader takes, which it changes, and which it refuses with which error."""

from __future__ import annotations

import struct
from collections.abc import Callable

import cramjam
import pytest
from tests.rigs.clock import ManualClock

from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.batch import (
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_BIT,
    check_crc,
    parse_header,
    set_base_offset,
    set_timestamps,
    write_crc,
)
from tidelog.records.batch_walk import WalkLimits
from tidelog.records.compression import Codec, compress
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, assemble_batch, batch_body, decode_batch, encode_batch, join_batch
from tidelog.storage.log.log import Log
from tidelog.storage.log.validation import NoBatchError, RecordsRefusedError
from tidelog.storage.producers.producer_state import AppendOrigin

OpenLog = Callable[..., Log]
HOUR_MS = 3_600_000


def plain(now: int, count: int = 3, **how: object) -> bytearray:
    records = [Record(timestamp=now + slot, key=b"k%d" % slot, value=b"v" * 20) for slot in range(count)]
    return bytearray(encode_batch(records, **how))  # type: ignore[arg-type]


def refusal(log: Log, batch: bytes | bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> KafkaError:
    before = log.log_end_offset, log.segments.active.size
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(memoryview(batch), 0, origin=origin)
    assert (log.log_end_offset, log.segments.active.size) == before
    return refused.value


def stored(log: Log) -> bytearray:
    """All that is in the log."""
    log.update_high_watermark(log.log_end_offset)
    return bytearray(log.read_bytes(0, 1 << 20))


def changed(batch: bytearray, at: int, form: str, value: int) -> bytearray:
    """The batch with one field changed and a checksum that fits."""
    struct.pack_into(form, batch, at, value)
    write_crc(batch, 0, len(batch))
    return batch


def test_offset_and_epoch_are_written_in_place_and_nothing_else(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log()
    log.append_as_leader(plain(clock.time_ms()), 4)
    batch = plain(clock.time_ms())
    original = bytes(batch)
    info = log.append_as_leader(memoryview(batch), 5)
    assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (3, 5, 5)
    assert info.max_timestamp == clock.time_ms() + 2
    assert info.log_append_time_ms == -1
    assert parse_header(batch)[:3] == (3, len(batch) - 12, 5)
    assert batch[16:] == original[16:]
    assert log.read_bytes(3, 10_000, min_one_message=True) == b""
    log.update_high_watermark(log.log_end_offset)
    assert log.read_bytes(3, 10_000) == bytes(batch)


def test_a_buffer_that_cannot_be_written_to_is_copied(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    log.append_as_leader(plain(clock.time_ms()), 0)
    batch = bytes(plain(clock.time_ms()))
    assert log.append_as_leader(memoryview(batch), 0).first_offset == 3
    log.update_high_watermark(6)
    assert parse_header(log.read_bytes(3, 100)).base_offset == 3
    assert parse_header(batch).base_offset == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_stored_as_it_came(open_log: OpenLog, clock: ManualClock, codec: Codec) -> None:
    log = open_log()
    batch = plain(clock.time_ms(), codec=codec)
    log.append_as_leader(memoryview(batch), 0)
    log.update_high_watermark(3)
    assert log.read_bytes(0, 10_000) == bytes(batch)


def test_a_wrong_checksum_is_corrupt(open_log: OpenLog, clock: ManualClock) -> None:
    batch = plain(clock.time_ms())
    batch[-1] ^= 1
    assert refusal(open_log(), batch).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("cut", [0, 5, 12, 40, 61, -1])
def test_no_whole_batch_is_an_invalid_record(open_log: OpenLog, clock: ManualClock, cut: int) -> None:
    error = refusal(open_log(), plain(clock.time_ms())[:cut])
    assert error.code is ErrorCode.INVALID_RECORD
    assert "at least one record batch" in error.message


def test_two_batches_are_refused(open_log: OpenLog, clock: ManualClock) -> None:
    error = refusal(open_log(), plain(clock.time_ms()) + plain(clock.time_ms()))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "exactly one record batch" in error.message


def test_bytes_of_a_cut_batch_behind_a_whole_one_are_left_out(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    batch = plain(clock.time_ms())
    info = log.append_as_leader(batch + batch[:30], 0)
    assert (info.last_offset, info.size_bytes) == (2, len(batch))
    assert log.segments.active.size == len(batch)


@pytest.mark.parametrize(("magic", "code"), [(0, 87), (1, 87), (3, 2), (0xFF, 2)])
def test_other_formats_are_refused(open_log: OpenLog, clock: ManualClock, magic: int, code: int) -> None:
    batch = plain(clock.time_ms())
    batch[16] = magic
    assert refusal(open_log(), batch).code == code


@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_size_that_no_record_can_have_is_corrupt(
    open_log: OpenLog, clock: ManualClock, length: int
) -> None:
    batch = plain(clock.time_ms())
    struct.pack_into(">i", batch, 8, length)
    assert refusal(open_log(), batch).code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_shorter_than_its_header_is_corrupt(open_log: OpenLog, clock: ManualClock) -> None:
    batch = plain(clock.time_ms())
    struct.pack_into(">i", batch, 8, 30)
    assert refusal(open_log(), batch[:42]).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("at", "form", "value", "told"),
    [
        (23, ">i", 3, "Inconsistent batch offset range"),
        (23, ">i", -1, "invalid offset range"),
        (57, ">i", 0, "Invalid reported count"),
        (57, ">i", 2, "Inconsistent batch offset range"),
        (43, ">q", 7, "Invalid sequence number -1"),
        (21, ">h", 0x20, "not allowed to write control records"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    open_log: OpenLog, clock: ManualClock, at: int, form: str, value: int, told: str
) -> None:
    error = refusal(open_log(), changed(plain(clock.time_ms()), at, form, value))
    assert error.code is ErrorCode.INVALID_RECORD
    assert told in error.message


def test_more_records_than_fit_into_the_bytes_are_refused(open_log: OpenLog, clock: ManualClock) -> None:
    batch = changed(plain(clock.time_ms()), 23, ">i", 2**31 - 2)
    error = refusal(open_log(), changed(batch, 57, ">i", 2**31 - 1))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "Invalid reported count" in error.message


def test_only_what_is_wrong_with_the_first_batch_is_told(open_log: OpenLog, clock: ManualClock) -> None:
    batch = plain(clock.time_ms())
    wrong = bytes(16) + b"\xff" + bytes(30)
    struct.pack_into(">i", whole := bytearray(wrong), 8, len(wrong) - 12)
    first = refusal(open_log(), whole + batch)
    second = refusal(open_log(), batch + whole)
    assert isinstance(first, NoBatchError)
    assert isinstance(second, NoBatchError)
    assert (first.message, second.message) == ("Invalid magic found in record: -1", "")


def test_clients_number_their_batches_from_zero(open_log: OpenLog, clock: ManualClock) -> None:
    batch = plain(clock.time_ms())
    set_base_offset(batch, 0, 7)
    error = refusal(open_log(), batch)
    assert error.code is ErrorCode.INVALID_RECORD
    assert "should be 0, but it is 7" in error.message
    assert open_log().append_as_leader(batch, 0, origin=AppendOrigin.COORDINATOR).first_offset == 0


def test_an_unknown_codec_is_refused(open_log: OpenLog, clock: ManualClock) -> None:
    batch = changed(plain(clock.time_ms()), 21, ">h", 5)
    assert refusal(open_log(), batch).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_batch_above_max_message_bytes_is_too_large(open_log: OpenLog, clock: ManualClock) -> None:
    batch = plain(clock.time_ms())
    assert open_log(max_message_bytes=len(batch)).append_as_leader(batch, 0).size_bytes == len(batch)
    log = open_log(max_message_bytes=len(batch) - 1)
    assert refusal(log, plain(clock.time_ms())).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_above_segment_bytes_is_too_large(open_log: OpenLog, clock: ManualClock) -> None:
    batch = plain(clock.time_ms())
    error = refusal(open_log(segment_bytes=len(batch) - 1), batch)
    assert error.code is ErrorCode.RECORD_LIST_TOO_LARGE


# -- timestamps ---------------------------------------------------------------------------------------


def test_timestamps_too_far_ahead_are_listed_record_by_record(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    now = clock.time_ms()
    times = [now, now + HOUR_MS, now + HOUR_MS + 1, now + 2 * HOUR_MS]
    batch = encode_batch([Record(timestamp=time, value=b"v") for time in times])
    error = refusal(log, batch)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordsRefusedError)
    assert [one.batch_index for one in error.record_errors] == [2, 3]
    assert str(now + HOUR_MS + 1) in error.record_errors[0].message
    log.append_as_leader(encode_batch([Record(timestamp=now + HOUR_MS)]), 0)


def test_the_bound_moves_with_the_clock(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(message_timestamp_after_max_ms=1000)
    soon = clock.time_ms() + 1500
    assert refusal(log, plain(soon)).code is ErrorCode.INVALID_TIMESTAMP
    clock.advance(600)
    assert log.append_as_leader(plain(soon), 0).first_offset == 0


def test_timestamps_too_old_are_refused_where_the_topic_says_so(
    open_log: OpenLog, clock: ManualClock
) -> None:
    now = clock.time_ms()
    old = encode_batch([Record(timestamp=now), Record(timestamp=now - 5001), Record(timestamp=now - 5000)])
    error = refusal(open_log(message_timestamp_before_max_ms=5000), old)
    assert isinstance(error, RecordsRefusedError)
    assert [one.batch_index for one in error.record_errors] == [1]
    assert open_log().append_as_leader(old, 0).first_offset == 0


def test_records_without_a_timestamp_are_within_all_bounds(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_before_max_ms=5000)
    assert log.append_as_leader(encode_batch([Record(value=b"v")] * 2), 0).max_timestamp == -1


def test_timestamps_before_time_began_count_as_none(open_log: OpenLog) -> None:
    log = open_log()
    assert log.append_as_leader(encode_batch([Record(timestamp=-2, value=b"v")]), 0).max_timestamp == -1
    lowest = encode_batch([Record(timestamp=-(2**63), value=b"v")])
    assert refusal(log, lowest).code is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_is_written_by_the_broker(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    batch = plain(clock.time_ms() - 10**9)
    sent = bytes(batch)
    info = log.append_as_leader(memoryview(batch), 0)
    assert batch == sent, "what was given may have to be judged once more"
    batch = stored(log)
    header = parse_header(batch)
    assert info.log_append_time_ms == info.max_timestamp == header.max_timestamp == clock.time_ms()
    assert header.timestamp_type == LOG_APPEND_TIME
    assert check_crc(batch, 0, len(batch))
    assert {record.timestamp for record in decode_batch(batch)} == {clock.time_ms()}


def test_log_append_time_is_that_of_the_append_however_long_judging_takes(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    judgement = log.appender.judge(
        encode_batch([Record(timestamp=clock.time_ms(), value=b"v")] * 3, codec=Codec.GZIP)
    )
    judgement.advance()
    clock.advance(5000)
    judged = judgement.result()
    info = log.stage_as_leader(judged.records, 0, judged=judged)
    log.write_staged()
    batch = stored(log)
    assert info.log_append_time_ms == parse_header(batch).max_timestamp == clock.time_ms()
    assert check_crc(batch, 0, len(batch))
    assert {record.timestamp for record in decode_batch(batch)} == {clock.time_ms()}


def test_producers_may_not_claim_log_append_time_themselves(open_log: OpenLog, clock: ManualClock) -> None:
    batch = plain(clock.time_ms())
    set_timestamps(batch, 0, len(batch), LOG_APPEND_TIME, clock.time_ms())
    error = refusal(open_log(message_timestamp_type="LogAppendTime"), batch)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordsRefusedError)
    assert len(error.record_errors) == 3
    # On a topic with create time Kafka takes the claim back and keeps the records.
    log = open_log()
    log.append_as_leader(memoryview(batch), 0)
    batch = stored(log)
    assert not parse_header(batch).attributes & TIMESTAMP_TYPE_BIT
    assert check_crc(batch, 0, len(batch))


# -- keys and codecs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_compacted_topics_need_keys(open_log: OpenLog, clock: ManualClock, codec: Codec) -> None:
    log = open_log(cleanup_policy=("compact",))
    now = clock.time_ms()
    keys = [b"a", None, b"", None]
    batch = encode_batch([Record(timestamp=now, key=key, value=b"v") for key in keys], codec=codec)
    error = refusal(log, batch)
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, RecordsRefusedError)
    assert [one.batch_index for one in error.record_errors] == [1, 3]
    assert "without key" in error.record_errors[0].message
    assert "2 record errors in total" in error.message
    assert f"[RecordError(batchIndex=1, message='{error.record_errors[0].message}'), " in error.message
    assert log.append_as_leader(plain(now, codec=codec), 0).first_offset == 0


def test_a_malformed_batch_on_a_compacted_topic_is_an_invalid_record(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = open_log(cleanup_policy=("compact", "delete"))
    batch = plain(clock.time_ms())
    header = parse_header(batch)
    short = assemble_batch(header, batch_body(batch, header)[:-1])
    assert refusal(log, short).code is ErrorCode.INVALID_RECORD
    garbage = assemble_batch(header, b"\xff" * 50)
    assert refusal(log, changed(garbage, 21, ">h", Codec.ZSTD)).code is ErrorCode.INVALID_RECORD


def in_frames(now: int, codec: Codec, *cuts: int) -> bytearray:
    """A batch whose body is several frames of its codec, cut at these places."""
    whole = plain(now)
    header = parse_header(whole)
    body = batch_body(whole, header)
    ends = [*cuts, len(body)]
    frames = [compress(codec, body[start:end]) for start, end in zip([0, *cuts], ends, strict=True)]
    return bytearray(join_batch(header._replace(attributes=codec), b"".join(frames)))


CUTS = {"empty first": 0, "between two records": 29, "within a record": 40, "empty last": 87}


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed", "zstd"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda each: each.label)
def test_a_body_of_two_frames_that_some_client_cannot_read_is_refused(
    open_log: OpenLog, clock: ManualClock, codec: Codec, cut: int, compression_type: str
) -> None:
    log = open_log(compression_type=compression_type)
    refused = refusal(log, in_frames(clock.time_ms(), codec, cut))
    assert refused.code is ErrorCode.INVALID_RECORD
    assert "write the body of a batch as exactly one" in str(refused)
    assert log.append_as_leader(in_frames(clock.time_ms(), codec), 0).first_offset == 0


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_consecutive_zstd_frames_are_stored_as_they_came(
    open_log: OpenLog, clock: ManualClock, cut: int
) -> None:
    log = open_log()
    batch = in_frames(clock.time_ms(), Codec.ZSTD, cut)
    log.append_as_leader(batch, 0)
    assert stored(log)[61:] == batch[61:]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda each: each.label)
def test_a_follower_copies_a_body_of_two_frames(open_log: OpenLog, clock: ManualClock, codec: Codec) -> None:
    log = open_log()
    batch = in_frames(clock.time_ms(), codec, 29)
    log.append_as_follower(batch)
    assert stored(log) == batch


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_replaces_the_producers(
    open_log: OpenLog, clock: ManualClock, source: Codec, target: str
) -> None:
    log = open_log(compression_type=target)
    log.append_as_leader(plain(clock.time_ms()), 2)
    batch = plain(clock.time_ms(), codec=source, producer_id=9, producer_epoch=1, base_sequence=4)
    sent = decode_batch(batch)
    info = log.append_as_leader(memoryview(batch), 2)
    log.update_high_watermark(info.last_offset + 1)
    stored = log.read_bytes(3, 100_000)
    header = parse_header(stored)
    assert header.codec == Codec.from_label(target)
    assert header.base_offset == 3
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 4)
    assert header.partition_leader_epoch == 2
    assert decode_batch(stored) == [one._replace(offset=one.offset + 3) for one in sent]
    assert info.size_bytes == header.size_bytes == len(stored)


def test_recompression_closes_gaps_between_offsets(open_log: OpenLog, clock: ManualClock) -> None:
    now = clock.time_ms()
    gappy = bytearray(encode_batch([Record(offset, now, b"k", b"v") for offset in (0, 5, 300)]))
    log = open_log(compression_type="gzip")
    log.append_as_leader(changed(gappy, 23, ">i", 2), 0)
    log.update_high_watermark(3)
    assert [record.offset for record in decode_batch(log.read_bytes(0, 1000))] == [0, 1, 2]


def test_recompression_bases_timestamps_on_the_first_record(open_log: OpenLog, clock: ManualClock) -> None:
    now = clock.time_ms()
    times = [now - 5, now - 9, now - 7]
    batch = bytearray(
        encode_batch([Record(timestamp=now, value=b"v")] + [Record(timestamp=t) for t in times])
    )
    body = batch_body(batch, parse_header(batch))
    first_record_bytes = body[0] // 2 + 1
    header = parse_header(batch)._replace(record_count=3, last_offset_delta=2, max_timestamp=now - 5)
    log = open_log(compression_type="gzip")
    log.append_as_leader(memoryview(assemble_batch(header, body[first_record_bytes:])), 0)
    log.update_high_watermark(3)
    stored = log.read_bytes(0, 1000)
    assert parse_header(stored).base_timestamp == now - 5
    assert [record.timestamp for record in decode_batch(stored)] == times


def test_what_recompression_makes_too_large_is_refused(open_log: OpenLog, clock: ManualClock) -> None:
    batch = encode_batch([Record(timestamp=clock.time_ms(), value=bytes(5000))], codec=Codec.GZIP)
    log = open_log(compression_type="uncompressed", max_message_bytes=1000)
    assert refusal(log, batch).code is ErrorCode.MESSAGE_TOO_LARGE


def test_recompression_with_log_append_time_does_both(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(compression_type="lz4", message_timestamp_type="LogAppendTime")
    log.append_as_leader(plain(5), 0)
    log.update_high_watermark(3)
    stored = log.read_bytes(0, 1000)
    assert check_crc(stored, 0, len(stored))
    assert {record.timestamp for record in decode_batch(stored)} == {clock.time_ms()}


def test_markers_stay_uncompressed(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(compression_type="zstd", cleanup_policy=("compact",))
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, 0), producer_id=4, producer_epoch=0, timestamp=clock.time_ms()
    )
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(1)
    assert parse_header(log.read_bytes(0, 1000)).codec == Codec.NONE


def test_a_changed_config_counts_from_the_next_batch(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    log.append_as_leader(encode_batch([Record(timestamp=clock.time_ms(), value=b"v")]), 0)
    log.update_config(open_log(cleanup_policy=("compact",)).config)
    keyless = encode_batch([Record(timestamp=clock.time_ms(), value=b"v")])
    assert refusal(log, keyless).code is ErrorCode.INVALID_RECORD


# -- bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda each: each.label)
def test_what_unpacks_to_too_much_is_too_large(open_log: OpenLog, clock: ManualClock, codec: Codec) -> None:
    log = open_log()
    batch = encode_batch([Record(timestamp=clock.time_ms(), value=bytes(50_000))], codec=codec)
    log.appender.walk_limits = WalkLimits(60_000, 10)
    assert log.append_as_leader(batch, 0).first_offset == 0
    log.appender.walk_limits = WalkLimits(50_000, 10)
    error = refusal(log, batch)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "tidelog.message.max.uncompressed.bytes" in error.message


def test_too_many_records_are_too_large(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    log.appender.walk_limits = WalkLimits(1 << 20, 2)
    error = refusal(log, plain(clock.time_ms(), 3, codec=Codec.GZIP))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "tidelog.message.max.records" in error.message


def test_compressing_anew_ends_where_the_batch_is_too_large(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(compression_type="uncompressed", max_message_bytes=100_000)
    batch = encode_batch([Record(timestamp=clock.time_ms(), value=bytes(5 << 20))], codec=Codec.ZSTD)
    judgement = log.appender.judge(memoryview(batch))
    with pytest.raises(KafkaError) as refused:
        judgement.advance()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert judgement.read_bytes < 1 << 20, "it went on though the result could not be stored"


def test_a_large_snappy_block_is_known_before_it_is_unpacked(open_log: OpenLog, clock: ManualClock) -> None:
    body = encode_batch([Record(timestamp=clock.time_ms(), value=bytes(1 << 20))])
    header = parse_header(body)._replace(attributes=int(Codec.SNAPPY))
    raw = bytes(cramjam.snappy.compress_raw(batch_body(body, parse_header(body))))
    judgement = open_log().appender.judge(memoryview(join_batch(header, raw)))
    assert judgement.next_bytes > 1 << 20
    assert judgement.read_bytes == 0
