"""Writing and reading FetchResponse by hand, versions 4 to 18, without copying records.

The broker writes: :func:`encode_fetch_response` gives the whole frame as parts to be sent in order, plain
``bytes`` and a :class:`FileRange` for each partition whose records are in a file, so that they go from
the page cache to the socket without passing through here. The client reads:
:func:`decode_fetch_response` gives tuples whose ``records`` are views of the received frame.

Both give what the generic codec gives, which the tests compare byte for byte. Versions before 12 use the
old encoding; from 13 on topics are named by id.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from tidelog.errors import WireError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.fetch_request import SLICE
from tidelog.wire.primitives import (
    Endpoint,
    count_bytes,
    endpoint_section,
    read_array_count,
    read_count,
    read_endpoint_section,
    read_string,
    string_bytes,
)
from tidelog.wire.varint import read_tag, read_tag_count, require_tag_size, skip_tags, uvarint

SESSION_SINCE = 7
FLEXIBLE_SINCE = 12
TOPIC_ID_SINCE = 13
ENDPOINTS_SINCE = 16


class FileRange(NamedTuple):
    """Bytes of an open file that are to be sent as they are."""

    fd: int
    position: int
    length: int
    owner: object = None
    """What keeps the descriptor open as long as it is held here; without one, the turn of the loop does."""


Records = bytes | memoryview | FileRange | None
Pair = tuple[int, int]
Part = bytes | FileRange


class FetchedPartition(NamedTuple):
    """The answer for one partition; a plain tuple in this order does as well.

    ``aborted_transactions`` are (producer id, first offset) pairs, or ``None`` for readers of uncommitted
    records. ``diverging_epoch`` is (epoch, end offset), ``current_leader`` (id, epoch), ``snapshot_id``
    (end offset, epoch); all three exist from version 12 on.
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[Pair] | None = None
    preferred_read_replica: int = -1
    records: Records = b""
    diverging_epoch: Pair | None = None
    current_leader: Pair | None = None
    snapshot_id: Pair | None = None


PartitionAnswer = tuple[
    int, int, int, int, int, Sequence[Pair] | None, int, Records, Pair | None, Pair | None, Pair | None
]
"""What :class:`FetchedPartition` names; where every fetch passes it is a plain tuple, which is made and taken
apart in a fourth of the time."""
# The places in it of what is looked at by itself; the tagged structures are the rest, from theirs on.
ERROR_CODE_AT: Final = 1
HIGH_WATERMARK_AT: Final = 2
LOG_START_OFFSET_AT: Final = 4
ABORTED_TRANSACTIONS_AT: Final = 5
RECORDS_AT: Final = 7
TAGGED_AT: Final = 8
CURRENT_LEADER_AT: Final = 9
TopicAnswer = tuple[str | None, Uuid | None, Sequence[PartitionAnswer]]
"""Topic name (used before version 13), topic id (used from 13 on), and its partitions."""


