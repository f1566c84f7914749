"""Reading FetchRequest by hand, versions 4 to 18, as the broker does for every poll of every consumer.

Owns the light tuples that a request becomes, under Kafka's names for them; ``messages/fetch`` has the full
message of the same name, for clients. Gives what the generic codec gives, which the tests compare.
Versions before 12 use the old encoding; from 13 on topics are named by id; from 15 on the replica that
asks is a tagged field.

From version 9 on there is a short way for the shape that a consumer of one partition sends (one topic, one
partition, nothing forgotten, no rack, no tagged field but the one of a follower), and a general one for the
rest.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import NamedTuple, TypeVar

from tidelog.errors import WireError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.primitives import read_array_count, read_nullable_string, read_string
from tidelog.wire.varint import read_tag, read_tag_count, require_tag_size, skip_tags

T = TypeVar("T")

SESSION_SINCE = 7
FLEXIBLE_SINCE = 12
TOPIC_ID_SINCE = 13
REPLICA_STATE_SINCE = 15

MAX_LONG = 2**63 - 1


class FetchPartition(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: Uuid = ZERO_UUID
    high_watermark: int = MAX_LONG


FetchTopic = tuple[str | None, Uuid | None, list[FetchPartition]]
"""Topic name (before version 13) or id (from 13 on), and its partitions."""
ForgottenTopic = tuple[str | None, Uuid | None, list[int]]


class FetchRequest(NamedTuple):
    """A whole request; fields that the version lacks have Kafka's defaults."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str
    cluster_id: str | None


_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_LEADING = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_REPLICA_STATE = struct.Struct(">iq")
# A whole request from version 15 on: the leading numbers, one topic, one partition, and then the tagged
# sections of partition and topic, the count of forgotten topics, the rack and the request's tagged section.
_SINGLE_V15 = struct.Struct(">iiibiiB16sBiiqiqiBBBBB")
# Before, the same begins with the replica; in version 12 a name stands where the topic's id is.
_SINGLE_V12_HEAD = struct.Struct(">iiiibiiBB")
_SINGLE_V12_TAIL = struct.Struct(">BiiqiqiBBBBB")
_SINGLE_END = [0, 0, 1, 1, 0]
_REPLICA_TAG = struct.Struct(">BBiqB")
# In the old encoding: the leading numbers, the count of topics, the length of the name, which follows; then
# the count of partitions, the partition, the count of forgotten topics and, in version 11, the rack.
_SINGLE_V9_HEAD = struct.Struct(">iiiibiiih")
_SINGLE_V9_TAIL = struct.Struct(">iiiqqii")
_NO_RACK = b"\0\0"

_new_tuple = tuple.__new__
MAX_PARTITIONS = 200_000
"""More topics and partitions than this in one request, or in one session, no client needs: a whole cluster of
Kafka's with ZooKeeper is advised to have no more."""
# How much of a long request is read, or of a long response written, before others may have their turn.
SLICE = 256


def parse_fetch_request(buf: memoryview, pos: int, version: int) -> FetchRequest:
    """The body at ``pos``; raises :class:`WireError` for bytes that are no such body."""
    try:
        found = _parse_single(buf, pos, version)
    except UnicodeDecodeError as error:
        raise WireError(f"FetchRequest v{version} holds a string that is not UTF-8") from error
    return found or run_to_end(parse_in_slices(buf, pos, version))


def parse_in_slices(buf: memoryview, pos: int, version: int) -> Generator[None, None, FetchRequest]:
    """The same, slowly: yields wherever others may have their turn."""
    try:
        return (yield from _parse(buf, pos, version))
    except (struct.error, IndexError):
        raise WireError(f"FetchRequest v{version} ends too early") from None
    except UnicodeDecodeError as error:
        raise WireError(f"FetchRequest v{version} holds a string that is not UTF-8") from error


def _parse_single(buf: memoryview, pos: int, version: int) -> FetchRequest | None:
    """The short way; ``None`` for a body that is shorter than its shape or has another one."""
    try:
        if version >= REPLICA_STATE_SINCE:
            return _single_by_id(buf, pos, -1)
        if version >= TOPIC_ID_SINCE:
            return _single_by_id(buf, pos + 4, _INT32.unpack_from(buf, pos)[0])
        if version >= FLEXIBLE_SINCE:
            return _single_compact(buf, pos)
        return _single_old(buf, pos, version) if version >= 9 else None
    except (struct.error, IndexError):
        return None


