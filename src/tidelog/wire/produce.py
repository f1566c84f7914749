"""Produce by hand, versions 3 to 13: the hot path that must not copy records.

Broker side: :func:`parse_produce_request` turns a body into light tuples whose ``records`` are views of
the receive buffer; :func:`encode_produce_response` builds the whole answering frame. Client side:
:func:`encode_produce_request` returns the frame as buffers to be sent in order, records uncopied; the
answer carries no records, so clients read it with ``codec.decode(ProduceResponse, ...)``.

Each direction has a short way for the shape that nearly every request has (one topic, one partition,
nothing in the tagged fields) and a general one for the rest; both give what the generic codec gives,
which the tests compare byte for byte. The general one is a generator: a broker reads and writes what is about
thousands of partitions in slices (``parse_produce_in_slices``, ``encode_produce_in_slices``). Versions before
9 use the old encoding, 13 names topics by id.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from tidelog.errors import WireError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.fetch_request import SLICE
from tidelog.wire.headers import RequestHeader, sized_request_header
from tidelog.wire.primitives import (
    Endpoint,
    count_bytes,
    endpoint_section,
    read_array_count,
    read_count,
    read_nullable_string,
    read_string,
    string_bytes,
)
from tidelog.wire.source import MAX_STRING_BYTES
from tidelog.wire.varint import skip_tags
from tidelog.wire.writers import shortened

FLEXIBLE_SINCE = 9
LEADER_SINCE = 10
TOPIC_ID_SINCE = 13

PartitionRecords = tuple[int, memoryview | None]
"""Partition index and its record batches."""
TopicRecords = tuple[str | None, Uuid | None, list[PartitionRecords]]
"""Topic name (before version 13) or id (from 13 on), and its partitions."""


class ParsedProduce(NamedTuple):
    """A whole request, as the broker reads it."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


RecordBuffer = bytes | bytearray | memoryview
PartitionToSend = tuple[int, RecordBuffer | None]
TopicToSend = tuple[str | None, Uuid | None, Sequence[PartitionToSend]]

LeaderIdAndEpoch = tuple[int, int]


