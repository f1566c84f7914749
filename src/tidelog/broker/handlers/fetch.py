"""Fetch 4 to 18: records of partitions, as ranges of log files.

Behaviour as in Kafka: incremental sessions (KIP-227, ``broker/fetch_session``), topics by id since version 13, long
polls until ``min_bytes`` are there or ``max_wait_ms`` are over, ``max_bytes`` of request and partition as limits that
the first batch of the first partition that has one may exceed, ``fetch.max.bytes`` above all, leader epochs fenced,
diverging epochs reported, aborted transactions listed for readers of committed records. A request that cannot be
served at once waits as a ``DelayedFetch``; an unknown partition among known ones does not end a wait, any other error
does.

Differences: there are no followers yet, so fetches in the name of a replica are refused; a preferred read replica is
never named; nothing is throttled.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.broker.fetch_session import Answers, FetchContext, FetchSessions, PartitionKey, Wanted, records_size
from tidelog.broker.pending import Answer, PendingAnswer
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import Uuid
from tidelog.replication.partition import Partition
from tidelog.storage.log import Isolation
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FileRange,
    PartitionAnswer,
    TopicAnswer,
    encode_fetch_response,
    parse_fetch_request,
)

if TYPE_CHECKING:
    from tidelog.broker.app import Broker
    from tidelog.broker.connection import Connection

API = ApiKey.FETCH
VERSIONS = (4, 18)

logger = logging.getLogger(__name__)

_READ_COMMITTED = 1
_TOPIC_IDS_SINCE = 13
_LEADER_SINCE = 16
_ZSTD_SINCE = 10
_STORAGE_ERROR_SINCE = 6
_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchHandler:
    """Reads for the fetch requests of one broker."""

    def __init__(self, broker: Broker, sessions: FetchSessions, max_bytes: int) -> None:
        self.broker = broker
        self.sessions = sessions
        self.max_bytes = max_bytes
        self._by_name = broker.partitions.by_name
        self._by_id = broker.partitions.by_id

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> Answer | PendingAnswer:
        """Answer one request, now or when there is something to answer."""
        request = parse_fetch_request(frame, pos, version)
        wanted: Wanted = {}
        for name, topic_id, partitions in request.topics:
            topic = name if topic_id is None else topic_id
            for partition in partitions:
                wanted[topic, partition.partition] = partition
        forgotten: list[PartitionKey] = [
            (name if topic_id is None else topic_id, index)
            for name, topic_id, indexes in request.forgotten_topics
            for index in indexes
        ]
        context = self.sessions.open(
            version,
            request.session_id,
            request.session_epoch,
            wanted,
            forgotten,
            from_follower=request.replica_id >= 0,
        )
        fetch = Fetch(self, connection, version, correlation_id, request, context)
        return fetch.start()

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
            if error.code == ErrorCode.UNKNOWN_TOPIC_ID and name is not None and (name, index) in self._by_name:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    "Topic ID in the fetch session did not match the topic ID in the log.",
                ) from error
            raise


class Fetch:
    """One fetch request, from its first read to its answer."""

    __slots__ = (
        "_available",
        "_connection",
        "_context",
        "_correlation_id",
        "_handler",
        "_isolation",
        "_lookup",
        "_max_bytes",
        "_min_bytes",
        "_pending",
        "_replica_id",
        "_timer",
        "_version",
        "_watched",
    )

    def __init__(
        self,
        handler: FetchHandler,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        context: FetchContext,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._context = context
        self._replica_id = request.replica_id
        self._isolation = (
            Isolation.TXN_COMMITTED if request.isolation_level == _READ_COMMITTED else Isolation.HIGH_WATERMARK
        )
        self._max_bytes = min(request.max_bytes, handler.max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._lookup = handler.by_id if version >= _TOPIC_IDS_SINCE else handler.by_name

    def start(self, max_wait_ms: int) -> Answer | PendingAnswer:
        """Read, and answer if there is enough or nothing to wait for; else wait for more."""
        answers, enough = self._read()
        if enough or max_wait_ms <= 0:
            return self._respond(answers)
        return self._wait(answers, max_wait_ms)

    # Reading

    def _read(self) -> tuple[Answers, bool]:
        """The answer for every partition as of now, and whether it need not wait for more."""
        answers: Answers = {}
        lookup = self._lookup
        isolation = self._isolation
        left = self._max_bytes
        size = 0
        found_any = enough = False
        for key, wanted in self._context.partitions:
            index, epoch, offset, last_epoch, _, max_bytes, _, _ = wanted
            partition = lookup.get(key)
            try:
                if partition is None:
                    partition = self._handler.find(key, self._context)
                if self._replica_id >= 0:
                    self._refuse_follower(partition, epoch)
                found, high_watermark, stable, start, diverging = partition.read(
                    offset,
                    max_bytes if max_bytes < left else left,
                    isolation,
                    min_one_message=size == 0,
                    current_leader_epoch=epoch,
                    last_fetched_epoch=last_epoch,
                )
            except KafkaError as error:
                known = error.code not in _NOT_FOUND
                found_any |= known
                enough |= known
                answers[key] = self._error(index, partition, error)
                continue
            except LogDirOfflineError as error:
                self._handler.broker.log_dir_failed(error)
                found_any = enough = True
                answers[key] = self._error(index, partition, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
                continue
            found_any = True
            if found is None or not found.length:
                records: bytes | FileRange = b""
                aborted = found.aborted if found is not None else None
                enough |= diverging is not None
            else:
                records = FileRange(found.fd, found.position, found.length)
                aborted = found.aborted
                size += found.length
                left = max(0, left - found.length)
                enough |= partition.has_rolled_past(offset)
            answers[key] = (
                index, 0, high_watermark, stable, start, aborted, -1, records, diverging, None, None
            )  # fmt: skip
        return answers, enough or size >= self._min_bytes or not found_any
