"""The neighbour counts from when a request was due, and gives up in bounded time."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks import neighbour_probe, wire
from benchmarks.neighbour_probe import Client

REQUEST = wire.frame(3, 0, b"")
GOOD, REFUSED = struct.pack(">ih", 2, 0), struct.pack(">ih", 2, 6)


@contextmanager
def server(*answers: bytes) -> Iterator[int]:
    """Answers one request after the other, over as many connections as come, then says nothing more."""
    waiting = list(answers)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            held = []
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    break
                held.append(connection)
                while waiting and (size := connection.recv(4)):
                    wire.read_exactly(connection, int.from_bytes(size, "big"))
                    connection.sendall(waiting.pop(0))
            for connection in held:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def test_a_broker_that_stands_still_has_made_all_that_were_due_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour_probe, "BOUND_S", 0.5)
    with server(GOOD, GOOD) as port:
        client = Client([port], REQUEST, 0)
        client.run(10 * neighbour_probe.PERIOD_S)
    assert len(client.samples) == 10
    stalled = client.samples[2:]
    assert stalled == sorted(stalled, reverse=True)
    assert stalled[0] >= 0.5


def test_who_is_refused_asks_the_next_broker() -> None:
    with server(REFUSED) as first, server(GOOD) as second:
        client = Client([first, second], REQUEST, 0)
        client.run(neighbour_probe.PERIOD_S)
    assert len(client.samples) == 1
    assert client.failures == 1
