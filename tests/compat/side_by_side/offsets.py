"""ListOffsets and OffsetForLeaderEpoch: every special timestamp, isolation level and epoch."""

from __future__ import annotations

import time

from tests.compat.side_by_side.batches import NOW, Batch, batch, record
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.fetches import filled, trimmed
from tests.compat.side_by_side.records_requests import append, offsets_request
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

VERSIONS = range(1, 12)
EPOCH_VERSIONS = (2, 3, 4)
SPECIAL = {"latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5,
           "earliest-pending": -6, "minus-7": -7, "lowest": -(2**63)}  # fmt: skip


def timed(side: Side, **configs: str) -> str:
    """Offsets 0 to 8 in three batches, whose timestamps are not in order."""
    topic = side.topic(**configs)
    for base, deltas in ((NOW, (0, 10, 20)), (NOW + 1000, (0, 50, 5)), (NOW + 100, (0, 1, 2))):
        body = tuple(record(offset_delta=i, timestamp_delta=delta) for i, delta in enumerate(deltas))
        append(side, topic, Batch(body, base_timestamp=base, max_timestamp=base + max(deltas)).bytes())
        _wait_for_next_millisecond()
    return topic


def _wait_for_next_millisecond() -> None:
    """Batches that get their time from the broker are not to share it."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= now + 1:
        time.sleep(0.0005)


@case(SPECIAL, versions=VERSIONS)
def special_timestamps(side: Side, timestamp: int, version: int) -> object:
    return side.ask(version, offsets_request(filled(side), timestamp))


@case(SPECIAL)
def special_timestamps_of_empty_partition(side: Side, timestamp: int) -> object:
    return side.ask(11, offsets_request(side.topic(), timestamp))


@case(SPECIAL)
def special_timestamps_after_deleted_records(side: Side, timestamp: int) -> object:
    return side.ask(11, offsets_request(trimmed(side), timestamp))


@case(SPECIAL)
def special_timestamps_after_all_records_deleted(side: Side, timestamp: int) -> object:
    return side.ask(11, offsets_request(trimmed(side, 12), timestamp))


MOMENTS = (
    *(0, NOW - 1, NOW, NOW + 1, NOW + 10, NOW + 20, NOW + 21, NOW + 100, NOW + 102, NOW + 103, NOW + 1000),
    *(NOW + 1001, NOW + 1006, NOW + 1050, NOW + 1051, 2**63 - 1),
)


@case({f"now+{moment - NOW}" if abs(moment - NOW) < 10**6 else str(moment): moment for moment in MOMENTS})
def timestamps(side: Side, timestamp: int) -> object:
    return side.ask(11, offsets_request(timed(side), timestamp))


TIMESTAMPS = {"now": NOW + 5, "latest": -1, "earliest": -2, "max": -3}


@case({f"{name}-{level}": (each, level) for name, each in TIMESTAMPS.items() for level in (0, 1)})
def isolation(side: Side, given: tuple[int, int]) -> object:
    timestamp, level = given
    return side.ask(11, offsets_request(timed(side), timestamp, isolation=level))


@case({f"{name}-{level}": (each, level) for name, each in TIMESTAMPS.items() for level in (2, -1)})
def odd_isolation(side: Side, given: tuple[int, int]) -> object:
    timestamp, level = given
    return side.ask(11, offsets_request(timed(side), timestamp, isolation=level))


@case(versions=VERSIONS)
def by_timestamp(side: Side, version: int) -> object:
    return side.ask(version, offsets_request(timed(side), NOW + 15))


@case()
def highest_timestamp(side: Side) -> object:
    return side.ask(11, offsets_request(timed(side), -3))


@case(("gzip", "zstd"))
def compressed(side: Side, codec: str) -> object:
    topic = timed(side, compression_type=codec)
    return [side.ask(11, offsets_request(topic, timestamp)) for timestamp in (-3, NOW + 11, NOW + 1006)]


@case()
def append_time(side: Side) -> object:
    topic = timed(side, message_timestamp_type="LogAppendTime")
    return [side.ask(11, offsets_request(topic, timestamp)) for timestamp in (-3, 0, NOW, 2**62)]


@case()
def without_timestamps(side: Side) -> object:
    topic = side.topic()
    body = (record(), record(offset_delta=1))
    append(side, topic, Batch(body, base_timestamp=-1, max_timestamp=-1).bytes())
    return [side.ask(11, offsets_request(topic, timestamp)) for timestamp in (-3, -1, 0, NOW)]


@case((-1, 0, 1, 5, -2), versions=(4, 11))
def current_leader_epoch(side: Side, epoch: int, version: int) -> object:
    return side.ask(version, offsets_request(filled(side), -1, epoch=epoch))


@case((-1, -2, 1, 7), versions=(1, 11))
def replica_id(side: Side, replica_id: int, version: int) -> object:
    return side.ask(version, offsets_request(filled(side), -1, replica=replica_id))


@case((1, -1, -(2**31)), versions=(1, 3, 4, 11))
def unknown_partition(side: Side, partition: int, version: int) -> object:
    return side.ask(version, offsets_request(filled(side), -1, partition=partition))


@case(("none",), versions=(1, 4, 11))
def unknown_topic(side: Side, stem: str, version: int) -> object:
    return side.ask(version, offsets_request(side.name_of(stem), -1))


@case(("", "bad name"))
def impossible_topic(side: Side, name: str) -> object:
    return side.ask(11, offsets_request(name, -1))


@case(versions=(1, 11))
def nothing(side: Side, version: int) -> object:
    return side.ask(version, ListOffsetsRequest(topics=[]))


@case(versions=(1, 11))
def topic_without_partitions(side: Side, version: int) -> object:
    return side.ask(version, ListOffsetsRequest(topics=[ListOffsetsTopic(name=side.topic())]))


@case(versions=(1, 6, 11))
def same_partition_twice(side: Side, version: int) -> object:
    topic = filled(side)
    parts = [ListOffsetsPartition(timestamp=each) for each in (-1, -2)]
    return side.ask(version, ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=parts)]))


@case(versions=(1, 6, 11))
def same_topic_twice(side: Side, version: int) -> object:
    topic = filled(side)
    both = [
        ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=each)]) for each in (-1, -2)
    ]
    return side.ask(version, ListOffsetsRequest(topics=both))


@case(versions=(1, 11))
def several_partitions(side: Side, version: int) -> object:
    topic = side.topic("t", 3)
    append(side, topic, batch(4), partition=2)
    parts = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in (2, 0, 5, 1)]
    answer = side.ask(version, ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=parts)]))
    assert isinstance(answer, dict)
    answer["topics"][0]["partitions"].sort(key=lambda each: each["partition_index"])
    return answer


@case((0, -1, 2**31 - 1))
def timeout(side: Side, timeout_ms: int) -> object:
    request = offsets_request(filled(side), -3)
    request.timeout_ms = timeout_ms
    return side.ask(11, request)


# OffsetForLeaderEpoch


def epoch_request(
    topic: str, epoch: int, current: int = -1, partition: int = 0, replica: int = -1
) -> OffsetForLeaderEpochRequest:
    part = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=replica, topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])]
    )


@case((0, 1, 5, -1, -2, 2**31 - 1), versions=EPOCH_VERSIONS)
def end_of_epoch(side: Side, epoch: int, version: int) -> object:
    return side.ask(version, epoch_request(filled(side), epoch))


@case((0, 1, -1))
def end_of_epoch_of_empty_partition(side: Side, epoch: int) -> object:
    return side.ask(4, epoch_request(side.topic(), epoch))


@case((0, 1))
def end_of_epoch_after_deleted_records(side: Side, epoch: int) -> object:
    return side.ask(4, epoch_request(trimmed(side), epoch))


@case((-1, 0, 1, -2), versions=EPOCH_VERSIONS)
def end_of_epoch_current(side: Side, current: int, version: int) -> object:
    return side.ask(version, epoch_request(filled(side), 0, current))


@case((3, -1))
def end_of_epoch_unknown_partition(side: Side, partition: int) -> object:
    return side.ask(4, epoch_request(filled(side), 0, partition=partition))


@case(("none",), versions=EPOCH_VERSIONS)
def end_of_epoch_unknown_topic(side: Side, stem: str, version: int) -> object:
    return side.ask(version, epoch_request(side.name_of(stem), 0))


@case(("", "bad name"))
def end_of_epoch_impossible_topic(side: Side, name: str) -> object:
    return side.ask(4, epoch_request(name, 0))


@case((-2, 1, 5), versions=(3, 4))
def end_of_epoch_replica(side: Side, replica: int, version: int) -> object:
    return side.ask(version, epoch_request(filled(side), 0, replica=replica))


@case()
def end_of_epoch_nothing(side: Side) -> object:
    return side.ask(4, OffsetForLeaderEpochRequest())


@case()
def end_of_epoch_twice(side: Side) -> object:
    request = epoch_request(filled(side), 0)
    request.topics[0].partitions.append(OffsetForLeaderPartition(partition=0, leader_epoch=5))
    return side.ask(4, request)
