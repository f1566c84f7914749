"""One TCP connection to one broker.

Owns the socket, the negotiated API versions and the requests in flight. A broker answers a connection's
requests in order, so an answer belongs to the oldest request; a request that times out therefore closes the
connection, as Kafka's clients do. Every future in flight ends with a result or an error, whatever happens
to the socket. ``client._network.node_connection`` opens connections, ``client._network.cluster`` decides
where requests go.

Requests go out at once and in the order of the calls of ``send`` and ``send_only``. Time limits cost one
comparison per request: one timer stands for the whole queue.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tidelog.client._address import Address
from tidelog.client._network.receiver import MAX_RESPONSE_BYTES, FrameReceiver
from tidelog.client._network.retry import Deadline
from tidelog.client.errors import ConnectionLostError, RequestTimeoutError
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.version import __version__
from tidelog.wire.api import ApiKey, request_header_version, response_header_version
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.schema import Payload
from tidelog.wire.varint import skip_tags

ResponseT = TypeVar("ResponseT", bound=Payload)
RequestBuilder = Callable[[int], Payload]
Body = bytes | memoryview
"""The body of a response, without size and header; a memoryview owns its memory."""

_CLOSE_TIMEOUT_S = 5.0
_NEVER = float("inf")
# Shorter requests are cheaper joined than sent as pieces.
_JOINED_BYTES = 16 * 1024
_SIZED_HEADER = struct.Struct(">ihhi")
# Kafka's brokers close such a connection at the first request.
_REQUIRES_LOGIN = "; if its listener requires a login, set security.protocol"
_CORRELATION_ID = struct.Struct(">i")


class AnswerTaker(Protocol):
    """Who takes an answer in the turn of the loop in which it comes: a future's methods, without its wait."""

    def done(self) -> bool:
        """Whether nothing is wanted any more."""

    def set_result(self, result: Body, /) -> None:
        """The body of the answer."""

    def set_exception(self, exception: Exception, /) -> None:
        """There will be no answer."""


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    flexible: bool
    answer: asyncio.Future[Body] | AnswerTaker
    sent_at: float
    expires_at: float


