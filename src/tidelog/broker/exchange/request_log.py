"""Logging of requests: all of them, as Kafka does it, or those that take long.

The logger ``kafka.request.logger`` tells of every request at level DEBUG, one line of JSON with the fields of
Kafka's own; its level is WARN until somebody sets another (IncrementalAlterConfigs of BROKER_LOGGER). The
logger ``tidelog.request.slow`` tells of requests that took longer than ``tidelog.slow.request.log.ms``. A
broker that does neither has none of this: see ``broker/app``.

The fields of a request and of its response are in the line where they are short; of what is longer than
``_LONGEST_BODY_BYTES`` only the size is. Bytes, which may be records, passwords or tokens, are always given
by their size. Requests that carry secrets as text are left out, and error messages of their responses, which
may repeat them, are redacted.
"""

from __future__ import annotations

import json
import logging
import struct
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.network.answer import Answer, HandlerResult, NoAnswer, PromisedAnswer, StagedAnswer
from tidelog.broker.network.answer_times import HandleFrame, RequestObserver
from tidelog.errors import TidelogError
from tidelog.printable import printable_json
from tidelog.scheduling.promise import Promise
from tidelog.wire.api import API_TABLE, Api, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import parse_request_header, parse_response_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.network.connection import Connection

REQUEST_LOGGER = logging.getLogger("kafka.request.logger")
SLOW_LOGGER = logging.getLogger("tidelog.request.slow")

