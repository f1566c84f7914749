"""From a frame to its handler and back: the table of APIs that this broker serves.

Produce and fetch have entrances of their own (``handle_frame`` in their handlers) that read the frame in
place. All other requests are decoded, handed to ``handle(context, request, …)`` of the module in
``broker/handlers`` that bears the API's name, and the response is encoded; modules are imported when the
first request for them comes, or by ``warm_up``. ``handle`` gives the response, an awaitable for it (it
may be a coroutine function), work for the ``slow_lane``, or a ``Promise``, as coordinators do, which may take
long and holds nobody up; work may end in any of these, and a promise in work.

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

Errors. A ``KafkaError`` becomes an error response here and nowhere else: in the response's ``error_code``
(and ``error_message``, where there is one), or, for APIs whose errors are per item, by the handler module's
``refuse(request, error)``, of a long request in a thread. Any other exception is a bug: it is logged once and
answered as UNKNOWN_SERVER_ERROR. What cannot be read at all (``WireError``), an API that is not served and a
version that does not exist close the connection, as in Kafka; ApiVersions alone is answered in every version.
A request for metadata waits while a broker that has just started has none; if none come in time, its
connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from struct import Struct
from struct import error as struct_error
from types import ModuleType
from typing import Any, Protocol, cast

from tidelog.broker.access.required_access import Check, check_of
from tidelog.broker.context import RequestContext
from tidelog.broker.exchange.services import Services, bind
from tidelog.broker.long_responses import EncodedResponse, is_long
from tidelog.broker.network.answer import (
    NO_ANSWER,
    Answer,
    HandlerResult,
    NotAnswerable,
    Part,
    PromisedAnswer,
)
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.inbox import KeptFrame
from tidelog.broker.served import SERVED_IN_CLUSTERS
from tidelog.clock import Clock
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError, WireError
from tidelog.metrics.request_errors import RequestErrors
from tidelog.replication.append_group import AppendGroup
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.scheduling.slow_lane import SlowLane, Unwanted
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

logger = logging.getLogger(__name__)

_BETWEEN_BROKERS = frozenset(map(int, SERVED_IN_CLUSTERS))
_EXEMPT = _BETWEEN_BROKERS | {int(ApiKey.WRITE_TXN_MARKERS)}
"""What no quota holds up."""
# Clients' requests may wait for what brokers bring, and must not keep them waiting. Pushes of telemetry wait
# for each other, and no more of them than a few: in slots they would keep everybody else waiting.
_WITHOUT_SLOT = _BETWEEN_BROKERS | {int(ApiKey.PUSH_TELEMETRY)}
_ABOUT_THE_CLUSTER = frozenset(
    {
        int(ApiKey.METADATA),
        int(ApiKey.FIND_COORDINATOR),
        int(ApiKey.DESCRIBE_CLUSTER),
        int(ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    }
)

_USUAL = _BETWEEN_BROKERS | set(
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

_ONLY_TELLS = frozenset(
    int(key)
    for key in ApiKey
    if key.name.startswith(("DESCRIBE_", "LIST_"))
    or key in (ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH)
)
"""What changes nothing, and is of no use to anybody when its client is gone."""

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""More than any client needs, even of a large cluster, and what a broker can spare for one of them."""
_PART_BYTES = 1024 * 1024

_HEADER = Struct(">hhih")
# Even if it is made of the smallest things that there are, this much can be read at once.
_LARGE_FRAME_BYTES = 16 * 1024


def _numbers(key: ApiKey) -> tuple[int, int, int, int]:
    api = API_TABLE[key]
    return int(key), api.min_version, api.max_version, api.flexible_since


_PRODUCE, _PRODUCE_MIN, _PRODUCE_MAX, _PRODUCE_FLEXIBLE = _numbers(ApiKey.PRODUCE)
_FETCH, _FETCH_MIN, _FETCH_MAX, _FETCH_FLEXIBLE = _numbers(ApiKey.FETCH)

Encodable = Payload | EncodedResponse
Unfinished = Slices[Any] | Awaitable[Any]
"""Work, or what is to be awaited, for something to be encoded or for the next part of the work."""
Response = Encodable | Unfinished | Promise[Any]
Handle = Callable[[RequestContext, Any], Response]
Refuse = Callable[[Any, KafkaError], Payload]


