"""The incidents that the pipelines have found: the newest of each, of their compacted topic.

Read when somebody asks, from where the last reader stopped, so that an open page costs what is new. A topic
that was made anew is read from its beginning.
"""

from __future__ import annotations

import asyncio
import weakref

from tidelog.console.records.raw import RawRecord
from tidelog.console.refusal import Refusal
from tidelog.console.watching.watched_cluster import WatchedCluster
from tidelog.ids import TopicPartition, Uuid
from tidelog_rewards.events import INCIDENTS

_MOST = 50_000
_MOST_BYTES = 64 * 1024 * 1024
"""Of more, in number or in bytes, the ones that changed longest ago are forgotten."""
_READ_S = 20.0
_POLL_S = 5.0


class Incidents:
    """What one cluster's topic of incidents says."""

    def __init__(self, watched: WatchedCluster) -> None:
        self._watched = weakref.proxy(watched)
        self._found: dict[bytes, RawRecord] = {}
        self._bytes = 0
        self._positions: dict[TopicPartition, int] = {}
        self._topic_id: Uuid | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> list[RawRecord]:
        """The newest record of each incident, as of now; nothing where there is no such topic."""
        seen = await self._watched.seen()
        topic = seen.topics.get(INCIDENTS)
        if topic is None:
            return []
        async with self._lock:
            if topic.topic_id != self._topic_id:
                self._found, self._bytes, self._positions = {}, 0, {}
                self._topic_id = topic.topic_id
            partitions = [TopicPartition(INCIDENTS, each.partition) for each in topic.partitions]
            if all(self._positions.get(each, -1) >= seen.ends.get(each, 0) for each in partitions):
                return list(self._found.values())
            try:
                async with asyncio.timeout(_READ_S):
                    await self._read_on(partitions)
            except TimeoutError:
                raise Refusal(
                    f"reading topic {INCIDENTS} to its end took more than {_READ_S:.0f} seconds: try again",
                    503,
                    "UNREACHABLE",
                ) from None
        return list(self._found.values())

    async def _read_on(self, partitions: list[TopicPartition]) -> None:
        async with self._watched.consumer(isolation_level="read_committed") as consumer:
            ends = await consumer.end_offsets(partitions)
            behind = [each for each in partitions if self._positions.get(each, 0) < ends[each]]
            self._positions = {each: self._positions.get(each, 0) for each in partitions}
            if not behind:
                return
            consumer.assign(behind)
            for each in behind:
                consumer.seek(each, self._positions.get(each, 0))
            while any([await consumer.position(each) < ends[each] for each in behind]):
                for record in await consumer.poll(_POLL_S):
                    self._take(
                        RawRecord(
                            record.partition,
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            [],
                        )
                    )
                for each in behind:
                    self._positions[each] = await consumer.position(each)

    def _take(self, record: RawRecord) -> None:
        key = record.key or b""
        self._forget(key)
        if record.value is not None:
            self._found[key] = record
            self._bytes += record.held_bytes
        while len(self._found) > _MOST or self._bytes > _MOST_BYTES:
            self._forget(next(iter(self._found)))

    def _forget(self, key: bytes) -> None:
        former = self._found.pop(key, None)
        if former is not None:
            self._bytes -= former.held_bytes


_readers: weakref.WeakKeyDictionary[WatchedCluster, Incidents] = weakref.WeakKeyDictionary()


def incidents_of(watched: WatchedCluster) -> Incidents:
    """The one reader of a cluster."""
    return _readers.setdefault(watched, Incidents(watched))