_MESSAGE = "Completed request:%s"
_LONGEST_BODY_BYTES = 16 * 1024
_FRAME_SIZE_BYTES = 4
_CORRELATION_ID = struct.Struct(">4xi")
_MOST_ANSWERS = 256
_LINES_PER_S = 20
_CLOSED_EVERY = 256
# Whose words are not repeated: passwords, keys and tokens may be among them.
_SECRET = frozenset(
    {
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
# Who wait because their clients want to.
_WAIT_BY_DESIGN = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


class _Request(NamedTuple):
    """What is told of a request, whatever its times."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    size: int
    body: object


class _Times(NamedTuple):
    """The parts of a request's time, in seconds."""

    queue_s: float
    local_s: float
    remote_s: float
    response_queue_s: float
    send_s: float

    @property
    def total_s(self) -> float:
        return sum(self)


class KeptAnswers:
    """The answers to requests that have not been logged yet, by connection and correlation id.

    Of an answer that is too long for a line only its size is kept.
    """

    def __init__(self) -> None:
        self._kept: dict[Connection, dict[int, bytes | int]] = {}

    def around(self, handle: HandleFrame) -> HandleFrame:
        """``handle``, whose outcomes are kept."""

        def handled(connection: Connection, frame: memoryview) -> HandlerResult:
            # The frame is a view of a buffer in which the next request will be.
            key = _CORRELATION_ID.unpack_from(frame)[0] if len(frame) >= _CORRELATION_ID.size else None
            outcome = handle(connection, frame)
            if key is None:
                return outcome
            keep = partial(self._keep, connection, key)
            if isinstance(outcome, StagedAnswer):
                return _NotedWhenSettled(outcome, keep)
            keep(outcome)
            return outcome

        return handled

    def take(self, connection: Connection, correlation_id: int) -> bytes | int | None:
        """The answer to a request, or its size; None if there is none."""
        kept = self._kept.get(connection)
        if kept is None:
            return None
        answer = kept.pop(correlation_id, None)
        if not kept:
            del self._kept[connection]
        return answer

    def forget_closed(self) -> None:
        """Forget the answers of connections that are closed."""
        for gone in [each for each in self._kept if each.closed]:
            del self._kept[gone]

    def _keep(self, connection: Connection, correlation_id: int, outcome: HandlerResult) -> None:
        if isinstance(outcome, Promise):
            outcome.when_done(partial(self._settled, connection, correlation_id))
        elif isinstance(outcome, bytes | list):
            kept = self._kept.setdefault(connection, {})
            kept[correlation_id] = _bounded(outcome)
            if len(kept) > _MOST_ANSWERS:
                # The oldest belongs to a message of a login, which is not logged.
                del kept[next(iter(kept))]

    def _settled(self, connection: Connection, correlation_id: int, promise: PromisedAnswer) -> None:
        if promise.error is None and isinstance(promise.value, bytes | list):
            self._keep(connection, correlation_id, promise.value)


class _NotedWhenSettled(StagedAnswer):
    """The answer to a produce request, kept once it is known."""

    __slots__ = ("_keep", "_staged")

    def __init__(self, staged: StagedAnswer, keep: Callable[[HandlerResult], None]) -> None:
        self.refused = staged.refused
        self._staged = staged
        self._keep = keep

    def settle(self) -> Answer | NoAnswer | PromisedAnswer:
        outcome = self._staged.settle()
        self._keep(outcome)
        return outcome


def _bounded(answer: Answer) -> bytes | int:
    """An answer behind the size of its frame; only that size where it is too long to be logged."""
    parts = [answer] if isinstance(answer, bytes) else answer
    size = sum(len(part) if isinstance(part, bytes) else part.length for part in parts) - _FRAME_SIZE_BYTES
    if size > _LONGEST_BODY_BYTES:
        return size
    # Records, which are in files, are given by their size: their bytes do not matter.
    joined = b"".join(part if isinstance(part, bytes) else bytes(part.length) for part in parts)
    return joined[_FRAME_SIZE_BYTES:]


class RequestLog:
    """Is told of requests instead of whoever counts them, who is told by it."""

    def __init__(self, counter: RequestObserver | None, slow_ms: int) -> None:
        """``slow_ms`` below 0 takes no request for slow."""
        self._counter = counter
        self._slow_s = slow_ms / 1000 if slow_ms >= 0 else float("inf")
        self._logs_all = REQUEST_LOGGER.isEnabledFor(logging.DEBUG)
        self.answers = KeptAnswers()
        # Requests that are not answered yet, and answers that were out before their request was told of.
        self._waiting: dict[Connection, deque[tuple[int, _Request]]] = {}
        self._early: dict[Connection, deque[tuple[int, _Times]]] = {}
        self._throttled: dict[tuple[Connection, int], float] = {}
        self._noted = 0
        self._second = 0
        self._lines = 0
        self._left_out = 0

    # What connections tell

    def answered(
        self,
        connection: Connection,
        frames: list[memoryview],
        done: int,
        later: list[int] | None,
        arrived_s: float,
        began_s: float,
        handled_s: float,
    ) -> None:
        """So many of ``frames`` were handled, and are answered but for those of the APIs in ``later``."""
        now_s = time.monotonic()
        if self._counter is not None:
            self._counter.answered(connection, frames, done, later, arrived_s, began_s, handled_s)
        if not self._logs_all and not later and now_s - arrived_s < self._slow_s:
            return
        left = list(later or ())
        local_s = (handled_s - began_s) / done if done else 0.0
        for number, frame in enumerate(frames[:done]):
            request = self._describe(frame)
            if request is None:
                continue
            key = int(request.api.key)
            if key in left:
                left.remove(key)
                self._note(connection, key, request)
            else:
                queue_s = began_s - arrived_s + number * local_s
                self._tell(connection, request, _Times(queue_s, local_s, 0.0, 0.0, now_s - handled_s))

    def waited(
        self,
        connection: Connection,
        key: int,
        arrived_s: float,
        began_s: float,
        taken_s: float,
        settled_s: float,
        ready_s: float,
    ) -> None:
        """One of those is answered, too."""
        now_s = time.monotonic()
        if self._counter is not None:
            self._counter.waited(connection, key, arrived_s, began_s, taken_s, settled_s, ready_s)
        times = _Times(
            began_s - arrived_s, taken_s - began_s, settled_s - taken_s, ready_s - settled_s, now_s - ready_s
        )
        request = _taken(self._waiting, connection, key)
        if request is None:
            self._early.setdefault(connection, deque()).append((key, times))
        else:
            self._tell(connection, request, times)

    def throttled(self, connection: Connection, key: int, throttle_ms: float) -> None:
        """A quota has the sender of a request wait for so long; it is told in the line of that request."""
        if self._counter is not None:
            self._counter.throttled(connection, key, throttle_ms)
        if self._logs_all or throttle_ms / 1000 >= self._slow_s:
            self._throttled[connection, key] = throttle_ms

    def _note(self, connection: Connection, key: int, request: _Request) -> None:
        times = _taken(self._early, connection, key)
        if times is not None:
            self._tell(connection, request, times)
            return
        self._waiting.setdefault(connection, deque()).append((key, request))
        self._noted += 1
        if not self._noted % _CLOSED_EVERY:
            for kept in (self._waiting, self._early):
                for gone in [each for each in kept if each.closed]:
                    del kept[gone]
            self._throttled.clear()
            self.answers.forget_closed()

    def _describe(self, frame: memoryview) -> _Request | None:
        """What is told of a request; None of what is none."""
        try:
            header, pos = parse_request_header(frame)
            api = API_TABLE[ApiKey(header.api_key)]
            if not api.accepts(header.api_version):
                return None
            body: object = None
            if self._logs_all and len(frame) <= _LONGEST_BODY_BYTES and api.key not in _SECRET:
                body = _plain(decode(api.request, header.api_version, frame, pos)[0])
        except (TidelogError, ValueError, KeyError):
            # A token of a login without headers, or what its connection is closed for.
            return None
        return _Request(api, header.api_version, header.correlation_id, header.client_id, len(frame), body)

    # What is logged

    def _tell(self, connection: Connection, request: _Request, times: _Times) -> None:
        throttle_ms = self._throttled.pop((connection, int(request.api.key)), 0.0)
        if self._logs_all:
            answer = self.answers.take(connection, request.correlation_id)
            fields = _fields(connection, request, times, throttle_ms, answer)
            REQUEST_LOGGER.debug(_MESSAGE, printable_json(json.dumps(fields, ensure_ascii=False)))
        counted_s = times.total_s
        if request.api.key in _WAIT_BY_DESIGN:
            counted_s -= times.remote_s
        if counted_s >= self._slow_s and self._may_log():
            self._tell_slow(connection, request, times, throttle_ms)

    def _tell_slow(
        self, connection: Connection, request: _Request, times: _Times, throttle_ms: float
    ) -> None:
        more = f"; {self._left_out} more before it are not shown" if self._left_out else ""
        self._left_out = 0
        SLOW_LOGGER.warning(
            "Slow request: %s version %d of client %r, %s at %s, took %.1f ms (queue %.1f, local %.1f, "
            "remote %.1f, response queue %.1f, send %.1f; throttle %.1f), %d bytes%s",
            request.api.name,
            request.version,
            request.client_id,
            connection.session.principal,
            connection,
            *(part * 1000 for part in (times.total_s, *times)),
            throttle_ms,
            request.size,
            more,
            extra={"fields": _fields(connection, request._replace(body=None), times, throttle_ms)},
        )

    def _may_log(self) -> bool:
        """Not more lines than somebody can read: a broker that is slow has more to do than to say so."""
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._lines = 0
        self._lines += 1
        if self._lines > _LINES_PER_S:
            self._left_out += 1
            return False
        return True


def _taken(kept: dict[Connection, deque[tuple[int, Any]]], connection: Connection, key: int) -> Any:
    """The first of what is kept of a connection's requests for one API; None if there is nothing."""
    found = kept.get(connection)
    if found is None:
        return None
    for place, (each, value) in enumerate(found):
        if each == key:
            del found[place]
            if not found:
                del kept[connection]
            return value
    return None


def _fields(
    connection: Connection,
    request: _Request,
    times: _Times,
    throttle_ms: float,
    answer: bytes | int | None = None,
) -> dict[str, object]:
    """A request as Kafka's log has it."""
    host, port = connection.peer
    software = connection.client_software or ("unknown", "unknown")
    told: dict[str, object] = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": int(request.api.key),
            "requestApiVersion": request.version,
            "correlationId": request.correlation_id,
            "clientId": request.client_id,
            "requestApiKeyName": request.api.key.name,
        },
    }
    if request.body is not None:
        told["request"] = request.body
    if answer is not None:
        told["response"] = _response(request, answer)
    told |= {
        "requestSizeInBytes": request.size,
        "connection": f"{host}:{port}",
        "totalTimeMs": _ms(times.total_s),
        "requestQueueTimeMs": _ms(times.queue_s),
        "localTimeMs": _ms(times.local_s),
        "remoteTimeMs": _ms(times.remote_s),
        "throttleTimeMs": throttle_ms,
        "responseQueueTimeMs": _ms(times.response_queue_s),
        "sendTimeMs": _ms(times.send_s),
        "securityProtocol": connection.session.security_protocol,
        "principal": str(connection.session.principal),
        "listener": connection.listener,
        "clientInformation": {"softwareName": software[0], "softwareVersion": software[1]},
    }
    return told


def _response(request: _Request, answer: bytes | int) -> object:
    """The fields of a response; its size where it is long."""
    if isinstance(answer, int):
        return {"sizeInBytes": answer}
    key = int(request.api.key)
    try:
        _, pos = parse_response_header(key, request.version, answer)
        message, _ = decode(request.api.response, request.version, answer, pos)
    except (TidelogError, ValueError):
        return {"sizeInBytes": len(answer)}
    fields = _plain(message)
    return _redacted(fields) if request.api.key in _SECRET else fields


def _redacted(value: object) -> object:
    """``value`` without error messages, which may repeat a secret."""
    if isinstance(value, dict):
        return {
            name: "[redacted]" if name == "errorMessage" and each is not None else _redacted(each)
            for name, each in value.items()
        }
    return [_redacted(each) for each in value] if isinstance(value, list) else value


def _ms(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1000, 3)


def _plain(value: object) -> object:
    """A message as JSON can write it: field names as in Kafka's, bytes by their size."""
    fields = getattr(value, "__struct_fields__", None)
    if fields is not None:
        return {_camel(name): _plain(getattr(value, name)) for name in fields}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"sizeInBytes": len(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