class Connection:
    """Requests and answers over one socket; made by :func:`client.connect.open_connection`."""

    def __init__(
        self, address: Address, transport: asyncio.Transport, receiver: FrameReceiver, client_id: str
    ) -> None:
        self.address = address
        self.traffic = receiver.traffic
        self.finalized_features: Mapping[str, int] = {}
        self.finalized_features_epoch = -1
        self.session_lifetime_ms = 0
        """How long the broker takes requests before it wants a new login (KIP-368); 0: for ever."""
        self.last_used = 0.0
        self.on_lost: Callable[[Exception | None], None] = lambda error: None
        """Called once, when the connection has ended for whatever reason."""
        self.on_throttle: Callable[[int], None] = lambda throttle_time_ms: None
        """Called when an answer to :meth:`request` asks to be left alone for so long (KIP-219)."""
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._receiver = receiver
        self._client_id = _nullable_string(client_id)
        self._headers: dict[tuple[int, int], tuple[bytes, bool]] = {}
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 0
        self._first_request = -1
        """The correlation id of the first request behind the greeting."""
        self._versions: dict[int, tuple[int, int]] = {}
        self._failure: Exception | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_at = _NEVER
        receiver.on_frame = self._frame_received
        receiver.on_close = self._closed
        if receiver.closed.done():
            self._fail(None)

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return len(self._in_flight)

    def offers(self, api_key: int) -> bool:
        """Whether the broker has said that it speaks an API."""
        return api_key in self._versions

    def version_of(self, api_key: int, lowest: int, highest: int) -> int | None:
        """The newest version from ``lowest`` to ``highest`` that the broker speaks; None if there is none."""
        known = self._versions.get(api_key)
        if known is None:
            return None
        version = min(highest, known[1])
        return version if version >= max(lowest, known[0]) else None

    def version_for(self, api: type[Payload], max_version: int | None = None) -> int | None:
        """The newest version of an API that both sides speak; None if there is none."""
        own_min, own_max = api.VERSIONS
        return self.version_of(
            api.API_KEY, own_min, own_max if max_version is None else min(own_max, max_version)
        )

    def require_version(self, api_key: int, lowest: int, highest: int) -> int:
        """As :meth:`version_of`, with an error that names the API and the broker where there is none."""
        version = self.version_of(api_key, lowest, highest)
        if version is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} offers no version of {_api_name(api_key)} "
                "that this client speaks",
            )
        return version

    def send(
        self, api_key: int, version: int, parts: Sequence[bytes | bytearray | memoryview], timeout_s: float
    ) -> asyncio.Future[Body]:
        """Send a request whose body is ``parts``, one after another; the future gets the body of the answer.

        Views must be of single bytes, and what they show must stay as it is until the answer is there.
        """
        answer: asyncio.Future[Body] = self._loop.create_future()
        self.send_for(answer, api_key, version, parts, timeout_s)
        return answer

    def send_for(
        self,
        taker: asyncio.Future[Body] | AnswerTaker,
        api_key: int,
        version: int,
        parts: Sequence[bytes | bytearray | memoryview],
        timeout_s: float,
    ) -> None:
        """As :meth:`send`, for somebody who takes the answer as soon as it is there."""
        now = self._loop.time()
        correlation_id, flexible = self._write(api_key, version, parts)
        expires_at = now + timeout_s
        self._in_flight.append(_InFlight(correlation_id, api_key, version, flexible, taker, now, expires_at))
        self.last_used = now
        if expires_at < self._expiry_at:
            self._watch(expires_at)

    def send_only(self, api_key: int, version: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send a request that gets no answer (a Produce with acks=0)."""
        self._write(api_key, version, parts)
        self.last_used = self._loop.time()

    async def request(
        self,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline,
        *,
        max_version: int | None = None,
    ) -> ResponseT:
        """Send a request and wait for its answer.

        ``build`` is the request, or makes it for the negotiated version where versions differ in content.
        """
        version, body = self._encode(build, response_type, max_version)
        answer = await self.send(response_type.API_KEY, version, [body], deadline.remaining)
        response = self.decode(answer, response_type, version)
        throttle_time_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_time_ms > 0:
            self.on_throttle(throttle_time_ms)
        return response

    def tell(
        self, build: Payload | RequestBuilder, api: type[Payload], *, max_version: int | None = None
    ) -> None:
        """Send a request that gets no answer."""
        version, body = self._encode(build, api, max_version)
        self.send_only(api.API_KEY, version, [body])

    def decode(self, body: Body, response_type: type[ResponseT], version: int) -> ResponseT:
        """The message in an answer's body; the error for garbage names the broker."""
        try:
            return decode(response_type, version, body)[0]
        except WireError as error:
            raise self._garbage(response_type.API_KEY, version, error) from error

    async def negotiate(self, deadline: Deadline) -> None:
        """Learn which API versions the broker offers, and which features its cluster has."""
        key = ApiKey.API_VERSIONS
        version = ApiVersionsRequest.VERSIONS[1]
        while True:
            request = ApiVersionsRequest(client_software_name="tidelog", client_software_version=__version__)
            body = await self.send(key, version, [encode(request, version)], deadline.remaining)
            # A broker that does not know this version answers in version 0 and says what it knows.
            refused = int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION
            response = self.decode(body, ApiVersionsResponse, 0 if refused else version)
            known = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            if not refused:
                break
            fallback = known.get(key, (0, 0))[1]
            version = fallback if fallback < version else 0
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"{self.address} refused the handshake")
        self._versions = known
        self._first_request = self._next_correlation_id
        self.finalized_features_epoch = response.finalized_features_epoch
        self.finalized_features = {each.name: each.max_version_level for each in response.finalized_features}
        self._receiver.max_frame_bytes = MAX_RESPONSE_BYTES

    async def close(self) -> None:
        """Close the socket once all is written; requests in flight fail with ``ConnectionLostError``."""
        if self._failure is None:
            self._transport.close()
            self._fail(ConnectionAbortedError("this client closed it"))
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.shield(self._receiver.closed)
        except TimeoutError:
            self._transport.abort()

    def abort(self, error: Exception) -> None:
        """End the connection at once; requests in flight fail because of ``error``."""
        self._closed(error)

    def _encode(
        self, build: Payload | RequestBuilder, api: type[Payload], max_version: int | None
    ) -> tuple[int, bytes]:
        lowest, highest = api.VERSIONS
        if max_version is not None:
            highest = min(highest, max_version)
        version = self.require_version(api.API_KEY, lowest, highest)
        return version, encode(build(version) if callable(build) else build, version)

    def _write(
        self, api_key: int, version: int, parts: Sequence[bytes | bytearray | memoryview]
    ) -> tuple[int, bool]:
        if self._failure is not None:
            raise ConnectionLostError(f"the connection to {self.address} is closed") from self._failure
        known = self._headers.get((api_key, version))
        if known is None:
            known = self._headers[api_key, version] = self._header_of(api_key, version)
        tail, flexible = known
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        size = 8 + len(tail) + sum(map(len, parts))
        header = _SIZED_HEADER.pack(size, api_key, version, correlation_id) + tail
        if size < _JOINED_BYTES:
            self._transport.write(b"".join((header, *parts)))
        else:
            self._transport.writelines((header, *parts))
        size += 4
        sent = self.traffic.sent
        sent.count += 1
        sent.total += size
        if size > sent.longest:
            sent.longest = size
        return correlation_id, flexible

    def _header_of(self, api_key: int, version: int) -> tuple[bytes, bool]:
        """What follows the correlation id in this version, and whether the answer's header has tags."""
        tags = b"\x00" if request_header_version(api_key, version) == 2 else b""
        return self._client_id + tags, response_header_version(api_key, version) == 1

    def _frame_received(self, view: memoryview, start: int, stop: int, owned: bool) -> None:
        if not self._in_flight:
            self._closed(WireError("it sent an answer that nobody asked for"))
            return
        asked = self._in_flight[0]
        if stop - start < 4 or _CORRELATION_ID.unpack_from(view, start)[0] != asked.correlation_id:
            self._closed(WireError("it sent an answer to another request"))
            return
        start += 4
        if asked.flexible:
            try:
                start = start + 1 if view[start] == 0 else skip_tags(view[:stop], start)
            except (WireError, IndexError):
                self._closed(WireError("it sent an answer that ends within its header"))
                return
        self._in_flight.popleft()
        self.last_used = now = self._loop.time()
        traffic = self.traffic
        traffic.responses += 1
        traffic.latency_ms.record((now - asked.sent_at) * 1000)
        if not asked.answer.done():
            asked.answer.set_result(view[start:stop] if owned else bytes(view[start:stop]))

    def _watch(self, expires_at: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = expires_at
        self._expiry = self._loop.call_at(expires_at, self._expire)

    def _expire(self) -> None:
        self._expiry, self._expiry_at = None, _NEVER
        now = self._loop.time()
        overdue = [each for each in self._in_flight if each.expires_at <= now]
        if not overdue:
            if self._in_flight:
                self._watch(min(each.expires_at for each in self._in_flight))
            return
        for each in overdue:
            error = RequestTimeoutError(
                f"{self.address} has not answered {_api_name(each.api_key)} within "
                f"{each.expires_at - each.sent_at:.3g} s"
            )
            if not each.answer.done():
                each.answer.set_exception(error)
        self._closed(error)

    def _closed(self, error: Exception | None) -> None:
        if self._failure is None:
            self._transport.abort()
        self._fail(error)

    def _fail(self, error: Exception | None) -> None:
        if self._failure is not None:
            return
        self._failure = error or ConnectionResetError("closed")
        if self._expiry is not None:
            self._expiry.cancel()
        while self._in_flight:
            asked = self._in_flight.popleft()
            if not asked.answer.done():
                lost = ConnectionLostError(
                    f"the connection to {self.address} was lost while {_api_name(asked.api_key)} "
                    f"waited for its answer: {reason(error)}"
                    f"{_REQUIRES_LOGIN if asked.correlation_id == self._first_request else ''}"
                )
                lost.__cause__ = error
                asked.answer.set_exception(lost)
        self.on_lost(error)

    def _garbage(self, api_key: int, version: int, error: WireError) -> WireError:
        return WireError(f"{self.address} answered {_api_name(api_key)} v{version} with garbage: {error}")


def reason(error: Exception | None) -> str:
    """Why a connection ended or never began, in words for a person."""
    if error is None:
        return "the broker closed it"
    if isinstance(error, OSError):
        alert = getattr(error, "reason", None)
        if isinstance(alert, str):
            # An error of TLS, whose number is not the system's.
            return f"TLS: {alert.lower().replace('_', ' ')}"
        # asyncio joins the failures of several addresses of one name into a text of its own.
        number = error.errno or ((found := re.search(r"Errno (\d+)", str(error))) and int(found[1]))
        if number:
            return os.strerror(number).lower()
    return str(error) or type(error).__name__


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API {api_key}"


def _nullable_string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 0x7FFF:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "client.id is longer than 32767 bytes; shorten it")
    return len(raw).to_bytes(2, "big") + raw
