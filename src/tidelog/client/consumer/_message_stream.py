"""One message stream: a consumer, a handler, and a thread for the handler if that is not ``async``.

Polls, handles record by record, commits what was handled, polls again. A rebalance happens inside a poll,
when nothing is in work: what a partition's last owner has handled is committed before its next owner
starts. A cooperative rebalance may go on over several polls, in which commits are refused: their offsets
wait, and are committed after the next poll, or when their partition is revoked. Run by
``consumer.stream_consumer``, on its loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import enum
import inspect
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tidelog.client._network.retry import doubled_ms
from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.errors import RecordDeserializationError, WakeupError
from tidelog.client.consumer.failure_policy import (
    DeadLetter,
    FailurePolicy,
    Retry,
    Skip,
    Stop,
    dead_letter_headers,
)
from tidelog.client.consumer.health import ConsumerHealth
from tidelog.client.group.errors import CommitFailedError
from tidelog.client.serialization import DeserializeFn, deserializer_for
from tidelog.client.subscription.listener import RebalanceListener
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import NO_LEADER_EPOCH, TopicPartition
from tidelog.records.record_codec import ConsumerRecord

logger = logging.getLogger(__name__)

_POLL_S = 1.0


class StreamOutcome(enum.Enum):
    """How a stream ended."""

    STOPPED = "stopped"
    FAILED = "failed"


class DeadLetters:
    """The producer that all streams send their dead letters with, made when the first one is sent."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = dict(options)
        self._producer: Any = None

    async def send(self, topic: str, record: ConsumerRecord, error: BaseException, attempts: int) -> None:
        """Send a record as it was read and wait until it is written; without it where it is too large."""
        if self._producer is None:
            from tidelog.client.producer.async_producer import AsyncProducer  # most streams never need one

            self._producer = AsyncProducer(self._options, acks="all")
            await self._producer.start()
        headers = dead_letter_headers(record, error, attempts)
        try:
            await self._producer.send(topic, record.value, key=record.key, headers=headers)
        except KafkaError as refused:
            if refused.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            # It would be refused again at every start, and nothing behind it ever be handled.
            place = f"{record.topic_partition} at offset {record.offset}"
            logger.warning("the dead letter of %s is written without the record: %s", place, refused)
            headers = dead_letter_headers(record, error, attempts, left_out=True)
            await self._producer.send(topic, None, headers=headers)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()


