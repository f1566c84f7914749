"""From a frame to its handler and back: the table of APIs that this broker serves.

Produce and fetch have entrances of their own (``handle_frame`` in their handlers) that read the frame in
place. All other requests are decoded, handed to ``handle(context, request)`` of the module in
``broker/handlers`` that bears the API's name, and the response is encoded; modules are imported when the
first request for them comes, or by ``warm_up``. ``handle`` gives the response, an awaitable for it (it
may be a coroutine function), work for the ``slow_lane``, or a coordinator's ``Reply``, which may take long
and holds nobody up; work may end in any of these.

Length. A request that may list many things is read in slices, and so is a long response written: nobody waits
for either but the client that asked. ``queued.max.requests`` bounds how many requests are under way, that is,
neither answered in the turn of the loop in which they came nor waiting for data, replicas or other members.
Those beyond it wait, and their connections are not read from.

Errors. A ``KafkaError`` becomes an error response here and nowhere else: in the response's ``error_code``
(and ``error_message``, where there is one), or, for APIs whose errors are per item, by the handler module's
``refuse(request, error)``. Any other exception is a bug: it is logged once and answered as
UNKNOWN_SERVER_ERROR. What cannot be read at all (``WireError``), an API that is not served and a version
that does not exist close the connection, as in Kafka; ApiVersions alone is answered in every version.
A broker that has just come into its cluster closes the connections of those who ask what there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.connection import Connection
from tidelog.broker.context import RequestContext
from tidelog.broker.inbox import KeptFrame
from tidelog.broker.pending import Answer, HandlerResult, Part, PendingAnswer
from tidelog.broker.slow_lane import EncodedResponse, SlowLane, Work, is_long
from tidelog.coordinator.reply import Reply
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError, WireError
from tidelog.replication.append_group import AppendGroup
from tidelog.wire.api import API_TABLE, Api, ApiKey
from tidelog.wire.codec import decode, decode_in_slices, encode_around, encode_in_slices
from tidelog.wire.headers import (
    RequestHeader,
    begin_response,
    encode_response,
    finish_response,
    parse_request_header,
)
from tidelog.wire.schema import Payload
from tidelog.wire.varint import skip_tags

if TYPE_CHECKING:
    from tidelog.broker.app import Broker

logger = logging.getLogger(__name__)

SERVED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DELETE_GROUPS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)

SERVED_IN_CLUSTERS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
"""What brokers and their controller ask of each other, besides."""

_BETWEEN_BROKERS = frozenset(map(int, SERVED_IN_CLUSTERS))
_ABOUT_THE_CLUSTER = frozenset(
    {
        int(ApiKey.METADATA),
        int(ApiKey.FIND_COORDINATOR),
        int(ApiKey.DESCRIBE_CLUSTER),
        int(ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    }
)

_HEADER = Struct(">hhih")
# Even if it is made of the smallest things that there are, this much can be read at once.
_LARGE_FRAME_BYTES = 16 * 1024


def _numbers(key: ApiKey) -> tuple[int, int, int, int]:
    api = API_TABLE[key]
    return int(key), api.min_version, api.max_version, api.flexible_since


_PRODUCE, _PRODUCE_MIN, _PRODUCE_MAX, _PRODUCE_FLEXIBLE = _numbers(ApiKey.PRODUCE)
_FETCH, _FETCH_MIN, _FETCH_MAX, _FETCH_FLEXIBLE = _numbers(ApiKey.FETCH)

Encodable = Payload | EncodedResponse
Unfinished = Work[Any] | Awaitable[Any]
"""Work, or what is to be awaited, for something to be encoded or for the next part of the work."""
Response = Encodable | Unfinished | Reply[Any]
Handle = Callable[[RequestContext, Any], Response]
Refuse = Callable[[Any, KafkaError], Payload]


class FrameHandler(Protocol):
    """The entrance of produce and fetch: reads the body at ``pos`` of the frame in place."""

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> HandlerResult:
        """Answer one request."""


class Route:
    """One API's handler, loaded."""

    __slots__ = ("api", "handle", "refuse")

    def __init__(self, api: Api) -> None:
        module = importlib.import_module(f"tidelog.broker.handlers.{api.key.name.lower()}")
        self.api = api
        self.handle: Handle = module.handle
        self.refuse: Refuse = getattr(module, "refuse", self._refuse)

    def _refuse(self, request: Payload, error: KafkaError) -> Payload:
        response = self.api.response
        if "error_code" not in response.__struct_fields__:
            raise TypeError(f"{self.api.name} has no error_code of its own: its handler needs refuse()")
        fields: dict[str, object] = {"error_code": error.code}
        if "error_message" in response.__struct_fields__:
            fields["error_message"] = error.message or None
        return response(**fields)


