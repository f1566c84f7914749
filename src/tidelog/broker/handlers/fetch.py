"""Fetch 4 to 18: records of partitions, as ranges of log files.

Behaviour as in Kafka: incremental sessions (KIP-227, ``broker/fetch/fetch_session``), topics by id since
version 13, long polls until ``min_bytes`` are there or ``max_wait_ms`` are over, ``max_bytes`` of request and
partition as limits that the first batch of the first partition that has one may exceed, ``fetch.max.bytes``
above all, leader epochs fenced, diverging epochs reported, aborted transactions listed for readers of
committed records. A request that cannot be served at once waits (``broker/fetch/delayed_fetch``); an unknown
partition among known ones does not end a wait, any other error does. One that is long, or whose session is,
is read, served and answered in slices (``slow_lane``).

A follower reads to the end of the log, and tells by what it asks for what it has. Of partitions whose
replication is throttled it gets nothing while too much has been copied, unless it is in sync
(``replication/throttle``). Within a session its fetches go a way of their own
(``broker/fetch/follower_poll``). Consumers read up to the high watermark, at followers, too, if they speak
version 11 or later; a leader may send them to a follower near by (KIP-392, ``broker/fetch/nearest_replica``).

Consumers that have got more than their quota are answered with nothing and have to pause (``broker/quotas``).

Differences: a single batch that is more than a quota gives in all its windows is sent once nothing else was;
in Kafka nobody ever gets it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

from tidelog.broker.access.authorization import READ_TOPIC
from tidelog.broker.fetch.delayed_fetch import PARTITION_BYTES, RACKS_SINCE, READ_COMMITTED, Fetch
from tidelog.broker.fetch.fetch_services import FetchServices
from tidelog.broker.fetch.fetch_session import (
    FINAL_EPOCH,
    FetchContext,
    FetchSessions,
    IncrementalFetch,
    Opening,
    PartitionKey,
    Wanted,
)
from tidelog.broker.fetch.follower_poll import TOPIC_IDS_SINCE, FollowerPoll
from tidelog.broker.network.answer import Answer, NotAnswerable, PromisedAnswer
from tidelog.broker.quotas.payer import Payer, payer_of
from tidelog.errors import WireError
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import run_to_end
from tidelog.storage.log.log import Isolation
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import (
    FetchRequest,
    FileRange,
    encode_fetch_response,
    parse_fetch_request,
    parse_in_slices,
)

if TYPE_CHECKING:
    from tidelog.broker.network.connection import Connection
    from tidelog.broker.network.inbox import KeptFrame

logger = logging.getLogger(__name__)

API = ApiKey.FETCH
VERSIONS = (4, 18)

HIGH_WATERMARK, TXN_COMMITTED = Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED
# Some thousand partitions: a request that has more is not read at once.
_LONG_FRAME_BYTES = 32 * 1024
_SLICE = 256


class FetchHandler:
    """Reads for the fetch requests of one broker."""

    def __init__(self, services: FetchServices, sessions: FetchSessions) -> None:
        self._services = services
        self._sessions = sessions
        self._by_name = services.by_name
        self._by_id = services.by_id
        self._is_guarded = services.authorization.is_on
        self._quotas = services.quotas
        sessions.on_long_ended = services.empty_soon

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> Answer | PromisedAnswer:
        """Answer one request, now or when there is something to answer."""
        if len(frame) > _LONG_FRAME_BYTES:
            promise: PromisedAnswer = Promise()
            reading = self._read_long(
                connection, connection.keep(frame), pos, version, correlation_id, promise
            )
            payer = payer_of(connection, frame) if self._quotas.request is not None else None
            self._services.work(reading, promise, connection, payer)
            return promise
        request = parse_fetch_request(frame, pos, version)
        payer = self._payer(connection, frame, request) if self._quotas.on_fetch else None
        if request.session_epoch == FINAL_EPOCH and len(request.topics) == 1:
            answer = self._fetch_one(connection, request, version, correlation_id, payer)
            if answer is not None:
                return answer
        wanted, forgotten = run_to_end(_keys(request))
        if request.session_epoch == FINAL_EPOCH and not request.session_id:
            # No session, and none to end.
            return Fetch(
                self._services,
                connection,
                version,
                correlation_id,
                request,
                FetchContext(wanted),
                payer=payer,
            ).start()
        context = run_to_end(self._open(request, version, wanted, forgotten))
        if (
            request.replica_id >= 0
            and version >= TOPIC_IDS_SINCE
            and isinstance(context, IncrementalFetch)
            and (not self._is_guarded or self._services.guard(connection, request) is None)
        ):
            poll = context.session.poll or FollowerPoll.open(self._services, connection, context.session)
            if poll is not None:
                quick = poll.fetch(connection, version, correlation_id, request, context)
                if quick is not None:
                    return quick
        return Fetch(
            self._services, connection, version, correlation_id, request, context, payer=payer
        ).start()

    def _payer(self, connection: Connection, frame: memoryview, request: FetchRequest) -> Payer | None:
        """Who pays for a fetch where there are quotas; followers do not."""
        if request.replica_id < 0:
            request_time = self._quotas.request
            if request_time is not None and request_time.connection is connection:
                return request_time.payer
            return payer_of(connection, frame)
        if self._quotas.request is not None:
            self._quotas.request.is_exempt = True
        return None

    def _open(
        self, request: FetchRequest, version: int, wanted: Wanted, forgotten: list[PartitionKey]
    ) -> Opening:
        return self._sessions.open(
            version,
            request.session_id,
            request.session_epoch,
            wanted,
            forgotten,
            from_follower=request.replica_id >= 0,
        )

    async def _read_long(
        self,
        connection: Connection,
        frame: KeptFrame,
        pos: int,
        version: int,
        correlation_id: int,
        promise: PromisedAnswer,
    ) -> None:
        """Read a request that is too long to be read at once, and see to its answer."""
        try:
            request = await self._services.lane.run(parse_in_slices(frame.view, pos, version))
        except WireError as error:
            promise.fail(NotAnswerable(str(error)))
            return
        else:
            payer = self._payer(connection, frame.view, request) if self._quotas.on_fetch else None
        finally:
            frame.release()
        wanted, forgotten = await self._services.lane.run(_keys(request))
        if connection.closed:
            return
        context = await self._services.lane.run(self._open(request, version, wanted, forgotten))
        answer = Fetch(
            self._services,
            connection,
            version,
            correlation_id,
            request,
            context,
            payer=payer,
            promised=promise,
        ).start()
        if answer is not promise:
            promise.follow(answer)

    def _fetch_one(
        self,
        connection: Connection,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        payer: Payer | None,
    ) -> Answer | None:
        """The short way for what busy consumers often send: one partition, no session, records to read.

        ``None`` for everything else, which then goes the long way.
        """
        replica_id, _, _, min_bytes, limit, isolation_level, session_id, _, topics, _, _, _ = request
        ((name, topic_id, partitions),) = topics
        if len(partitions) != 1:
            return None
        ((index, epoch, offset, last_epoch, _, max_bytes, _, _),) = partitions
        partition = (
            self._by_name.get((name, index)) if topic_id is None else self._by_id.get((topic_id, index))
        )
        if partition is None or replica_id >= 0 or session_id or self._services.nearest is not None:
            return None
        if self._is_guarded:
            topic = partition.topic_partition.topic
            if not connection.session.decisions.get((READ_TOPIC, topic)):
                # Decided, and said if need be, on the long way.
                return None
        isolation = TXN_COMMITTED if isolation_level == READ_COMMITTED else HIGH_WATERMARK
        try:
            found, high_watermark, stable, start, _ = partition.read(
                offset,
                min(max_bytes, limit, self._services.max_bytes),
                isolation,
                True,
                epoch,
                last_epoch,
                version < RACKS_SINCE,
            )
        except Exception:
            # The long way meets it again and says what it is.
            return None
        if found is None or found.length < min_bytes or not found.length:
            return None
        if payer is not None and not self._quotas.fetched_within(payer, found.length + PARTITION_BYTES):
            # How long it has to pause is found out on the long way, which reads and counts once more.
            partition.counts.fetch_requests -= 1
            return None
        records = FileRange(found.fd, found.position, found.length, found.file)
        partition.counts.bytes_out += found.length
        answer = index, 0, high_watermark, stable, start, found.aborted, -1, records, None, None, None
        return encode_fetch_response(version, correlation_id, ((name, topic_id, (answer,)),))


def _keys(request: FetchRequest) -> Generator[None, None, tuple[Wanted, list[PartitionKey]]]:
    """What a request wants and what it forgets, by topic and partition."""
    wanted: Wanted = {}
    # Counted, because the same partition may be named many times.
    seen = 0
    for name, topic_id, partitions in request.topics:
        topic = name if topic_id is None else topic_id
        seen += 1
        for partition in partitions:
            wanted[topic, partition.partition] = partition
            seen += 1
            if not seen % _SLICE:
                yield
    forgotten: list[PartitionKey] = []
    for name, topic_id, indexes in request.forgotten_topics:
        topic = name if topic_id is None else topic_id
        for index in indexes:
            forgotten.append((topic, index))
            if not len(forgotten) % _SLICE:
                yield
    return wanted, forgotten