class FetchResult(NamedTuple):
    """A response as a client reads it; before version 13 topics have names, from 13 on ids."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[tuple[str | None, Uuid | None, list[FetchedPartition]]]
    node_endpoints: list[Endpoint]


_INT32 = struct.Struct(">i")
_INT64_PAIR = struct.Struct(">qq")
_HEAD_V4 = struct.Struct(">iii")
_HEAD_V7 = struct.Struct(">iiihi")
_HEAD_V12 = struct.Struct(">iiBihi")
_BODY_V7 = struct.Struct(">ihi")
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
# One partition of one topic, up to the length of its records: named by id, or by a name in between.
_SINGLE_V13 = struct.Struct(">iiBihiB16sBihqqqBi")
_SINGLE_V12_HEAD = struct.Struct(">iiBihiBB")
_SINGLE_V12_TAIL = struct.Struct(">BihqqqBi")
_SINGLE_V11_HEAD = struct.Struct(">iiihiih")
_SINGLE_V11_TAIL = struct.Struct(">iihqqqiii")
_NO_TAGS = b"\x00\x00\x00"
# The sizes of such frames without name, records and the compact length of these.
_SIZE_V11 = _SINGLE_V11_HEAD.size + _SINGLE_V11_TAIL.size - 4
_SIZE_V12 = _SINGLE_V12_HEAD.size + _SINGLE_V12_TAIL.size + len(_NO_TAGS) - 4
_SIZE_V13 = _SINGLE_V13.size + len(_NO_TAGS) - 4
_LONGEST_SHORT_NAME = 126
# Tag and size of the partition's three tagged structures; each ends with an empty tagged section.
_DIVERGING_EPOCH = struct.Struct(">BBiqB")
_CURRENT_LEADER = struct.Struct(">BBiiB")
_SNAPSHOT_ID = struct.Struct(">BBqiB")
_NONE = (-1, -1)
_NO_TAGGED = (None, None, None)


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicAnswer],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> list[Part]:
    """The whole frame as parts: size, header and body.

    What a version cannot say is left out: log start offsets before 5, sessions and the error of the whole
    request before 7, preferred replicas before 11, the tagged structures before 12, endpoints before 16.
    """
    if version >= 11 and len(topics) == 1 and not node_endpoints and not throttle_time_ms:
        name, topic_id, partitions = topics[0]
        if len(partitions) == 1:
            answer = partitions[0]
            records = answer[RECORDS_AT]
            if (
                type(records) is FileRange
                and not answer[ABORTED_TRANSACTIONS_AT]
                and answer[TAGGED_AT:] == _NO_TAGGED
            ):
                topic = _topic_key(version, name, topic_id)
                if len(topic) <= _LONGEST_SHORT_NAME:
                    return _single(version, correlation_id, topic, answer, records, error_code, session_id)
    return run_to_end(
        encode_in_slices(
            version,
            correlation_id,
            topics,
            throttle_time_ms=throttle_time_ms,
            error_code=error_code,
            session_id=session_id,
            node_endpoints=node_endpoints,
        )
    )


def encode_in_slices(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicAnswer],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[Endpoint] = (),
) -> Generator[None, None, list[Part]]:
    """The same, slowly: yields wherever others may have their turn."""
    frame = _Frame(version)
    frame.head(correlation_id, throttle_time_ms, error_code, session_id)
    yield from frame.topics(topics)
    if frame.flexible:
        frame.out += endpoint_section(node_endpoints if version >= ENDPOINTS_SINCE else ())
    return frame.finish()


def _topic_key(version: int, name: str | None, topic_id: Uuid | None) -> bytes:
    """How the version names a topic, without the length of the name."""
    return topic_id or ZERO_UUID if version >= TOPIC_ID_SINCE else (name or "").encode()


def _single(
    version: int,
    correlation_id: int,
    topic: bytes,
    answer: PartitionAnswer,
    records: FileRange,
    error: int,
    session_id: int,
) -> list[Part]:
    """Version 11 and up, one partition with records in a file: what nearly every busy fetch gets."""
    index, code, high, stable, start, aborted, preferred, _, _, _, _ = answer
    length = records.length
    if version < FLEXIBLE_SINCE:
        size = _SIZE_V11 + len(topic) + length
        aborts = -1 if aborted is None else 0
        tail = _SINGLE_V11_TAIL.pack(1, index, code, high, stable, start, aborts, preferred, length)
        head = _SINGLE_V11_HEAD.pack(size, correlation_id, 0, error, session_id, 1, len(topic)) + topic + tail
        return [head, records] if length else [head]
    aborts = 0 if aborted is None else 1
    count = uvarint(length + 1)
    if version >= TOPIC_ID_SINCE:
        size = _SIZE_V13 + len(count) + length
        head = _SINGLE_V13.pack(
            size, correlation_id, 0, 0, error, session_id, 2, topic, 2, index, code, high, stable, start,
            aborts, preferred,
        )  # fmt: skip
    else:
        size = _SIZE_V12 + len(topic) + len(count) + length
        tail = _SINGLE_V12_TAIL.pack(2, index, code, high, stable, start, aborts, preferred)
        begin = _SINGLE_V12_HEAD.pack(size, correlation_id, 0, 0, error, session_id, 2, len(topic) + 1)
        head = begin + topic + tail
    return [head + count, records, _NO_TAGS] if length else [head + count + _NO_TAGS]


class _Frame:
    """A response under construction: finished parts, and the bytes since the last file range."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.flexible = version >= FLEXIBLE_SINCE
        self.parts: list[Part] = []
        self.out = bytearray()
        self.sent = 0

    def head(self, correlation_id: int, throttle_time_ms: int, error_code: int, session_id: int) -> None:
        if self.flexible:
            self.out += _HEAD_V12.pack(0, correlation_id, 0, throttle_time_ms, error_code, session_id)
        elif self.version >= SESSION_SINCE:
            self.out += _HEAD_V7.pack(0, correlation_id, throttle_time_ms, error_code, session_id)
        else:
            self.out += _HEAD_V4.pack(0, correlation_id, throttle_time_ms)

    def topics(self, topics: Sequence[TopicAnswer]) -> Generator[None, None, None]:
        written = 0
        flexible = self.flexible
        by_id = self.version >= TOPIC_ID_SINCE
        self.out += count_bytes(len(topics), flexible)
        for name, topic_id, partitions in topics:
            self.out += topic_id or ZERO_UUID if by_id else string_bytes(name or "", flexible)
            self.out += count_bytes(len(partitions), flexible)
            for answer in partitions:
                self.partition(answer)
                written += 1
                if not written % SLICE:
                    yield
            if flexible:
                self.out.append(0)

    def partition(self, answer: PartitionAnswer) -> None:
        index, error, high, stable, start, aborted, preferred, records, diverging, leader, snapshot = answer
        out = self.out
        if self.version >= 5:
            out += _PARTITION_V5.pack(index, error, high, stable, start)
        else:
            out += _PARTITION_V4.pack(index, error, high, stable)
        out += count_bytes(-1 if aborted is None else len(aborted), self.flexible)
        for pair in aborted or ():
            out += _INT64_PAIR.pack(*pair)
            if self.flexible:
                out.append(0)
        if self.version >= 11:
            out += _INT32.pack(preferred)
        self.records(records)
        if self.flexible:
            self.out += _partition_tags(diverging, leader, snapshot)

    def records(self, records: Records) -> None:
        if isinstance(records, FileRange):
            self.out += count_bytes(records.length, self.flexible)
            if records.length:
                self.parts += [bytes(self.out), records]
                self.sent += len(self.out) + records.length
                self.out = bytearray()
        elif records is None:
            self.out += count_bytes(-1, self.flexible)
        else:
            self.out += count_bytes(len(records), self.flexible)
            self.out += records

    def finish(self) -> list[Part]:
        size = _INT32.pack(self.sent + len(self.out) - 4)
        if not self.parts:
            self.out[:4] = size
            return [bytes(self.out)]
        first = self.parts[0]
        assert type(first) is bytes
        self.parts[0] = size + first[4:]
        if self.out:
            self.parts.append(bytes(self.out))
        return self.parts


