"""Takes records out of the fetch buffer for the application: as objects or as columns.

Moves the positions of partitions behind what it takes. Answers without records have their turn here too: a
position that the log does not have goes to ``auto.offset.reset``, or is raised like everything else that the
application must know. The part of ``consumer._fetch.fetcher`` that ``poll`` sees; called under its lock.
"""

from __future__ import annotations

import logging
from collections import deque

from tidelog.client.consumer._fetch.completed_fetch import CompletedFetch
from tidelog.client.consumer._fetch.fetch_buffer import FetchBuffer
from tidelog.client.consumer._metrics import FetchStats
from tidelog.client.consumer.errors import OffsetOutOfRangeError
from tidelog.client.subscription._partition_state import FetchPosition
from tidelog.client.subscription._reset_strategy import NONE
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.column_codec import RecordColumns
from tidelog.records.record_codec import ConsumerRecord

logger = logging.getLogger(__name__)


class FetchCollector:
    """Hands out what is buffered, and tells what must be told."""

    def __init__(
        self, subscription: SubscriptionState, buffer: FetchBuffer, stats: FetchStats | None = None
    ) -> None:
        self.collected: dict[TopicPartition, FetchPosition] = {}
        """Where the partitions of the last ``take`` stood before it."""
        self.has_room = False
        """Whether something was used up since this was last cleared, so that more can be fetched."""
        self._subscription = subscription
        self._buffer = buffer
        self._stats = FetchStats() if stats is None else stats
        self._errors: deque[Exception] = deque()

    @property
    def has_errors(self) -> bool:
        return bool(self._errors)

    def tell(self, error: Exception | None) -> None:
        """Have the next collection raise ``error``."""
        if error is not None and not any(str(error) == str(known) for known in self._errors):
            self._errors.append(error)

    def raise_errors(self) -> None:
        """Raise what the application has to be told next, if anything."""
        if self._errors:
            raise self._errors.popleft()

    def take(self, max_records: int, *, only_records: bool = False) -> list[ConsumerRecord]:
        """Up to ``max_records``; ``only_records`` stops before answers that have none."""
        records: list[ConsumerRecord] = []
        collected = self.collected = {}
        while len(records) < max_records:
            fetch = self._buffer.next_fetch()
            if fetch is None or (only_records and fetch.error is not None):
                break
            if fetch.partition not in collected:
                collected[fetch.partition] = fetch.state.require_position()
            try:
                taken = self._take_from(fetch, max_records - len(records))
            except Exception:
                if records:
                    break  # what is good goes out first; the next call meets the error again
                raise
            if records:
                records += taken
            else:
                records = taken
        return records

    def take_columns(
        self, *, with_headers: bool, only_records: bool = False
    ) -> list[tuple[TopicPartition, RecordColumns]]:
        """Everything that is buffered, column by column, an answer each; ``only_records`` as in ``take``."""
        found: list[tuple[TopicPartition, RecordColumns]] = []
        while (fetch := self._buffer.next_fetch()) is not None:
            try:
                if fetch.error is not None:
                    if only_records:
                        break
                    self._raise_or_reset(fetch)
                    continue
                columns = fetch.take_columns(with_headers=with_headers)
            except Exception:
                if found:
                    break  # the same: their positions have been moved
                raise
            if columns.rows:
                found.append((fetch.partition, columns))
                self._count(fetch, columns.rows)
            if not self._moved_on(fetch):
                break  # a batch that cannot be read: the next call raises
        return found

    def _take_from(self, fetch: CompletedFetch, max_records: int) -> list[ConsumerRecord]:
        if fetch.error is not None:
            self._raise_or_reset(fetch)
            return []
        records = fetch.take(max_records)
        self._count(fetch, len(records))
        self._moved_on(fetch)
        return records

    def _moved_on(self, fetch: CompletedFetch) -> bool:
        """Move the position behind what was taken; whether that was all of it."""
        fetch.state.advance(fetch.next_offset, fetch.last_epoch)
        self._stats.note_place(fetch.state, read_committed=fetch.read_committed)
        if not fetch.is_drained:
            return False
        self._buffer.remove(fetch)
        self.has_room = True
        if fetch.tally is not None:
            fetch.tally.drained(fetch.partition.topic, fetch.taken, fetch.size_bytes)
        return True

    def _count(self, fetch: CompletedFetch, records: int) -> None:
        fetch.taken += records
        self._stats.all.records += records
        self._stats.topic(fetch.partition.topic).records += records

    def _raise_or_reset(self, fetch: CompletedFetch) -> None:
        """An answer without records has its turn: apply auto.offset.reset, or tell the application."""
        self._buffer.remove(fetch)
        self.has_room = True
        error = fetch.error
        assert error is not None
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        if self._subscription.default_reset is NONE:
            raise OffsetOutOfRangeError({fetch.partition: fetch.fetch_offset})
        logger.info("%s has no offset %s any more: resetting", fetch.partition, fetch.fetch_offset)
        self._subscription.request_reset(fetch.partition)
