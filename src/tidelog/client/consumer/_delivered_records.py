"""Records that iteration has taken from the consumer and hands to the application one by one.

A list and an iterator over it: handing out a record costs what stepping through a list costs. How far the
application has got is known from the iterator whenever somebody asks, which is when offsets are committed,
positions asked for or partitions moved: what is still here has not been consumed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping

from tidelog.client.subscription._partition_state import FetchPosition
from tidelog.ids import NO_LEADER_EPOCH, TopicPartition
from tidelog.records.record_codec import ConsumerRecord


class DeliveredRecords:
    """The records of one poll on their way to the application."""

    def __init__(self) -> None:
        self._records: list[ConsumerRecord] = []
        self._iterator: Iterator[ConsumerRecord] = iter(())
        self._before: Mapping[TopicPartition, FetchPosition] = {}

    def start(
        self, records: list[ConsumerRecord], before: Mapping[TopicPartition, FetchPosition]
    ) -> Iterator[ConsumerRecord]:
        """Hand these out; ``before`` are the positions of their partitions before them."""
        self._records = records
        self._before = before
        self._iterator = iter(records)
        return self._iterator

    def __len__(self) -> int:
        """How many the application has not got yet."""
        return operator.length_hint(self._iterator)

    def take_rest(self) -> list[ConsumerRecord]:
        """What is left; nothing is, afterwards."""
        rest = self._records[len(self._records) - len(self) :]
        self._records.clear()
        self._iterator = iter(())
        return rest

    def positions(self) -> dict[TopicPartition, FetchPosition]:
        """The true positions of partitions with records left."""
        left = len(self)
        if not left:
            return {}
        start = len(self._records) - left
        handed: dict[TopicPartition, FetchPosition] = {}
        for record in self._records[:start]:
            epoch = NO_LEADER_EPOCH if record.leader_epoch is None else record.leader_epoch
            handed[TopicPartition(record.topic, record.partition)] = FetchPosition(record.offset + 1, epoch)
        found: dict[TopicPartition, FetchPosition] = {}
        for record in self._records[start:]:
            partition = TopicPartition(record.topic, record.partition)
            if partition not in found:
                first = FetchPosition(record.offset)
                found[partition] = handed.get(partition) or self._before.get(partition, first)
        return found

    def drop(self, goes: Callable[[TopicPartition], bool]) -> None:
        """Hand out no more records of partitions for which ``goes`` holds."""
        left = len(self)
        if left:
            start = len(self._records) - left
            self._records[start:] = [
                record
                for record in self._records[start:]
                if not goes(TopicPartition(record.topic, record.partition))
            ]

    def drop_partitions(self, partitions: Collection[TopicPartition]) -> None:
        self.drop(lambda partition: partition in partitions)
