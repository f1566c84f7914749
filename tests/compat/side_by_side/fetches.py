"""Fetch outside of sessions: offsets, limits, waits, epochs, isolation, topics that are not there."""

from __future__ import annotations

from tests.compat.side_by_side.batches import Batch, batch, record, records
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import (
    FETCH_VERSIONS,
    append,
    fetch,
    fetch_request,
    fetch_topic,
    wanted,
)
from tests.compat.side_by_side.side import UNKNOWN_ID, Side

from tidelog.ids import ZERO_UUID
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.fetch import FetchTopic, ReplicaState

VERSIONS = (4, 9, 12, 13, 18)


def filled(side: Side, batches: int = 4, size: int = 3, **configs: str) -> str:
    """A topic with some batches of three records."""
    topic = side.topic(**configs)
    for _ in range(batches):
        append(side, topic, batch(size))
    return topic


def trimmed(side: Side, offset: int = 5) -> str:
    """A topic of twelve records, the first ones deleted."""
    topic = filled(side)
    cut = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    side.expect(2, DeleteRecordsRequest(topics=[cut], timeout_ms=3000))
    return topic


@case(versions=FETCH_VERSIONS)
def from_the_start(side: Side, version: int) -> object:
    topic = filled(side)
    return fetch(side, version, fetch_request(fetch_topic(side, topic, wanted(), version=version)))


@case((0, 1, 3, 4, 11, 12, 13, 100, -1, -2, -(2**63), 2**63 - 1))
def offsets(side: Side, offset: int) -> object:
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), wanted(offset))))


@case((-1, 13), versions=VERSIONS)
def offsets_out_of_range(side: Side, offset: int, version: int) -> object:
    topic = filled(side)
    return fetch(side, version, fetch_request(fetch_topic(side, topic, wanted(offset), version=version)))


@case((0, 4, 5, 6, 12, 13))
def offsets_after_deleted_records(side: Side, offset: int) -> object:
    return fetch(side, 18, fetch_request(fetch_topic(side, trimmed(side), wanted(offset))))


@case((0, 1, -1), versions=(4, 18))
def empty_partition(side: Side, offset: int, version: int) -> object:
    topic = side.topic()
    return fetch(side, version, fetch_request(fetch_topic(side, topic, wanted(offset), version=version)))


LIMITS = (0, 1, 60, 106, 107, 108, 250, 321, 322, -1, -(2**31), 2**31 - 1)


@case(LIMITS)
def partition_limit(side: Side, limit: int) -> object:
    """The first batch comes whole however small the limit; the last may be cut."""
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), wanted(max_bytes=limit))))


@case(LIMITS)
def request_limit(side: Side, limit: int) -> object:
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), wanted()), max_bytes=limit))


@case((0, 1, 107, 200))
def limit_in_the_middle(side: Side, limit: int) -> object:
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), wanted(4, max_bytes=limit))))


@case((0, 1, 150, 300, 1000))
def request_limit_over_partitions(side: Side, limit: int) -> object:
    topic = side.topic("t", 3)
    for partition in range(3):
        append(side, topic, batch(5), partition=partition)
    parts = [wanted(partition=each) for each in range(3)]
    return fetch(side, 18, fetch_request(fetch_topic(side, topic, *parts), max_bytes=limit))


@case((0, 1, 150))
def first_partition_empty_then_limit(side: Side, limit: int) -> object:
    """The whole first batch is for the first partition that has any."""
    topic = side.topic("t", 3)
    for partition in (1, 2):
        append(side, topic, batch(5), partition=partition)
    parts = [wanted(partition=each, max_bytes=limit) for each in range(3)]
    return fetch(side, 18, fetch_request(fetch_topic(side, topic, *parts), max_bytes=limit))


@case((0, 1, 150))
def first_partition_unknown_then_limit(side: Side, limit: int) -> object:
    topic = side.topic("t", 2)
    append(side, topic, batch(5), partition=1)
    parts = [wanted(partition=each, max_bytes=limit) for each in (7, 1)]
    return fetch(side, 12, fetch_request(fetch_topic(side, topic, *parts, version=12), max_bytes=limit))


