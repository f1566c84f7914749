"""A well-behaved client beside a bad one: `python -m benchmarks.neighbour_probe PORTS TOPIC_ID SECONDS`.

Produces a record (acks=all) and fetches one every ten milliseconds, each on a connection of its own, and says
in JSON how long every one of them took. Times count from when a request was due, not from when it could be
sent: a broker that stands still for a second has made a hundred requests wait, not one. Says `ready` when
both connections have been served, then goes on for the time it is told. A process of its own, so that the one
that attacks does not disturb it.

PORTS are those of the brokers that may lead the topic; when one is gone or does not lead, the next is asked.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence

from benchmarks import wire

PERIOD_S = 0.01
CONNECT_TIMEOUT_S = 2.0
BOUND_S = 60.0
"""Nobody waits longer than this; who has not been served by then has waited so long, and all behind him."""


class Client:
    """One connection that asks the same request again and again."""

    def __init__(self, ports: Sequence[int], request: bytes, error_at: int) -> None:
        self._ports = ports
        self._at = 0
        self._request = request
        self._error_at = error_at
        self._connection = wire.connect(ports[0])
        self.samples: list[float] = []
        self.failures = 0

    def ask(self, deadline: float) -> None:
        """Ask until the answer is a good one."""
        while True:
            try:
                self._connection.settimeout(max(0.001, deadline - time.monotonic()))
                answer = wire.ask(self._connection, self._request)
                if answer[self._error_at : self._error_at + 2] == b"\x00\x00":
                    return
            except OSError as problem:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the neighbour was not served for {BOUND_S} s") from problem
            if time.monotonic() > deadline:
                raise TimeoutError(f"the neighbour was refused for {BOUND_S} s")
            self.failures += 1
            time.sleep(PERIOD_S)
            self._reconnect()

    def _reconnect(self) -> None:
        self._connection.close()
        self._at += 1
        try:
            port = self._ports[self._at % len(self._ports)]
            self._connection = wire.connect(port, CONNECT_TIMEOUT_S)
        except OSError:
            return  # the next attempt finds the closed connection and comes here again

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        times = [began + number * PERIOD_S for number in range(int(seconds / PERIOD_S))]
        for number, due in enumerate(times):
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self.ask(due + BOUND_S)
            except TimeoutError:
                self.samples += (time.monotonic() - each for each in times[number:])
                return
            self.samples.append(time.monotonic() - due)


def main(ports: list[int], topic_id: bytes, seconds: float) -> None:
    record = wire.produce_request(topic_id, 0, bytes(wire.batch(1, 100)), acks=-1)
    producer = Client(ports, record, wire.PRODUCE_ERROR_AT)
    deadline = time.monotonic() + BOUND_S
    producer.ask(deadline)
    fetcher = Client(ports, wire.fetch_request(topic_id, 0, 0, 100), wire.FETCH_ERROR_AT)
    fetcher.ask(deadline)
    print("ready", flush=True)
    threads = [threading.Thread(target=each.run, args=(seconds,)) for each in (producer, fetcher)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        json.dumps(
            {
                "produce": producer.samples,
                "fetch": fetcher.samples,
                "failures": producer.failures + fetcher.failures,
            }
        )
    )


if __name__ == "__main__":
    main([int(port) for port in sys.argv[1].split(",")], bytes.fromhex(sys.argv[2]), float(sys.argv[3]))
