"""One request from its decoded form to its response.

An ``Exchange`` is what a handler receives as its context: the connection, the header, and the request. The
dispatcher makes one for each request that it has decoded, and calls ``answer`` in the turn of the loop in
which the request came, or ``answer_later`` if it took longer to decode it. ``Exchanges`` holds what all
exchanges of a broker share.

Shapes. ``handle`` returns one of three (``broker/responses``): a response; an awaitable of a response, which
may be a coordinator's ``Promise``; or a step in slices (a generator), which is run at once while it is short
and in the ``slow_lane`` after that, and which ends in one of the first two. A promise holds no slot while it
waits; a coroutine and a step do.

Errors. A ``KafkaError`` becomes an error response here and nowhere else: by ``refuse_each``, or by the
handler module's ``refuse(request, error)`` where a response needs more than that; of a long request in a
thread. Any other exception is a bug: it is logged once and answered as UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import ModuleType
from typing import Any

from tidelog.broker.access.required_access import Check, check_of
from tidelog.broker.context import RequestContext
from tidelog.broker.exchange.services import Services, bind
from tidelog.broker.network.answer import (
    NO_ANSWER,
    Answer,
    HandlerResult,
    NotAnswerable,
    Part,
    PromisedAnswer,
)
from tidelog.broker.network.connection import Connection
from tidelog.broker.quotas.payer import Payer
from tidelog.broker.responses import EncodedResponse, Handled, Response, is_long, refuse_each
from tidelog.broker.served import SERVED_IN_CLUSTERS
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError, WireError
from tidelog.metrics.request_errors import RequestErrors
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.scheduling.slow_lane import Unwanted
from tidelog.wire.api import Api, ApiKey
from tidelog.wire.codec import encode_around, encode_in_slices
from tidelog.wire.headers import RequestHeader, begin_response, encode_response, finish_response
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

BETWEEN_BROKERS = frozenset(map(int, SERVED_IN_CLUSTERS))
EXEMPT = BETWEEN_BROKERS | {int(ApiKey.WRITE_TXN_MARKERS)}
"""What no quota holds up."""
# Clients' requests may wait for what brokers bring, and must not keep them waiting. Pushes of telemetry wait
# for each other, and no more of them than a few: in slots they would keep everybody else waiting.
_WITHOUT_SLOT = BETWEEN_BROKERS | {int(ApiKey.PUSH_TELEMETRY)}

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

Handle = Callable[[RequestContext, Any], Handled]
Refuse = Callable[[Any, KafkaError], Payload]


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
        self.refuse: Refuse = getattr(module, "refuse", None) or partial(refuse_each, api.response)


class Exchanges:
    """What all exchanges of one broker share: slots, quotas, the slow lane, counts of errors."""

    def __init__(self, services: Services, slots: int) -> None:
        self.services = services
        self.lane = services.lane
        self.quotas = services.quotas
        self.errors: RequestErrors | None = None
        """Counts the errors in responses, if metrics are on; produce and fetch count their own."""
        self._slots = asyncio.Semaphore(slots)
        self._tasks: set[asyncio.Task[None]] = set()

    def slot(self, key: int) -> contextlib.AbstractAsyncContextManager[None]:
        """The right to work on a request beyond the turn of the loop in which it came."""
        return contextlib.nullcontext() if key in _WITHOUT_SLOT else self._slots

    def start(self, work: Coroutine[Any, Any, None], key: int, payer: Callable[[], Payer]) -> None:
        """Run a request's work in the background, at the expense of its payer."""
        if self.quotas.request is not None and key not in EXEMPT:
            work = self.quotas.timed(work, payer())
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop what is still under way; its connections are gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Exchange(RequestContext):
    """A decoded request, on its way to its response."""

    __slots__ = ("_exchanges", "_key", "_request", "_route")

    def __init__(
        self,
        exchanges: Exchanges,
        route: Route,
        connection: Connection,
        header: RequestHeader,
        request: Payload,
    ) -> None:
        self._key, self.version, self.correlation_id, self.client_id = header
        self.connection = connection
        self.pause_ms = 0
        self._exchanges = exchanges
        self._route = route
        self._request = request

    def answer(self) -> HandlerResult:
        """The answer, if it can be given in this turn of the loop, or the promise of one."""
        try:
            handled = self._handle()
            if isinstance(handled, Generator):
                handled = self._exchanges.lane.try_now(handled) or handled
        except NotAnswerable as error:
            raise WireError(str(error)) from None
        except Exception as error:
            handled = self._refuse(error)
        if isinstance(handled, Promise) and handled.done:
            handled = self._settled(handled)
        if isinstance(handled, EncodedResponse) or (isinstance(handled, Payload) and not is_long(handled)):
            return self._encode(handled)
        promise: PromisedAnswer = Promise()
        if isinstance(handled, Promise):
            self._wait(handled, promise)
        else:
            self._start(self._finish(handled, promise))
        return promise

    async def answer_later(self, promise: PromisedAnswer) -> None:
        """Keep ``promise``."""
        try:
            handled = self._handle()
        except Exception as error:
            handled = self._refuse(error)
        if isinstance(handled, Promise):
            self._wait(handled, promise)
        else:
            await self._finish(handled, promise)

    def refuse(self, error: KafkaError) -> Answer:
        """The answer when its handler is not to see the request."""
        return self._encode(self._route.refuse(self._request, error))

    def _handle(self) -> Handled:
        route = self._route
        if route.check is not None:
            route.check(self.session, self._request)
        return route.handle(self, self._request)

    def _wait(self, reply: Promise[Any], promise: PromisedAnswer) -> None:
        """Answer as soon as a coordinator's promise is settled; waiting for it is no work."""
        promise.only_waits()

        def settle() -> None:
            response = self._settled(reply)
            if isinstance(response, EncodedResponse) or (
                isinstance(response, Payload) and not is_long(response)
            ):
                self._resolve(response, promise)
            else:
                self._start(self._finish(response, promise))

        def when_done(_: object) -> None:
            request_time = self._exchanges.quotas.request
            if request_time is None:
                settle()
            else:
                request_time.charge(None if self._key in EXEMPT else self.payer, settle)

        reply.when_done(when_done)

    def _settled(self, reply: Promise[Any]) -> Handled:
        if reply.error is not None:
            return self._refuse(reply.error)
        response: Response = reply.result()
        return response

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._exchanges.start(work, self._key, lambda: self.payer)

    async def _finish(self, handled: Handled, promise: PromisedAnswer) -> None:
        """Keep ``promise`` by work in the background."""
        connection = self.connection
        lane = self._exchanges.lane
        only_tells = self._key in _ONLY_TELLS
        async with self._exchanges.slot(self._key):
            try:
                try:
                    if isinstance(handled, Generator):
                        handled = await lane.run(
                            handled, lambda: not (only_tells and connection.peer_has_ended())
                        )
                    if isinstance(handled, Promise):
                        # From here on it only waits, and needs no slot for that.
                        self._wait(handled, promise)
                        return
                    response = handled if isinstance(handled, Payload | EncodedResponse) else await handled
                except (Unwanted, NotAnswerable):
                    raise
                except Exception as error:
                    refused = self._refuse(error)
                    response = refused if isinstance(refused, Payload) else await refused
                if isinstance(response, Payload) and is_long(response):
                    answer = await lane.run(self._write(response), lambda: not connection.peer_has_ended())
                    promise.resolve(answer)
                    return
            except Unwanted:
                # The client has gone. The requests that it sent before are still to be handled.
                if not connection.closed:
                    promise.resolve(NO_ANSWER)
                return
            except NotAnswerable as error:
                promise.fail(error)
                return
            except Exception as error:
                self._unwritten(error, promise)
                return
        self._resolve(response, promise)

    def _resolve(self, response: Response, promise: PromisedAnswer) -> None:
        try:
            answer = self._encode(response)
        except Exception as error:
            self._unwritten(error, promise)
        else:
            promise.resolve(answer)

    def _unwritten(self, error: Exception, promise: PromisedAnswer) -> None:
        logger.error(
            "The response to %s of %s cannot be written",
            self._route.api.name,
            self.connection,
            exc_info=error,
        )
        promise.fail(NotAnswerable("its response could not be written"))

    def _encode(self, response: Response) -> Answer:
        """The whole answer; its client's pause begins."""
        api = self._route.api
        errors = self._exchanges.errors
        if isinstance(response, Payload):
            self._charge(response)
            if errors is not None:
                errors.count_in(api.name, response, self.version)
            return encode_response(api.key, self.version, self.correlation_id, response)
        # In three parts: those who do not read it have the long one in common.
        message, array, length, elements, refused, none = response
        self._charge(message)
        if refused and errors is not None:
            errors.count_answer(api.name, {int(ErrorCode.NONE): none, **refused})
        out = begin_response(api.key, self.version, self.correlation_id)
        behind = encode_around(message, self.version, out, array, length)
        return [finish_response(out, len(elements) + len(behind)), elements, behind]

    def _write(self, response: Payload) -> Slices[list[Part]]:
        """A long answer in parts: to copy it as a whole would take long, too."""
        api = self._route.api
        self._charge(response)
        head = begin_response(api.key, self.version, self.correlation_id)
        parts: list[Part] = []
        size = 0
        out = bytearray()
        for _ in encode_in_slices(response, self.version, out):
            if len(out) >= _PART_BYTES:
                size += len(out)
                if size > MAX_ANSWER_BYTES:
                    raise NotAnswerable(
                        f"the answer to its {api.name} (client {self.client_id}) would be longer "
                        f"than {MAX_ANSWER_BYTES} bytes"
                    )
                parts.append(bytes(out))
                out.clear()
            yield
        size += len(out)
        if self._exchanges.errors is not None:
            yield from self._exchanges.errors.count_in_slices(api.name, response, self.version)
        return [finish_response(head, size), *parts, bytes(out)]

    def _charge(self, response: Payload) -> None:
        """Put into the response for how long its client has to pause, which begins now."""
        request_time = self._exchanges.quotas.request
        pause_ms = self.pause_ms
        if request_time is not None and not self._is_exempt(response):
            pause_ms = max(pause_ms, request_time.pause_ms(self.payer))
        if pause_ms > 0:
            if "throttle_time_ms" in response.__struct_fields__:
                response.throttle_time_ms = pause_ms  # type: ignore[attr-defined]
            self.connection.throttle(pause_ms, self._key)

    def _is_exempt(self, response: Payload) -> bool:
        """Whether the request comes from a broker, not from a client without that right."""
        refused = getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return self._key in EXEMPT and not refused

    def _refuse(self, error: Exception) -> Payload | Coroutine[Any, Any, Payload]:
        """The error response for what a handler raised; of a long request it is made in a thread."""
        refusal = self._refusal(error)
        if is_long(self._request):
            return asyncio.to_thread(self._route.refuse, self._request, refusal)
        return self._route.refuse(self._request, refusal)

    def _refusal(self, error: Exception) -> KafkaError:
        api = self._route.api
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, LogDirOfflineError):
            self._exchanges.services.on_offline(error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        if isinstance(error, StorageError):
            logger.error("%s of %s failed: %s", api.name, self.connection, error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        logger.error(
            "Unexpected error in %s version %d of %s (client %s)",
            api.name,
            self.version,
            self.connection,
            self.client_id,
            exc_info=error,
        )
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
