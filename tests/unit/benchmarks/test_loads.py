"""What the benchmarks send and read is what they say it is, by Tidelog's own codec."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from benchmarks import attacks, big_log, heavy_batches, perf_tools, wire

from tidelog.records.batch import HEADER_SIZE, check_crc, parse_header
from tidelog.records.record import decode_batch
from tidelog.wire.codec import decode
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import ProduceRequest

BODY_AT = 4 + 2 + 2 + 4 + 2 + len("bench") + 1  # size, key, version, correlation id, client id, tags


def test_a_produce_request_by_name_says_what_is_to_be_produced() -> None:
    batch = bytes(wire.batch(2, 50))
    request = wire.produce_request_by_name("topic", 3, batch)
    found, end = decode(ProduceRequest, wire.PRODUCE_BY_NAME_VERSION, request, BODY_AT)
    assert end == len(request)
    assert found.acks == -1
    assert found.topic_data[0].name == "topic"
    assert found.topic_data[0].partition_data[0].index == 3
    assert bytes(found.topic_data[0].partition_data[0].records or b"") == batch


def test_the_requests_of_attackers_can_be_read() -> None:
    request = attacks.list_offsets_request("topic", 1234)
    found, end = decode(ListOffsetsRequest, attacks.LIST_OFFSETS_VERSION, request, BODY_AT)
    assert end == len(request)
    assert found.topics[0].name == "topic"
    assert found.topics[0].partitions[0].timestamp == 1234
    request = attacks.METADATA_REQUEST
    metadata, end = decode(MetadataRequest, attacks.METADATA_VERSION, request, BODY_AT)
    assert end == len(request)
    assert metadata.topics is None


def test_tiny_records_are_small_on_the_wire_and_many_in_memory() -> None:
    batch = heavy_batches.tiny()
    header = parse_header(batch)
    unpacked = gzip.decompress(batch[HEADER_SIZE:])
    assert check_crc(batch, 0, len(batch))
    assert len(batch) < 50_000
    assert len(unpacked) > 31_000_000
    assert header.record_count * 7 == len(unpacked)


def test_tiny_records_ahead_of_time_have_only_their_newest_timestamp_there() -> None:
    header = parse_header(heavy_batches.tiny(ahead_ms=heavy_batches.DAY_MS))
    assert header.max_timestamp - header.base_timestamp == heavy_batches.DAY_MS + 1000


def test_valid_records_are_valid_and_fill_what_a_batch_may_hold() -> None:
    batch = heavy_batches.dense(50_000)
    header = parse_header(batch)
    records = decode_batch(batch, 0)
    assert 25_000 < len(batch) <= 50_000 + HEADER_SIZE
    assert [record.offset for record in records] == list(range(header.record_count))
    assert max(record.timestamp for record in records) == header.max_timestamp == records[-1].timestamp


def test_a_log_of_which_only_some_is_written_has_whole_indexes_and_valid_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(big_log, "WHOLE_BYTES", 0)
    directory = tmp_path / "topic-0"
    directory.mkdir()
    (directory / "partition.metadata").write_bytes(b"version: 0\n")
    offsets = big_log.write(directory, 5 * big_log.SEGMENT_BYTES // 2)
    bases = sorted(int(file.stem) for file in directory.glob("*.log"))
    per_segment = big_log.SEGMENT_BYTES // big_log.BATCH_BYTES
    assert bases == [0, per_segment, 2 * per_segment]
    assert len(offsets) == 2 * big_log.SAMPLES + per_segment // 2
    for offset in offsets[:: big_log.SAMPLES // 4]:
        base = max(each for each in bases if each <= offset)
        stem = directory / f"{base:020d}"
        entries = stem.with_suffix(".index").read_bytes()
        # The first batch has no entry, each of the others one: relative offset and position.
        relative, position = struct.unpack_from(">ii", bytes(8) + entries, 8 * (offset - base))
        assert relative == offset - base
        with stem.with_suffix(".log").open("rb") as log:
            log.seek(position)
            batch = log.read(big_log.BATCH_BYTES)
        header = parse_header(batch)
        assert header.base_offset == offset
        assert check_crc(batch, 0, len(batch))
        assert len(decode_batch(batch, 0)) == 1
    used = sum(file.stat().st_blocks * 512 for file in directory.iterdir())
    assert used < 60_000_000


def test_what_the_producer_tool_prints_is_read() -> None:
    output = """\
100000 records sent, 20000.0 records/sec (1.91 MB/sec), 12.3 ms avg latency, 100.0 ms max latency.
500000 records sent, 98765.43 records/sec (9.42 MB/sec), 25.1 ms avg latency, 301.0 ms max latency.
"""
    assert perf_tools.parse_produced(output) == (500_000, 98765.43)


def test_what_the_consumer_tool_prints_is_read() -> None:
    output = (
        "2026-11-16 09:00:00:000, 2026-11-16 09:00:04:000, 95.3674, 23.84, 1000000, 250000.0000, "
        "3000, 1000, 95.3674, 1000000.0000\n"
    )
    assert perf_tools.parse_consumed(output) == (1_000_000, 1_000_000.0)


def test_a_tool_that_says_nothing_of_use_is_no_result() -> None:
    with pytest.raises(RuntimeError, match="no brokers"):
        perf_tools.parse_produced("no brokers\n")


def test_the_error_of_an_answer_by_name_is_found() -> None:
    answer = struct.pack(">ib", 1, 0) + b"\x02\x06topic\x02" + struct.pack(">ih", 0, 19)
    assert wire.error_by_name("topic", answer) == 19
