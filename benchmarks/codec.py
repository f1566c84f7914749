"""CPU per record for building and reading batches, in Tidelog's codec and those of other Python clients.

No broker takes part. The contestants are Tidelog's codec, compiled and interpreted, kafka-python (Python) and
aiokafka (C). Batches are uncompressed, about 16 KB. Reading verifies the checksum and accesses each record's
value, as a consumer does. Arrow reads the same bytes without creating an object per record.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from benchmarks.codec_modules import CodecModules
from benchmarks.figures import OURS, Figures

NAME = "codec"
BATCH_BYTES = 16 << 10
NOW_MS = 1_700_000_000_000

Headers = list[tuple[str, bytes]]
SHAPES: dict[str, tuple[bytes | None, bytes, Headers]] = {
    "100 B": (None, b"v" * 100, []),
    "1 KB": (None, b"v" * 1024, []),
    "100 B with key and header": (b"key-%07d" % 1, b"v" * 100, [("trace", b"0123456789abcdef")]),
}


def measure(contestant: str, _root: Path, figures: Figures, *, quick: bool) -> None:
    if contestant != OURS:
        return
    repeats = 20 if quick else 60
    variants = [("tidelog interpreted", CodecModules("interpreted"), 2)]
    if importlib.import_module("tidelog.records.record_codec").COMPILED:
        variants.insert(0, (OURS, CodecModules("compiled"), 20))
    for shape, (key, value, headers) in SHAPES.items():
        for label, codec, inner in variants:
            _measure_ours(figures, label, codec, shape, (key, value, headers), (repeats, inner))
        for label, builder, reader in (
            ("kafka-python", KafkaPythonBuilder, KafkaPythonBatch),
            ("aiokafka", AioBuilder, AioBatch),
        ):
            inner = 1 if label == "kafka-python" else 10
            count = _batch_count(key, value)
            encode = _foreign_encoder(builder, count, key, value, headers)
            batch = bytes(encode())
            _add(figures, label, f"encode {shape}", encode, count, (repeats, inner))
            _add(figures, label, f"decode {shape}", _foreign_decoder(reader, batch), count, (repeats, inner))


def _measure_ours(
    figures: Figures,
    label: str,
    codec: CodecModules,
    shape: str,
    record: tuple[bytes | None, bytes, Headers],
    effort: tuple[int, int],
) -> None:
    key, value, headers = record
    count = _batch_count(key, value)

    def encode() -> bytes:
        builder = codec.records.BatchBuilder(2 * BATCH_BYTES)
        append = builder.append
        for index in range(count):
            append(NOW_MS + index, key, value, headers)
        batch: bytes = builder.close()
        return batch

    batch = memoryview(encode())

    def decode() -> None:
        _look_at(codec.records.decode_consumer_records(batch, 0, "topic", 0))

    def decode_arrow() -> None:
        codec.arrow.to_arrow("topic", 0, codec.columns.decode_columns(fetch, with_headers=bool(headers)))

    # Arrow is for many records at once: a fetch of 64 batches, a table of as many records.
    fetch = memoryview(bytes(batch) * 64)
    columns: dict[str, Any] = {"value": pa.array([value] * 64 * count)}
    if key is not None:
        columns["key"] = pa.array([key] * 64 * count)
    table = pa.table(columns)

    def encode_arrow() -> None:
        builders = codec.arrow.encode_columns(table, limit_bytes=BATCH_BYTES, timestamp_ms=NOW_MS)
        for builder in builders:
            builder.close()

    many = (effort[0], 1)
    _add(figures, label, f"encode {shape}", encode, count, effort)
    _add(figures, label, f"decode {shape}", decode, count, effort)
    _add(figures, label, f"decode {shape} to Arrow", decode_arrow, 64 * count, many)
    if not headers:
        _add(figures, label, f"encode {shape} from Arrow", encode_arrow, 64 * count, many)


def _batch_count(key: bytes | None, value: bytes) -> int:
    return BATCH_BYTES // (len(key or b"") + len(value) + 10)


def _look_at(records: Iterable[Any]) -> None:
    for record in records:
        record.value  # noqa: B018


def _foreign_encoder(
    builder_class: Any, count: int, key: bytes | None, value: bytes, headers: Headers
) -> Callable[[], Any]:
    def encode() -> Any:
        builder = builder_class(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=2 * BATCH_BYTES,
        )
        append = builder.append
        for index in range(count):
            append(index, NOW_MS + index, key, value, headers)
        return builder.build()

    return encode


def _foreign_decoder(batch_class: Any, data: bytes) -> Callable[[], None]:
    def decode() -> None:
        batch = batch_class(data)
        assert batch.validate_crc()
        _look_at(batch)

    return decode


def _add(
    figures: Figures, label: str, name: str, work: Callable[[], Any], records: int, effort: tuple[int, int]
) -> None:
    """The least CPU time of several tries: what other processes on the machine add is not the codec's."""
    repeats, inner = effort
    best = float("inf")
    for _ in range(repeats):
        before = time.process_time()
        for _ in range(inner):
            work()
        best = min(best, time.process_time() - before)
    figures.add(NAME, label, name, best / inner / records * 1e6, "µs per record", "lower")