def _partition_tags(diverging: Pair | None, leader: Pair | None, snapshot: Pair | None) -> bytes:
    """The partition's tagged section; structures with Kafka's defaults in them are as good as absent."""
    count = 0
    section = b""
    if diverging is not None and diverging != _NONE:
        section += _DIVERGING_EPOCH.pack(0, 13, *diverging, 0)
        count += 1
    if leader is not None and leader != _NONE:
        section += _CURRENT_LEADER.pack(1, 9, *leader, 0)
        count += 1
    if snapshot is not None and snapshot != _NONE:
        section += _SNAPSHOT_ID.pack(2, 13, *snapshot, 0)
        count += 1
    return bytes((count,)) + section


_TAGGED_PAIRS = {0: struct.Struct(">iq"), 1: struct.Struct(">ii"), 2: struct.Struct(">qi")}


def decode_fetch_response(version: int, buf: memoryview, pos: int = 0) -> FetchResult:
    """The body at ``pos``; raises :class:`WireError` for bytes that are no such body."""
    try:
        return _decode(version, buf, pos)
    except (struct.error, IndexError):
        raise WireError(f"FetchResponse v{version} ends too early") from None
    except UnicodeDecodeError as error:
        raise WireError(f"FetchResponse v{version} holds a string that is not UTF-8") from error


