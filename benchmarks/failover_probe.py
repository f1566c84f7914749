"""Producers that send a record every few milliseconds and note when each acknowledgement comes: what a
failover looks like from a client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import Any

import confluent_kafka

from tidelog.client import Producer

PERIOD_S = 0.01
IMPATIENT_MS = 10
BOUND_S = 90.0


class Probe:
    """The acknowledgements of one producer, which sends to ``partition``."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.partition = 0
        self.refused = 0
        self._acknowledged: list[tuple[int, float]] = []

    def answered(self, partition: int, error: object) -> None:
        """A record was acknowledged or given up."""
        if error is None:
            self._acknowledged.append((partition, time.monotonic()))
        else:
            self.refused += 1

    def first_after(self, moment: float) -> float:
        """When the first acknowledgement from the partition after ``moment`` came; waits for it."""
        deadline = time.monotonic() + BOUND_S
        while time.monotonic() < deadline:
            for partition, at in reversed(self._acknowledged.copy()):
                if at <= moment:
                    break
                if partition == self.partition:
                    return min(self._times(since=moment))
            time.sleep(PERIOD_S)
        raise TimeoutError(f"{self.label} had no acknowledgement within {BOUND_S} s")

    def longest_gap(self, since: float) -> float:
        """The longest time between two acknowledgements from the partition."""
        return max(later - earlier for earlier, later in pairwise([since, *self._times(since)]))

    def _times(self, since: float) -> list[float]:
        return [at for partition, at in self._acknowledged if partition == self.partition and at > since]


@contextmanager
def librdkafka(addresses: str, topic: str) -> Iterator[Probe]:
    """confluent-kafka's producer, idempotent, everything else at its default."""
    probe = Probe("librdkafka")
    producer = confluent_kafka.Producer({"bootstrap.servers": addresses, "enable.idempotence": True})

    def send() -> None:
        partition = probe.partition
        producer.produce(
            topic, b"x", partition=partition, on_delivery=lambda error, _: probe.answered(partition, error)
        )
        producer.poll(0)

    with _every_period(send):
        yield probe
    producer.flush(BOUND_S)


@contextmanager
def ours(addresses: str, topic: str, label: str = "our client", **options: Any) -> Iterator[Probe]:
    """Our own producer; its defaults are the Java client's."""
    probe = Probe(label)
    with Producer(bootstrap_servers=addresses, **options) as producer:

        def send() -> None:
            partition = probe.partition
            producer.send(
                topic,
                b"x",
                partition=partition,
                on_delivery=lambda _, error: probe.answered(partition, error),
            )

        with _every_period(send):
            yield probe


def impatient(addresses: str, topic: str) -> AbstractContextManager[Probe]:
    """Our producer asking all the time: what is left is the time of the cluster, not of the client."""
    return ours(
        addresses,
        topic,
        f"our client with back-offs of {IMPATIENT_MS} ms",
        retry_backoff_ms=IMPATIENT_MS,
        retry_backoff_max_ms=IMPATIENT_MS,
        reconnect_backoff_ms=IMPATIENT_MS,
        reconnect_backoff_max_ms=IMPATIENT_MS,
    )


@contextmanager
def _every_period(send: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(PERIOD_S):
            send()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(BOUND_S)
