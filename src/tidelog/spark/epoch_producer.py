"""A transactional producer whose transaction somebody else may end, and which knows of epochs.

One per task of an exactly-once write. ``prepare_transaction`` has everything written and leaves the
transaction open: the driver commits it by its producer id and epoch, or nobody does and it is aborted by the
next producer with the same transactional id, or by its timeout.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.client.cluster import Cluster
from tidelog.client.consumer.partition_state import OffsetAndMetadata
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer.producer import Producer
from tidelog.client.retry import Deadline
from tidelog.errors import ErrorCode, KafkaError
from tidelog.spark.epoch_record import EPOCH_PARTITION, EpochRecord, PreparedTransaction
from tidelog.spark.epoch_requests import create_epoch_topic, read_record

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 5.0


class EpochProducer(Producer):
    """A producer for one write of one task."""

    @property
    def name(self) -> str:
        """Its transactional id, which is also the group of its records."""
        name = self._settings.transactional_id
        assert name is not None
        return name

    def deadline(self) -> Deadline:
        """How long brokers may be away: ``kafka.delivery.timeout.ms``, as for records."""
        return Deadline(self._settings.delivery_timeout_ms)

    def ask(self, question: Callable[[Cluster], Awaitable[T]], what: str) -> T:
        """The answer to a question about the cluster."""

        async def asked() -> T:
            return await question(self._core.cluster)

        return self._thread.call(asked(), what=what)

    def take_over(self) -> EpochRecord | None:
        """Fence earlier producers of this task, whose transactions have then ended; the record they left."""
        try:
            self.with_retry(self.init_transactions)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise KafkaError(
                error.code,
                f"the brokers refuse kafka.transaction.timeout.ms={self._settings.transaction_timeout_ms}: "
                "set it to no more than their transaction.max.timeout.ms",
            ) from None
        record = self.read_record(self.name)
        if record is None:
            self.ask(create_epoch_topic, "the topic of epochs")
        return record

    def read_record(self, task: str, *, stable: bool = True) -> EpochRecord | None:
        """What a task has written last; unless ``stable``, without regard to what is under way."""
        deadline = self.deadline()
        return self.ask(lambda cluster: read_record(cluster, task, deadline, stable=stable), "the last epoch")

    def record(self, record: EpochRecord) -> None:
        """Make ``record`` part of the transaction."""
        offset = OffsetAndMetadata(record.version, metadata=record.metadata)
        self.with_retry(
            functools.partial(self.send_offsets_to_transaction, {EPOCH_PARTITION: offset}, self.name)
        )

    def prepare_transaction(self) -> PreparedTransaction:
        """Have everything written, and leave the transaction to somebody else; only ``abandon`` may "
        "follow."""
        self.flush(self.deadline().remaining)

        async def prepare() -> PreparedTransaction:
            manager = self._core._transactions
            assert manager is not None
            await self._core.sender.wait_partitions_added()
            manager.raise_if_failed()
            return PreparedTransaction(self.name, *manager.identity, manager.is_version_2)

        return self._thread.call(prepare(), what="the transaction")

    def with_retry(self, call: Callable[[], None]) -> None:
        """Make a transactional call, again and again while brokers are away."""
        deadline = self.deadline()
        while True:
            try:
                return call()
            except RequestTimeoutError:
                if deadline.expired:
                    raise

    def abandon(self) -> None:
        """Close without a word about the transaction."""
        self.close(0)

    def give_up(self) -> None:
        """Abort what is open, if the brokers answer soon, and close."""
        self.close(_CLOSE_TIMEOUT_S)
