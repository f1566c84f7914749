"""Attacks on a broker, until an event is set: those of the benchmark `neighbour`, and crowds, for `attacks`.

Each is a function that attacks the broker at a port while an event is not set. All of them are cheap for the
attacker, who shares the machine: what is sent was built before. Crowds come from addresses of the loopback
network, are bounded in number, and count how often they have done what they are about.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarks import wire
from benchmarks.newcomer_probe import sasl_handshake, sasl_token

LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 7
METADATA, METADATA_VERSION = 3, 12
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72
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


class Stop(Protocol):
    """An event, of threads or of processes."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Count(Protocol):
    """How often an attack has done what it is about."""

    value: int


CrowdAttack = Callable[[int, Stop, Count], None]
FORGED_LOGINS = 64
SLOW_READERS = 200
HALF_OPEN = 3000
CLIENT_IDS = 200_000
PIPELINING = 16
_FROM_ADDRESSES = 30


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


def forged_logins(tokens: Sequence[str]) -> CrowdAttack:
    """Clients that log in with forged tokens, each naming another key of the issuer, again and again."""

    def attack(port: int, stop: Stop, count: Count) -> None:
        def log_in(first: int) -> None:
            number = first
            while not stop.is_set():
                with contextlib.suppress(OSError), wire.connect(port, _PATIENCE_S, _address(first)) as peer:
                    wire.ask(peer, sasl_handshake("OAUTHBEARER"))
                    wire.ask(peer, sasl_token(tokens[number % len(tokens)]))
                    number += FORGED_LOGINS
                    count.value += 1

        _in_threads(FORGED_LOGINS, log_in)

    return attack


def client_ids(topic_id: bytes) -> CrowdAttack:
    """Two hundred thousand client ids: each produces, fetches or asks for its telemetry subscriptions."""

    def attack(port: int, stop: Stop, count: Count) -> None:
        record = bytes(wire.batch(1, 10))

        def request_of(number: int) -> bytes:
            client_id = f"client-{number}"
            if number % 3 == 0:
                return wire.produce_request(topic_id, 0, record, client_id=client_id)
            if number % 3 == 1:
                return wire.fetch_request(topic_id, 0, 0, 100, client_id=client_id)
            return wire.frame(GET_TELEMETRY_SUBSCRIPTIONS, 0, bytes(17), client_id)

        with wire.connect(port, 10 * _PATIENCE_S, _address(0)) as peer:
            for first in range(0, CLIENT_IDS, _FRAMES_AT_ONCE):
                if stop.is_set():
                    return
                numbers = range(first, min(first + _FRAMES_AT_ONCE, CLIENT_IDS))
                peer.sendall(b"".join(map(request_of, numbers)))
                for _ in numbers:
                    wire.read_exactly(peer, int.from_bytes(wire.read_exactly(peer, 4), "big"))
                count.value += len(numbers)
        stop.wait()

    return attack


def slow_readers(topic_id: bytes) -> CrowdAttack:
    """Two hundred clients that fetch fifty megabytes at a time, four times, and read a byte now and then."""

    def attack(port: int, stop: Stop, count: Count) -> None:
        request = wire.fetch_request(topic_id, 0, 0, 50 * 1024 * 1024) * 4
        with contextlib.ExitStack() as stack:
            peers = []
            for number in range(SLOW_READERS):
                peer = stack.enter_context(wire.connect(port, _PATIENCE_S, _address(number)))
                peer.sendall(request)
                peers.append(peer)
            while not stop.wait(_AGAIN_AFTER_S):
                for peer in peers:
                    with contextlib.suppress(OSError):
                        count.value += len(peer.recv(1))

    return attack


def half_open_handshakes(port: int, stop: Stop, count: Count) -> None:
    """Three thousand clients that begin a TLS handshake and stop; those turned away come again."""
    hello = _client_hello()
    peers: list[socket.socket] = []
    try:
        while not stop.is_set():
            for number in range(HALF_OPEN):
                if stop.is_set():
                    return
                if number < len(peers) and not _is_closed(peers[number]):
                    continue
                with contextlib.suppress(OSError):
                    peer = wire.connect(port, _PATIENCE_S, _address(number))
                    peer.sendall(hello[: len(hello) // 2])
                    count.value += 1
                    if number < len(peers):
                        peers[number].close()
                        peers[number] = peer
                    else:
                        peers.append(peer)
            stop.wait(_PAUSE_S)
    finally:
        for peer in peers:
            peer.close()


def pipelined_scrapes(port: int, stop: Stop, count: Count) -> None:
    """Two addresses, each with sixteen connections that ask for the metrics without end and read them."""
    requests = b"GET /metrics HTTP/1.1\r\n\r\n" * _FRAMES_AT_ONCE

    def scrape(number: int) -> None:
        while not stop.is_set():
            with (
                contextlib.suppress(OSError),
                wire.connect(port, _PATIENCE_S, _address(number % 2)) as peer,
            ):
                peer.sendall(requests)
                while not stop.is_set() and peer.recv(1 << 18):
                    count.value += 1

    _in_threads(2 * PIPELINING, scrape)


def huge_pushes(port: int, stop: Stop, count: Count) -> None:
    """Four clients that push a hundred megabytes of telemetry again and again."""
    size = 100 * 1024 * 1024 - 1024
    begun = struct.pack(">ihhihb", size, PUSH_TELEMETRY, 0, 1, -1, 0)
    begun += bytes(16) + struct.pack(">ibb", 0, 0, 0) + wire.unsigned_varint(size - 100)
    megabyte = bytes(1024 * 1024)

    def push(number: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), wire.connect(port, _PATIENCE_S, _address(number)) as peer:
                peer.sendall(begun)
                left = size + 4 - len(begun)
                while left and not stop.is_set():
                    sent = peer.send(megabyte[: min(left, len(megabyte))])
                    left -= sent
                    count.value += sent
                peer.recv(1)
            stop.wait(_PAUSE_S)

    _in_threads(4, push)


def _in_threads(number: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _address(number: int) -> str:
    """One of thirty addresses of the loopback network, none of which other clients use."""
    return f"127.0.0.{2 + number % _FROM_ADDRESSES}"


def _is_closed(peer: socket.socket) -> bool:
    try:
        return not peer.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


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