class FrameHandler(Protocol):
    """The entrance of produce and fetch: reads the body at ``pos`` of the frame in place."""

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> HandlerResult:
        """Answer one request."""


def handler_of(api: Api) -> ModuleType:
    """The module of an API's handler, loaded."""
    return importlib.import_module(f"tidelog.broker.handlers.{api.key.name.lower()}")


class Route:
    """One API's handler with the services it uses."""

    __slots__ = ("api", "check", "handle", "refuse")

    def __init__(self, api: Api, services: Services) -> None:
        module = handler_of(api)
        self.api = api
        self.check: Check | None = check_of(api.key, services.authorization)
        self.handle: Handle = bind(module.handle, services)
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
        self,
        services: Services,
        produce: FrameHandler,
        fetch: FrameHandler,
        group: AppendGroup,
        clock: Clock,
        slots: int,
    ) -> None:
        self.commit = group.commit
        """Writes what is staged, which is always of one connection."""
        self._staged = group.staged
        self._services = services
        self._membership = services.membership
        self._produce = produce.handle_frame
        self._fetch = fetch.handle_frame
        self._served = frozenset(map(int, services.served))
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(slots)
        self._quotas = services.quotas
        self.request_time = self._quotas.request
        """While there is a quota of it, connections have their requests timed by this."""
        self._lane = SlowLane(clock)
        self.errors: RequestErrors | None = None
        """Counts the errors in answers, where somebody wants to know; produce and fetch count their own."""

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
            request_time.turn_to(connection, frame, is_exempt=key in _EXEMPT)
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
        if key in _ABOUT_THE_CLUSTER and not self._membership.is_informed:
            # Some clients give up a topic that is reported once as unknown; all of them can wait.
            context = RequestContext(connection, version, correlation_id, client_id)
            return self._take_apart(header, context, connection.keep(frame), pos)
        if key not in _USUAL and key not in self._routes:
            context = RequestContext(connection, version, correlation_id, client_id)
            return self._take_apart(header, context, connection.keep(frame), pos)
        route = self._route(key)
        if not api.accepts(version):
            # A client from the future learns which versions there are, in the one that everybody reads.
            header = header._replace(api_version=0)
            return self._encode(route, header, route.refuse(None, KafkaError(ErrorCode.UNSUPPORTED_VERSION)))
        context = RequestContext(connection, version, correlation_id, client_id)
        if len(frame) > _LARGE_FRAME_BYTES:
            return self._take_apart(header, context, connection.keep(frame), pos)
        request, _ = decode(api.request, version, frame, pos)
        response = self._ask(route, header, context, request)
        if isinstance(response, Generator):
            response = self._try_now(route, header, context, request, response)
        if isinstance(response, Payload) and not is_long(response):
            return self._encode(route, header, self._charged(header, context, response))
        if isinstance(response, EncodedResponse):
            self._charged(header, context, response.message)
            return self._encode_around(route, header, response)
        if isinstance(response, Promise):
            return self._promise(route, header, context, request, response)
        return self._finish_soon(route, header, context, request, response, Promise())

    def _finish_soon(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        response: Encodable | Unfinished,
        promise: PromisedAnswer,
    ) -> PromisedAnswer:
        self._start(self._finish(route, header, context, request, response, promise), header, context)
        return promise

    def _take_apart(
        self, header: RequestHeader, context: RequestContext, frame: KeptFrame, pos: int
    ) -> PromisedAnswer:
        """Answer a request that is too long to be read at once, or whose handler has yet to be loaded."""
        promise: PromisedAnswer = Promise()
        self._start(self._take_slowly(header, context, frame, pos, promise), header, context)
        return promise

    def _ask(
        self, route: Route, header: RequestHeader, context: RequestContext, request: Payload
    ) -> Response:
        try:
            if route.check is not None:
                route.check(context.session, request)
            return route.handle(context, request)
        except Exception as error:
            return self._failed(route, header, context, request, error)

    def _try_now(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        work: Slices[Encodable | Unfinished],
    ) -> Encodable | Unfinished:
        try:
            return self._lane.try_now(work) or work
        except NotAnswerable as error:
            raise WireError(str(error)) from None
        except Exception as error:
            return self._failed(route, header, context, request, error)

    def _promise(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        reply: Promise[Any],
        promise: PromisedAnswer | None = None,
    ) -> HandlerResult:
        """The answer of a coordinator, now or when the promise is settled; waiting for it is no work."""
        if promise is None and reply.done:
            response = self._settled(route, header, context, request, reply)
            if isinstance(response, Payload) and not is_long(response):
                return self._encode(route, header, self._charged(header, context, response))
            return self._finish_soon(route, header, context, request, response, Promise())
        answer: PromisedAnswer = promise or Promise()
        answer.only_waits()

        def settle() -> None:
            response = self._settled(route, header, context, request, reply)
            if isinstance(response, Payload) and not is_long(response):
                self._resolve(route, header, context, response, answer)
            else:
                self._finish_soon(route, header, context, request, response, answer)

        def when_done(_: object) -> None:
            request_time = self._quotas.request
            if request_time is None:
                settle()
            else:
                request_time.charge(None if header.api_key in _EXEMPT else context.payer, settle)

        reply.when_done(when_done)
        return answer

    def _settled(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        reply: Promise[Any],
    ) -> Payload | Unfinished:
        if reply.error is None:
            return cast("Payload | Unfinished", reply.result())
        return self._failed(route, header, context, request, reply.error)

    def _route(self, key: int) -> Route:
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = Route(API_TABLE[ApiKey(key)], self._services)
        return route

    def _charged(self, header: RequestHeader, context: RequestContext, response: Payload) -> Payload:
        """The answer, with the time that its client has to pause for, which begins now."""
        request_time = self._quotas.request
        if request_time is None and not context.pause_ms:
            return response
        pause_ms = context.pause_ms
        if request_time is not None and not _is_exempt(header, response):
            pause_ms = max(pause_ms, request_time.pause_ms(context.payer))
        if pause_ms > 0:
            if "throttle_time_ms" in response.__struct_fields__:
                response.throttle_time_ms = pause_ms  # type: ignore[attr-defined]
            context.connection.throttle(pause_ms, header.api_key)
        return response

    def _start(self, work: Coroutine[Any, Any, None], header: RequestHeader, context: RequestContext) -> None:
        if self._quotas.request is not None and header.api_key not in _EXEMPT:
            work = self._quotas.timed(work, context.payer)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _slot(self, header: RequestHeader) -> contextlib.AbstractAsyncContextManager[None]:
        """The right to work on a request beyond the turn of the loop in which it came."""
        return contextlib.nullcontext() if header.api_key in _WITHOUT_SLOT else self._slots

    async def _take_slowly(
        self,
        header: RequestHeader,
        context: RequestContext,
        frame: KeptFrame,
        pos: int,
        promise: PromisedAnswer,
    ) -> None:
        if header.api_key in _ABOUT_THE_CLUSTER and not self._membership.is_informed:
            promise.only_waits()
            if not await self._membership.wait_until_informed():
                # The broker has logged once that it has no metadata; its clients ask another one.
                logger.debug("Closing %s: there is no metadata to answer with", context.connection)
                frame.release()
                context.connection.close()
                return
            promise.works()
        try:
            async with self._slot(header):
                if header.api_key not in self._routes:
                    await asyncio.to_thread(handler_of, API_TABLE[ApiKey(header.api_key)])
                route = self._route(header.api_key)
                reading = decode_in_slices(route.api.request, header.api_version, frame.view, pos)
                request, _ = await self._lane.run(reading)
        except WireError as error:
            promise.fail(NotAnswerable(str(error)))
            return
        finally:
            frame.release()
        if context.connection.closed:
            return
        if self._staged:
            self.commit()
        response = self._ask(route, header, context, request)
        if isinstance(response, Promise):
            self._promise(route, header, context, request, response, promise)
        else:
            await self._finish(route, header, context, request, response, promise)

    async def _finish(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        response: Encodable | Unfinished,
        promise: PromisedAnswer,
    ) -> None:
        connection = context.connection
        only_tells = header.api_key in _ONLY_TELLS
        async with self._slot(header):
            try:
                while not isinstance(response, Payload | EncodedResponse):
                    if isinstance(response, Generator):
                        response = await self._lane.run(
                            response, lambda: not (only_tells and connection.peer_has_ended())
                        )
                    elif isinstance(response, Promise):
                        # From here on it only waits, and needs no slot for that.
                        self._promise(route, header, context, request, response, promise)
                        return
                    else:
                        response = await response
            except Unwanted:
                self._give_up(context, promise)
                return
            except NotAnswerable as error:
                promise.fail(error)
                return
            except Exception as error:
                failed = self._failed(route, header, context, request, error)
                response = failed if isinstance(failed, Payload) else await failed
            if isinstance(response, Payload) and is_long(response):
                self._charged(header, context, response)
                writing = self._write(route, header, response)
                try:
                    answer = await self._lane.run(writing, lambda: not connection.peer_has_ended())
                except Unwanted:
                    self._give_up(context, promise)
                except NotAnswerable as error:
                    promise.fail(error)
                except Exception as error:
                    self._unwritten(route, context, error, promise)
                else:
                    promise.resolve(answer)
                return
        self._resolve(route, header, context, response, promise)

    def _give_up(self, context: RequestContext, promise: PromisedAnswer) -> None:
        """Nobody waits for an answer. What its client sent before it went away is still to be done."""
        if not context.connection.closed:
            promise.resolve(NO_ANSWER)

    def _write(self, route: Route, header: RequestHeader, response: Payload) -> Slices[list[Part]]:
        """A long answer in parts: to copy it as a whole would take long, too."""
        head = begin_response(route.api.key, header.api_version, header.correlation_id)
        parts: list[Part] = []
        size = 0
        out = bytearray()
        for _ in encode_in_slices(response, header.api_version, out):
            if len(out) >= _PART_BYTES:
                size += len(out)
                if size > MAX_ANSWER_BYTES:
                    raise NotAnswerable(
                        f"the answer to its {route.api.name} (client {header.client_id}) would be longer "
                        f"than {MAX_ANSWER_BYTES} bytes"
                    )
                parts.append(bytes(out))
                out.clear()
            yield
        size += len(out)
        if self.errors is not None:
            yield from self.errors.count_in_slices(route.api.name, response, header.api_version)
        return [finish_response(head, size), *parts, bytes(out)]

    def _resolve(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        response: Payload | EncodedResponse,
        promise: PromisedAnswer,
    ) -> None:
        try:
            answer: Answer
            if isinstance(response, EncodedResponse):
                self._charged(header, context, response.message)
                answer = self._encode_around(route, header, response)
            else:
                answer = self._encode(route, header, self._charged(header, context, response))
        except Exception as error:
            self._unwritten(route, context, error, promise)
        else:
            promise.resolve(answer)

    def _unwritten(
        self, route: Route, context: RequestContext, error: Exception, promise: PromisedAnswer
    ) -> None:
        logger.error(
            "The response to %s of %s cannot be written", route.api.name, context.connection, exc_info=error
        )
        promise.fail(NotAnswerable("its response could not be written"))

    def _failed(
        self, route: Route, header: RequestHeader, context: RequestContext, request: Payload, error: Exception
    ) -> Payload | Awaitable[Payload]:
        """The error response for what a handler raised; of a long request it is made in a thread."""
        refusal = self._refusal(route, header, context, error)
        if is_long(request):
            return asyncio.to_thread(route.refuse, request, refusal)
        return route.refuse(request, refusal)

    def _refusal(
        self, route: Route, header: RequestHeader, context: RequestContext, error: Exception
    ) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, LogDirOfflineError):
            self._services.on_offline(error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        if isinstance(error, StorageError):
            logger.error("%s of %s failed: %s", route.api.name, context.connection, error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        logger.error(
            "Unexpected error in %s version %d of %s (client %s)",
            route.api.name,
            header.api_version,
            context.connection,
            header.client_id,
            exc_info=error,
        )
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _encode(self, route: Route, header: RequestHeader, response: Payload) -> bytes:
        if self.errors is not None:
            self.errors.count_in(route.api.name, response, header.api_version)
        return encode_response(route.api.key, header.api_version, header.correlation_id, response)

    def _encode_around(self, route: Route, header: RequestHeader, response: EncodedResponse) -> list[Part]:
        """The answer in three parts: those who do not read it have the long one in common."""
        message, array, length, elements, refused, none = response
        if refused and self.errors is not None:
            self.errors.count_answer(route.api.name, {int(ErrorCode.NONE): none, **refused})
        out = begin_response(route.api.key, header.api_version, header.correlation_id)
        behind = encode_around(message, header.api_version, out, array, length)
        return [finish_response(out, len(elements) + len(behind)), elements, behind]


def _is_exempt(header: RequestHeader, response: Payload) -> bool:
    """Whether a request is one of a broker's, and not of somebody who has no right to it."""
    refused = getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return header.api_key in _EXEMPT and not refused
