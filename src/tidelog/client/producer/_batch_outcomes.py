"""What becomes of a batch that was sent: written, sent again, split, or failed; with the counts of all that.

The sender brings what brokers answered, or that they did not. Here it is decided, by Kafka's rules, whether a
batch goes back into the accumulator or ends; the transaction manager hears of it, and the memory goes back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidelog.client._network.ongoing_errors import OngoingErrors
from tidelog.client._network.retry import Backoff
from tidelog.client.errors import RequestTimeoutError, error_from
from tidelog.client.producer._produce_messages import PartitionResult
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._producer_metrics import ProducerStats
from tidelog.client.producer._record_accumulator import RecordAccumulator
from tidelog.client.producer._settings import ProducerSettings
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET

logger = logging.getLogger(__name__)

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which the partition's leader should be asked for again."""

_RETRIED_BESIDES = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


class BatchOutcomes:
    """Ends batches, or sends them round again."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
        settings: ProducerSettings,
        clock: Callable[[], float],
        stats: ProducerStats | None = None,
        ongoing_errors: OngoingErrors | None = None,
    ) -> None:
        self.stats = stats or ProducerStats()
        self._ongoing_errors = ongoing_errors or OngoingErrors()
        self._accumulator = accumulator
        self._transactions = transactions
        self._settings = settings
        self._delivery_s = settings.delivery_timeout_ms / 1000
        self._clock = clock

    def settle(self, batch: ProducerBatch, result: PartitionResult) -> ErrorCode:
        """Act on what a broker says of ``batch``; the error that it means."""
        code = ErrorCode(result.error_code)
        if batch.done:
            # It expired while it was under way; sequences still want to know whether it was written.
            if not code and self._transactions is not None:
                self._transactions.batch_completed(batch, result.base_offset)
            return code
        if not code or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._complete(batch, result)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            count = self._accumulator.split_and_reenqueue(batch)
            self.stats.batches_split += 1
            logger.info("%r is too large for its broker: sent again as %d", batch, count)
        elif self._can_retry(batch, code, result):
            self._retry(batch, code, result.message)
        else:
            text = result.message or _explanation(code)
            error = error_from(result.error_code, text, f"partition {batch.topic_partition}")
            assert error is not None
            adjust = batch.attempts < self._settings.retries
            self.fail(batch, error, adjust_sequences=adjust, record_errors=_record_errors(error, result))
        return code

    def fail(
        self,
        batch: ProducerBatch,
        error: Exception,
        *,
        adjust_sequences: bool = False,
        record_errors: dict[int, Exception] | None = None,
    ) -> None:
        """End ``batch`` without its records having been written, as far as is known."""
        if batch.done:
            return
        self.stats.failed(batch)
        self._ongoing_errors.over(batch.topic_partition)
        if self._transactions is not None:
            self._transactions.batch_failed(batch, error, adjust_sequences)
        self._accumulator.complete(batch)
        if record_errors:
            others = KafkaError(
                ErrorCode.INVALID_RECORD, f"another record of the same batch was refused: {error.args[-1]}"
            )
            batch.end(others, record_errors=record_errors)
        else:
            batch.end(error)

    def expire(self, batch: ProducerBatch) -> None:
        """End a batch whose ``delivery.timeout.ms`` has passed."""
        self.stats.batches_expired += 1
        was_sent = batch.has_sequence or batch.in_retry
        why = (
            "it was sent, and may have been written, but no broker has acknowledged it"
            if batch.drained_s
            else "it could not be sent: its partition had no leader that could be reached"
        )
        if (reason := self._ongoing_errors.reason) is not None:
            why += f" ({reason})"
        timeout_ms = self._settings.delivery_timeout_ms
        batch.close_for_appends()
        self.fail(
            batch,
            RequestTimeoutError(
                f"{batch.record_count} record(s) of {batch.topic_partition} were not delivered within "
                f"delivery.timeout.ms={timeout_ms}: {why}"
            ),
        )
        if self._transactions is not None and was_sent:
            self._transactions.mark_unresolved(batch)

    def _complete(self, batch: ProducerBatch, result: PartitionResult) -> None:
        if self._transactions is not None:
            self._transactions.batch_completed(batch, result.base_offset)
        self._accumulator.complete(batch)
        self._ongoing_errors.over(batch.topic_partition)
        self.stats.acknowledged_at_s = self._clock()
        offset = NO_OFFSET if result.error_code else result.base_offset
        batch.end(None, offset, result.append_time_ms)

    def _can_retry(self, batch: ProducerBatch, code: ErrorCode, result: PartitionResult) -> bool:
        if batch.attempts >= self._settings.retries or self._clock() >= batch.created_s + self._delivery_s:
            return False
        if self._transactions is not None:
            if self._transactions.has_fatal_error:
                return False
            if self._transactions.can_retry(batch, code, result.log_start_offset):
                return True
        return code.retriable or code in _RETRIED_BESIDES

    def _retry(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> None:
        settings = self._settings
        backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        for _ in range(min(batch.attempts, 10)):
            backoff.next_ms()
        self.stats.retried(batch)
        text = f"{code.name}: {message}" if message else code.name
        logger.debug("%r is sent again after %s", batch, text)
        if code is not ErrorCode.NETWORK_EXCEPTION:  # which is noted by broker
            error = f"writing to {batch.topic_partition} failed with {text}"
            self._ongoing_errors.note(batch.topic_partition, error)
        self._accumulator.reenqueue(batch, self._clock() + backoff.next_ms() / 1000)


def _explanation(code: ErrorCode) -> str | None:
    match code:
        case ErrorCode.MESSAGE_TOO_LARGE:
            return "the record is larger than the broker's or topic's max.message.bytes"
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return "this client may not write idempotently; grant it, or set enable.idempotence=false"
    return None


def _record_errors(error: KafkaError, result: PartitionResult) -> dict[int, Exception] | None:
    if not result.record_errors:
        return None
    # One refused record surely is what the batch's code is about; of several nobody knows.
    code = error.code if len(result.record_errors) == 1 else ErrorCode.INVALID_RECORD
    return {
        index: KafkaError(code, message or result.message or "the broker refused the record")
        for index, message in result.record_errors
    }