@case((0, 10))
def large_record_and_small_limit(side: Side, limit: int) -> object:
    topic = side.topic()
    append(side, topic, Batch((record(bytes(50_000)),)).bytes())
    append(side, topic, batch())
    request = fetch_request(fetch_topic(side, topic, wanted(max_bytes=limit)), max_bytes=limit)
    return fetch(side, 18, request)


@case(
    {
        "enough": (0, 100, 1),
        "not-enough": (0, 100, 10_000_000),
        "at-end": (12, 100, 1),
        "at-end-nothing-wanted": (12, 100, 0),
        "at-end-no-wait": (12, 0, 1),
        "negative-wait": (12, -1, 1),
        "negative-minimum": (12, 100, -1),
        "out-of-range": (13, 100, 1),
        "more-than-maximum": (0, 100, 2**31 - 1),
    },
    versions=(4, 18),
)
def waits(side: Side, given: tuple[int, int, int], version: int) -> object:
    offset, max_wait_ms, min_bytes = given
    topic = filled(side)
    request = fetch_request(
        fetch_topic(side, topic, wanted(offset), version=version),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
    )
    return fetch(side, version, request)


@case(versions=(4, 12, 13, 18))
def unknown_topic(side: Side, version: int) -> object:
    topic = FetchTopic(topic=side.name_of("none"), topic_id=UNKNOWN_ID, partitions=[wanted()])
    return fetch(side, version, fetch_request(topic))


@case(versions=(13, 18))
def zero_topic_id(side: Side, version: int) -> object:
    return fetch(side, version, fetch_request(FetchTopic(topic_id=ZERO_UUID, partitions=[wanted()])))


@case(versions=VERSIONS)
def unknown_partition(side: Side, version: int) -> object:
    topic = filled(side)
    return fetch(side, version, fetch_request(fetch_topic(side, topic, wanted(partition=4), version=version)))


@case((-1, -(2**31), 2**31 - 1))
def odd_partition(side: Side, partition: int) -> object:
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), wanted(partition=partition))))


@case(versions=VERSIONS)
def known_and_unknown(side: Side, version: int) -> object:
    topic = filled(side)
    parts = (wanted(partition=4), wanted(), wanted(partition=5))
    none = FetchTopic(topic=side.name_of("none"), topic_id=UNKNOWN_ID, partitions=[wanted()])
    request = fetch_request(fetch_topic(side, topic, *parts, version=version), none)
    return fetch(side, version, request)


@case(("", ".", "bad name"))
def impossible_topic(side: Side, name: str) -> object:
    return fetch(side, 12, fetch_request(FetchTopic(topic=name, partitions=[wanted()])))


@case(versions=VERSIONS)
def nothing(side: Side, version: int) -> object:
    return fetch(side, version, fetch_request())


@case(versions=VERSIONS)
def topic_without_partitions(side: Side, version: int) -> object:
    return fetch(side, version, fetch_request(fetch_topic(side, side.topic(), version=version)))


@case(versions=VERSIONS)
def same_partition_twice(side: Side, version: int) -> object:
    topic = filled(side)
    request = fetch_request(fetch_topic(side, topic, wanted(3), wanted(9), version=version))
    return fetch(side, version, request)


@case(versions=(12, 18))
def same_topic_twice(side: Side, version: int) -> object:
    topic = side.topic("t", 2)
    append(side, topic, batch(), partition=0)
    append(side, topic, batch(), partition=1)
    request = fetch_request(
        fetch_topic(side, topic, wanted(partition=1), version=version),
        fetch_topic(side, topic, wanted(partition=0), version=version),
    )
    return fetch(side, version, request)


@case((-1, 0, 1, 5, -2), versions=(9, 12, 15, 18))
def current_leader_epoch(side: Side, epoch: int, version: int) -> object:
    topic = filled(side)
    part = wanted(current_leader_epoch=epoch)
    return fetch(side, version, fetch_request(fetch_topic(side, topic, part, version=version)))


