"""Connections over real socket pairs: order of answers, muting, bounds, large and broken frames."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tidelog.broker.network import connection as connection_module
from tidelog.broker.network.answer import (
    NO_ANSWER,
    HandlerResult,
    NotAnswerable,
    PromisedAnswer,
    StagedAnswer,
)
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.network.inbox import RECEIVE_BUFFER_BYTES
from tidelog.broker.network.network import Network, NetworkLimits
from tidelog.errors import WireError
from tidelog.scheduling.promise import Promise
from tidelog.storage.disk import REAL_DISK, LogFile
from tidelog.wire.fetch import FileRange

DEADLINE_S = 60.0
LISTENER = "PLAINTEXT"


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Staged(StagedAnswer):
    def __init__(self, handler: Scripted, body: bytes) -> None:
        self.handler = handler
        self.body = body
        self.refused = body[:1] == b"r"

    def settle(self) -> bytes:
        assert self.body in self.handler.committed
        if self.body[:1] == b"d":
            self.refused = True
        return frame(self.body)


class Scripted:
    """Answers by the first byte of the request: echo, stage, refuse when staged or when written (disk),
    wait, say nothing, send a file, break."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.pending: list[PromisedAnswer] = []
        self.staged: list[bytes] = []
        self.committed: list[bytes] = []
        self.commits = 0
        self.cancelled = 0
        self.file = FileRange(-1, 0, 0)

    def handle(self, connection: Connection, frame_: memoryview) -> HandlerResult:
        body = bytes(frame_)
        self.seen.append(body)
        match body[:1]:
            case b"s" | b"r" | b"d":
                self.staged.append(body)
                return Staged(self, body)
            case b"w" | b"p":
                self.pending.append(Promise(self._cancel, pipelined=body[:1] == b"p"))
                return self.pending[-1]
            case b"n":
                return NO_ANSWER
            case b"f":
                return [struct.pack(">i", self.file.length), self.file]
            case b"x":
                raise WireError("nonsense")
            case b"b":
                raise ZeroDivisionError
            case b"m":
                return frame(bytes(1024 * 1024))
        self.commit()
        return frame(body)

    def commit(self) -> None:
        if self.staged:
            self.commits += 1
            self.committed += self.staged
            self.staged.clear()

    def _cancel(self) -> None:
        self.cancelled += 1