def _single_by_id(buf: memoryview, pos: int, replica_id: int) -> FetchRequest | None:
    """Versions from 13 on, behind the replica id."""
    (
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch,
        topics, topic_id, partitions, index, epoch, offset, last_epoch, log_start, partition_max_bytes,
        partition_tags, topic_tags, forgotten, rack, tags,
    ) = _SINGLE_V15.unpack_from(buf, pos)  # fmt: skip
    if topics != 2 or partitions != 2 or partition_tags or topic_tags or forgotten != 1 or rack != 1:
        return None
    replica_epoch = -1
    if tags:
        # A follower's has one tagged field, which says who asks.
        tag, size, replica_id, replica_epoch, inner_tags = _REPLICA_TAG.unpack_from(
            buf, pos + _SINGLE_V15.size
        )
        if (tags, tag, size, inner_tags) != (1, 1, 13, 0):
            return None
    return _single(
        (replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch),
        None,
        topic_id,
        (index, epoch, offset, last_epoch, log_start, partition_max_bytes, ZERO_UUID, MAX_LONG),
    )


def _single_compact(buf: memoryview, pos: int) -> FetchRequest | None:
    """Version 12."""
    (
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, length,
    ) = _SINGLE_V12_HEAD.unpack_from(buf, pos)  # fmt: skip
    if topics != 2 or not 0 < length < 128:
        return None
    pos += 27
    end = pos + length - 1
    partitions, index, epoch, offset, last_epoch, log_start, partition_max_bytes, *rest = (
        _SINGLE_V12_TAIL.unpack_from(buf, end)
    )
    if partitions != 2 or rest != _SINGLE_END:
        return None
    return _single(
        (replica_id, -1, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch),
        str(buf[pos:end], "utf-8"),
        None,
        (index, epoch, offset, last_epoch, log_start, partition_max_bytes, ZERO_UUID, MAX_LONG),
    )


def _single_old(buf: memoryview, pos: int, version: int) -> FetchRequest | None:
    """Versions 9 to 11."""
    (
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, length,
    ) = _SINGLE_V9_HEAD.unpack_from(buf, pos)  # fmt: skip
    if topics != 1 or length < 0:
        return None
    pos += 31
    end = pos + length
    partitions, index, epoch, offset, log_start, partition_max_bytes, forgotten = _SINGLE_V9_TAIL.unpack_from(
        buf, end
    )
    if partitions != 1 or forgotten or (version >= 11 and buf[end + 36 : end + 38] != _NO_RACK):
        return None
    return _single(
        (replica_id, -1, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch),
        str(buf[pos:end], "utf-8"),
        None,
        (index, epoch, offset, -1, log_start, partition_max_bytes, ZERO_UUID, MAX_LONG),
    )


def _single(
    leading: tuple[int, int, int, int, int, int, int, int],
    name: str | None,
    topic_id: Uuid | None,
    partition: tuple[int, int, int, int, int, int, Uuid, int],
) -> FetchRequest:
    """A request for one partition; ``leading`` is what is before the topics, in the order of the class."""
    topics = [(name, topic_id, [_new_tuple(FetchPartition, partition)])]
    return _new_tuple(FetchRequest, (*leading, topics, [], "", None))


def _parse(buf: memoryview, pos: int, version: int) -> Generator[None, None, FetchRequest]:
    flexible = version >= FLEXIBLE_SINCE
    replica_id, replica_epoch = -1, -1
    if version < REPLICA_STATE_SINCE:
        (replica_id,) = _INT32.unpack_from(buf, pos)
        pos += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LEADING.unpack_from(buf, pos)
    pos += 13
    session_id, session_epoch = 0, -1
    if version >= SESSION_SINCE:
        session_id, session_epoch = _SESSION.unpack_from(buf, pos)
        pos += 8
    named = _Named(version)
    topics, pos = yield from _parse_topics(buf, pos, version, named)
    forgotten: list[ForgottenTopic] = []
    if version >= SESSION_SINCE:
        forgotten, pos = yield from _parse_forgotten(buf, pos, version, named)
    rack_id = ""
    if version >= 11:
        rack_id, pos = read_string(buf, pos, flexible)
    cluster_id: str | None = None
    if flexible and buf[pos]:
        cluster_id, replica_id, replica_epoch = _parse_tags(buf, pos, version, replica_id)
    return FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        cluster_id,
    )


class _Named:
    """How many topics and partitions a request has named so far."""

    __slots__ = ("_version", "count")

    def __init__(self, version: int) -> None:
        self._version = version
        self.count = 0

    def add_topic(self, partition_count: int) -> None:
        """Count a topic; raises :class:`WireError` if with its partitions there are too many."""
        self.count += 1
        if self.count + partition_count > MAX_PARTITIONS:
            raise WireError(
                f"FetchRequest v{self._version} names more than {MAX_PARTITIONS} topics and partitions"
            )


