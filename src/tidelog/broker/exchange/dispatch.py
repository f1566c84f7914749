"""From a frame to its exchange: the table of APIs that this broker serves.

Produce and fetch have entrances of their own (``handle_frame`` in their handlers) that read the frame in
place. All other requests are decoded and answered by an ``Exchange`` with the module in ``broker/handlers``
that bears the API's name; modules are imported when the first request for them comes, or by ``warm_up``.

Length. A request that may list many things is read in slices, and so is a long response written: nobody waits
for either but the client that asked. ``queued.max.requests`` bounds how many requests are under way, that is,
neither answered in the turn of the loop in which they came nor waiting for data, replicas or other members.
Those beyond it wait, and their connections are not read from. Requests of brokers, and pushes of telemetry,
which have a bound of their own, are not among them. Nobody goes on looking things up, or writing an answer,
for a client that is gone; what changes something is done to its end.

Size. A request can name one thing a hundred thousand times, and Kafka answers each time. An answer that would
be longer than ``MAX_ANSWER_BYTES`` is not given: its connection is closed.

Quotas. While there is one of the time that requests take, that is measured here (``quotas/request_time``),
but for what brokers ask of each other. An answer says for how long its client has to pause, and its
connection is not read from meanwhile.

Errors. What cannot be read at all (``WireError``), an API that is not served and a version that does not
exist close the connection, as in Kafka; ApiVersions alone is answered in every version. A request for
metadata waits while a broker that has just started has none; if none come in time, its connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from struct import error as struct_error
from typing import Protocol

from tidelog.broker.exchange.exchange import BETWEEN_BROKERS, EXEMPT, Exchange, Exchanges, Route, handler_of
from tidelog.broker.exchange.services import Services
from tidelog.broker.network.answer import HandlerResult, NotAnswerable, PromisedAnswer
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.inbox import KeptFrame
from tidelog.broker.quotas.payer import payer_called
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.replication.append_group import AppendGroup
from tidelog.scheduling.promise import Promise
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode, decode_in_slices
from tidelog.wire.headers import RequestHeader, parse_request_header
from tidelog.wire.varint import skip_tags

logger = logging.getLogger(__name__)

_ABOUT_THE_CLUSTER = frozenset(
    {
        int(ApiKey.METADATA),
        int(ApiKey.FIND_COORDINATOR),
        int(ApiKey.DESCRIBE_CLUSTER),
        int(ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    }
)

_USUAL = BETWEEN_BROKERS | set(
    map(
        int,
        (
            ApiKey.METADATA,
            ApiKey.API_VERSIONS,
            ApiKey.LIST_OFFSETS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.FIND_COORDINATOR,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.LIST_GROUPS,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.END_TXN,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.DESCRIBE_CLUSTER,
        ),
    )
)
"""What clients send in their daily work. What only some ever ask for is loaded when the first does."""

_HEADER = Struct(">hhih")
# Even if it is made of the smallest things that there are, this much can be read at once.
_LARGE_FRAME_BYTES = 16 * 1024


def _numbers(key: ApiKey) -> tuple[int, int, int, int]:
    api = API_TABLE[key]
    return int(key), api.min_version, api.max_version, api.flexible_since


_PRODUCE, _PRODUCE_MIN, _PRODUCE_MAX, _PRODUCE_FLEXIBLE = _numbers(ApiKey.PRODUCE)
_FETCH, _FETCH_MIN, _FETCH_MAX, _FETCH_FLEXIBLE = _numbers(ApiKey.FETCH)


class FrameHandler(Protocol):
    """The entrance of produce and fetch: reads the body at ``pos`` of the frame in place."""

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> HandlerResult:
        """Answer one request."""


class Dispatcher:
    """Answers frames; the ``RequestHandler`` of all connections of one broker."""

    def __init__(
        self, services: Services, produce: FrameHandler, fetch: FrameHandler, group: AppendGroup, slots: int
    ) -> None:
        self.commit = group.commit
        """Writes what is staged, which is always of one connection."""
        self.exchanges = Exchanges(services, slots)
        self._staged = group.staged
        self._services = services
        self._membership = services.membership
        self._produce = produce.handle_frame
        self._fetch = fetch.handle_frame
        self._served = frozenset(map(int, services.served))
        self._routes: dict[int, Route] = {}
        self.request_time = services.quotas.request
        """While there is a quota of it, connections have their requests timed by this."""

    def handle(self, connection: Connection, frame: memoryview) -> HandlerResult:
        """Answer one request."""
        try:
            key, version, correlation_id, length = _HEADER.unpack_from(frame)
            pos = 10 + length if length > 0 else 10
            if key == _PRODUCE and _PRODUCE_MIN <= version <= _PRODUCE_MAX:
                if version >= _PRODUCE_FLEXIBLE:
                    pos = pos + 1 if frame[pos] == 0 else skip_tags(frame, pos)
                entrance = self._produce
            elif key == _FETCH and _FETCH_MIN <= version <= _FETCH_MAX:
                if version >= _FETCH_FLEXIBLE:
                    pos = pos + 1 if frame[pos] == 0 else skip_tags(frame, pos)
                entrance = self._fetch
            else:
                entrance = None
        except (struct_error, IndexError):
            raise WireError("its request ends within its header") from None
        request_time = self.request_time
        if request_time is not None and (
            request_time.connection is not connection
            or entrance is None
            or request_time.is_exempt
            or frame[8 : request_time.named_end] != request_time.named
        ):
            request_time.turn_to(connection, frame, is_exempt=key in EXEMPT)
        if entrance is self._produce:
            return entrance(connection, frame, pos, version, correlation_id)
        if self._staged:
            self.commit()
        if entrance is not None:
            return entrance(connection, frame, pos, version, correlation_id)
        return self._answer(connection, frame)

    async def warm_up(self) -> None:
        """Load the usual handlers that have not been needed yet, so that no first request pays for it.

        One after the other in a thread: requests that come in between are served in between.
        """
        for key in self._services.served:
            if key in _USUAL and key not in self._routes:
                await asyncio.to_thread(handler_of, API_TABLE[key])
                self._route(key)

    async def close(self) -> None:
        """Stop what is still under way; its connections are gone."""
        await self.exchanges.close()

    def _answer(self, connection: Connection, frame: memoryview) -> HandlerResult:
        header, pos = parse_request_header(frame)
        key, version, _, _ = header
        if key not in self._served:
            raise WireError(f"it sent a request with API key {key}, which is not served here")
        api = API_TABLE[ApiKey(key)]
        is_known = api.accepts(version)
        if not is_known and key != ApiKey.API_VERSIONS:
            raise WireError(f"it sent {api.name} version {version}, which is not supported")
        if (
            (key not in _USUAL and key not in self._routes)
            # Some clients give up a topic that is reported once as unknown; all of them can wait.
            or (key in _ABOUT_THE_CLUSTER and not self._membership.is_informed)
            or (is_known and len(frame) > _LARGE_FRAME_BYTES)
        ):
            promise: PromisedAnswer = Promise()
            reading = self._read_slowly(connection, header, connection.keep(frame), pos, promise)
            self.exchanges.start(reading, key, lambda: payer_called(connection, header.client_id or ""))
            return promise
        route = self._route(key)
        if not is_known:
            # A client from the future learns which versions there are, in the one that everybody reads.
            header = header._replace(api_version=0)
            refused = Exchange(self.exchanges, route, connection, header, api.request())
            return refused.refuse(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        request, _ = decode(api.request, version, frame, pos)
        return Exchange(self.exchanges, route, connection, header, request).answer()

    async def _read_slowly(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: KeptFrame,
        pos: int,
        promise: PromisedAnswer,
    ) -> None:
        """Answer a request that is too long to be read at once, or whose handler has yet to be loaded."""
        key = header.api_key
        if key in _ABOUT_THE_CLUSTER and not self._membership.is_informed:
            promise.only_waits()
            if not await self._membership.wait_until_informed():
                # The broker has logged once that it has no metadata; its clients ask another one.
                logger.debug("Closing %s: there is no metadata to answer with", connection)
                frame.release()
                connection.close()
                return
            promise.works()
        try:
            async with self.exchanges.slot(key):
                if key not in self._routes:
                    await asyncio.to_thread(handler_of, API_TABLE[ApiKey(key)])
                route = self._route(key)
                reading = decode_in_slices(route.api.request, header.api_version, frame.view, pos)
                request, _ = await self.exchanges.lane.run(reading)
        except WireError as error:
            promise.fail(NotAnswerable(str(error)))
            return
        finally:
            frame.release()
        if connection.closed:
            return
        if self._staged:
            self.commit()
        await Exchange(self.exchanges, route, connection, header, request).answer_later(promise)

    def _route(self, key: int) -> Route:
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = Route(API_TABLE[ApiKey(key)], self._services)
        return route
