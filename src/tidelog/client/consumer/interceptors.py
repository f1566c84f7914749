"""Interceptors: what an application hangs around every poll and commit, without the program that polls
knowing.

They are called in order; what one returns goes to the next. One that fails is logged and passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import ConsumerRecord

logger = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Sees records before ``poll`` returns them, and commits; override the methods that you need.

    Example:
        class OnlyTraced(ConsumerInterceptor):
            def on_consume(self, records):
                return [record for record in records if record.headers]

        Consumer(bootstrap_servers="127.0.0.1:9092", interceptor_classes=[OnlyTraced])
    """

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records to hand out: the same ones, fewer or others."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed."""

    def close(self) -> None:
        """The consumer has been closed."""


class ConsumerInterceptors:
    """A chain of interceptors as one."""

    def __init__(self, chain: Sequence[ConsumerInterceptor] = ()) -> None:
        self.chain = tuple(each() if isinstance(each, type) else each for each in chain)

    def __bool__(self) -> bool:
        return bool(self.chain)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """What the chain makes of ``records``."""
        for interceptor in self.chain:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                logger.warning("%r failed on records; they go on as they were", interceptor, exc_info=True)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell all of them what was committed."""
        for interceptor in self.chain:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                logger.warning("%r failed on a commit", interceptor, exc_info=True)

    def close(self) -> None:
        """Close all of them."""
        for interceptor in self.chain:
            try:
                interceptor.close()
            except Exception:
                logger.warning("%r failed to close", interceptor, exc_info=True)