def _parse_topics(
    buf: memoryview, pos: int, version: int, named: _Named
) -> Generator[None, None, tuple[list[FetchTopic], int]]:
    flexible = version >= FLEXIBLE_SINCE
    count, pos = read_array_count(buf, pos, flexible)
    topics: list[FetchTopic] = []
    for _ in range(count):
        name, topic_id, pos = _parse_topic_key(buf, pos, version)
        partition_count, pos = read_array_count(buf, pos, flexible)
        named.add_topic(partition_count)
        partitions: list[FetchPartition] = []
        if not named.count % SLICE:
            yield
        for _ in range(partition_count):
            named.count += 1
            if not named.count % SLICE:
                yield
            if flexible:
                partition = FetchPartition(*_PARTITION_V12.unpack_from(buf, pos))
                pos += 32
                if buf[pos]:
                    directory, high_watermark, pos = _parse_partition_tags(buf, pos, version)
                    partition = partition._replace(
                        replica_directory_id=directory, high_watermark=high_watermark
                    )
                else:
                    pos += 1
            else:
                partition, pos = _parse_old_partition(buf, pos, version)
            partitions.append(partition)
        if flexible:
            pos = skip_tags(buf, pos)
        topics.append((name, topic_id, partitions))
    return topics, pos


def _parse_old_partition(buf: memoryview, pos: int, version: int) -> tuple[FetchPartition, int]:
    epoch, log_start = -1, -1
    if version >= 9:
        index, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(buf, pos)
        pos += 28
    elif version >= 5:
        index, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(buf, pos)
        pos += 24
    else:
        index, offset, max_bytes = _PARTITION_V4.unpack_from(buf, pos)
        pos += 16
    return FetchPartition(index, epoch, offset, -1, log_start, max_bytes), pos


def _parse_topic_key(buf: memoryview, pos: int, version: int) -> tuple[str | None, Uuid | None, int]:
    if version >= TOPIC_ID_SINCE:
        return None, Uuid(bytes(buf[pos : pos + 16])), pos + 16
    name, pos = read_string(buf, pos, version >= FLEXIBLE_SINCE)
    return name, None, pos


def _parse_forgotten(
    buf: memoryview, pos: int, version: int, named: _Named
) -> Generator[None, None, tuple[list[ForgottenTopic], int]]:
    flexible = version >= FLEXIBLE_SINCE
    count, pos = read_array_count(buf, pos, flexible)
    forgotten: list[ForgottenTopic] = []
    for _ in range(count):
        name, topic_id, pos = _parse_topic_key(buf, pos, version)
        partition_count, pos = read_array_count(buf, pos, flexible)
        named.add_topic(partition_count)
        if not named.count % SLICE:
            yield
        partitions: list[int] = []
        for _ in range(partition_count):
            partitions += _INT32.unpack_from(buf, pos)
            pos += 4
            named.count += 1
            if not named.count % SLICE:
                yield
        if flexible:
            pos = skip_tags(buf, pos)
        forgotten.append((name, topic_id, partitions))
    return forgotten, pos


def _parse_partition_tags(buf: memoryview, pos: int, version: int) -> tuple[Uuid, int, int]:
    directory, high_watermark = ZERO_UUID, MAX_LONG
    count, pos = read_tag_count(buf, pos)
    for _ in range(count):
        tag, size, pos = read_tag(buf, pos)
        if tag == 0 and version >= 17:
            require_tag_size(size, 16)
            directory = Uuid(bytes(buf[pos : pos + 16]))
        elif tag == 1 and version >= 18:
            require_tag_size(size, 8)
            (high_watermark,) = _INT64.unpack_from(buf, pos)
        pos += size
    return directory, high_watermark, pos


def _parse_tags(buf: memoryview, pos: int, version: int, replica_id: int) -> tuple[str | None, int, int]:
    """Cluster id, replica id and replica epoch from the request's own tagged section."""
    cluster_id: str | None = None
    replica_epoch = -1
    count, pos = read_tag_count(buf, pos)
    for _ in range(count):
        tag, size, pos = read_tag(buf, pos)
        end = pos + size
        if tag == 0:
            cluster_id, pos = read_nullable_string(buf, pos, True)
            require_tag_size(size, size + pos - end)
        elif tag == 1 and version >= REPLICA_STATE_SINCE:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(buf, pos)
            require_tag_size(size, skip_tags(buf, pos + 12) - pos)
        pos = end
    return cluster_id, replica_id, replica_epoch