class Dispatcher:
    """Answers frames; the ``RequestHandler`` of all connections of one broker."""

    def __init__(
        self, broker: Broker, produce: FrameHandler, fetch: FrameHandler, group: AppendGroup, slots: int
    ) -> None:
        self.commit = group.commit
        self._staged = group.staged
        self._broker = broker
        self._produce = produce.handle_frame
        self._fetch = fetch.handle_frame
        self._served = frozenset(map(int, broker.served))
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(slots)
        self._lane = SlowLane(broker.clock)

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
        if entrance is self._produce:
            return entrance(connection, frame, pos, version, correlation_id)
        if self._staged:
            self.commit()
        if entrance is not None:
            return entrance(connection, frame, pos, version, correlation_id)
        return self._answer(connection, frame)

    async def warm_up(self) -> None:
        """Load the handlers that have not been needed yet, so that no first request pays for it.

        One after the other in a thread: requests that come in between are served in between.
        """
        for key in self._broker.served:
            if key not in (ApiKey.PRODUCE, ApiKey.FETCH) and key not in self._routes:
                await asyncio.to_thread(Route, API_TABLE[key])
                self._route(key)

    async def close(self) -> None:
        """Stop what is still under way; its connections are gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _answer(self, connection: Connection, frame: memoryview) -> HandlerResult:
        header, pos = parse_request_header(frame)
        key, version, correlation_id, client_id = header
        if key not in self._served:
            raise WireError(f"it sent a request with API key {key}, which is not served here")
        api = API_TABLE[ApiKey(key)]
        if not api.accepts(version) and key != ApiKey.API_VERSIONS:
            raise WireError(f"it sent {api.name} version {version}, which is not supported")
        if key in _ABOUT_THE_CLUSTER and not self._broker.knows_cluster:
            # Some clients give a topic up for which they are told once that it does not exist; all of them
            # ask another broker where one is not there yet.
            raise WireError(f"it sent {api.name} before the controller has told this broker what there is")
        route = self._route(key)
        if not api.accepts(version):
            # A client from the future learns which versions there are, in the one that everybody reads.
            header = header._replace(api_version=0)
            return self._encode(route, header, route.refuse(None, KafkaError(ErrorCode.UNSUPPORTED_VERSION)))
        context = RequestContext(self._broker, connection, version, correlation_id, client_id)
        if len(frame) > _LARGE_FRAME_BYTES:
            pending = PendingAnswer()
            self._start(self._take_large(route, header, context, connection.keep(frame), pos, pending))
            return pending
        request, _ = decode(api.request, version, frame, pos)
        response = self._ask(route, header, context, request)
        if isinstance(response, Generator):
            response = self._try_now(route, header, context, request, response)
        if isinstance(response, Payload) and not is_long(response):
            return self._encode(route, header, response)
        if isinstance(response, EncodedResponse):
            return self._encode_around(route, header, response)
        if isinstance(response, Reply):
            return self._promise(route, header, context, request, response)
        pending = PendingAnswer()
        self._start(self._finish(route, header, context, request, response, pending))
        return pending

    def _ask(
        self, route: Route, header: RequestHeader, context: RequestContext, request: Payload
    ) -> Response:
        try:
            return route.handle(context, request)
        except Exception as error:
            return self._failed(route, header, context, request, error)

    def _try_now(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        work: Work[Encodable | Unfinished],
    ) -> Encodable | Unfinished:
        try:
            return self._lane.try_now(work) or work
        except Exception as error:
            return self._failed(route, header, context, request, error)

    def _promise(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        reply: Reply[Payload],
        pending: PendingAnswer | None = None,
    ) -> HandlerResult:
        """The answer of a coordinator, now or when the reply is settled; waiting for it is no work."""

        if pending is None and reply.done:
            response = self._settled(route, header, context, request, reply)
            if not is_long(response):
                return self._encode(route, header, response)
        promise = pending or PendingAnswer()
        promise.only_waits()

        def settle(_: object) -> None:
            response = self._settled(route, header, context, request, reply)
            if is_long(response):
                self._start(self._finish(route, header, context, request, response, promise))
            else:
                self._resolve(route, header, context, response, promise)

        reply.when_done(settle)
        return promise

    def _settled(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        reply: Reply[Payload],
    ) -> Payload:
        if reply.error is None:
            return reply.result()
        return self._failed(route, header, context, request, reply.error)

    def _route(self, key: int) -> Route:
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = Route(API_TABLE[ApiKey(key)])
        return route

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _slot(self, header: RequestHeader) -> contextlib.AbstractAsyncContextManager[None]:
        """The right to work on a request beyond the turn of the loop in which it came."""
        # Clients' requests may wait for what brokers bring, and must not keep them waiting.
        return contextlib.nullcontext() if header.api_key in _BETWEEN_BROKERS else self._slots

    async def _take_large(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        frame: KeptFrame,
        pos: int,
        pending: PendingAnswer,
    ) -> None:
        """Read a request that is too long to be read at once, and answer it."""
        try:
            async with self._slot(header):
                reading = decode_in_slices(route.api.request, header.api_version, frame.view, pos)
                request, _ = await self._lane.run(reading)
        except WireError as error:
            pending.fail(str(error))
            return
        finally:
            frame.release()
        if context.connection.closed:
            return
        if self._staged:
            self.commit()
        response = self._ask(route, header, context, request)
        if isinstance(response, Reply):
            self._promise(route, header, context, request, response, pending)
        else:
            await self._finish(route, header, context, request, response, pending)

    async def _finish(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        response: Encodable | Unfinished,
        pending: PendingAnswer,
    ) -> None:
        async with self._slot(header):
            try:
                while not isinstance(response, Payload | EncodedResponse):
                    if isinstance(response, Generator):
                        response = await self._lane.run(response)
                    elif isinstance(response, Reply):
                        # From here on it only waits, and needs no slot for that.
                        self._promise(route, header, context, request, response, pending)
                        return
                    else:
                        response = await response
            except Exception as error:
                response = self._failed(route, header, context, request, error)
            if isinstance(response, Payload) and is_long(response):
                out = begin_response(route.api.key, header.api_version, header.correlation_id)
                try:
                    await self._lane.run(encode_in_slices(response, header.api_version, out))
                except Exception as error:
                    self._unwritten(route, context, error, pending)
                else:
                    pending.resolve(finish_response(out))
                return
        self._resolve(route, header, context, response, pending)

    def _resolve(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        response: Payload | EncodedResponse,
        pending: PendingAnswer,
    ) -> None:
        try:
            answer: Answer
            if isinstance(response, EncodedResponse):
                answer = self._encode_around(route, header, response)
            else:
                answer = self._encode(route, header, response)
        except Exception as error:
            self._unwritten(route, context, error, pending)
        else:
            pending.resolve(answer)

    def _unwritten(
        self, route: Route, context: RequestContext, error: Exception, pending: PendingAnswer
    ) -> None:
        logger.error(
            "The response to %s of %s cannot be written", route.api.name, context.connection, exc_info=error
        )
        pending.fail("its response could not be written")

    def _failed(
        self, route: Route, header: RequestHeader, context: RequestContext, request: Payload, error: Exception
    ) -> Payload:
        """The error response for what a handler raised."""
        if isinstance(error, KafkaError):
            return route.refuse(request, error)
        if isinstance(error, LogDirOfflineError):
            self._broker.log_dir_failed(error)
            return route.refuse(request, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if isinstance(error, StorageError):
            logger.error("%s of %s failed: %s", route.api.name, context.connection, error)
            return route.refuse(request, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        logger.error(
            "Unexpected error in %s version %d of %s (client %s)",
            route.api.name,
            header.api_version,
            context.connection,
            header.client_id,
            exc_info=error,
        )
        return route.refuse(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _encode(self, route: Route, header: RequestHeader, response: Payload) -> bytes:
        return encode_response(route.api.key, header.api_version, header.correlation_id, response)

    def _encode_around(self, route: Route, header: RequestHeader, response: EncodedResponse) -> list[Part]:
        """The answer in three parts: those who do not read it have the long one in common."""
        message, array, length, elements = response
        out = begin_response(route.api.key, header.api_version, header.correlation_id)
        behind = encode_around(message, header.api_version, out, array, length)
        return [finish_response(out, len(elements) + len(behind)), elements, behind]
