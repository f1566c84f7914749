"""From a frame to its handler and back: the table of APIs that this broker serves.

Produce and fetch have entrances of their own (``handle_frame`` in their handlers) that read the frame in
place. All other requests are decoded, handed to ``handle(context, request)`` of the module in
``broker/handlers`` that bears the API's name, and the response is encoded; modules are imported when the
first request for them comes, or by ``warm_up``. ``handle`` gives the response, an awaitable for it (it
may be a coroutine function), or a coordinator's ``Reply``, which may take long and holds nobody up.

Errors. A ``KafkaError`` becomes an error response here and nowhere else: in the response's ``error_code``
(and ``error_message``, where there is one), or, for APIs whose errors are per item, by the handler module's
``refuse(request, error)``. Any other exception is a bug: it is logged once and answered as
UNKNOWN_SERVER_ERROR. What cannot be read at all (``WireError``), an API that is not served and a version
that does not exist close the connection, as in Kafka; ApiVersions alone is answered in every version.
A broker that has just come into its cluster closes the connections of those who ask what there is.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.connection import Connection
from tidelog.broker.context import RequestContext
from tidelog.broker.pending import Outcome, PendingAnswer
from tidelog.coordinator.reply import Reply
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError, WireError
from tidelog.replication.append_group import AppendGroup
from tidelog.wire.api import API_TABLE, Api, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import RequestHeader, encode_response, parse_request_header
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
    ApiKey.CREATE_PARTITIONS,
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


def _numbers(key: ApiKey) -> tuple[int, int, int, int]:
    api = API_TABLE[key]
    return int(key), api.min_version, api.max_version, api.flexible_since


_PRODUCE, _PRODUCE_MIN, _PRODUCE_MAX, _PRODUCE_FLEXIBLE = _numbers(ApiKey.PRODUCE)
_FETCH, _FETCH_MIN, _FETCH_MAX, _FETCH_FLEXIBLE = _numbers(ApiKey.FETCH)

Handle = Callable[[RequestContext, Any], Payload | Reply[Any] | Awaitable[Payload]]
Refuse = Callable[[Any, KafkaError], Payload]


class FrameHandler(Protocol):
    """The entrance of produce and fetch: reads the body at ``pos`` of the frame in place."""

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> Outcome:
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

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
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

    def _answer(self, connection: Connection, frame: memoryview) -> Outcome:
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
        request, _ = decode(api.request, version, frame, pos)
        context = RequestContext(self._broker, connection, version, correlation_id, client_id)
        try:
            response = route.handle(context, request)
        except Exception as error:
            response = self._failed(route, header, context, request, error)
        if isinstance(response, Payload):
            return self._encode(route, header, response)
        if isinstance(response, Reply):
            return self._promise(route, header, context, request, response)
        return self._start(route, header, context, request, response)

    def _promise(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        reply: Reply[Payload],
    ) -> Outcome:
        """The answer of a coordinator, now or when the reply is settled; waiting for it is no work."""

        def answer() -> bytes:
            response = (
                reply.result()
                if reply.error is None
                else self._failed(route, header, context, request, reply.error)
            )
            return self._encode(route, header, response)

        def settle(_: object) -> None:
            try:
                pending.resolve(answer())
            except Exception:
                logger.exception(
                    "The response to %s of %s cannot be written", route.api.name, context.connection
                )
                pending.fail("its response could not be written")

        if reply.done:
            return answer()
        pending = PendingAnswer(on_cancel=lambda: None)
        reply.when_done(settle)
        return pending

    def _route(self, key: int) -> Route:
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = Route(API_TABLE[ApiKey(key)])
        return route

    def _start(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        response: Awaitable[Payload],
    ) -> PendingAnswer:
        pending = PendingAnswer()
        task = asyncio.get_running_loop().create_task(
            self._finish(route, header, context, request, response, pending)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    async def _finish(
        self,
        route: Route,
        header: RequestHeader,
        context: RequestContext,
        request: Payload,
        awaited: Awaitable[Payload],
        pending: PendingAnswer,
    ) -> None:
        try:
            if header.api_key in _BETWEEN_BROKERS:
                # Clients' requests may wait for what these bring, and must not keep them waiting.
                response = await awaited
            else:
                async with self._slots:
                    response = await awaited
        except Exception as error:
            response = self._failed(route, header, context, request, error)
        try:
            answer = self._encode(route, header, response)
        except Exception:
            logger.exception("The response to %s of %s cannot be written", route.api.name, context.connection)
            pending.fail("its response could not be written")
        else:
            pending.resolve(answer)

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
            "%s version %d of %s (client %s) met a bug",
            route.api.name,
            header.api_version,
            context.connection,
            header.client_id,
            exc_info=error,
        )
        return route.refuse(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _encode(self, route: Route, header: RequestHeader, response: Payload) -> bytes:
        return encode_response(route.api.key, header.api_version, header.correlation_id, response)
