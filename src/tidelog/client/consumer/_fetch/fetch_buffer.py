"""Fetched and not yet handed out: what the application's next polls will get.

Each partition has its answers in the order of their offsets; partitions take turns, an answer each. Those
of paused partitions stay where they are. What was fetched for a position that has been left since (a seek,
a partition that was revoked) is dropped when its turn comes or by ``drop_stale``.

Bounds: ``room_for`` says whether more may be fetched of a partition (``max.partition.fetch.bytes``) and
``is_full`` whether nothing may (``fetch.max.bytes``); one answer can go beyond by its own size. Owned by
``consumer._fetch.fetcher``.
"""

from __future__ import annotations

from collections import deque

from tidelog.client.consumer._fetch.completed_fetch import CompletedFetch
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.subscription._partition_state import FetchPosition, PartitionState
from tidelog.ids import TopicPartition


class _Buffered:
    """What is buffered of one partition, for one position that it was fetched from."""

    __slots__ = ("fetches", "generation", "size_bytes", "state")

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.generation = state.generation
        self.fetches: deque[CompletedFetch] = deque()
        self.size_bytes = 0

    def is_for(self, state: PartitionState) -> bool:
        return self.state is state and self.generation == state.generation


class FetchBuffer:
    """Completed fetches by partition; the first partition is the one whose turn it is."""

    def __init__(self, config: FetchConfig) -> None:
        self._config = config
        self._partitions: dict[TopicPartition, _Buffered] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= self._config.max_bytes

    def add(self, fetch: CompletedFetch) -> None:
        """The next piece of a partition; it must begin where :meth:`next_position` said."""
        buffered = self._partitions.get(fetch.partition)
        if buffered is None or not buffered.is_for(fetch.state):
            self._drop(fetch.partition)
            buffered = self._partitions[fetch.partition] = _Buffered(fetch.state)
        buffered.fetches.append(fetch)
        buffered.size_bytes += fetch.size_bytes
        self.size_bytes += fetch.size_bytes

    def next_position(self, partition: TopicPartition, state: PartitionState) -> FetchPosition:
        """Where the next fetch of a partition begins: behind what is buffered, or at its position."""
        position = state.require_position()
        buffered = self._partitions.get(partition)
        if buffered is None or not buffered.is_for(state):
            return position
        last = buffered.fetches[-1]
        return FetchPosition(last.end_offset, last.end_epoch, position.leader)

    def room_for(self, partition: TopicPartition, state: PartitionState) -> bool:
        """Whether more of a partition may be fetched now."""
        buffered = self._partitions.get(partition)
        if buffered is None or not buffered.is_for(state):
            return True
        if buffered.fetches[-1].error is not None:
            return False
        # One answer in work and one behind it, or small ones up to the size of one.
        return len(buffered.fetches) < 2 or buffered.size_bytes < self._config.max_partition_bytes

    def holds_back(self) -> bool:
        """Whether a partition that would be fetched has no room: its broker is not asked then."""
        for buffered in self._partitions.values():
            state = buffered.state
            if state.is_fetchable and not self.room_for(buffered.fetches[0].partition, state):
                return True
        return False

    def next_fetch(self) -> CompletedFetch | None:
        """The one whose turn it is among those that are still wanted and not paused."""
        for buffered in self._partitions.values():
            if buffered.is_for(buffered.state) and buffered.state.is_fetchable:
                return buffered.fetches[0]
            break  # something is in the way: look at all
        for partition in list(self._partitions):
            buffered = self._partitions[partition]
            if not buffered.is_for(buffered.state):
                self._drop(partition)
            elif buffered.state.is_fetchable:
                return buffered.fetches[0]
            elif len(self._partitions) > 1:
                self._to_the_end(partition)
        return None

    def remove(self, fetch: CompletedFetch) -> None:
        """``fetch``, the last one that :meth:`next_fetch` gave, is used up: the next partition's turn."""
        buffered = self._partitions.get(fetch.partition)
        if buffered is None or buffered.fetches[0] is not fetch:
            return
        buffered.fetches.popleft()
        buffered.size_bytes -= fetch.size_bytes
        self.size_bytes -= fetch.size_bytes
        if not buffered.fetches:
            del self._partitions[fetch.partition]
        elif len(self._partitions) > 1:
            self._to_the_end(fetch.partition)

    def drop_stale(self) -> None:
        """Forget what was fetched for positions that have been left and partitions that are gone."""
        stale = [each for each, buffered in self._partitions.items() if not buffered.is_for(buffered.state)]
        for partition in stale:
            self._drop(partition)

    def clear(self) -> None:
        self._partitions.clear()
        self.size_bytes = 0

    def _to_the_end(self, partition: TopicPartition) -> None:
        self._partitions[partition] = self._partitions.pop(partition)

    def _drop(self, partition: TopicPartition) -> None:
        buffered = self._partitions.pop(partition, None)
        if buffered is not None:
            self.size_bytes -= buffered.size_bytes
