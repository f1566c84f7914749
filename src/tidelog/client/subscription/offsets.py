"""Partitions, offsets and times as a program passes them to a consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import NamedTuple, SupportsIndex

from tidelog.client.errors import IllegalStateError
from tidelog.ids import NO_LEADER_EPOCH, TopicPartition


class OffsetAndMetadata(NamedTuple):
    """An offset to commit or committed.

    Args:
        offset: The offset of the next record to read.
        leader_epoch: The leader's epoch at that offset; -1 where it is not known.
        metadata: A note of your own.

    Example:
        consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(5, metadata="by hand")})
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


def checked_partition(given: object) -> TopicPartition:
    """A partition as the application names it: ``TopicPartition`` or a pair."""
    match given:
        case (str() as topic, SupportsIndex() as partition) if index(partition) >= 0:
            return TopicPartition(topic, index(partition))
    raise IllegalStateError(
        f"a partition is named by its topic and number, as TopicPartition('orders', 0), got {given!r}"
    )


def checked_partitions(given: object) -> list[TopicPartition]:
    """Partitions as the application names them; one alone counts as a collection of one."""
    if isinstance(given, TopicPartition):
        return [given]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise IllegalStateError(
            "a partition is named by its topic and number: "
            f"give a collection of partitions, as [TopicPartition('orders', 0)], not {given!r}"
        )
    return [checked_partition(each) for each in given]


def checked_offset(partition: TopicPartition, given: object) -> OffsetAndMetadata:
    """An offset to commit as the application gives it."""
    offset = given.offset if isinstance(given, OffsetAndMetadata) else given
    if not isinstance(offset, SupportsIndex) or index(offset) < 0:
        raise IllegalStateError(f"an offset is a number from 0 on, got {offset!r} for {partition}")
    return given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(index(offset))


def checked_times(given: object) -> dict[TopicPartition, int]:
    """Times by partition as the application gives them."""
    if not isinstance(given, Mapping):
        raise IllegalStateError(
            "times are given by partition, as {TopicPartition('orders', 0): 1700000000000}, "
            f"in milliseconds since 1970, not as {given!r}"
        )
    for partition, time in given.items():
        if not isinstance(time, int) or time < 0:
            raise IllegalStateError(
                f"a time is a number of milliseconds since 1970, got {time!r} for {partition}: "
                "for a datetime, int(when.timestamp() * 1000)"
            )
    return {checked_partition(partition): time for partition, time in given.items()}