@case(
    {
        f"epoch-{epoch}-offset-{offset}": (epoch, offset)
        for epoch in (-1, 0, 1, -2)
        for offset in (0, 5, 12, 13, 100, -1)
    }
)
def last_fetched_epoch(side: Side, given: tuple[int, int]) -> object:
    """A reader whose history may part from the log's (KIP-320)."""
    epoch, offset = given
    part = wanted(offset, last_fetched_epoch=epoch)
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), part)))


@case((0, 1))
def last_fetched_epoch_of_empty_partition(side: Side, epoch: int) -> object:
    part = wanted(last_fetched_epoch=epoch)
    return fetch(side, 18, fetch_request(fetch_topic(side, side.topic(), part)))


@case((0, 1), versions=(4, 12, 18))
def isolation(side: Side, level: int, version: int) -> object:
    return _isolated(side, level, version)


@case((2, -1), versions=(4, 12, 18))
def odd_isolation(side: Side, level: int, version: int) -> object:
    return _isolated(side, level, version)


def _isolated(side: Side, level: int, version: int) -> object:
    topic = filled(side)
    request = fetch_request(fetch_topic(side, topic, wanted(), version=version), isolation_level=level)
    return fetch(side, version, request)


@case((0, 5, -5))
def log_start_offset_is_the_followers(side: Side, offset: int) -> object:
    part = wanted(log_start_offset=offset)
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), part)))


@case((-1, -2, 1, 5, 1000), versions=(4, 14))
def replica_id(side: Side, replica_id: int, version: int) -> object:
    """Only brokers that hold the partition may fetch as replicas."""
    topic = filled(side)
    request = fetch_request(fetch_topic(side, topic, wanted(), version=version), replica_id=replica_id)
    return fetch(side, version, request)


@case((-1, -2, 5, 1000))
def replica_state(side: Side, replica_id: int) -> object:
    topic = filled(side)
    request = fetch_request(
        fetch_topic(side, topic, wanted()), replica_state=ReplicaState(replica_id=replica_id, replica_epoch=3)
    )
    return fetch(side, 18, request)


@case(("", "rack-a", "x" * 300))
def rack(side: Side, rack: str) -> object:
    return fetch(side, 18, fetch_request(fetch_topic(side, filled(side), wanted()), rack_id=rack))


@case(("some cluster",))
def foreign_cluster_id(side: Side, cluster_id: str) -> object:
    request = fetch_request(fetch_topic(side, filled(side), wanted(), version=12), cluster_id=cluster_id)
    return fetch(side, 12, request)


@case((1, 2, 3, 4), versions=(4, 9, 10, 18))
def compressed_topic(side: Side, codec: int, version: int) -> object:
    name = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}[codec]
    topic = side.topic(compression_type=name)
    append(side, topic, Batch(tuple(records(5)), codec=codec).bytes())
    return fetch(side, version, fetch_request(fetch_topic(side, topic, wanted(), version=version)))


@case(versions=(4, 9, 10))
def zstd_batches_on_producer_topic(side: Side, version: int) -> object:
    topic = side.topic()
    append(side, topic, Batch(tuple(records(5)), codec=4).bytes())
    return fetch(side, version, fetch_request(fetch_topic(side, topic, wanted(), version=version)))


@case((0, 1))
def several_segments(side: Side, min_bytes: int) -> object:
    """A read ends with its segment."""
    topic = side.topic(segment_bytes="1048576")
    for _ in range(5):
        append(side, topic, Batch((record(bytes(300_000)),)).bytes())
    request = fetch_request(fetch_topic(side, topic, wanted(max_bytes=10 << 20)), min_bytes=min_bytes)
    request.max_bytes = 10 << 20
    return fetch(side, 18, request)


@case()
def old_segment_does_not_wait(side: Side) -> object:
    """Behind the active segment there is nothing to wait for."""
    topic = side.topic(segment_bytes="1048576")
    for _ in range(5):
        append(side, topic, Batch((record(bytes(300_000)),)).bytes())
    part = wanted(2, max_bytes=10 << 20)
    request = fetch_request(fetch_topic(side, topic, part), min_bytes=5_000_000, max_wait_ms=60_000)
    request.max_bytes = 10 << 20
    return fetch(side, 18, request)
