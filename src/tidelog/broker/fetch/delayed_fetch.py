"""One fetch request that goes the long way: reads of all its partitions, the wait for more, and the answer.

A request for very many partitions is read and answered in slices, between which others are served
(``slow_lane``); what is appended meanwhile is looked for again when it begins to wait.

Made by ``handlers/fetch``, which says what is served how.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.endpoints import endpoints_of
from tidelog.broker.fetch.fetch_services import FetchServices
from tidelog.broker.fetch.fetch_session import Answers, FetchContext, PartitionKey, records_size
from tidelog.broker.fetch.nearest_replica import NearestReplica
from tidelog.broker.network.answer import Answer, NotAnswerable, PromisedAnswer
from tidelog.broker.partition_errors import error_code
from tidelog.broker.quotas.payer import Payer
from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER_EPOCH, Uuid
from tidelog.replication.partition import Partition
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import clear_in_slices, run_to_end
from tidelog.storage.log.log import FetchSlice, Isolation
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FileRange,
    PartitionAnswer,
    TopicAnswer,
    encode_fetch_response,
    encode_in_slices,
)
from tidelog.wire.fetch_response import CURRENT_LEADER_AT, ERROR_CODE_AT
from tidelog.wire.primitives import Endpoint

if TYPE_CHECKING:
    from tidelog.broker.network.connection import Connection

logger = logging.getLogger(__name__)

READ_COMMITTED = 1
RACKS_SINCE = 11
_TOPIC_IDS_SINCE = 13
_LEADER_SINCE = 16
_STORAGE_ERROR_SINCE = 6
_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# What a client may well meet, and Kafka does not count as a failure either.
_NOT_FAILED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_NOTHING = FetchSlice(None, -1, 0, 0, 0, None, False)
HIGH_WATERMARK, TXN_COMMITTED = Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED
LOG_END = Isolation.LOG_END
# So many partitions are read in one go; of more, some hundreds before others have their turn.
_AT_ONCE = 1000
_SLICE = 64
# What an answer has of each partition besides its records.
PARTITION_BYTES: Final = 64


class Fetch:
    """One fetch request, from its first read to its answer; while it waits, a waiter of its partitions."""

    __slots__ = (
        "_answer",
        "_available",
        "_available_bytes",
        "_connection",
        "_context",
        "_correlation_id",
        "_first_read",
        "_isolation",
        "_leader_only",
        "_lookup",
        "_max_bytes",
        "_may_read",
        "_over",
        "_payer",
        "_refused",
        "_request",
        "_services",
        "_sought",
        "_version",
    )

    def __init__(
        self,
        services: FetchServices,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        context: FetchContext,
        *,
        noted: bool = False,
        payer: Payer | None = None,
        promised: PromisedAnswer | None = None,
    ) -> None:
        """``noted`` says that what a follower tells by its request has been taken note of; ``payer`` is the
        consumer, where there are quotas; ``promised`` is the promise of the answer, where one has been made
        already."""
        self._services = services
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        self._context = context
        if request.replica_id >= 0:
            connection.is_follower = True
            self._isolation = LOG_END
        else:
            self._isolation = TXN_COMMITTED if request.isolation_level == READ_COMMITTED else HIGH_WATERMARK
        self._leader_only = request.replica_id >= 0 or version < RACKS_SINCE
        self._first_read = not noted
        self._may_read = services.guard(connection, request)
        self._refused = False
        self._payer = payer
        self._max_bytes = min(request.max_bytes, services.max_bytes)
        if payer is not None:
            self._max_bytes = services.quotas.most_fetched(payer, self._max_bytes)
        self._answer = promised or Promise()
        self._over = False
        # What the partitions that it waits for have by now, and what it wants of them.
        self._available: dict[PartitionKey, int] = {}
        self._available_bytes = 0
        self._sought: dict[PartitionKey, FetchPartition] = {}
        self._lookup = services.by_id if version >= _TOPIC_IDS_SINCE else services.by_name

    def start(self) -> Answer | PromisedAnswer:
        """Read, and answer if there is enough or nothing to wait for; else wait for more."""
        if self._is_long:
            self._work(self._start_slowly())
            return self._answer
        answers, enough = run_to_end(self._read())
        max_wait_ms = self._request.max_wait_ms
        if enough or max_wait_ms <= 0:
            return run_to_end(self._respond(answers))
        self._begin_wait(max_wait_ms)
        run_to_end(self._watch(answers, look=False))
        return self._answer

    @property
    def _is_long(self) -> bool:
        return self._context.partition_count > _AT_ONCE

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        self._services.work(work, self._answer, self._connection, self._payer)

    async def _start_slowly(self) -> None:
        lane = self._services.lane
        answers, enough = await lane.run(self._read())
        max_wait_ms = self._request.max_wait_ms
        if self._connection.closed:
            return
        if enough or max_wait_ms <= 0:
            self._answer.resolve(await lane.run(self._respond(answers)))
        else:
            self._begin_wait(max_wait_ms)
            await lane.run(self._watch(answers, look=True))
        await lane.run(clear_in_slices(answers))

    async def _finish_slowly(self) -> None:
        lane = self._services.lane
        answers, _ = await lane.run(self._read())
        self._answer.resolve(await lane.run(self._respond(answers)))
        await lane.run(clear_in_slices(answers))

    @property
    def _min_bytes(self) -> int:
        return min(self._request.min_bytes, self._max_bytes)

    # Reading

    def _read(self) -> Generator[None, None, tuple[Answers, bool]]:
        """The answer for every partition as of now, and whether it is worth sending."""
        answers: Answers = {}
        unknown: Answers = {}
        missing: Answers = {}
        lookup = self._lookup
        isolation = self._isolation
        left = self._max_bytes
        from_follower = self._request.replica_id >= 0
        first_read, self._first_read = self._first_read, False
        leader_only = self._leader_only
        nearest = self._services.nearest
        may_read = self._may_read
        size = 0
        readable = enough = False
        partitions = yield from self._context.partitions()
        for number, (key, wanted) in enumerate(partitions, 1):
            if not number % _SLICE:
                yield
            index, epoch, offset, last_epoch, _, max_bytes, _, _ = wanted
            if may_read is not None and not may_read(key):
                self._refused = True
                missing[key] = (index, _DENIED, -1, -1, -1, (), -1, b"", None, None, None)
                continue
            partition = lookup.get(key)
            try:
                if partition is None:
                    partition = self._services.find(key, self._context)
                if nearest is not None and not leader_only:
                    preferred = self._elsewhere(nearest, partition, wanted)
                    if preferred is not None:
                        answers[key] = preferred
                        readable = enough = True
                        continue
                found, high_watermark, stable, start, diverging = partition.read(
                    offset,
                    max_bytes if max_bytes < left else left,
                    isolation,
                    size == 0,
                    epoch,
                    last_epoch,
                    leader_only,
                )
                if from_follower and diverging is None:
                    if first_read:
                        self._note_follower(partition, wanted)
                        high_watermark = partition.log.high_watermark
                    if self._held_back(partition):
                        found = _NOTHING
            except Exception as error:
                answer, ends_wait = self._error(key, partition, error)
                if ends_wait:
                    answers[key] = answer
                else:
                    (unknown if answer[ERROR_CODE_AT] == ErrorCode.UNKNOWN_TOPIC_ID else missing)[key] = (
                        answer
                    )
                readable |= ends_wait
                enough |= ends_wait
                continue
            readable = True
            records: bytes | FileRange = b""
            aborted = None
            if found is not None:
                length = found.length
                aborted = found.aborted
                if length and not found.first_entry_incomplete:
                    records = FileRange(found.fd, found.position, length, found.file)
                    size += length
                    left = left - length if left > length else 0
                    enough |= partition.has_rolled_past(offset)
            else:
                enough = True
            answers[key] = (
                index,
                0,
                high_watermark,
                stable,
                start,
                aborted,
                -1,
                records,
                diverging,
                None,
                None,
            )
        # Kafka names what it does not know behind all others, topics before partitions.
        answers.update(unknown)
        answers.update(missing)
        return answers, enough or size >= self._min_bytes or not readable

    def _elsewhere(
        self, nearest: NearestReplica, partition: Partition, wanted: FetchPartition
    ) -> PartitionAnswer | None:
        """The answer that sends a consumer to a replica near by, if there is one."""
        replica = nearest.find(
            partition, self._request.rack_id, self._connection.listener, wanted.fetch_offset
        )
        if replica is None:
            return None
        partition.check_epoch(max(wanted.current_leader_epoch, NO_LEADER_EPOCH))
        log = partition.log
        return FetchedPartition(
            wanted.partition,
            ErrorCode.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            preferred_read_replica=replica,
        )

    def _held_back(self, partition: Partition) -> bool:
        """Whether a follower gets nothing of a partition now, because replication is throttled."""
        throttle = self._services.throttle
        return (
            throttle is not None
            and throttle.is_in_use
            and throttle.holds_back(
                partition.topic_partition, in_sync=self._request.replica_id in partition.isr
            )
        )

    def _note_follower(self, partition: Partition, wanted: FetchPartition) -> None:
        """A follower tells what it has by what it asks for; once, not again when the wait is over."""
        request = self._request
        partition.fetched_by(
            request.replica_id,
            wanted.fetch_offset,
            wanted.log_start_offset,
            request.replica_epoch,
            wanted.current_leader_epoch,
        )

    def _error(
        self, key: PartitionKey, partition: Partition | None, error: Exception
    ) -> tuple[PartitionAnswer, bool]:
        """The answer for a partition that cannot be read, and whether it ends a wait for the others."""
        where = partition.topic_partition if partition is not None else key
        code = error_code(self._services.on_offline, error, "reading", where)
        self._refused = True
        if partition is not None and code not in _NOT_FAILED:
            partition.counts.failed_fetch_requests += 1
        if code == ErrorCode.KAFKA_STORAGE_ERROR and self._version < _STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = None
        if code in _LEADER_ERRORS and self._version >= _LEADER_SINCE:
            leader = self._services.current_leader(key)
        ends_wait = code not in _NOT_FOUND
        _, index = key
        answer = FetchedPartition(
            index,
            code,
            high_watermark=-1,
            aborted_transactions=None if ends_wait else (),
            current_leader=leader,
        )
        return answer, ends_wait

    # Answering

    def _respond(self, answers: Answers) -> Generator[None, None, Answer]:
        if self._payer is not None:
            size, records = yield from _size(answers)
            pause_ms = self._services.quotas.fetched(self._payer, size, indivisible=records > self._max_bytes)
            if pause_ms:
                return self._respond_throttled(pause_ms)
        error, session_id, selected = yield from self._context.select(answers)
        if error or self._refused:
            yield from self._count_errors(error, answers, selected)
        version = self._version
        topics: list[TopicAnswer] = []
        partitions: list[PartitionAnswer] = []
        last: str | bytes | None = None
        leaders: list[int] = []
        from_follower = self._request.replica_id >= 0
        if from_follower:
            yield from self._record_copies(answers, selected)
        for number, key in enumerate(selected, 1):
            if not number % _SLICE:
                yield
            topic, _ = key
            answer = answers[key]
            size = records_size(answer)
            if size:
                partition = self._lookup.get(key)
                if partition is None:
                    pass
                elif from_follower:
                    partition.counts.replication_bytes_out += size
                    if self._request.replica_id in partition.adding:
                        partition.counts.reassignment_bytes_out += size
                else:
                    partition.counts.bytes_out += size
            leader = answer[CURRENT_LEADER_AT]
            if leader is not None and not from_follower:
                leader_id, _ = leader
                leaders.append(leader_id)
            if not topics or topic != last:
                partitions = []
                if isinstance(topic, str):
                    topics.append((topic, None, partitions))
                else:
                    topics.append((None, Uuid(topic or b""), partitions))
                last = topic
            partitions.append(answer)
        endpoints: Sequence[Endpoint] = ()
        if leaders:
            endpoints = endpoints_of(self._services.image, set(leaders), self._connection.listener)
        if len(selected) == 1:
            return encode_fetch_response(
                version,
                self._correlation_id,
                topics,
                error_code=error,
                session_id=session_id,
                node_endpoints=endpoints,
            )
        return (
            yield from encode_in_slices(
                version,
                self._correlation_id,
                topics,
                error_code=error,
                session_id=session_id,
                node_endpoints=endpoints,
            )
        )

    def _count_errors(
        self, error: ErrorCode, answers: Answers, selected: Collection[PartitionKey]
    ) -> Generator[None, None, None]:
        codes: Counter[int] = Counter((error,))
        for number, key in enumerate(selected, 1):
            if not number % _SLICE:
                yield
            codes[answers[key][ERROR_CODE_AT]] += 1
        self._services.errors.count_answer("Fetch", codes)

    def _respond_throttled(self, pause_ms: int) -> Answer:
        """The answer to a consumer that has had its quota: nothing, and for how long to pause."""
        self._connection.throttle(pause_ms, ApiKey.FETCH)
        error, session_id = self._context.throttled()
        if error:
            self._services.errors.count_answer("Fetch", Counter((error,)))
        return encode_fetch_response(
            self._version,
            self._correlation_id,
            (),
            throttle_time_ms=pause_ms,
            error_code=error,
            session_id=session_id,
        )

    def _record_copies(
        self, answers: Answers, selected: Collection[PartitionKey]
    ) -> Generator[None, None, None]:
        throttle = self._services.throttle
        if throttle is not None and throttle.is_in_use:
            for number, key in enumerate(selected, 1):
                if not number % _SLICE:
                    yield
                partition = self._lookup.get(key)
                if partition is not None and throttle.applies_to(partition.topic_partition):
                    throttle.record(records_size(answers[key]))

    # Waiting

    def _begin_wait(self, max_wait_ms: int) -> None:
        self._answer.only_waits(self._stop)
        self._services.deadlines.add(self, max_wait_ms)

    def _watch(self, answers: Answers, *, look: bool) -> Generator[None, None, None]:
        """Be told of changes; ``look`` for those that came since the partition was read."""
        partitions = yield from self._context.partitions()
        for number, (key, wanted) in enumerate(partitions, 1):
            if not number % _SLICE:
                yield
            self._sought[key] = wanted
        for number, (key, answer) in enumerate(answers.items(), 1):
            if not number % _SLICE:
                yield
            if self._over:
                return
            if answer[1] == _DENIED:
                # Not even when it changes is for this client to know.
                continue
            self._available[key] = size = records_size(answer)
            self._available_bytes += size
            partition = self._lookup.get(key)
            if partition is not None:
                partition.watch(self)
                if look:
                    self.partition_changed(partition)
        if look and not self._over and self._available_bytes >= self._min_bytes:
            self._finish()

    def _unwatch(self) -> Generator[None, None, None]:
        for number, key in enumerate(self._available, 1):
            if not number % _SLICE:
                yield
            partition = self._lookup.get(key)
            if partition is not None:
                partition.unwatch(self)

    async def _unwatch_slowly(self) -> None:
        await self._services.lane.run(self._unwatch())

    def partition_changed(self, partition: Partition) -> None:
        """Look whether there is enough now."""
        if not self._over and (partition.closed or self._has_enough(partition)):
            self._finish()

    def _has_enough(self, partition: Partition) -> bool:
        topic, index = partition.topic_partition
        key: PartitionKey = (partition.topic_id if self._version >= _TOPIC_IDS_SINCE else topic, index)
        wanted = self._sought.get(key)
        if wanted is None:
            return False
        _, epoch, offset, last_epoch, _, max_bytes, _, _ = wanted
        if self._request.replica_id >= 0:
            if partition.is_leader and partition.leader_epoch == epoch:
                end_offset = partition.log.log_end_offset
                if end_offset == offset:
                    # Something else has changed: the high watermark, say, which it is told with more records.
                    return False
                if self._min_bytes <= 1 and end_offset > offset:
                    return not self._held_back(partition)
            if self._held_back(partition):
                return False
        try:
            found = partition.read(
                offset, max_bytes, self._isolation, True, epoch, last_epoch, self._leader_only
            ).slice
        except Exception:
            # The read for the answer meets it again and says what it is.
            return True
        if found is None:
            return True
        self._available_bytes += found.length - self._available[key]
        self._available[key] = found.length
        if found.length and partition.has_rolled_past(offset):
            return True
        return self._available_bytes >= self._min_bytes

    def time_is_up(self) -> None:
        """Answer with what there is."""
        self._finish()

    def _finish(self) -> None:
        request_time = self._services.quotas.request
        if request_time is None:
            self._finish_wait()
        else:
            request_time.charge(self._payer, self._finish_wait)

    def _finish_wait(self) -> None:
        self._stop()
        if self._is_long:
            self._answer.works()
            self._work(self._finish_slowly())
            return
        try:
            answers, _ = run_to_end(self._read())
            answer = run_to_end(self._respond(answers))
        except Exception:
            # Nobody else is there to notice: without this the client would wait for ever.
            logger.exception("Unexpected error in the answer to a waiting fetch of %s", self._connection)
            self._answer.fail(NotAnswerable("its fetch could not be answered"))
        else:
            self._answer.resolve(answer)

    def _stop(self) -> None:
        """Wait no longer: the answer is due, or its client is gone."""
        self._over = True
        self._services.deadlines.remove(self, self._request.max_wait_ms)
        if self._is_long:
            self._work(self._unwatch_slowly())
        else:
            run_to_end(self._unwatch())


def _size(answers: Answers) -> Generator[None, None, tuple[int, int]]:
    """About how many bytes the answer to a consumer has, and how many of them are records."""
    records = partitions = 0
    for number, answer in enumerate(answers.values(), 1):
        if not number % _SLICE:
            yield
        size = records_size(answer)
        records += size
        partitions += size > 0
    return records + PARTITION_BYTES * partitions, records
