"""One TCP connection to one broker.

Owns the socket, the negotiated API versions and the requests in flight. A broker answers a connection's
requests in order, so an answer belongs to the oldest request; a request that times out therefore closes
the connection, as Kafka's clients do. Every future in flight ends with a result or an error, whatever
happens to the socket. ``client.cluster`` opens connections and decides where requests go.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import tidelog
from tidelog.client.address import Address
from tidelog.client.errors import BrokerUnreachableError, ConnectionLostError, RequestTimeoutError
from tidelog.client.retry import Deadline
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.frames import split_frames
from tidelog.wire.headers import RequestHeader, encode_request, parse_response_header
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.schema import Payload

ResponseT = TypeVar("ResponseT", bound=Payload)
RequestBuilder = Callable[[int], Payload]

MAX_RESPONSE_BYTES = 1 << 30
_CLOSE_TIMEOUT_S = 5.0


class _InFlight(NamedTuple):
    correlation_id: int
    answer: asyncio.Future[bytes]


class _Receiver(asyncio.Protocol):
    """Turns the socket's bytes into frames and hands them to the connection."""

    def __init__(self) -> None:
        self.on_frame: Callable[[bytes], None] = lambda frame: None
        self.on_close: Callable[[Exception | None], None] = lambda error: None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            with memoryview(self._received) as view:
                views, taken = split_frames(view, MAX_RESPONSE_BYTES)
                frames = [bytes(frame) for frame in views]
                for each in views:
                    each.release()
        except WireError as error:
            self.on_close(error)
            return
        del self._received[:taken]
        for frame in frames:
            self.on_frame(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_close(exc)
        if not self.closed.done():
            self.closed.set_result(None)


class Connection:
    """Requests and answers over one socket; made by :meth:`open`."""

    def __init__(
        self, address: Address, transport: asyncio.Transport, receiver: _Receiver, client_id: str
    ) -> None:
        self.address = address
        self._transport = transport
        self._receiver = receiver
        self._client_id = client_id
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._failure: Exception | None = None
        receiver.on_frame = self._frame_received
        receiver.on_close = self._closed
        if receiver.closed.done():
            self._fail(None)

    @classmethod
    async def open(cls, address: Address, *, client_id: str, deadline: Deadline) -> Connection:
        """Connect and learn which API versions the broker offers."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline.remaining):
                transport, receiver = await loop.create_connection(_Receiver, address.host, address.port)
        except TimeoutError:
            seconds = deadline.timeout_ms / 1000
            raise _unreachable(address, f"no answer within {seconds:g} s") from None
        except socket.gaierror:
            raise BrokerUnreachableError(
                f"cannot reach {address}: nobody knows the host {address.host!r}; check the address"
            ) from None
        except OSError as error:
            raise _unreachable(address, _reason(error)) from error
        connection = cls(address, transport, receiver, client_id)
        try:
            await connection._negotiate(deadline)
        except ConnectionLostError as error:
            await connection.close()
            raise BrokerUnreachableError(
                f"{address} accepts connections but does not answer as a Kafka broker does; "
                "is it a Kafka listener without TLS and SASL?"
            ) from error
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._failure is None

    def version_for(self, api: type[Payload], max_version: int | None = None) -> int | None:
        """The newest version of an API that both sides speak; None if there is none."""
        if api.API_KEY not in self._versions:
            return None
        broker_min, broker_max = self._versions[api.API_KEY]
        own_min, own_max = api.VERSIONS
        version = min(own_max, broker_max, own_max if max_version is None else max_version)
        return version if version >= max(own_min, broker_min) else None

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
        version = self._require_version(response_type, max_version)
        answer = self._send(build(version) if callable(build) else build, version)
        frame = await self._wait_for(answer, ApiKey(response_type.API_KEY), deadline)
        return self._decode(frame, response_type, version)

    def send_only(
        self, build: Payload | RequestBuilder, api: type[Payload], *, max_version: int | None = None
    ) -> None:
        """Send a request that gets no answer (a Produce with acks=0)."""
        version = self._require_version(api, max_version)
        self._write(build(version) if callable(build) else build, version)

    async def close(self) -> None:
        """Close the socket once all is written; requests in flight fail with ``ConnectionLostError``."""
        if self._failure is None:
            self._transport.close()
            self._fail(None)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._receiver.closed
        except TimeoutError:
            self._transport.abort()

    async def _negotiate(self, deadline: Deadline) -> None:
        key = ApiKey.API_VERSIONS
        version = ApiVersionsRequest.VERSIONS[1]
        while True:
            request = ApiVersionsRequest(
                client_software_name="tidelog", client_software_version=tidelog.__version__
            )
            frame = await self._wait_for(self._send(request, version), key, deadline)
            # A broker that does not know this version answers in version 0 and says what it knows.
            refused = int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
            response = self._decode(frame, ApiVersionsResponse, 0 if refused else version)
            known = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            if not refused:
                break
            fallback = known.get(key, (0, 0))[1]
            version = fallback if fallback < version else 0
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"{self.address} refused the handshake")
        self._versions = known

    def _require_version(self, api: type[Payload], max_version: int | None) -> int:
        version = self.version_for(api, max_version)
        if version is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} offers no version of {ApiKey(api.API_KEY).name} "
                "that this client speaks",
            )
        return version

    def _send(self, request: Payload, version: int) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._in_flight.append(_InFlight(self._write(request, version), answer))
        return answer

    def _write(self, request: Payload, version: int) -> int:
        if self._failure is not None:
            raise ConnectionLostError(f"the connection to {self.address} is closed") from self._failure
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(request.API_KEY, version, correlation_id, self._client_id)
        self._transport.write(encode_request(header, request))
        return correlation_id

    async def _wait_for(self, answer: asyncio.Future[bytes], key: ApiKey, deadline: Deadline) -> bytes:
        try:
            async with asyncio.timeout(deadline.remaining):
                return await answer
        except TimeoutError:
            error = RequestTimeoutError(
                f"{self.address} has not answered {key.name} within {deadline.timeout_ms / 1000:g} s"
            )
            self._closed(error)
            raise error from None

    def _decode(self, frame: bytes, response_type: type[ResponseT], version: int) -> ResponseT:
        key = ApiKey(response_type.API_KEY)
        try:
            _, position = parse_response_header(key, version, frame)
            return decode(response_type, version, frame, position)[0]
        except WireError as error:
            raise WireError(f"{self.address} answered {key.name} v{version} with garbage: {error}") from error

    def _frame_received(self, frame: bytes) -> None:
        if not self._in_flight:
            self._closed(WireError("an answer that nobody asked for"))
            return
        correlation_id, answer = self._in_flight.popleft()
        if len(frame) < 4 or int.from_bytes(frame[:4], "big") != correlation_id:
            self._in_flight.appendleft(_InFlight(correlation_id, answer))
            self._closed(WireError("an answer to another request"))
            return
        if not answer.done():
            answer.set_result(frame)

    def _closed(self, error: Exception | None) -> None:
        if self._failure is None:
            self._transport.abort()
        self._fail(error)

    def _fail(self, error: Exception | None) -> None:
        self._failure = self._failure or error or ConnectionResetError("closed")
        while self._in_flight:
            answer = self._in_flight.popleft().answer
            if not answer.done():
                lost = ConnectionLostError(f"the connection to {self.address} was lost: {_reason(error)}")
                lost.__cause__ = error
                answer.set_exception(lost)


def _unreachable(address: Address, reason: str) -> BrokerUnreachableError:
    return BrokerUnreachableError(
        f"cannot reach {address}: {reason}; is the broker running? try `tidelog start`"
    )


def _reason(error: Exception | None) -> str:
    if error is None:
        return "it was closed"
    if isinstance(error, OSError):
        # asyncio joins the failures of several addresses of one name into a text of its own.
        number = error.errno or ((found := re.search(r"Errno (\d+)", str(error))) and int(found[1]))
        if number:
            return os.strerror(number).lower()
    return str(error) or type(error).__name__