class Bench:
    """One network, one handler and the peers' ends of its connections."""

    def __init__(self, limits: NetworkLimits | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.handler = Scripted()
        self.network = Network(self.handler, self.loop, limits)

    def connect(self) -> tuple[Connection, socket.socket]:
        ours, peer = socket.socketpair()
        peer.setblocking(False)
        assert self.network.quotas.admit(LISTENER, "10.0.0.1")
        return self.network.adopt(ours, ("10.0.0.1", 1), LISTENER), peer

    def serve_file(self, path: Path, position: int, length: int) -> None:
        """Have ``f`` answered with a range of a file that only the range holds open."""
        file = LogFile(os.open(path, os.O_RDONLY), REAL_DISK)
        self.handler.file = FileRange(file.fd, position, length, file)

    async def receive(self, peer: socket.socket, count: int = 1) -> list[bytes]:
        """The next ``count`` frames."""
        bodies = []
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(count):
                (size,) = struct.unpack(">i", await self._exactly(peer, 4))
                bodies.append(await self._exactly(peer, size))
        return bodies

    async def _exactly(self, peer: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = await self.loop.sock_recv(peer, size - len(data))
            assert chunk, "the broker closed the connection"
            data += chunk
        return data

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def wait_closed(self, peer: socket.socket) -> None:
        async with asyncio.timeout(DEADLINE_S):
            try:
                while await self.loop.sock_recv(peer, 65536):
                    pass
            except ConnectionError:
                pass

    async def send(self, peer: socket.socket, data: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.loop.sock_sendall(peer, data)


def run(test: Callable[[Bench], Awaitable[None]], limits: NetworkLimits | None = None) -> None:
    async def body() -> None:
        bench = Bench(limits)
        try:
            await test(bench)
        finally:
            bench.network.close()
            assert bench.network.memory.reserved_bytes == 0
            assert bench.network.quotas.total == 0

    asyncio.run(body())


def test_frames_that_arrive_together_are_answered_in_order() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, b"".join(frame(b"e%d" % n) for n in range(100)))
        assert await bench.receive(peer, 100) == [b"e%d" % n for n in range(100)]

    run(test)


@pytest.mark.parametrize("size", [0, 1, 70_000, RECEIVE_BUFFER_BYTES + 1, 3_000_000])
def test_a_frame_that_arrives_in_pieces_is_put_together(size: int) -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        body = b"e" + os.urandom(size)
        data = frame(b"e-before") + frame(body) + frame(b"e-after")
        step = max(1, len(data) // 7)
        for start in range(0, len(data), step):
            await bench.send(peer, data[start : start + step])
            await asyncio.sleep(0)
        assert await bench.receive(peer, 3) == [b"e-before", body, b"e-after"]

    run(test)


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, what comes together is handled in one turn."""
    monkeypatch.setattr(connection_module, "_TURN_S", 600.0)


@pytest.mark.usefixtures("long_turns")
def test_staged_requests_of_one_event_are_committed_once() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, frame(b"s1") + frame(b"s2") + frame(b"s3"))
        assert await bench.receive(peer, 3) == [b"s1", b"s2", b"s3"]
        assert bench.handler.commits == 1

    run(test)


@pytest.mark.usefixtures("long_turns")
def test_staged_requests_are_committed_before_the_request_behind_them_is_answered() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, frame(b"s1") + frame(b"e") + frame(b"s2") + frame(b"n") + frame(b"e"))
        assert await bench.receive(peer, 4) == [b"s1", b"e", b"s2", b"e"]
        assert bench.handler.commits == 2

    run(test)


def test_staged_requests_are_committed_although_the_request_behind_them_is_broken() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, frame(b"s1") + frame(b"x"))
        assert await bench.receive(peer) == [b"s1"]
        await bench.wait_closed(peer)
        assert bench.handler.committed == [b"s1"]

    run(test)


def test_a_waiting_request_holds_back_those_behind_it() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"w") + frame(b"e1") + frame(b"e2"))
        await bench.wait_until(lambda: len(bench.handler.pending) == 1)
        assert bench.handler.seen == [b"w"]
        await bench.send(peer, frame(b"e3"))
        await bench.wait_until(lambda: connection.muted)
        bench.handler.pending[0].resolve(frame(b"late"))
        assert await bench.receive(peer, 4) == [b"late", b"e1", b"e2", b"e3"]
        assert not connection.muted

    run(test)


def test_pipelined_requests_are_handled_at_once_and_answered_in_order() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, frame(b"p1") + frame(b"p2") + frame(b"e") + frame(b"n") + frame(b"s"))
        await bench.wait_until(lambda: len(bench.handler.seen) == 5)
        bench.handler.pending[1].resolve(frame(b"second"))
        bench.handler.pending[0].resolve(frame(b"first"))
        assert await bench.receive(peer, 4) == [b"first", b"second", b"e", b"s"]

    run(test)


@pytest.mark.parametrize("kind", [b"r", b"d"])
def test_a_request_that_is_refused_behind_one_that_waits_holds_back_those_behind_it(kind: bytes) -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"p") + frame(kind))
        await bench.wait_until(lambda: bench.handler.seen == [b"p", kind])
        await bench.send(peer, frame(b"s1") + frame(b"s2"))
        await bench.wait_until(lambda: connection.muted)
        assert bench.handler.seen == [b"p", kind]
        bench.handler.pending[0].resolve(frame(b"first"))
        assert await bench.receive(peer, 4) == [b"first", kind, b"s1", b"s2"]
        assert not connection.muted

    run(test)


def test_a_refusal_ends_the_requests_that_are_staged_together() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, frame(b"p") + frame(b"s1") + frame(b"r") + frame(b"s2"))
        await bench.wait_until(lambda: len(bench.handler.committed) == 2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.handler.seen == [b"p", b"s1", b"r"]
        bench.handler.pending[0].resolve(frame(b"first"))
        assert await bench.receive(peer, 4) == [b"first", b"s1", b"r", b"s2"]
        assert bench.handler.committed == [b"s1", b"r", b"s2"]

    run(test)


def test_a_refusal_that_nothing_is_before_is_answered_before_the_next_request_is_handled() -> None:
    async def test(bench: Bench) -> None:
        answered: list[bytes] = []
        handle = bench.handler.handle

        def spy(connection: Connection, frame_: memoryview) -> HandlerResult:
            if bytes(frame_) == b"s2":
                answered.append(peer.recv(100))
            return handle(connection, frame_)

        bench.handler.handle = spy  # type: ignore[method-assign]
        _, peer = bench.connect()
        await bench.send(peer, frame(b"s1") + frame(b"r") + frame(b"s2"))
        assert await bench.receive(peer, 1) == [b"s2"]
        assert answered == [frame(b"s1") + frame(b"r")]

    run(test)


def test_one_that_is_refused_late_holds_back_those_that_come_then() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"p1") + frame(b"p2") + frame(b"p3"))
        await bench.wait_until(lambda: len(bench.handler.pending) == 3)
        bench.handler.pending[1].pipelined = False
        bench.handler.pending[1].resolve(frame(b"refused"))
        await bench.send(peer, frame(b"e"))
        await bench.wait_until(lambda: connection.muted)
        bench.handler.pending[0].resolve(frame(b"first"))
        assert await bench.receive(peer, 2) == [b"first", b"refused"]
        await bench.wait_until(lambda: bench.handler.seen[-1] == b"e")
        bench.handler.pending[2].resolve(frame(b"third"))
        assert await bench.receive(peer, 2) == [b"third", b"e"]

    run(test)


def test_a_large_answer_behind_one_that_waits_holds_back_the_requests_behind_it() -> None:
    """Otherwise one small request after the other would fill the memory with answers that cannot leave."""

    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, frame(b"p") + frame(b"m") * 50)
        await bench.wait_until(lambda: len(bench.handler.seen) > 1)
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.handler.seen == [b"p", b"m"]
        bench.handler.pending[0].resolve(frame(b"first"))
        first, *large = await bench.receive(peer, 51)
        assert first == b"first"
        assert [len(answer) for answer in large] == [1024 * 1024] * 50

    run(test)


def test_the_number_of_pipelined_requests_is_bounded() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"p") * 1000)
        await bench.wait_until(lambda: len(bench.handler.pending) > 0)
        await bench.send(peer, frame(b"e"))
        await bench.wait_until(lambda: connection.muted)
        assert len(bench.handler.pending) < 100
        answered = 0
        while answered < 1000:
            under_way = bench.handler.pending[answered:]
            for pending in under_way:
                pending.resolve(frame(b"a"))
            assert await bench.receive(peer, len(under_way)) == [b"a"] * len(under_way)
            answered += len(under_way)
            await asyncio.sleep(0)
        assert await bench.receive(peer) == [b"e"]

    run(test)


def test_a_wait_is_cancelled_when_its_client_goes_away() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"w"))
        await bench.wait_until(lambda: len(bench.handler.pending) == 1)
        peer.close()
        await bench.wait_until(lambda: connection.closed)
        assert bench.handler.cancelled == 1

    run(test)


def test_an_answer_that_comes_after_the_connection_is_gone_is_dropped() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"w"))
        await bench.wait_until(lambda: len(bench.handler.pending) == 1)
        connection.close()
        bench.handler.pending[0].resolve(frame(b"nobody"))
        assert bench.network.connections == set()

    run(test)


def test_a_pending_request_that_fails_closes_its_connection() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"w"))
        await bench.wait_until(lambda: len(bench.handler.pending) == 1)
        bench.handler.pending[0].fail(NotAnswerable("of a reason"))
        await bench.wait_closed(peer)
        assert connection.closed

    run(test)


@pytest.mark.parametrize(
    "request_", [frame(b"x"), struct.pack(">i", -1), struct.pack(">i", 2**31 - 1), frame(b"b")]
)
def test_what_cannot_be_read_closes_that_connection_alone(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        _, bad = bench.connect()
        _, good = bench.connect()
        await bench.send(bad, frame(b"e1") + request_)
        assert await bench.receive(bad) == [b"e1"]
        await bench.wait_closed(bad)
        await bench.send(good, frame(b"e2"))
        assert await bench.receive(good) == [b"e2"]
        assert len([r for r in caplog.records if "Closing the connection" in r.message]) == 1

    run(test)


def test_a_frame_above_the_limit_is_refused_even_if_it_is_all_there() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        await bench.send(peer, frame(b"e" * 10) + frame(b"e" * 11))
        assert await bench.receive(peer) == [b"e" * 10]
        await bench.wait_closed(peer)
        assert bench.handler.seen == [b"e" * 10]

    run(test, NetworkLimits(max_request_bytes=10))


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        sent = 0
        try:
            while sent < 50_000:
                sent += peer.send(frame(b"m")) // len(frame(b"m"))
                if sent % 100 == 0:
                    await asyncio.sleep(0)
        except BlockingIOError:
            pass
        await bench.wait_until(lambda: connection.muted)
        handled = len(bench.handler.seen)
        _, other = bench.connect()
        for _ in range(10):
            # Meanwhile the loop looks at all that it may read from.
            await bench.send(other, frame(b"e"))
            assert await bench.receive(other) == [b"e"]
        assert bench.handler.seen.count(b"m") == handled < 10
        bodies = await bench.receive(peer, 20)
        assert bodies == [bytes(1024 * 1024)] * 20

    run(test)


def test_files_are_sent_whole_although_the_peer_is_slow_and_the_segment_is_deleted(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        content = os.urandom(2_000_000)
        path = tmp_path / "segment"
        path.write_bytes(content)
        bench.serve_file(path, 100, len(content) - 100)
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"f") + frame(b"e"))
        await bench.wait_until(lambda: connection.busy)
        bench.handler.file = FileRange(-1, 0, 0)
        path.unlink()
        assert await bench.receive(peer, 2) == [content[100:], b"e"]
        assert not connection.busy

    run(test)


def test_descriptors_of_unsent_files_are_closed_with_the_connection(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        path = tmp_path / "segment"
        path.write_bytes(bytes(2_000_000))
        bench.serve_file(path, 0, 2_000_000)
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"f"))
        await bench.wait_until(lambda: connection.busy)
        bench.handler.file = FileRange(-1, 0, 0)
        open_files = open_descriptors()
        connection.close()
        # The connection's socket and the file that nobody else holds any more.
        assert open_descriptors() == open_files - 2

    run(test)


def test_a_file_that_waits_behind_another_answer_is_not_read_into_memory(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        content = os.urandom(2_000_000)
        path = tmp_path / "segment"
        path.write_bytes(content)
        bench.serve_file(path, 0, len(content))
        _, peer = bench.connect()
        await bench.send(peer, frame(b"p") + frame(b"f") + frame(b"f") + frame(b"e"))
        await bench.wait_until(lambda: len(bench.handler.seen) == 4)
        bench.handler.file = FileRange(-1, 0, 0)
        path.unlink()
        bench.handler.pending[0].resolve(frame(b"first"))
        assert await bench.receive(peer, 4) == [b"first", content, content, b"e"]

    run(test)


def test_answers_of_files_and_of_bytes_keep_their_order_when_they_go_together(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        content = os.urandom(100_000)
        path = tmp_path / "segment"
        path.write_bytes(content)
        bench.serve_file(path, 0, len(content))
        _, peer = bench.connect()
        requests = [b"f", b"e1", b"s1", b"f", b"s2", b"m", b"f", b"n", b"e2"] * 3
        await bench.send(peer, b"".join(map(frame, requests)))
        answers = {b"f": content, b"m": bytes(1024 * 1024)}
        expected = [answers.get(body, body) for body in requests if body != b"n"]
        assert await bench.receive(peer, len(expected)) == expected

    run(test)


def test_large_frames_wait_for_memory_in_turn() -> None:
    async def test(bench: Bench) -> None:
        first, peer1 = bench.connect()
        second, peer2 = bench.connect()
        body = b"e" + bytes(300_000)
        await bench.send(peer1, frame(body)[:200_000])
        await bench.wait_until(lambda: bench.network.memory.reserved_bytes > 0)
        await bench.send(peer2, frame(body)[:100_000])
        await bench.wait_until(lambda: bench.network.memory.waiting == 1)
        await bench.send(peer2, frame(body)[100_000:])
        await bench.wait_until(lambda: second.muted)
        await bench.send(peer1, frame(body)[200_000:])
        assert await bench.receive(peer1) == [body]
        assert await bench.receive(peer2) == [body]
        assert bench.network.memory.reserved_bytes == 0
        assert not first.muted

    run(test, NetworkLimits(queued_request_bytes=200_000))


def test_an_announced_frame_takes_memory_only_as_it_arrives() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, struct.pack(">i", 90_000_000) + bytes(1000))
        await bench.wait_until(lambda: bench.network.memory.reserved_bytes == 90_000_000)
        assert connection.buffered_bytes <= 4 * RECEIVE_BUFFER_BYTES
        await bench.send(peer, bytes(1_000_000))
        await bench.wait_until(lambda: connection.buffered_bytes > 1_001_000)
        assert connection.buffered_bytes <= 8_000_000

    run(test)


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def test(bench: Bench) -> None:
        _, idle = bench.connect()
        _, busy = bench.connect()
        bench.network.start()
        closed = asyncio.create_task(bench.wait_closed(idle))
        while not closed.done():
            await bench.send(busy, frame(b"e"))
            assert await bench.receive(busy) == [b"e"]
            await asyncio.sleep(0.005)
        assert len(bench.network.connections) == 1

    run(test, NetworkLimits(max_idle_ms=200))


def test_a_stopping_network_answers_what_is_under_way_and_reads_nothing_more() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"w"))
        await bench.wait_until(lambda: len(bench.handler.pending) == 1)
        bench.network.stop_requests()
        draining = asyncio.create_task(bench.network.drain(DEADLINE_S))
        await bench.send(peer, frame(b"e"))
        bench.handler.pending[0].resolve(frame(b"last"))
        await draining
        assert await bench.receive(peer) == [b"last"]
        assert bench.handler.seen == [b"w"]
        assert not connection.closed

    run(test)


def test_the_longest_idle_connection_makes_room_for_the_listener_between_brokers() -> None:
    async def test(bench: Bench) -> None:
        quotas = bench.network.quotas
        quotas.add_listener(LISTENER)
        quotas.add_listener("INTERNAL")
        old, _peer1 = bench.connect()
        young, _peer2 = bench.connect()
        old.last_active -= 10
        ours, _peer3 = socket.socketpair()
        assert not quotas.has_room(LISTENER)
        assert quotas.has_room("INTERNAL")
        assert quotas.admit("INTERNAL", "10.0.0.2")
        bench.network.adopt(ours, ("10.0.0.2", 1), "INTERNAL")
        assert old.closed
        assert not young.closed

    run(test, NetworkLimits(quotas=ConnectionQuotas(max_connections=2, inter_broker_listener="INTERNAL")))


def test_half_sent_requests_of_a_crowd_take_little_more_memory_than_what_was_sent() -> None:
    async def test(bench: Bench) -> None:
        sent = 100_000
        bound = 500 * sent * 2 + 17 * 1024 * 1024
        connections = []
        for number in range(500):
            connection, peer = bench.connect()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * sent)
            # Some have begun a frame that is ten times as long, some one of a hundred megabytes.
            size = 1_000_000 if number % 2 else 100_000_000
            await bench.send(peer, struct.pack(">i", size) + bytes(sent - 4))
            connections.append((connection, peer))
        await bench.wait_until(lambda: all(each.arrived_bytes >= sent - 4 for each, _ in connections))
        assert sum(connection.buffered_bytes for connection, _ in connections) <= bound
        # A byte more moves none of them to take much.
        for _, peer in connections:
            await bench.send(peer, b"x")
        await bench.wait_until(lambda: all(each.arrived_bytes > sent - 4 for each, _ in connections))
        assert sum(connection.buffered_bytes for connection, _ in connections) <= bound

    run(test)


@pytest.mark.parametrize("size", [70_000, 300_000, 1_000_000, 3_000_000])
def test_frames_that_come_in_pieces_in_a_crowd_are_whole_in_the_end(size: int) -> None:
    async def test(bench: Bench) -> None:
        crowd = []
        for _ in range(70):
            connection, peer = bench.connect()
            await bench.send(peer, struct.pack(">i", 1_000_000) + bytes(100_000))
            crowd.append((connection, peer))
        await bench.wait_until(lambda: all(each.arrived_bytes == 100_000 for each, _ in crowd))
        assert bench.network.frame_buffers.are_many
        connection, peer = bench.connect()
        body = b"e" + random.Random(size).randbytes(size)
        sent = frame(body) + frame(b"e-next")
        # A byte, little, much: a piece is begun, filled, and followed by others.
        cuts = [0, 1, 5, 20_000, 20_001, 30_000, 60_000, 65_000, *range(70_000, len(sent), 90_000), len(sent)]
        receiving = asyncio.create_task(bench.receive(peer, 2))
        for begin, end in itertools.pairwise(cuts):
            await bench.send(peer, sent[begin:end])
            await asyncio.sleep(0)
            assert connection.buffered_bytes <= max(2 * end, RECEIVE_BUFFER_BYTES)
        assert await receiving == [body, b"e-next"]
        assert bench.network.memory.reserved_bytes == 70 * 1_000_000
        for each, _ in crowd:
            each.close()
        assert bench.network.memory.reserved_bytes == 0
        assert not bench.network.frame_buffers.are_many

    run(test)


def test_connections_that_send_much_share_a_part_of_each_turn() -> None:
    async def test(bench: Bench) -> None:
        handler, turn = bench.handler, bench.network.turn
        (much, much_peer), (other, other_peer) = bench.connect(), bench.connect()
        burst = b"".join(frame(b"e%d" % number) for number in range(10))
        await bench.send(much_peer, burst)
        assert len(await bench.receive(much_peer, 10)) == 10
        await bench.send(other_peer, frame(b"e"))
        assert await bench.receive(other_peer) == [b"e"]
        handler.seen.clear()
        await bench.send(much_peer, burst)
        await bench.send(other_peer, frame(b"e-other"))
        turn.spend_since(0.0)
        assert turn.is_spent
        # In the same turn: who is known to send much is not read from, the others are.
        much.look_for_requests()
        other.look_for_requests()
        assert handler.seen == [b"e-other"]
        # Nor is a newcomer, of whom nothing is known; who turns out to send much gets one request through.
        newcomer, newcomer_peer = bench.connect()
        newcomer_peer.send(burst)
        newcomer.look_for_requests()
        other_peer.send(frame(b"e-other") + burst)
        other.look_for_requests()
        assert handler.seen == [b"e-other", b"e-other"]
        assert len(await bench.receive(much_peer, 10)) == 10
        assert len(await bench.receive(newcomer_peer, 10)) == 10
        assert len(await bench.receive(other_peer, 12)) == 12
        await bench.wait_until(lambda: not turn.is_spent)
        turn.spend_since(0.0)
        await asyncio.sleep(0)
        assert not turn.is_spent

    run(test)


def test_frames_are_put_back_as_one_piece_and_come_in_order() -> None:
    async def test(bench: Bench) -> None:
        _, peer = bench.connect()
        bodies = [b"e%d" % number for number in range(5000)]
        sending = asyncio.create_task(bench.send(peer, b"".join(map(frame, bodies)) + frame(b"e-last")[:5]))
        assert await bench.receive(peer, 5000) == bodies
        await sending
        await bench.send(peer, frame(b"e-last")[5:])
        assert await bench.receive(peer) == [b"e-last"]
        assert bench.network.put_back_bytes == 0

    run(test)


def test_frames_that_were_put_back_are_forgotten_with_their_connection() -> None:
    async def test(bench: Bench) -> None:
        connection, peer = bench.connect()
        await bench.send(peer, frame(b"w") + frame(b"e") * 500)
        await bench.wait_until(lambda: bench.network.put_back_bytes > 0)
        connection.close()
        assert bench.network.put_back_bytes == 0

    run(test)


def test_a_neighbour_is_served_while_a_crowd_sends_more_than_can_be_handled() -> None:
    async def test(bench: Bench) -> None:
        crowd = [bench.connect()[1] for _ in range(20)]
        for peer in crowd:
            peer.send(frame(b"c") * 5000)
        _, neighbour = bench.connect()
        await bench.send(neighbour, frame(b"e-neighbour"))
        assert await bench.receive(neighbour) == [b"e-neighbour"]
        # Each of the crowd had a turn, a few of them more; far from all of their requests were handled.
        assert 0 < bench.handler.seen.count(b"c") < 20 * 1000

    run(test)


class Watcher:
    """Notes which APIs it was told of: as waiting, and as answered after that."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.waited_for: list[int] = []

    def answered(self, _: object, frames: object, done: int, later: list[int] | None, *times: float) -> None:
        self.waiting += later or []

    def waited(self, _: object, key: int, *times: float) -> None:
        self.waited_for.append(key)

    def throttled(self, *_: object) -> None:
        raise AssertionError


def test_who_is_not_told_of_a_request_is_not_told_of_its_answer() -> None:
    async def test(bench: Bench) -> None:
        before, after = Watcher(), Watcher()
        bench.network.observe(before)
        _, peer = bench.connect()
        await bench.send(peer, frame(b"w"))
        await bench.wait_until(lambda: len(before.waiting) == 1)
        bench.network.observe(after)
        bench.handler.pending[0].resolve(frame(b"first"))
        await bench.send(peer, frame(b"w"))
        await bench.wait_until(lambda: len(after.waiting) == 1)
        assert after.waited_for == []
        assert before.waited_for == before.waiting
        bench.handler.pending[1].resolve(frame(b"second"))
        assert await bench.receive(peer, 2) == [b"first", b"second"]
        assert after.waited_for == after.waiting

    run(test)
