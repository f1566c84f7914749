"""Which partitions a task takes for gone, by what metadata says of them over time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.client._network.retry import Deadline
from tidelog.client._ranges.fetch_link import FetchLink
from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.client._ranges.range_fetcher import Chunk, RangeFetcher, RangeProgress
from tidelog.client.errors import NoLeaderError
from tidelog.client.metadata import NO_METADATA, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.errors import KafkaError
from tidelog.ids import ZERO_UUID
from tidelog.spark.read._data_loss import DataLossError
from tidelog.spark.read._source_options import source_options

LEADERLESS = ClusterMetadata(
    None, 1, {}, {"t": TopicMetadata("t", ZERO_UUID, False, {0: PartitionMetadata(0, leader=None)})}
)


class Task:
    """A task with a range of one partition, to which metadata is told and nobody else answers."""

    def __init__(self) -> None:
        options = source_options({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"})
        self.link = FetchLink(options.client_for("executor"))
        self.progress = RangeProgress(OffsetRange("t", 0, 3, 9), 3)
        self._fetcher = RangeFetcher(self.link, options.range_settings())

    def told(self, metadata: ClusterMetadata) -> list[Chunk]:
        """A round of fetches with this metadata."""
        self.link.cluster.updates.take(metadata, keep_other_topics=False)
        return self.link.submit(self._fetcher._fetch_once([self.progress])).result(10)

    def wait_long(self) -> None:
        """Let so much time go by that a partition which is unknown now would be gone."""
        if self.progress.unknown_until is not None:
            self.progress.unknown_until = Deadline(0)


@pytest.fixture
def task() -> Iterator[Task]:
    task = Task()
    try:
        yield task
    finally:
        task.link.close()


def test_a_partition_that_stays_unknown_is_gone(task: Task) -> None:
    with pytest.raises(KafkaError, match="has no partition 0"):
        task.told(NO_METADATA)
    task.wait_long()
    with pytest.raises(DataLossError, match="6 offsets of t-0, from 3 on, are gone: the partition was del"):
        task.told(NO_METADATA)


def test_a_partition_that_was_known_in_between_is_not_gone_when_it_is_unknown_once_more(task: Task) -> None:
    with pytest.raises(KafkaError, match="has no partition 0"):
        task.told(NO_METADATA)
    with pytest.raises(NoLeaderError):
        task.told(LEADERLESS)
    task.wait_long()
    with pytest.raises(KafkaError, match="has no partition 0"):
        task.told(NO_METADATA)
    assert task.progress.position == 3
