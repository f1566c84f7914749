"""What a bad peer does to a broker, until it is told to stop: the attacks of the benchmark `neighbour`.

Each is a function that attacks the broker at a port while an event is not set. All of them are cheap for the
attacker, who shares the machine: what is sent was built before.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable

from benchmarks import wire

LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 7
METADATA, METADATA_VERSION = 3, 12
PEERS = 100
HALF_SENT = 2000
DECLARED_BYTES, SENT_BYTES = 1_000_000, 100_000
_FRAMES_AT_ONCE = 64
_AGAIN_AFTER_S = 0.5
_PAUSE_S = 0.005
_PATIENCE_S = 1.0

METADATA_REQUEST = wire.frame(METADATA, METADATA_VERSION, bytes(4))
"""All topics, none of them made by asking, nothing of who may do what."""

Attack = Callable[[int, threading.Event], None]


def repeating(request: bytes) -> Attack:
    """One peer that asks the same again as soon as it has its answer."""

    def attack(port: int, stop: threading.Event) -> None:
        while not stop.is_set():
            # A broker that refuses may close the connection, one that stands still accepts none.
            with contextlib.suppress(OSError), wire.connect(port, _PATIENCE_S) as connection:
                while not stop.is_set():
                    connection.settimeout(_PATIENCE_S)
                    connection.sendall(request)
                    if not _answered(connection, stop):
                        return
            stop.wait(_PAUSE_S)

    return attack


def unread_metadata(port: int, stop: threading.Event) -> None:
    """A hundred peers that ask for all topics without end and read no answer; who is held up comes anew."""
    frames = METADATA_REQUEST * _FRAMES_AT_ONCE
    with contextlib.ExitStack() as stack:
        peers = [_Flood(port, frames) for _ in range(PEERS)]
        for peer in peers:
            stack.callback(peer.close)
        while not stop.is_set():
            moved = [peer.push() for peer in peers]
            if not any(moved):
                stop.wait(_PAUSE_S)


def half_sent_frames(port: int, stop: threading.Event) -> None:
    """Two thousand peers that announce a megabyte, send a tenth of it and wait."""
    begun = struct.pack(">i", DECLARED_BYTES) + bytes(SENT_BYTES)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        for _ in range(HALF_SENT):
            if stop.is_set():
                return
            # One that the broker has no room for is refused, which is its good right.
            with contextlib.suppress(OSError):
                connection = stack.enter_context(wire.connect(port, _PATIENCE_S))
                connection.sendall(begun)
        stop.wait()


def list_offsets_request(topic: str, timestamp_ms: int) -> bytes:
    """Which offset has the first record of partition 0 that is as new as this?"""
    partition = struct.pack(">iiq", 0, -1, timestamp_ms) + b"\x00"
    wanted = wire.unsigned_varint(len(topic) + 1) + topic.encode() + b"\x02" + partition + b"\x00"
    body = struct.pack(">ib", -1, 0) + b"\x02" + wanted + b"\x00"
    return wire.frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, body)


class _Flood:
    """A peer that writes as much as it can and reads nothing."""

    def __init__(self, port: int, frames: bytes) -> None:
        self._port = port
        self._frames = frames
        self._connect()

    def _connect(self) -> None:
        self._connection = socket.socket()
        self._connection.setblocking(False)
        # In the background: a broker that stands still accepts nobody, and must not hold up the others.
        self._connection.connect_ex(("127.0.0.1", self._port))
        self._rest = memoryview(self._frames)
        self._moved_at = time.monotonic()

    def push(self) -> bool:
        """Whether anything could be written."""
        try:
            sent = self._connection.send(self._rest)
        except OSError:  # full, closed by the broker, or not connected yet
            if time.monotonic() - self._moved_at > _AGAIN_AFTER_S:
                self.close()
                self._connect()
            return False
        # Frames are kept whole over several sends.
        self._rest = self._rest[sent:] or memoryview(self._frames)
        self._moved_at = time.monotonic()
        return True

    def close(self) -> None:
        self._connection.close()


def _answered(connection: socket.socket, stop: threading.Event) -> bool:
    """Wait for an answer, however long it takes, but not longer than the attack does."""
    connection.settimeout(0.1)
    wanted = 4
    received = b""
    while len(received) < wanted:
        if stop.is_set():
            return False
        try:
            chunk = connection.recv(1 << 16)
        except TimeoutError:
            continue
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
        if len(received) >= 4:
            wanted = 4 + int.from_bytes(received[:4], "big")
    return True
