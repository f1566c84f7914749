"""The load generator: prebuilt requests over a few connections, some in flight on each, answers counted.

It does as little as Python can, so that the broker is what is measured; the broker's CPU comes from its
process clock and does not depend on the generator at all.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import wire

_SIZE = struct.Struct(">i")
RECEIVE_BYTES = 1 << 20


@dataclass
class Load:
    """What was asked and how long it took."""

    requests: int
    answer_bytes: int
    seconds: float


class _Lane:
    """One connection: keeps `in_flight` requests under way until its list is used up."""

    def __init__(self, port: int, requests: Sequence[bytes], in_flight: int, error_at: int) -> None:
        self.connection = wire.connect(port)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._requests = requests
        self._in_flight = in_flight
        self._error_at = error_at
        self._sent = 0
        self._buffer = bytearray(RECEIVE_BYTES)
        self._head = bytearray()  # the size and, up to the error code, the first bytes of an answer
        self._rest = 0  # bytes of the present answer that are still to come
        self.answered = 0
        self.answer_bytes = 0

    @property
    def done(self) -> bool:
        return self.answered == len(self._requests)

    def send(self) -> None:
        allowed = min(len(self._requests), self.answered + self._in_flight)
        if allowed > self._sent:
            self.connection.sendall(b"".join(self._requests[self._sent : allowed]))
            self._sent = allowed

    def receive(self) -> None:
        received = self.connection.recv_into(self._buffer)
        if not received:
            raise ConnectionError("the broker closed a connection under load")
        self.answer_bytes += received
        position = 0
        head_size = 4 + self._error_at + 2
        while position < received:
            if self._rest:
                step = min(self._rest, received - position)
                self._rest -= step
                position += step
                if not self._rest:
                    self.answered += 1
                continue
            take = min(head_size - len(self._head), received - position)
            self._head += self._buffer[position : position + take]
            position += take
            if len(self._head) == head_size:
                self._rest = 4 + _SIZE.unpack_from(self._head)[0] - head_size
                error = self._head[head_size - 2 :]
                if error != b"\x00\x00":
                    raise RuntimeError(
                        f"the broker answers error {int.from_bytes(error, 'big', signed=True)}"
                    )
                self._head.clear()


def run(port: int, lanes: Sequence[Sequence[bytes]], in_flight: int, error_at: int) -> Load:
    """Send all requests of all lanes; each lane is a connection of its own."""
    selector = selectors.DefaultSelector()
    open_lanes = [_Lane(port, requests, in_flight, error_at) for requests in lanes]
    for lane in open_lanes:
        selector.register(lane.connection, selectors.EVENT_READ, lane)
    started = time.perf_counter()
    for lane in open_lanes:
        lane.send()
    unfinished = len(open_lanes)
    while unfinished:
        ready = selector.select(timeout=30)
        if not ready:
            raise TimeoutError("no answer within 30 s")
        for key, _ in ready:
            lane = key.data
            lane.receive()
            if lane.done:
                selector.unregister(lane.connection)
                unfinished -= 1
            else:
                lane.send()
    seconds = time.perf_counter() - started
    for lane in open_lanes:
        lane.connection.close()
    return Load(sum(map(len, lanes)), sum(lane.answer_bytes for lane in open_lanes), seconds)
