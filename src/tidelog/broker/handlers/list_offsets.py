"""ListOffsets 1 to 11: offsets by position or by timestamp.

Timestamps below zero have meanings: -1 latest, -2 earliest, -3 the record with the highest timestamp (since
version 7), -4 earliest local (8), -5 latest tiered (9), -6 earliest pending upload (11); a later version's
meaning, and any other negative number, is UNSUPPORTED_VERSION, as in Kafka. Latest is the last stable offset
for readers of committed records and the high watermark for others; what a timestamp finds beyond that is not
told. A new leader whose high watermark has not come to where its epoch began answers OFFSET_NOT_AVAILABLE
(before version 5 LEADER_NOT_AVAILABLE) to consumers that ask for the end, or for what is beyond it: it could
name an older offset than its predecessor did. Only leaders answer, but for replica id -2, the one of
debugging tools. There is no tiered storage: earliest local is earliest, and the offsets of -5 and -6 are -1.
Partitions named twice are INVALID_REQUEST. A search by time that takes longer goes on in a thread and holds
back the requests behind it on its connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import NamedTuple

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.partition_errors import OnOffline, error_code
from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.slices import Slices
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation
from tidelog.storage.log.timestamp_search import TimestampAndOffset, TimestampSearch
from tidelog.storage.segment.index_rebuild import IndexesNotReady
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API = ApiKey.LIST_OFFSETS
VERSIONS = (1, 11)

# Which version knows which special timestamp.
_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
_LATEST = -1
_MAX_TIMESTAMP = -3
_TIERED = (-5, -6)
_READ_COMMITTED = 1
_CONSUMER = -1
_DEBUGGER = -2
_NOT_AVAILABLE_SINCE = 5

_AT_ONCE = 64
# By time some headers and a batch may have to be read.
_SEARCHES_AT_A_TIME = 10

_NOTHING = TimestampAndOffset(NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)


class _Call(NamedTuple):
    """A request and what is needed to answer it."""

    version: int
    request: ListOffsetsRequest
    partitions: Partitions
    on_offline: OnOffline
    is_allowed: Callable[[str], bool]
    """Whether the client may know of a topic."""


def handle(
    context: RequestContext,
    request: ListOffsetsRequest,
    partitions: Partitions,
    on_offline: OnOffline,
    authorization: Authorization,
) -> Slices[ListOffsetsResponse | Awaitable[ListOffsetsResponse]]:
    """Look the offsets up, partition by partition."""

    def is_allowed(topic: str) -> bool:
        return authorization.allows_topic(context.session, Operation.DESCRIBE, topic)

    call = _Call(context.version, request, partitions, on_offline, is_allowed)
    named: Counter[tuple[str, int]] = Counter()
    names = _names(request)
    while some := list(islice(names, _AT_ONCE)):
        named.update(some)
        if len(some) == _AT_ONCE:
            yield
    lookups: list[_Lookup] = []
    searches = 0
    for number, lookup in enumerate(_lookups(call, named), 1):
        lookups.append(lookup)
        searches += lookup.is_search
        if not lookup.is_search or searches <= _SEARCHES_AT_A_TIME:
            lookup.begin()
        if lookup.is_search or not number % _AT_ONCE:
            yield
    if all(lookup.answer is not None for lookup in lookups):
        return _response(request, lookups)
    return _search(request, lookups)


async def _search(request: ListOffsetsRequest, lookups: list[_Lookup]) -> ListOffsetsResponse:
    """Look up what takes longer: records that are far to find."""
    async for lookup in yielding_every(_SEARCHES_AT_A_TIME, lookups):
        await lookup.finish()
    return _response(request, lookups)


def _names(request: ListOffsetsRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)


def _lookups(call: _Call, named: Counter[tuple[str, int]]) -> Iterator[_Lookup]:
    for topic in call.request.topics:
        refusal = None if call.is_allowed(topic.name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for wanted in topic.partitions:
            twice = named[topic.name, wanted.partition_index] > 1
            yield _Lookup(call, topic.name, wanted, refusal or (ErrorCode.INVALID_REQUEST if twice else None))


def _response(request: ListOffsetsRequest, lookups: list[_Lookup]) -> ListOffsetsResponse:
    answers = iter([lookup.answer for lookup in lookups if lookup.answer is not None])
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=list(islice(answers, len(topic.partitions))))
            for topic in request.topics
        ]
    )


class _Lookup:
    """One partition of a request; ``answer`` is there when its offset is."""

    __slots__ = (
        "_call",
        "_refusal",
        "_search",
        "_topic",
        "_wanted",
        "answer",
    )

    def __init__(
        self,
        call: _Call,
        topic: str,
        wanted: ListOffsetsPartition,
        refusal: ErrorCode | None,
    ) -> None:
        self.answer: ListOffsetsPartitionResponse | None = None
        self._call = call
        self._topic = topic
        self._wanted = wanted
        self._refusal = refusal
        self._search: TimestampSearch | None = None

    @property
    def is_search(self) -> bool:
        """Whether records may have to be looked at."""
        return self._wanted.timestamp >= 0 or self._wanted.timestamp == _MAX_TIMESTAMP

    def begin(self) -> None:
        """Look the offset up as far as one turn of the loop allows."""
        timestamp = self._wanted.timestamp
        if self._refusal is not None:
            self.answer = _error(self._wanted.partition_index, self._refusal)
            return
        version = self._call.version
        if timestamp < 0 and _SINCE.get(timestamp, version + 1) > version:
            self.answer = _error(self._wanted.partition_index, ErrorCode.UNSUPPORTED_VERSION)
            return
        try:
            partition = self._check()
            end = _end(partition, self._call.request)
            if self.is_search:
                self._search = partition.log.search_timestamp(timestamp if timestamp >= 0 else None)
                if not self._search.advance():
                    return
                found = _seen(self._search.result, end)
            else:
                found = _by_position(partition, timestamp, end)
            self._settle(partition, found)
        except IndexesNotReady:
            return
        except Exception as error:
            self._fail(error)

    async def finish(self) -> None:
        """Look it up to the end; the partition may be another one then."""
        if self._search is None and self.answer is None:
            self.begin()
        if self._search is None or self.answer is not None:
            return
        try:
            found = await self._search.run()
            partition = self._check()
            self._settle(partition, _seen(found, _end(partition, self._call.request)))
        except Exception as error:
            self._fail(error)

    def _check(self) -> Partition:
        partition = self._call.partitions.get(self._topic, self._wanted.partition_index)
        if self._call.request.replica_id == _DEBUGGER:
            partition.check_epoch(self._wanted.current_leader_epoch)
        else:
            partition.check_leader(self._wanted.current_leader_epoch)
        return partition

    def _settle(self, partition: Partition, found: TimestampAndOffset) -> None:
        index, timestamp = self._wanted.partition_index, self._wanted.timestamp
        if (
            self._call.request.replica_id == _CONSUMER
            and partition.is_behind_epoch
            and (timestamp == _LATEST or (found is _NOTHING and timestamp not in _TIERED))
        ):
            self.answer = _error(index, _not_available(self._call.version))
            return
        self.answer = ListOffsetsPartitionResponse(
            partition_index=index, timestamp=found.timestamp, offset=found.offset
        )
        if self._call.version >= 4:
            self.answer.leader_epoch = found.leader_epoch

    def _fail(self, error: Exception) -> None:
        name = f"{self._topic}-{self._wanted.partition_index}"
        code = error_code(self._call.on_offline, error, "listing offsets of", name)
        self.answer = _error(self._wanted.partition_index, code)


def _not_available(version: int) -> ErrorCode:
    if version >= _NOT_AVAILABLE_SINCE:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _end(partition: Partition, request: ListOffsetsRequest) -> int:
    """The end of the log as this client may see it."""
    if request.replica_id != _CONSUMER:
        return partition.log.log_end_offset
    if request.isolation_level == _READ_COMMITTED:
        return partition.log.last_stable_offset
    return partition.log.high_watermark


def _by_position(partition: Partition, timestamp: int, end: int) -> TimestampAndOffset:
    log = partition.log
    match timestamp:
        case -1:
            return TimestampAndOffset(NO_TIMESTAMP, end, partition.leader_epoch)
        case -2 | -4:
            if log.log_start_offset == log.log_end_offset:
                return TimestampAndOffset(NO_TIMESTAMP, log.log_start_offset, partition.leader_epoch)
            return log.earliest
    return _NOTHING


def _seen(found: TimestampAndOffset | None, end: int) -> TimestampAndOffset:
    """What was found, if the client may see it."""
    return found if found is not None and found.offset < end else _NOTHING


def _error(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