class MessageStream:
    """A member of the group that reads one topic with one handler."""

    def __init__(
        self,
        topic: str,
        number: int,
        options: Mapping[str, object],
        handler: Any,
        policy: FailurePolicy,
        dead_letters: DeadLetters,
    ) -> None:
        self.name = f"{topic} stream {number}"
        self.failure: BaseException | None = None
        self._topic = topic
        self._policy = policy
        self._dead_letters = dead_letters
        self._handler = handler
        # Records come as bytes and are deserialized here, so that a dead letter has the bytes.
        plain = dict(options)
        key, value = plain.pop("key.deserializer", None), plain.pop("value.deserializer", None)
        self._key: DeserializeFn | None = deserializer_for(key, "key.deserializer")
        self._value: DeserializeFn | None = deserializer_for(value, "value.deserializer")
        self._consumer = AsyncConsumer(plain)
        method = handler.handle if hasattr(handler, "handle") else handler
        self._call: Callable[[ConsumerRecord], Any] = method
        self._is_async = inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(
            getattr(method, "__call__", None)  # noqa: B004 (to see whether it is async)
        )
        self._uncommitted: dict[TopicPartition, OffsetAndMetadata] = {}
        self._stopping = False
        self._handling_thread: int | None = None
        self._worker: concurrent.futures.ThreadPoolExecutor | None = None

    def stop(self) -> None:
        """End after the record in work; from any thread."""
        self._stopping = True
        with contextlib.suppress(RuntimeError):  # its loop is closed: the stream has ended
            self._consumer.wakeup()

    def health(self, patience: float) -> ConsumerHealth:
        """Whether the stream's consumer works; from any thread."""
        return self._consumer.health(patience)

    @property
    def is_handling_here(self) -> bool:
        """Whether the caller runs in the stream's thread, called by its handler."""
        return self._handling_thread == threading.get_ident()

    async def run(self) -> StreamOutcome:
        """Read until stopped; what was handled is committed, unless a rebalance is still under way."""
        if not self._is_async:
            self._worker = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"tidelog {self.name}")
        try:
            self._consumer.subscribe([self._topic], listener=_Revocations(self))
            while not self._stopping:
                await self._step()
            return StreamOutcome.STOPPED
        except Exception as error:
            logger.error("%s ends: %s", self.name, error)
            self.failure = error
            return StreamOutcome.FAILED
        finally:
            await self._end()

    async def _step(self) -> None:
        try:
            records = await self._consumer.poll(_POLL_S)
        except WakeupError:
            return
        done = 0
        try:
            while done < len(records) and not self._stopping:
                done, error = await self._handle(records, done)
                if error is not None:
                    if not await self._is_dealt_with(records[done], error):
                        break
                    done += 1
        finally:
            await self._commit(records[:done])

    async def _handle(self, records: list[ConsumerRecord], start: int) -> tuple[int, Exception | None]:
        """Handle records from ``start`` on: where that ended, and the error that ended it."""
        if self._worker is not None:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._worker, self._handle_plainly, records, start)
        for index in range(start, len(records)):
            record = records[index]
            key, value = record.key, record.value
            try:
                self._deserialize(record)
                await self._call(record)
            except Exception as error:
                record.key, record.value = key, value
                return index, error
            if self._stopping:
                return index + 1, None
        return len(records), None

    def _handle_plainly(self, records: list[ConsumerRecord], start: int) -> tuple[int, Exception | None]:
        """As :meth:`_handle`, in the stream's own thread: one switch of threads for many records."""
        self._handling_thread = threading.get_ident()
        try:
            return self._handle_in_turn(records, start)
        finally:
            self._handling_thread = None

    def _handle_in_turn(self, records: list[ConsumerRecord], start: int) -> tuple[int, Exception | None]:
        for index in range(start, len(records)):
            record = records[index]
            key, value = record.key, record.value
            try:
                self._deserialize(record)
                self._call(record)
            except Exception as error:
                record.key, record.value = key, value
                return index, error
            if self._stopping:
                return index + 1, None
        return len(records), None

    async def _is_dealt_with(self, record: ConsumerRecord, error: Exception) -> bool:
        """Do with a record what the policy says; whether it may be committed. ``Stop`` raises the error."""
        attempts, last = 1, error
        while isinstance(self._policy, Retry) and attempts <= self._policy.attempts:
            if self._stopping:
                return False  # the next owner of the partition tries again
            await self._pause(self._policy, attempts, record, last)
            _, again = await self._handle([record], 0)
            if again is None:
                return True
            attempts, last = attempts + 1, again
        await self._give_up(record, last, attempts)
        return True

    def _deserialize(self, record: ConsumerRecord) -> None:
        part = "key"
        try:
            if self._key is not None:
                record.key = self._key(record.topic, record.key)
            part = "value"
            if self._value is not None:
                record.value = self._value(record.topic, record.value)
        except Exception as error:
            raise RecordDeserializationError(record.topic_partition, record.offset, part, error) from error

    async def _pause(self, policy: Retry, attempts: int, record: ConsumerRecord, error: Exception) -> None:
        wait_ms = doubled_ms(policy.backoff_ms, policy.backoff_max_ms, attempts - 1)
        place = f"{record.topic_partition} at offset {record.offset}"
        logger.info("%s: handling %s failed (%s); again in %.3g s", self.name, place, error, wait_ms / 1000)
        await asyncio.sleep(wait_ms / 1000)

    async def _give_up(self, record: ConsumerRecord, error: Exception, attempts: int) -> None:
        policy = self._policy.then if isinstance(self._policy, Retry) else self._policy
        if isinstance(policy, Stop):
            raise error
        place = f"{record.topic_partition} at offset {record.offset}"
        if isinstance(policy, Skip):
            logger.warning("%s: %s is skipped: %s", self.name, place, error)
        elif isinstance(policy, DeadLetter):
            topic = policy.topic_for(record)
            logger.warning("%s: %s goes to %s: %s", self.name, place, topic, error)
            await self._dead_letters.send(topic, record, error, attempts)

    async def _commit(self, handled: list[ConsumerRecord]) -> None:
        """Commit the offsets behind these records, which are in order in each partition, and what waits."""
        offsets, self._uncommitted = self._uncommitted, {}
        for topic, number, last in _last_of_each(handled):
            epoch = NO_LEADER_EPOCH if last.leader_epoch is None else last.leader_epoch
            offsets[TopicPartition(topic, number)] = OffsetAndMetadata(last.offset + 1, epoch)
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except CommitFailedError as error:
            logger.warning("%s was too slow, its records will be handled again: %s", self.name, error)
        except KafkaError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            self._uncommitted = offsets

    async def commit_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what waits of partitions that are about to go."""
        offsets = self.forget(partitions)
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except TidelogError as error:
            logger.warning("%s: the next owners will handle records again: %s", self.name, error)

    def forget(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What waits of partitions is not committed after the next poll; what it is."""
        waiting = self._uncommitted
        return {partition: waiting.pop(partition) for partition in partitions if partition in waiting}

    async def _end(self) -> None:
        try:
            await self._consumer.close()
        finally:
            if self._worker is not None:
                self._worker.shutdown(wait=False)
            close = getattr(self._handler, "close", None)
            if close is not None and not inspect.isroutine(self._handler):
                close()


class _Revocations(RebalanceListener):
    """Has a stream commit before its partitions go; of those that are lost nothing can be committed."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._stream.commit_revoked(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._stream.forget(partitions)


def _last_of_each(records: list[ConsumerRecord]) -> Iterator[tuple[str, int, ConsumerRecord]]:
    last = {(record.topic, record.partition): record for record in records}
    return ((topic, number, record) for (topic, number), record in last.items())