class PartitionResult(NamedTuple):
    """What became of one partition's records; a plain tuple in this order does as well."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


PartitionAnswer = tuple[
    int, int, int, int, int, Sequence[tuple[int, str | None]], str | None, LeaderIdAndEpoch | None
]
"""What :class:`PartitionResult` names; where every request passes it is a plain tuple, which is made and
taken apart in a fourth of the time."""
# The places in it of what is looked at by itself.
PARTITION_AT: Final = 0
ERROR_CODE_AT: Final = 1
RECORD_ERRORS_AT: Final = 5
ERROR_MESSAGE_AT: Final = 6
CURRENT_LEADER_AT: Final = 7
TopicAnswer = tuple[str | None, Uuid | None, Sequence[PartitionAnswer]]

MAX_PARTITIONS = 20_000
"""More topics and partitions than this in one request are no produce request of any client."""

_OLD_HEAD = struct.Struct(">hhiih")
_OLD_PARTITION = struct.Struct(">iii")
_NEW_HEAD = struct.Struct(">BhiBB")
_NEW_PARTITION = struct.Struct(">BiB")
_ID_HEAD = struct.Struct(">BhiB16sBiB")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_SIZE_AND_ID = struct.Struct(">ii")

_new_tuple = tuple.__new__


def parse_produce_request(buf: memoryview, pos: int, version: int) -> ParsedProduce:
    """The body at ``pos``; raises :class:`WireError` for bytes that are no such body."""
    found = _parse_single(buf, pos, version)
    return run_to_end(parse_produce_in_slices(buf, pos, version)) if found is None else found


def parse_short_produce(buf: memoryview, pos: int, version: int) -> ParsedProduce | None:
    """The same, unless the body is so long that it should be read in slices; then None."""
    found = _parse_single(buf, pos, version)
    if found is None:
        parsing = parse_produce_in_slices(buf, pos, version)
        try:
            next(parsing)
        except StopIteration as end:
            found = end.value
    return found


def parse_produce_in_slices(buf: memoryview, pos: int, version: int) -> Generator[None, None, ParsedProduce]:
    """The same, slowly: yields wherever others may have their turn."""
    try:
        return (yield from _parse_any(buf, pos, version))
    except (struct.error, IndexError):
        raise WireError(f"ProduceRequest v{version} ends too early") from None
    except UnicodeDecodeError as error:
        raise _not_utf8(version) from error


def _not_utf8(version: int) -> WireError:
    return WireError(f"ProduceRequest v{version} holds a string that is not UTF-8")


def _parse_single(buf: memoryview, pos: int, version: int) -> ParsedProduce | None:
    """The short way; ``None`` for a body that is shorter than its shape or has another one."""
    try:
        if version >= TOPIC_ID_SINCE:
            return _single_by_id(buf, pos)
        if version >= FLEXIBLE_SINCE:
            return _single_compact(buf, pos)
        return _single_old(buf, pos)
    except (struct.error, IndexError):
        return None
    except UnicodeDecodeError as error:
        raise _not_utf8(version) from error


def _single_old(buf: memoryview, pos: int) -> ParsedProduce | None:
    """Versions 3 to 8, one topic and partition outside a transaction; ``None`` for any other shape."""
    transactional, acks, timeout_ms, topics, length = _OLD_HEAD.unpack_from(buf, pos)
    if transactional != -1 or topics != 1 or length < 0:
        return None
    pos += 14
    end = pos + length
    partitions, index, size = _OLD_PARTITION.unpack_from(buf, end)
    start = end + 12
    if partitions != 1 or size < 0 or start + size > len(buf):
        return None
    records = buf[start : start + size]
    topic = str(buf[pos:end], "utf-8"), None, [(index, records)]
    return _new_tuple(ParsedProduce, (None, acks, timeout_ms, [topic]))


def _single_compact(buf: memoryview, pos: int) -> ParsedProduce | None:
    """Versions 9 to 12, the same shape."""
    transactional, acks, timeout_ms, topics, length = _NEW_HEAD.unpack_from(buf, pos)
    if transactional or topics != 2 or not 0 < length < 128:
        return None
    pos += 9
    end = pos + length - 1
    partitions, index, size = _NEW_PARTITION.unpack_from(buf, end)
    if partitions != 2:
        return None
    records = _last_records(buf, end + 6, size)
    if records is None:
        return None
    topic = str(buf[pos:end], "utf-8"), None, [(index, records)]
    return _new_tuple(ParsedProduce, (None, acks, timeout_ms, [topic]))


def _single_by_id(buf: memoryview, pos: int) -> ParsedProduce | None:
    """Version 13, the same shape."""
    transactional, acks, timeout_ms, topics, topic_id, partitions, index, size = _ID_HEAD.unpack_from(
        buf, pos
    )
    if transactional or topics != 2 or partitions != 2:
        return None
    records = _last_records(buf, pos + 30, size)
    if records is None:
        return None
    return _new_tuple(ParsedProduce, (None, acks, timeout_ms, [(None, topic_id, [(index, records)])]))


def _last_records(buf: memoryview, pos: int, size: int) -> memoryview | None:
    """Records whose compact length begins with the byte ``size`` read before ``pos``.

    ``None`` unless they are there and followed by three empty tagged sections (partition, topic, request).
    """
    if size > 127:
        size = size & 0x7F | (buf[pos] & 0x7F) << 7
        pos += 1
        if buf[pos - 1] > 127:
            size |= (buf[pos] & 0x7F) << 14
            pos += 1
            if buf[pos - 1] > 127:
                size |= buf[pos] << 21
                pos += 1
                if buf[pos - 1] > 127:
                    return None
    end = pos + size - 1
    if size == 0 or buf[end] or buf[end + 1] or buf[end + 2]:
        return None
    return buf[pos:end]


def _parse_any(buf: memoryview, pos: int, version: int) -> Generator[None, None, ParsedProduce]:
    flexible = version >= FLEXIBLE_SINCE
    transactional_id, pos = read_nullable_string(buf, pos, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buf, pos)
    count, pos = read_array_count(buf, pos + 6, flexible)
    topics: list[TopicRecords] = []
    seen = 0
    for _ in range(count):
        name: str | None = None
        topic_id: Uuid | None = None
        if version >= TOPIC_ID_SINCE:
            topic_id = Uuid(bytes(buf[pos : pos + 16]))
            pos += 16
        else:
            name, pos = read_string(buf, pos, flexible)
        partition_count, pos = read_array_count(buf, pos, flexible)
        seen += 1
        if not seen % SLICE:
            yield
        if seen + partition_count > MAX_PARTITIONS:
            raise WireError(
                f"ProduceRequest v{version} names more than {MAX_PARTITIONS} topics and partitions"
            )
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            (index,) = _INT32.unpack_from(buf, pos)
            records, pos = _read_records(buf, pos + 4, flexible)
            if flexible:
                pos = skip_tags(buf, pos)
            partitions.append((index, records))
            seen += 1
            if not seen % SLICE:
                yield
        if flexible:
            pos = skip_tags(buf, pos)
        topics.append((name, topic_id, partitions))
    if flexible:
        skip_tags(buf, pos)
    return ParsedProduce(transactional_id, acks, timeout_ms, topics)


def _read_records(buf: memoryview, pos: int, flexible: bool) -> tuple[memoryview | None, int]:
    size, pos = read_count(buf, pos, flexible)
    if size < 0:
        return None, pos
    end = pos + size
    if end > len(buf):
        raise WireError(f"a partition claims {size} bytes of records, more than its request holds")
    return buf[pos:end], end


# Size and correlation id, [the header's tagged section,] and the count of topics, which is one.
_OLD_ANSWER = struct.Struct(">iii")
_NEW_ANSWER = struct.Struct(">iiBB")
# Count of partitions, index, error, base offset, append time [, log start [, record errors, message]],
# throttle time; from version 9 on with the tagged sections of partition, topic and response.
_TAIL_V3 = struct.Struct(">iihqqi")
_TAIL_V5 = struct.Struct(">iihqqqi")
_TAIL_V8 = struct.Struct(">iihqqqihi")
_TAIL_V9 = struct.Struct(">BihqqqBBBBiB")
_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
# Tagged section with the current leader: one field, tag 0, nine bytes, id, epoch, no tags within.
_LEADER_SECTION = struct.Struct(">BBBiiB")
_NO_LEADER = (-1, -1)


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicAnswer],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """The whole frame: size, header and body.

    What a version cannot say is left out: the current leader and endpoints before 10, record errors and
    messages before 8.
    """
    if len(topics) == 1 and not node_endpoints:
        name, topic_id, partitions = topics[0]
        if len(partitions) == 1:
            result = partitions[0]
            if (
                not result[RECORD_ERRORS_AT]
                and result[ERROR_MESSAGE_AT] is None
                and result[CURRENT_LEADER_AT] is None
            ):
                topic = _topic_key(version, name, topic_id)
                return _answer_single(version, correlation_id, topic, result, throttle_time_ms)
    return run_to_end(
        encode_produce_in_slices(version, correlation_id, topics, throttle_time_ms, node_endpoints)
    )


def _topic_key(version: int, name: str | None, topic_id: Uuid | None) -> bytes:
    """How the version names a topic."""
    if version >= TOPIC_ID_SINCE:
        return topic_id or ZERO_UUID
    return string_bytes(name or "", version >= FLEXIBLE_SINCE)


def _answer_single(
    version: int, correlation_id: int, topic: bytes, result: PartitionAnswer, throttle_time_ms: int
) -> bytes:
    """One partition without complaints."""
    index, error, base, append_time, log_start, _, _, _ = result
    if version >= FLEXIBLE_SINCE:
        tail = _TAIL_V9.pack(2, index, error, base, append_time, log_start, 1, 0, 0, 0, throttle_time_ms, 0)
        return _NEW_ANSWER.pack(6 + len(topic) + len(tail), correlation_id, 0, 2) + topic + tail
    if version >= 8:
        tail = _TAIL_V8.pack(1, index, error, base, append_time, log_start, 0, -1, throttle_time_ms)
    elif version >= 5:
        tail = _TAIL_V5.pack(1, index, error, base, append_time, log_start, throttle_time_ms)
    else:
        tail = _TAIL_V3.pack(1, index, error, base, append_time, throttle_time_ms)
    return _OLD_ANSWER.pack(8 + len(topic) + len(tail), correlation_id, 1) + topic + tail


def encode_produce_in_slices(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicAnswer],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> Generator[None, None, bytes]:
    """The whole frame, slowly: yields wherever others may have their turn."""
    flexible = version >= FLEXIBLE_SINCE
    out = bytearray(_SIZE_AND_ID.pack(0, correlation_id))
    if flexible:
        out.append(0)
    out += count_bytes(len(topics), flexible)
    written = 0
    for name, topic_id, partitions in topics:
        out += _topic_key(version, name, topic_id)
        out += count_bytes(len(partitions), flexible)
        for result in partitions:
            _put_result(out, version, result)
            written += 1
            if not written % SLICE:
                yield
        if flexible:
            out.append(0)
    out += _INT32.pack(throttle_time_ms)
    if flexible:
        out += endpoint_section(node_endpoints if version >= LEADER_SINCE else ())
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _put_result(out: bytearray, version: int, result: PartitionAnswer) -> None:
    index, error, base, append_time, log_start, record_errors, message, leader = result
    flexible = version >= FLEXIBLE_SINCE
    if version >= 5:
        out += _RESULT_V5.pack(index, error, base, append_time, log_start)
    else:
        out += _RESULT_V3.pack(index, error, base, append_time)
    if version >= 8:
        out += count_bytes(len(record_errors), flexible)
        for batch_index, text in record_errors:
            out += _INT32.pack(batch_index)
            out += _sentence_bytes(text, flexible)
            if flexible:
                out.append(0)
        out += _sentence_bytes(message, flexible)
    if flexible:
        if leader is None or leader == _NO_LEADER or version < LEADER_SINCE:
            out.append(0)
        else:
            out += _LEADER_SECTION.pack(1, 0, 9, *leader, 0)


def _sentence_bytes(text: str | None, flexible: bool) -> bytes:
    """An error message; a name in it that was sent may make it too long."""
    if text is not None and len(raw := text.encode()) > MAX_STRING_BYTES:
        text = shortened(raw).decode()
    return string_bytes(text, flexible)


def encode_produce_request(
    header: RequestHeader,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[TopicToSend],
) -> list[RecordBuffer]:
    """The whole frame as buffers to be sent in order; records stay where they are."""
    body = encode_produce_body(header.api_version, transactional_id, acks, timeout_ms, topics)
    return [sized_request_header(header, sum(map(len, body))), *body]


def encode_produce_body(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[TopicToSend],
) -> list[RecordBuffer]:
    """The body alone, as buffers to be sent in order; records stay where they are."""
    flexible = version >= FLEXIBLE_SINCE
    tags = b"\x00" if flexible else b""
    buffers: list[RecordBuffer] = []
    out = bytearray(string_bytes(transactional_id, flexible))
    out += _ACKS_TIMEOUT.pack(acks, timeout_ms)
    out += count_bytes(len(topics), flexible)
    for name, topic_id, partitions in topics:
        out += _topic_key(version, name, topic_id)
        out += count_bytes(len(partitions), flexible)
        for index, records in partitions:
            out += _INT32.pack(index)
            out += count_bytes(-1 if records is None else len(records), flexible)
            if records:
                buffers += [bytes(out), records]
                out = bytearray()
            out += tags
        out += tags
    out += tags
    buffers.append(bytes(out))
    return buffers
