"""Sends what the accumulator holds: one task on the producer's loop.

Each turn: look after the producer id and the transaction, ask the accumulator which brokers have something to
get (``ready``), drain one request per broker that is connected and has fewer than
``max.in.flight.requests.per.connection`` under way, and again until there is nothing more to send; expire
what is too old; sleep until the next linger or back-off ends, or until somebody wakes it. Answers are handled
as they come (``batch_outcomes``) and wake it.

Where order must not depend on the broker (``max.in.flight.requests.per.connection=1``) a partition is muted
while a batch of it is under way.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.connection import Body
from tidelog.client._network.retry import Deadline
from tidelog.client.errors import ClientClosedError, ConnectionLostError, RequestTimeoutError
from tidelog.client.metadata import LeaderHint
from tidelog.client.producer._batch_outcomes import STALE_METADATA, BatchOutcomes
from tidelog.client.producer._produce_messages import (
    LOWEST_VERSION,
    PartitionResult,
    ProduceResult,
    highest_version,
    produce_body,
    read_produce_response,
    topic_ids_of,
)
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._record_accumulator import ReadyCheck, RecordAccumulator
from tidelog.client.producer._settings import ProducerSettings
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer._transaction.transaction_states import TransactionState
from tidelog.client.producer._transaction.transactional_requests import TransactionalRequests
from tidelog.client.producer.errors import TransactionAbortedError
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition, Uuid
from tidelog.wire.api import ApiKey

logger = logging.getLogger(__name__)

_NEVER = float("inf")
_LONGEST_SLEEP_S = 60.0


def _sending_to(node_id: int) -> str:
    return f"sending to broker {node_id}"


class Sender:
    """The background work of one producer."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        outcomes: BatchOutcomes,
        settings: ProducerSettings,
        transactions: TransactionManager | None,
        requests: TransactionalRequests | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._outcomes = outcomes
        self._settings = settings
        self._transactions = transactions
        self._requests = requests
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._task: asyncio.Task[None] | None = None
        self._errands: dict[object, asyncio.Task[None]] = {}
        self._in_flight: Counter[int] = Counter()
        self._flying: set[ProducerBatch] = set()
        self._expiry_check_s = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False
        self._closing = False

    def start(self) -> None:
        """Begin to send."""
        self._task = self._loop.create_task(self._run(), name="producer sender")

    def wake(self) -> None:
        """Take a turn soon; for any thread, and cheap where the sender has been woken already."""
        if self._woken:
            return
        self._woken = True
        if threading.get_ident() == self._thread_id:
            self._wake_up()
            return
        try:
            self._loop.call_soon_threadsafe(self._wake_up)
        except RuntimeError:
            # The loop is closed, and so is the producer: whoever sends is told by the accumulator.
            logger.debug("a closed producer was woken")

    def _wake_up(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def close(self, error: Exception | None = None) -> None:
        """Stop; whatever has not ended fails with ``error``."""
        self._closing = True
        tasks = [task for task in (self._task, *self._errands.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        reason = error or ClientClosedError("the producer was closed before the record was acknowledged")
        self._accumulator.take_unsent(all_batches=True)
        for batch in list(self._accumulator.incomplete):
            batch.close_for_appends()
            self._outcomes.fail(batch, reason)

    @property
    def in_flight_requests(self) -> int:
        """Produce requests that wait for their answers; from any thread."""
        return sum(list(self._in_flight.values()))

    @property
    def in_flight_batches(self) -> list[ProducerBatch]:
        """The batches in those requests; from any thread."""
        return list(self._flying)

    async def _run(self) -> None:
        while True:
            self._woken = False
            try:
                delay_s = self._turn()
            except Exception:
                logger.exception("a turn of the producer's sender failed; it goes on")
                delay_s = self._settings.retry_backoff_ms / 1000
            await self._sleep(delay_s)

    async def _sleep(self, delay_s: float) -> None:
        if self._woken:
            # Somebody did so during the turn; sockets get their chance first.
            await asyncio.sleep(0)
            return
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(min(delay_s, _LONGEST_SLEEP_S), self._wake_up)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _turn(self) -> float:
        """Do what can be done now; the seconds until there may be more."""
        if self._transactions is not None and not self._drive_transaction(self._transactions):
            return _NEVER
        now_s = self._clock()
        while True:
            metadata = self._cluster.metadata
            check = self._accumulator.ready(metadata, now_s)
            if check.unknown_leader_topics:
                self._cluster.updates.add_topics(check.unknown_leader_topics)
                self._cluster.request_update()
            if not self._send_ready(check, now_s):
                break
        next_expiry_s = self._expire(now_s)
        return max(min(check.next_check_s, next_expiry_s - now_s), 0.0)

    def _send_ready(self, check: ReadyCheck, now_s: float) -> bool:
        """One request to every broker that can take it; whether any was sent."""
        sent = False
        for node_id in check.nodes:
            if self._in_flight[node_id] >= self._settings.max_in_flight or not self._is_connected(
                node_id, check
            ):
                self._accumulator.node_waits(node_id, now_s)
                continue
            batches = self._accumulator.drain(check.queues[node_id], now_s)
            if not batches:
                continue
            self._accumulator.node_served(node_id)
            self._send(node_id, batches)
            sent = True
        return sent

    def _is_connected(self, node_id: int, check: ReadyCheck) -> bool:
        if self._cluster.ready(node_id):
            return True
        delay_ms = self._cluster.delay_ms(node_id)
        if delay_ms > 0:
            check.next_check_s = min(check.next_check_s, delay_ms / 1000)
        else:
            self._begin(("connect", node_id), self._connect(node_id))
        return False

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection_to(node_id, Deadline(self._settings.request_timeout_ms))
        except TidelogError as error:
            logger.debug("no connection to broker %d: %s", node_id, error)
            self._cluster.ongoing_errors.note(_sending_to(node_id), error)
            self._cluster.request_update()

    def _send(self, node_id: int, batches: list[ProducerBatch]) -> None:
        settings = self._settings
        manager = self._transactions
        transactional_id = None if manager is None else manager.transactional_id
        version_1 = transactional_id is not None and manager is not None and not manager.is_version_2
        metadata = self._cluster.metadata
        self._dequeue(node_id, batches)
        try:
            ids = topic_ids_of(batches, metadata)
            highest = highest_version(batches, ids, version_1)
            version = self._cluster.api_version(node_id, ApiKey.PRODUCE, LOWEST_VERSION, highest)
            body = produce_body(
                version, batches, ids, transactional_id, settings.acks, settings.request_timeout_ms
            )
            if settings.acks == 0:
                self._cluster.send_only(node_id, ApiKey.PRODUCE, version, body)
                self._answered(node_id, batches, version, ids, self._clock(), None)
                return
            sent_s = self._clock()
            answer = self._cluster.send(node_id, ApiKey.PRODUCE, version, body)
        except TidelogError as error:
            self._lost(node_id, batches, error)
            return
        answer.add_done_callback(functools.partial(self._answered, node_id, batches, version, ids, sent_s))

    def _dequeue(self, node_id: int, batches: list[ProducerBatch]) -> None:
        self._in_flight[node_id] += 1
        self._flying.update(batches)
        if self._settings.keeps_order_by_muting:
            self._accumulator.mute(batches)
        metadata = self._cluster.metadata
        for batch in batches:
            partition = metadata.partition(batch.topic_partition)
            batch.answered = False
            batch.sent_leader_epoch = -1 if partition is None else partition.leader_epoch
        self._outcomes.stats.sent(batches)
        self._cluster.updates.add_topics({batch.topic_partition.topic for batch in batches})

    def _answered(
        self,
        node_id: int,
        batches: list[ProducerBatch],
        version: int,
        topic_ids: dict[str, Uuid],
        sent_s: float,
        answer: asyncio.Future[Body] | None,
    ) -> None:
        if answer is None:
            result = ProduceResult([(batch.topic_partition, PartitionResult(0)) for batch in batches])
        elif answer.cancelled():
            self._lost(node_id, batches, ConnectionLostError("the request was given up"))
            return
        else:
            error = answer.exception()
            if error is not None:
                self._lost(node_id, batches, error)
                return
            try:
                result = read_produce_response(answer.result(), version, batches, topic_ids)
            except TidelogError as unreadable:
                self._lost(node_id, batches, unreadable)
                return
            self._cluster.ongoing_errors.over(_sending_to(node_id))
            for batch in batches:
                batch.answered = True
            stats = self._outcomes.stats
            stats.latency_ms.record((self._clock() - sent_s) * 1000)
            stats.throttle_ms.record(result.throttle_time_ms)
        self._cluster.throttle(node_id, result.throttle_time_ms)
        hints = self._settle(node_id, batches, dict(result.partitions))
        if hints:
            self._cluster.note_leaders(hints, result.nodes)

    def _lost(self, node_id: int, batches: list[ProducerBatch], error: BaseException) -> None:
        """The request has no answer and gets none."""
        if isinstance(error, KafkaError):
            code, message = error.code, str(error)
        elif isinstance(error, RequestTimeoutError):
            code, message = ErrorCode.REQUEST_TIMED_OUT, str(error)
        else:
            code, message = ErrorCode.NETWORK_EXCEPTION, str(error)
        self._cluster.ongoing_errors.note(_sending_to(node_id), error)
        if self._settings.acks == 0:
            logger.warning("records sent with acks=0 were lost: %s", message)
        self._settle(
            node_id,
            batches,
            {batch.topic_partition: PartitionResult(code, message=message) for batch in batches},
        )

    def _settle(
        self, node_id: int, batches: list[ProducerBatch], results: dict[TopicPartition, PartitionResult]
    ) -> dict[TopicPartition, LeaderHint]:
        self._in_flight[node_id] -= 1
        hints: dict[TopicPartition, LeaderHint] = {}
        stale = False
        for batch in batches:
            self._flying.discard(batch)
            result = results.get(batch.topic_partition)
            if result is None:
                result = PartitionResult(
                    ErrorCode.NETWORK_EXCEPTION, message="the broker's answer does not mention the partition"
                )
            code = self._outcomes.settle(batch, result)
            stale = stale or code in STALE_METADATA
            if result.current_leader is not None:
                hints[batch.topic_partition] = result.current_leader
            if self._settings.keeps_order_by_muting:
                self._accumulator.unmute(batch)
        if stale:
            self._cluster.request_update()
        self.wake()
        return hints

    def _expire(self, now_s: float) -> float:
        """Fail what is too old; when the next one may be."""
        if now_s >= self._expiry_check_s:
            expired, self._expiry_check_s = self._accumulator.take_expired(now_s)
            for batch in expired:
                self._outcomes.expire(batch)
        return self._expiry_check_s

    # -- producer id and transaction

    def _drive_transaction(self, manager: TransactionManager) -> bool:
        """Look after id, epoch and partitions of the transaction; False where nothing may be sent."""
        manager.resolve_sequences()
        if manager.has_fatal_error:
            self._fail_all(manager.last_error or ClientClosedError("the producer has failed"))
            return False
        if manager.is_transactional:
            if manager.has_abortable_error:
                assert manager.last_error is not None
                self._fail_unsent(manager.last_error)
            elif manager.is_aborting:
                self._fail_unsent(TransactionAbortedError("the record's transaction was aborted"))
            elif manager.has_new_partitions:
                self._begin("add partitions", self._add_partitions(manager))
            return True
        manager.bump_idempotent_epoch()
        if not manager.has_producer_id and manager.state is not TransactionState.INITIALIZING:
            manager.to(TransactionState.INITIALIZING)
            assert self._requests is not None
            self._begin("producer id", self._requests.acquire_producer_id())
        return True

    async def _add_partitions(self, manager: TransactionManager) -> None:
        assert self._requests is not None
        partitions = manager.take_new_partitions()
        if partitions:
            await self._requests.add_partitions(partitions)

    async def wait_partitions_added(self) -> None:
        """Wait for an announcement of partitions that is under way."""
        task = self._errands.get("add partitions")
        if task is not None:
            await asyncio.wait([task])

    def _fail_unsent(self, error: Exception) -> None:
        for batch in self._accumulator.take_unsent():
            batch.close_for_appends()
            self._outcomes.fail(batch, error)

    def _fail_all(self, error: Exception) -> None:
        self._accumulator.take_unsent(all_batches=True)
        for batch in list(self._accumulator.incomplete):
            batch.close_for_appends()
            self._outcomes.fail(batch, error)

    def _begin(self, key: object, errand: Coroutine[Any, Any, None]) -> None:
        """Do something beside sending, once at a time; the sender is woken when it is done."""
        if key in self._errands or self._closing:
            errand.close()
            return
        task = self._errands[key] = self._loop.create_task(errand)
        task.add_done_callback(functools.partial(self._errand_done, key))

    def _errand_done(self, key: object, task: asyncio.Task[None]) -> None:
        self._errands.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("%s: %s", key, error)
        self.wake()
