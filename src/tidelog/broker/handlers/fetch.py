"""Fetch 4 to 18: records of partitions, as ranges of log files.

Behaviour as in Kafka: incremental sessions (KIP-227, ``broker/fetch_session``), topics by id since version
13, long polls until ``min_bytes`` are there or ``max_wait_ms`` are over, ``max_bytes`` of request and
partition as limits that the first batch of the first partition that has one may exceed, ``fetch.max.bytes``
above all, leader epochs fenced, diverging epochs reported, aborted transactions listed for readers of
committed records. A request that cannot be served at once waits (``broker/delayed_fetch``); an unknown
partition among known ones does not end a wait, any other error does. One that is long, or whose session is,
is read, served and answered in slices (``slow_lane``).

A follower reads to the end of the log, and tells by what it asks for what it has. Of partitions whose
replication is throttled it gets nothing while too much has been copied, unless it is in sync
(``replication/throttle``). Within a session its fetches go a way of their own (``broker/follower_poll``).
Consumers read up to the high watermark, at followers, too, if they speak version
11 or later; a leader may send them to a follower near by (KIP-392, ``broker/nearest_replica``).

Differences: no client is throttled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from tidelog.broker.delayed_fetch import RACKS_SINCE, READ_COMMITTED, Fetch
from tidelog.broker.fetch_session import (
    FINAL_EPOCH,
    FetchContext,
    FetchSessions,
    IncrementalFetch,
    PartitionKey,
    Wanted,
)
from tidelog.broker.follower_poll import TOPIC_IDS_SINCE, FollowerPoll
from tidelog.broker.nearest_replica import NearestReplica
from tidelog.broker.pending import Answer, PendingAnswer
from tidelog.broker.slow_lane import SlowLane
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.ids import Uuid
from tidelog.replication.partition import Partition
from tidelog.replication.throttle import ReplicationThrottle
from tidelog.storage.log import Isolation
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import (
    FetchRequest,
    FileRange,
    drained,
    encode_fetch_response,
    parse_fetch_request,
    parse_in_slices,
)

if TYPE_CHECKING:
    from tidelog.broker.app import Broker
    from tidelog.broker.connection import Connection
    from tidelog.broker.inbox import KeptFrame

logger = logging.getLogger(__name__)

API = ApiKey.FETCH
VERSIONS = (4, 18)

HIGH_WATERMARK, TXN_COMMITTED = Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED
# Some thousand partitions: a request that has more is not read at once.
_LONG_FRAME_BYTES = 32 * 1024
_SLICE = 256


class FetchHandler:
    """Reads for the fetch requests of one broker."""

    def __init__(self, broker: Broker, sessions: FetchSessions, max_bytes: int) -> None:
        self.broker = broker
        self.sessions = sessions
        self.max_bytes = max_bytes
        self.deadlines = broker.deadlines
        self.by_name = broker.partitions.by_name
        self.by_id = broker.partitions.by_id
        self.nearest: NearestReplica | None = None
        """Set where leaders send consumers to replicas near by."""
        self.throttle: ReplicationThrottle | None = None
        """What a leader may send to followers, in a cluster."""
        self.lane = SlowLane(broker.clock)
        self._tasks: set[asyncio.Task[None]] = set()

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> Answer | PendingAnswer:
        """Answer one request, now or when there is something to answer."""
        if len(frame) > _LONG_FRAME_BYTES:
            pending = PendingAnswer()
            reading = self._read_long(
                connection, connection.keep(frame), pos, version, correlation_id, pending
            )
            self.work(reading, pending, connection)
            return pending
        request = parse_fetch_request(frame, pos, version)
        topics = request.topics
        if request.session_epoch == FINAL_EPOCH and len(topics) == 1 and len(topics[0][2]) == 1:
            answer = self._fetch_one(request, version, correlation_id)
            if answer is not None:
                return answer
        wanted, forgotten = drained(_keys(request))
        if request.session_epoch == FINAL_EPOCH and not request.session_id:
            # No session, and none to end.
            return Fetch(self, connection, version, correlation_id, request, FetchContext(wanted)).start()
        context = self._open(request, version, wanted, forgotten)
        if request.replica_id >= 0 and version >= TOPIC_IDS_SINCE and isinstance(context, IncrementalFetch):
            poll = context.session.poll or FollowerPoll.open(self, connection, context.session)
            if poll is not None:
                quick = poll.fetch(connection, version, correlation_id, request, context)
                if quick is not None:
                    return quick
        return Fetch(self, connection, version, correlation_id, request, context).start()

    def _open(
        self, request: FetchRequest, version: int, wanted: Wanted, forgotten: list[PartitionKey]
    ) -> FetchContext:
        return self.sessions.open(
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
        pending: PendingAnswer,
    ) -> None:
        """Read a request that is too long to be read at once, and see to its answer."""
        try:
            request = await self.lane.run(parse_in_slices(frame.view, pos, version))
        except WireError as error:
            pending.fail(str(error))
            return
        finally:
            frame.release()
        wanted, forgotten = await self.lane.run(_keys(request))
        if connection.closed:
            return
        context = self._open(request, version, wanted, forgotten)
        answer = Fetch(self, connection, version, correlation_id, request, context).start(pending)
        if answer is not pending:
            pending.follow(answer)

    def work(self, work: Coroutine[Any, Any, None], pending: PendingAnswer, connection: Connection) -> None:
        """Do what takes several turns of the loop, and in the end resolves ``pending``."""

        async def watched() -> None:
            try:
                await work
            except Exception:
                # Nobody else is there to notice: without this the client would wait for ever.
                logger.exception("Unexpected error in a long fetch of %s", connection)
                if not pending.done:
                    pending.fail("its fetch could not be answered")

        task = asyncio.get_running_loop().create_task(watched())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fetch_one(self, request: FetchRequest, version: int, correlation_id: int) -> Answer | None:
        """The short way for what busy consumers often send: one partition, no session, records to read.

        ``None`` for everything else, which then goes the long way.
        """
        replica_id, _, _, min_bytes, limit, isolation_level, session_id, _, topics, _, _, _ = request
        name, topic_id, ((index, epoch, offset, last_epoch, _, max_bytes, _, _),) = topics[0]
        partition = self.by_name.get((name, index)) if topic_id is None else self.by_id.get((topic_id, index))
        if partition is None or replica_id >= 0 or session_id or self.nearest is not None:
            return None
        isolation = TXN_COMMITTED if isolation_level == READ_COMMITTED else HIGH_WATERMARK
        try:
            found, high_watermark, stable, start, _ = partition.read(
                offset,
                min(max_bytes, limit, self.max_bytes),
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
        records = FileRange(found.fd, found.position, found.length, found.file)
        answer = index, 0, high_watermark, stable, start, found.aborted, -1, records, None, None, None
        return encode_fetch_response(version, correlation_id, ((name, topic_id, (answer,)),))

    def find(self, key: PartitionKey, context: FetchContext) -> Partition:
        """The partition that a client names."""
        topic, index = key
        partitions = self.broker.partitions
        if isinstance(topic, str):
            return partitions.get(topic, index)
        try:
            return partitions.get_by_id(Uuid(topic or b""), index)
        except KafkaError as error:
            name = context.topic_of(key)
            if error.code != ErrorCode.UNKNOWN_TOPIC_ID or name is None:
                raise
            # The session knows the id from a topic that has been deleted since, and perhaps created again.
            if (name, index) in self.by_name:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    "Topic ID in the fetch session did not match the topic ID in the log.",
                ) from error
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index} is gone") from error


def _keys(request: FetchRequest) -> Generator[None, None, tuple[Wanted, list[PartitionKey]]]:
    """What a request wants and what it forgets, by topic and partition."""
    wanted: Wanted = {}
    for name, topic_id, partitions in request.topics:
        topic = name if topic_id is None else topic_id
        for partition in partitions:
            wanted[topic, partition.partition] = partition
            if not len(wanted) % _SLICE:
                yield
    forgotten: list[PartitionKey] = []
    for name, topic_id, indexes in request.forgotten_topics:
        forgotten += [(name if topic_id is None else topic_id, index) for index in indexes]
        if not len(forgotten) % _SLICE:
            yield
    return wanted, forgotten
