"""A transactional producer whose transaction somebody else may end, and which knows of epochs.

One per task of an exactly-once write. ``prepare`` has everything written and leaves the transaction open: the
driver commits it by its producer id and epoch, or nobody does and it is aborted by the next producer with the
same transactional id, or by its timeout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tidelog.client._network.retry import Deadline
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer._transaction_calls import PreparedTransaction
from tidelog.client.producer.producer import Producer
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ErrorCode, KafkaError
from tidelog.spark.report.epoch_record import EPOCH_PARTITION, EpochRecord
from tidelog.spark.runtime.silence import reach
from tidelog.spark.write._epoch_requests import create_epoch_topic, read_record

_CLOSE_TIMEOUT_S = 5.0


class EpochProducer(Producer):
    """A producer for one write of one task."""

    @property
    def name(self) -> str:
        """Its transactional id, which is also the group of its records."""
        return self.config.str("transactional.id")

    def deadline(self) -> Deadline:
        """How long brokers may be away: ``kafka.delivery.timeout.ms``, as for records."""
        return Deadline(self.config.int("delivery.timeout.ms"))

    def reach(self, timeout_ms: int) -> None:
        """Find a broker, whichever, or raise ``NoBrokerError``."""
        client = {"bootstrap.servers": ",".join(self.config.list("bootstrap.servers"))}
        self.ask_cluster(lambda cluster: reach(cluster, [], client, timeout_ms), "the brokers")

    def take_over(self) -> EpochRecord | None:
        """Fence earlier producers of this task, whose transactions have then ended; the record they left."""
        try:
            self.with_retry(self.init_transactions)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            timeout_ms = self.config.int("transaction.timeout.ms")
            raise KafkaError(
                error.code,
                f"the brokers refuse kafka.transaction.timeout.ms={timeout_ms}: "
                "set it to no more than their transaction.max.timeout.ms",
            ) from None
        record = self.read_record(self.name)
        if record is None:
            self.ask_cluster(create_epoch_topic, "the topic of epochs")
        return record

    def read_record(self, task: str, *, stable: bool = True) -> EpochRecord | None:
        """What a task has written last; unless ``stable``, without regard to what is under way."""
        deadline = self.deadline()
        return self.ask_cluster(
            lambda cluster: read_record(cluster, task, deadline, stable=stable), "the last epoch"
        )

    def record(self, record: EpochRecord) -> None:
        """Make ``record`` part of the transaction."""
        offset = OffsetAndMetadata(record.version, metadata=record.metadata)
        self.with_retry(
            functools.partial(self.send_offsets_to_transaction, {EPOCH_PARTITION: offset}, self.name)
        )

    def prepare(self) -> PreparedTransaction:
        """Have all written, and leave the transaction to somebody else; only ``abandon`` may follow."""
        return self.prepare_transaction(self.deadline().remaining)

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
