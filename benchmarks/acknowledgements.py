"""How long a producer waits that sends one record at a time, over a bare socket."""

from __future__ import annotations

import socket
import statistics
import time
from typing import NamedTuple

from benchmarks import wire

READY_TIMEOUT_S = 30.0


class Waits(NamedTuple):
    p50_ms: float
    p99_ms: float


def sequential(port: int, topic: str, size: int, count: int) -> Waits:
    """Send to partition 0 with acks=all; a fifth as many go first, unmeasured."""
    request = wire.produce_request_by_name(topic, 0, bytes(wire.batch(1, size)))
    samples = []
    with wire.connect(port) as connection:
        _wait_for_topic(connection, topic, request)
        for _ in range(count + count // 5):
            began = time.perf_counter()
            answer = wire.ask(connection, request)
            samples.append(time.perf_counter() - began)
            if error := wire.error_by_name(topic, answer):
                raise RuntimeError(f"a record for {topic} is answered with error {error}")
    cuts = statistics.quantiles(samples[count // 5 :], n=100)
    return Waits(cuts[49] * 1e3, cuts[98] * 1e3)


def _wait_for_topic(connection: socket.socket, topic: str, request: bytes) -> None:
    """The leader may hear of a new topic after others have told of it."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while error := wire.error_by_name(topic, wire.ask(connection, request)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"a record for {topic} is answered with error {error}")
        time.sleep(0.05)
