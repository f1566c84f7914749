"""A follower's fetches within its session, the short way: work for what has changed, not for all it follows.

A follower fetches all partitions that it follows at a leader in one request, once for every few records, and
most of them are idle. So its session is watched for as long as it lasts: partitions that change are noted,
and a fetch looks at those alone, and at the ones that it names because the follower has got further in them.
A partition is in ``_changed`` until it was looked at and there was nothing to send and nothing to tell of it.

Whatever is unusual goes the long way (``delayed_fetch``), which reads all partitions of the session:
partitions that are gone or led in another epoch, histories that may part, throttled replication. So does a
fetch now and then in any case, for with it the leader learns of every partition that the follower still
asks for it (``replication/followers``).

Answers leave at the end of the turn of the loop in which records came, so that what one turn has written, of
several partitions and producers, goes with one answer. Made and called by ``handlers/fetch``; owned by the
session, which ends it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.broker.fetch.delayed_fetch import LOG_END, Fetch
from tidelog.broker.fetch.fetch_services import FetchServices
from tidelog.broker.fetch.fetch_session import FetchSession, IncrementalFetch, PartitionKey
from tidelog.broker.network.answer import Answer, NotAnswerable, PromisedAnswer
from tidelog.errors import KafkaError, StorageError
from tidelog.ids import Uuid
from tidelog.replication.partition import Partition
from tidelog.scheduling.promise import Promise
from tidelog.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FileRange,
    PartitionAnswer,
    TopicAnswer,
    encode_fetch_response,
)

if TYPE_CHECKING:
    from tidelog.broker.network.connection import Connection

logger = logging.getLogger(__name__)

TOPIC_IDS_SINCE = 13
# So old may be what the leader knows of the partitions in which nothing happens; a wait comes on top.
_REFRESH_MS = 100.0
# Of more, all are read in slices, which only the long way does.
_MOST_PARTITIONS = 1000


class FollowerPoll:
    """What has changed in one follower's session, and its fetch while it waits."""

    __slots__ = (
        "_by_key",
        "_changed",
        "_connection",
        "_context",
        "_correlation_id",
        "_due",
        "_keys",
        "_loop",
        "_noted_ms",
        "_promise",
        "_request",
        "_services",
        "_session",
        "_version",
    )

    _connection: Connection
    _context: IncrementalFetch
    _correlation_id: int
    _request: FetchRequest
    _version: int

    def __init__(
        self,
        services: FetchServices,
        connection: Connection,
        session: FetchSession,
        by_key: dict[PartitionKey, Partition],
    ) -> None:
        self._services = services
        self._connection = connection
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._by_key = by_key
        self._keys = {partition: key for key, partition in by_key.items()}
        self._changed = dict(self._keys)
        self._noted_ms = float("-inf")
        self._promise: PromisedAnswer | None = None
        self._due = False
        for partition in self._keys:
            partition.watch(self)

    @classmethod
    def open(
        cls, services: FetchServices, connection: Connection, session: FetchSession
    ) -> FollowerPoll | None:
        """Begin to watch a session; None if it has very many partitions or some that are not here."""
        if len(session.partitions) > _MOST_PARTITIONS:
            return None
        by_key: dict[PartitionKey, Partition] = {}
        for key in session.partitions:
            partition = services.by_id.get(key)
            if partition is None or partition.closed:
                return None
            by_key[key] = partition
        session.poll = poll = cls(services, connection, session, by_key)
        return poll

    def close(self) -> None:
        """Watch no more; a fetch that waits is answered the long way."""
        for partition in self._keys:
            partition.unwatch(self)
        if self._session.poll is self:
            self._session.poll = None
        if self._promise is not None:
            self._finish_soon()

    def fetch(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        context: IncrementalFetch,
    ) -> Answer | PromisedAnswer | None:
        """Answer a request of the session, now or later; None if it is to go the long way."""
        asked: set[Partition] = set()
        changed = self._changed
        for _, topic, partitions in request.topics:
            for wanted in partitions:
                key = topic, wanted.partition
                partition = self._by_key.get(key)
                if partition is None:
                    # A new one: the next fetch begins to watch anew.
                    self.close()
                    return None
                changed[partition] = key
                asked.add(partition)
        if len(self._session.partitions) != len(self._by_key):
            self.close()
            return None
        if self._promise is not None or request.min_bytes > 1 or request.max_wait_ms <= 0 or self._throttled:
            return None
        self._connection = connection
        now_ms = self._services.clock.monotonic_ms()
        if now_ms - self._noted_ms > _REFRESH_MS:
            self._noted_ms = now_ms
            return None
        self._context = context
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        more = self._look(asked)
        if more is None:
            return None
        if more:
            return self._answer()
        promise: PromisedAnswer = Promise(self._cancelled)
        self._promise = promise
        self._services.deadlines.add(self, request.max_wait_ms)
        return promise

    @property
    def _throttled(self) -> bool:
        throttle = self._services.throttle
        return throttle is not None and throttle.is_in_use

    def _look(self, asked: set[Partition]) -> bool | None:
        """Note what the follower has of what it ``asked`` for; whether there is more to send. None if
        anything is unusual."""
        request = self._request
        sessions = self._session.partitions
        more = False
        for partition, key in list(self._changed.items()):
            cached = sessions[key]
            wanted = cached.wanted
            has_more = _has_more(partition, wanted)
            if has_more is None:
                return None
            if partition in asked:
                try:
                    partition.fetched_by(
                        request.replica_id,
                        wanted.fetch_offset,
                        wanted.log_start_offset,
                        request.replica_epoch,
                        wanted.current_leader_epoch,
                    )
                except KafkaError:
                    # The long way meets it again and says what it is.
                    return None
            log = partition.log
            if has_more:
                more = True
            elif (
                cached.high_watermark == log.high_watermark
                and cached.log_start_offset == log.log_start_offset
            ):
                del self._changed[partition]
        return more

    # Waiting

    def partition_changed(self, partition: Partition) -> None:
        """Note it, and answer soon if there is more to send."""
        key = self._changed[partition] = self._keys[partition]
        if self._promise is None:
            if partition.closed or self._connection.closed:
                self.close()
        elif not self._due and _has_more(partition, self._session.partitions[key].wanted) is not False:
            self._finish_soon()

    def _finish_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._finish)

    def time_is_up(self) -> None:
        """Answer with what there is."""
        self._finish()

    def _cancelled(self) -> None:
        self._stop()
        self.close()

    def _stop(self) -> None:
        self._promise = None
        self._services.deadlines.remove(self, self._request.max_wait_ms)

    def _finish(self) -> None:
        self._due = False
        promise = self._promise
        if promise is None:
            return
        self._stop()
        answer: Answer | None = None
        try:
            if self._session.poll is self and self._context.is_latest and not self._throttled:
                answer = self._answer()
            if answer is None:
                self._finish_long(promise)
        except Exception:
            # Nobody else is there to notice: without this the client would wait for ever.
            logger.exception("Unexpected error in the answer to a waiting fetch of %s", self._connection)
            promise.fail(NotAnswerable("its fetch could not be answered"))
        else:
            if answer is not None:
                promise.resolve(answer)

    def _finish_long(self, promise: PromisedAnswer) -> None:
        """Have the fetch read everything, as if it had done so from the beginning."""
        promise.works()
        fetch = Fetch(
            self._services,
            self._connection,
            self._version,
            self._correlation_id,
            self._request,
            self._context,
            noted=True,
            promised=promise,
        )
        answer = fetch.start()
        if answer is not promise:
            promise.follow(answer)

    # Answering

    def _answer(self) -> Answer | None:
        """What there is of the partitions that have changed; None if anything is unusual."""
        left = min(self._request.max_bytes, self._services.max_bytes)
        session = self._session
        sessions = session.partitions
        size = 0
        answers: list[tuple[PartitionKey, int, PartitionAnswer]] = []
        for partition, key in self._changed.items():
            wanted = sessions[key].wanted
            has_more = _has_more(partition, wanted)
            if has_more is None:
                return None
            log = partition.log
            records: bytes | FileRange = b""
            length = 0
            if has_more:
                limit = wanted.max_bytes
                try:
                    found = log.read(
                        wanted.fetch_offset,
                        limit if limit < left else left,
                        isolation=LOG_END,
                        min_one_message=size == 0,
                    )
                except (KafkaError, StorageError):
                    # The long way meets it again and says what it is.
                    return None
                if found.length and not found.first_entry_incomplete:
                    length = found.length
                    records = FileRange(found.fd, found.position, length, found.file)
                    size += length
                    left = left - length if left > length else 0
                    partition.counts.fetch_requests += 1
                    partition.counts.replication_bytes_out += length
                    if self._request.replica_id in partition.adding:
                        partition.counts.reassignment_bytes_out += length
            answers.append(
                (
                    key,
                    length,
                    (
                        wanted.partition,
                        0,
                        log.high_watermark,
                        log.last_stable_offset,
                        log.log_start_offset,
                        None,
                        -1,
                        records,
                        None,
                        None,
                        None,
                    ),
                )
            )
        topics: list[TopicAnswer] = []
        partitions: list[PartitionAnswer] = []
        last: str | bytes | None = None
        for key, length, answer in answers:
            cached = sessions[key]
            if not cached.is_news(answer, length):
                continue
            if length:
                # Those that got something stand behind the others next time.
                del sessions[key]
                sessions[key] = cached
            topic, _ = key
            if topic != last:
                assert isinstance(topic, bytes)
                partitions = []
                topics.append((None, Uuid(topic), partitions))
                last = topic
            partitions.append(answer)
        return encode_fetch_response(self._version, self._correlation_id, topics, session_id=session.id)


def _has_more(partition: Partition, wanted: FetchPartition) -> bool | None:
    """Whether there are records for a follower that plainly follows this leader; None if it is not plain."""
    log = partition.log
    end_offset = log.log_end_offset
    offset = wanted.fetch_offset
    if (
        partition.closed
        or not partition.is_leader
        or partition.leader_epoch != wanted.current_leader_epoch
        or log.epochs.latest_epoch != wanted.last_fetched_epoch
        or not log.log_start_offset <= offset <= end_offset
    ):
        return None
    return offset < end_offset
