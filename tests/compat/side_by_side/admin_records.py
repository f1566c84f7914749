"""Records deleted from the start of partitions."""

from __future__ import annotations

from tests.compat.side_by_side.batches import batch
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import append, offsets_request
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def trim(side: Side, name: str, offset: int, *, partition: int = 0, version: int = 2) -> object:
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [DeleteRecordsTopic(name=name, partitions=[part])]
    return side.ask(version, DeleteRecordsRequest(topics=topics, timeout_ms=3000))


@case((0, 1, 3, 4, 5, -1, -2, -(2**63), 2**63 - 1), versions=(0, 2))
def delete_records(side: Side, offset: int, version: int) -> object:
    name = side.topic()
    append(side, name, batch(4))
    return [trim(side, name, offset, version=version), side.ask(5, offsets_request(name, -2))]


@case()
def delete_records_backwards(side: Side) -> object:
    name = side.topic()
    append(side, name, batch(4))
    return [trim(side, name, offset) for offset in (3, 2, 3, 4, -1)]


@case((1, -1))
def delete_records_of_unknown_partition(side: Side, partition: int) -> object:
    return trim(side, side.topic(), 0, partition=partition)


@case(("none", "bad name"))
def delete_records_of_unknown_topic(side: Side, stem: str) -> object:
    return trim(side, side.name_of(stem) if stem == "none" else stem, 0)


@case(("compact", "compact,delete", "delete"))
def delete_records_by_policy(side: Side, policy: str) -> object:
    return trim(side, side.topic(cleanup_policy=policy), -1)


@case()
def delete_records_of_internal_topic(side: Side) -> object:
    side.ensure_topic("__consumer_offsets")
    return trim(side, "__consumer_offsets", -1)


@case()
def delete_records_of_nothing(side: Side) -> object:
    return side.ask(2, DeleteRecordsRequest(topics=[], timeout_ms=1000))


@case()
def delete_records_twice_in_one(side: Side) -> object:
    name = side.topic()
    append(side, name, batch(4))
    parts = [DeleteRecordsPartition(partition_index=0, offset=each) for each in (1, 3)]
    topics = [DeleteRecordsTopic(name=name, partitions=parts)]
    return side.ask(2, DeleteRecordsRequest(topics=topics, timeout_ms=3000))
