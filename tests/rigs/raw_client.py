"""The smallest client there is: one socket, frames out, frames in.

    with RawClient(broker.host, broker.port) as client:
        response = client.request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        client.send(b"garbage")
        assert client.is_closed()

For tests that need a certain version, a broken request, or to see bytes as they are. It blocks, with a
deadline.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TypeVar

from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import RequestHeader, encode_request, parse_response_header
from tidelog.wire.schema import Payload

TIMEOUT_S = 30.0

P = TypeVar("P", bound=Payload)


class RawClient:
    """A connection to a broker."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None = "raw",
        timeout_s: float = TIMEOUT_S,
        source: str | None = None,
    ) -> None:
        """``source`` is the address that the broker sees the client at."""
        self.client_id = client_id
        source_address = None if source is None else (source, 0)
        self.sock = socket.create_connection((host, port), timeout_s, source_address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()

    def request(self, key: ApiKey, version: int, message: Payload) -> Payload:
        """Send a request and read its response."""
        correlation_id = self.send_request(key, version, message)
        frame = self.receive()
        got, pos = parse_response_header(key, version, frame)
        assert got == correlation_id, f"answer {got} came in place of answer {correlation_id}"
        response, _ = decode(API_TABLE[key].response, version, frame, pos)
        return response

    def ask(self, version: int, message: Payload, response: type[P]) -> P:
        """The same for callers who know the classes: the response comes as one of ``response``."""
        found = self.request(ApiKey(message.API_KEY), version, message)
        assert isinstance(found, response)
        return found

    def send_request(self, key: ApiKey, version: int, message: Payload) -> int:
        """Send a request and return its correlation id."""
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, self.client_id)
        self.sock.sendall(encode_request(header, message))
        return self._correlation_id

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Send ``body`` with its size before it."""
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def receive(self) -> bytes:
        """The next frame, without its size; ``ConnectionError`` when the broker closes instead."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Whether the broker has closed the connection: waits for it, and fails on any data before that."""
        try:
            data = self.sock.recv(1)
        except ConnectionError:
            return True
        assert data == b"", "the broker answered"
        return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.sock.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return bytes(data)