def _decode(version: int, buf: memoryview, pos: int) -> FetchResult:
    flexible = version >= FLEXIBLE_SINCE
    error_code, session_id = 0, 0
    if version >= SESSION_SINCE:
        throttle_time_ms, error_code, session_id = _BODY_V7.unpack_from(buf, pos)
        pos += 10
    else:
        (throttle_time_ms,) = _INT32.unpack_from(buf, pos)
        pos += 4
    count, pos = read_array_count(buf, pos, flexible)
    topics: list[tuple[str | None, Uuid | None, list[FetchedPartition]]] = []
    for _ in range(count):
        name: str | None = None
        topic_id: Uuid | None = None
        if version >= TOPIC_ID_SINCE:
            topic_id = Uuid(bytes(buf[pos : pos + 16]))
            pos += 16
        else:
            name, pos = read_string(buf, pos, flexible)
        partition_count, pos = read_array_count(buf, pos, flexible)
        partitions: list[FetchedPartition] = []
        for _ in range(partition_count):
            partition, pos = _decode_partition(version, buf, pos)
            partitions.append(partition)
        if flexible:
            pos = skip_tags(buf, pos)
        topics.append((name, topic_id, partitions))
    endpoints: list[Endpoint] = []
    if version >= ENDPOINTS_SINCE:
        endpoints, pos = read_endpoint_section(buf, pos)
    elif flexible:
        skip_tags(buf, pos)
    return FetchResult(throttle_time_ms, error_code, session_id, topics, endpoints)


def _decode_partition(version: int, buf: memoryview, pos: int) -> tuple[FetchedPartition, int]:
    flexible = version >= FLEXIBLE_SINCE
    start = -1
    if version >= 5:
        index, error, high, stable, start = _PARTITION_V5.unpack_from(buf, pos)
        pos += 30
    else:
        index, error, high, stable = _PARTITION_V4.unpack_from(buf, pos)
        pos += 22
    aborted, pos = _decode_aborted(buf, pos, flexible)
    preferred = -1
    if version >= 11:
        (preferred,) = _INT32.unpack_from(buf, pos)
        pos += 4
    size, pos = read_count(buf, pos, flexible)
    records: memoryview | None = None
    if size >= 0:
        end = pos + size
        if end > len(buf):
            raise WireError(f"a partition claims {size} bytes of records, more than its response holds")
        records = buf[pos:end]
        pos = end
    pairs: dict[int, Pair] = {}
    if flexible:
        pairs, pos = _decode_partition_tags(buf, pos)
    diverging, leader, snapshot = pairs.get(0), pairs.get(1), pairs.get(2)
    return FetchedPartition(
        index, error, high, stable, start, aborted, preferred, records, diverging, leader, snapshot
    ), pos


def _decode_aborted(buf: memoryview, pos: int, flexible: bool) -> tuple[list[Pair] | None, int]:
    count, pos = read_count(buf, pos, flexible)
    if count < 0:
        return None, pos
    aborted: list[Pair] = []
    for _ in range(count):
        aborted.append(_INT64_PAIR.unpack_from(buf, pos))
        pos += 16
        if flexible:
            pos = skip_tags(buf, pos)
    return aborted, pos


def _decode_partition_tags(buf: memoryview, pos: int) -> tuple[dict[int, Pair], int]:
    pairs: dict[int, Pair] = {}
    count, pos = read_tag_count(buf, pos)
    for _ in range(count):
        tag, size, pos = read_tag(buf, pos)
        layout = _TAGGED_PAIRS.get(tag)
        if layout is not None:
            pairs[tag] = layout.unpack_from(buf, pos)
            require_tag_size(size, skip_tags(buf, pos + layout.size) - pos)
        pos += size
    return pairs, pos
