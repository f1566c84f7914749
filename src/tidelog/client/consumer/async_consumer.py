"""``AsyncConsumer``: reads records on an asyncio loop. ``Consumer`` is the same for programs without one.

``consumer.polling`` is its inside.

One task polls at a time. The other methods may be called from any task of the loop, also from a listener
that runs inside a poll.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Self

from tidelog.client.consumer.commits import CommitCallback, OffsetsToCommit
from tidelog.client.consumer.errors import IllegalStateError
from tidelog.client.consumer.listener import RebalanceListener
from tidelog.client.consumer.partition_state import FetchPosition, OffsetAndMetadata, checked_partition
from tidelog.client.consumer.polling import PartitionCollection, Polling
from tidelog.client.consumer.reset_strategy import EARLIEST, LATEST
from tidelog.client.consumer.subscription_state import SubscriptionPattern
from tidelog.client.group.membership import ConsumerGroupMetadata, NoGroup
from tidelog.client.metadata import PartitionMetadata, check_place
from tidelog.client.offsets import list_offsets
from tidelog.client.resources import OffsetResult, OffsetSpec
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import ConsumerRecord

_NO_OFFSET = -1


class AsyncConsumer(Polling):
    """Reads records; ``async with AsyncConsumer(bootstrap_servers="host:9092", group_id="g") as consumer:``.

    Options are Kafka's, as a mapping or as keyword arguments with underscores; topics come by ``subscribe``
    or ``assign``. Times are in seconds.
    """

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # Subscribing

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group ``group.id``; replaces what was subscribed to before.

        ``pattern`` takes all topics whose whole name matches, also later ones; a ``SubscriptionPattern`` is
        matched by the broker. ``listener`` is told, inside ``poll``, of partitions that come and go.
        """
        self._require_open()
        if (topics is None) == (pattern is None):
            raise IllegalStateError("subscribe takes either topics or a pattern")
        if isinstance(self._membership, NoGroup):
            raise IllegalStateError("subscribing needs a group: set group.id, or assign partitions by hand")
        if isinstance(pattern, SubscriptionPattern):
            self._subscription.subscribe_broker_pattern(pattern, listener)
        elif pattern is not None:
            self._subscription.subscribe_pattern(re.compile(pattern), listener)
        else:
            one = isinstance(topics, str) or not isinstance(topics, Iterable)
            names: list[Any] = [topics] if one else list(topics or ())
            for name in names:
                check_place(name)
            self._subscription.subscribe(names, listener)
        self._subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, without a group's help; those kept keep their positions."""
        self._require_open()
        self._subscription.assign([checked_partition(each) for each in partitions])
        self._delivered.drop(lambda partition: not self._subscription.is_assigned(partition))
        self._subscription_changed()

    async def unsubscribe(self) -> None:
        """Read nothing any more; leaves the group."""
        self._require_open()
        self._put_back()
        if self._started and self._subscription.is_auto_assigned:
            await self._membership.leave(self._deadline(None))
        self._subscription.unsubscribe()
        self._subscription_changed()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._subscription.assignment

    # Reading

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most ``max.poll.records``; empty after ``timeout`` seconds without any."""
        rest = self._take_rest()
        return rest or await self._poll_records(timeout, max_records)

    async def poll_arrow(self, timeout: float = 1.0, *, with_headers: bool = False) -> Any:
        """All records that are there as one ``pyarrow.Table``, without a Python object for each.

        Waits up to ``timeout`` seconds for the first; then the table may be empty. Its columns are those of
        ``tidelog.records.arrow.arrow_schema``; keys and values are bytes, deserializers are not applied.
        """
        from tidelog.records.arrow import load_pyarrow, to_table

        load_pyarrow()
        self._put_back()
        found = await self._poll(timeout, lambda: self._fetcher.collect_columns(with_headers=with_headers))
        return to_table(found, with_headers=with_headers)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self.records(None)

    async def records(self, timeout: float | None = None) -> AsyncIterator[ConsumerRecord]:
        """Records one by one, for as long as there are any within ``timeout`` seconds; None: for ever.

        Offsets are committed as far as the loop has got.
        """
        while not self._closed:
            records = self._take_rest() or await self._poll_records(timeout, None)
            if not records and timeout is not None:
                return
            for record in self._begin_delivery(records):
                yield record

    def wakeup(self) -> None:
        """Make the ``poll`` that waits, or else the next one, raise ``WakeupError``; from any thread."""
        self._wakeup = True
        if self._started:
            self._loop.call_soon_threadsafe(self._wake_flag.tell)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on reading an assigned partition from ``offset``."""
        self._require_open()
        at = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if at.offset < 0:
            raise IllegalStateError(f"offset {at.offset} of {partition} is negative; see seek_to_beginning")
        self._subscription.seek(partition, FetchPosition(at.offset, at.leader_epoch))
        self._delivered.drop_partitions([partition])

    def seek_to_beginning(self, partitions: PartitionCollection = ()) -> None:
        """Go on with the first record there is; of all assigned partitions if none is named."""
        self._seek_to(partitions, earliest=True)

    def seek_to_end(self, partitions: PartitionCollection = ()) -> None:
        """Go on with the next record to come; of all assigned partitions if none is named."""
        self._seek_to(partitions, earliest=False)

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record of an assigned partition, waiting until that is known."""
        deadline = await self._begin(timeout)
        self._settle()
        while True:
            position = self._subscription.consumed_position(partition)
            if position is not None and self._subscription.state(partition).has_valid_position:
                return position.offset
            await self._wait_for_position(partition, deadline)

    async def committed(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where there is none."""
        deadline = await self._begin(timeout)
        return await self._membership.fetch_committed(partitions, deadline)

    def pause(self, partitions: PartitionCollection) -> None:
        """Hand out nothing of these until ``resume``; they stay assigned."""
        self._require_open()
        self._put_back(partitions)
        self._subscription.pause(partitions)

    def resume(self, partitions: PartitionCollection) -> None:
        """Hand out records of these again."""
        self._require_open()
        self._subscription.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that ``pause`` has stopped."""
        return self._subscription.paused

    async def beginning_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition, which need not be assigned."""
        found = await self._offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST), timeout)
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that this consumer would see, by its ``isolation.level``."""
        found = await self._offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), timeout)
        return {partition: each.offset for partition, each in found.items()}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """The first record at or after a time in ms, by partition; None where there is none."""
        found = await self._offsets(times, timeout)
        return {partition: each if each.offset != _NO_OFFSET else None for partition, each in found.items()}

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionMetadata]:
        """The partitions of ``topic`` and who serves them.

        A topic that does not exist is an error, at once unless ``allow.auto.create.topics`` may create it.
        """
        deadline = await self._begin(timeout)
        if self._cluster.settings.allow_auto_create_topics:
            known = await self._cluster.topic(topic, allow_auto_create=True, deadline=deadline)
        else:
            known = await self._cluster.existing_topic(topic, deadline=deadline)
        return list(known.partitions.values())

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionMetadata]]:
        """All topics that this consumer may see, with their partitions."""
        deadline = await self._begin(timeout)
        found = await self._cluster.refresh(None, deadline=deadline)
        return {
            name: list(topic.partitions.values()) for name, topic in found.topics.items() if not topic.error
        }

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie before the end as of the last fetch; None before the first. Asks nobody."""
        self._settle()
        return self._subscription.lag(partition, self._fetch_config.isolation_level)

    # Committing

    async def commit(self, offsets: OffsetsToCommit | None = None, timeout: float | None = None) -> None:
        """Commit ``offsets``, by default those behind all records handed out, and wait for the answer."""
        deadline = await self._begin(timeout)
        self._settle()
        await self._commits.run_callbacks()
        await self._commits.commit(offsets, deadline)

    def commit_nowait(
        self,
        offsets: OffsetsToCommit | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit in the background; a later poll tells ``callback`` the offsets and the error, if any."""
        self._require_open()
        if not self._started:
            raise IllegalStateError("nothing was read yet: poll before committing")
        self._settle()
        self._commits.commit_nowait(offsets, callback, self._deadline(None))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group, for ``send_offsets_to_transaction``."""
        return self._membership.group_metadata()

    def ongoing_error(self) -> tuple[float, str] | None:
        """What keeps this consumer from reading, and for how many seconds already; None if nothing does.

        Errors that may pass are retried for as long as they last: this is for those who will not wait.
        """
        return self._ongoing_errors.longest if self._started else None

    def metrics(self) -> dict[str, float]:
        """Figures of this consumer and its connections, by Kafka's names; times in ms."""
        return self._cluster.metrics.snapshot() if self._started else {}

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetResult]:
        deadline = await self._begin(timeout)
        isolation = self._fetch_config.isolation_level
        found = await list_offsets(self._cluster, wanted, isolation_level=isolation, deadline=deadline)
        for result in found.values():
            result.raise_for_error()
        return found

    def _seek_to(self, partitions: PartitionCollection, *, earliest: bool) -> None:
        self._require_open()
        wanted = list(partitions or self._subscription.assignment)
        for partition in wanted:
            self._subscription.request_reset(partition, EARLIEST if earliest else LATEST)
        self._delivered.drop_partitions(wanted)
