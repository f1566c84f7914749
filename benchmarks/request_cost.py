"""Broker CPU per request, and requests per second, for the four requests that decided the I/O model.

A Python generator sends prebuilt requests over four connections and counts responses. Producers are
idempotent, each connection has its own producer and partition, and versions are the newest (Produce 13, Fetch
18). Fetches read random batches. With 16 requests in flight Tidelog handles several per wake-up; Kafka
handles one per connection at a time. The number that the prototype had in flight is not recorded, so its
column is a rough guide.
"""

from __future__ import annotations

from pathlib import Path

from foreign.broker_process import BrokerProcess

from benchmarks import pipeline, wire
from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures

NAME = "request cost"
CONNECTIONS = 4
DEPTHS = (1, 16)
BATCH_BYTES = 16 << 10
RECORDS, RECORD_BYTES = 15, 1079  # a batch of 16,381 bytes
LOG_BYTES = 64 << 20

# The prototype's CPU per request in microseconds: raw sockets on the asyncio loop.
MARKS = {"1x100 B produce": 10.1, "16 KB produce": 17.9, "16 KB fetch": 21.2, "1 MB fetch": 223.0}


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with started(contestant, root) as broker:
        scale = 1 if quick else 4
        warm_up(broker)
        for depth in DEPTHS:
            small = produce_lanes(broker, f"small-{depth}", (1, 100), 5000 * scale)
            _run(broker, figures, "1x100 B produce", small, depth, wire.PRODUCE_ERROR_AT)
            large = produce_lanes(broker, f"large-{depth}", (RECORDS, RECORD_BYTES), 1000 * scale)
            _run(broker, figures, "16 KB produce", large, depth, wire.PRODUCE_ERROR_AT)
        topic_id, batches = fill(broker, "fetched", LOG_BYTES)
        for depth in DEPTHS:
            for name, size, count in (("16 KB fetch", BATCH_BYTES, 4000), ("1 MB fetch", 1 << 20, 250)):
                lanes = fetch_lanes(topic_id, batches, size, count * scale)
                _run(broker, figures, name, lanes, depth, wire.FETCH_ERROR_AT)


def warm_up(broker: BrokerProcess) -> None:
    """Some 60,000 requests of all kinds, which a JVM needs before it has compiled its hot paths."""
    pipeline.run(broker.port, produce_lanes(broker, "warm-up", (1, 100), 10_000), 16, wire.PRODUCE_ERROR_AT)
    pipeline.run(broker.port, produce_lanes(broker, "warm-up-too", (4, 100), 2000), 1, wire.PRODUCE_ERROR_AT)
    topic_id, batches = fill(broker, "warm-up-fetched", 8 << 20)
    pipeline.run(broker.port, fetch_lanes(topic_id, batches, BATCH_BYTES, 3000), 4, wire.FETCH_ERROR_AT)


def produce_lanes(broker: BrokerProcess, topic: str, shape: tuple[int, int], count: int) -> list[list[bytes]]:
    """Requests of idempotent producers, one for each connection, to a new topic."""
    topic_id = create_topic(broker, topic, CONNECTIONS)
    lanes = []
    for partition in range(CONNECTIONS):
        template = wire.batch(*shape, producer_id=wire.new_producer_id(broker.port))
        lanes.append(wire.produce_requests(topic_id, partition, template, count))
    return lanes


def fill(broker: BrokerProcess, topic: str, size_bytes: int) -> tuple[bytes, int]:
    """A log of 16 KB batches to fetch from; returns its topic and how many batches there are."""
    topic_id = create_topic(broker, topic)
    template = wire.batch(RECORDS, RECORD_BYTES, producer_id=wire.new_producer_id(broker.port))
    requests = wire.produce_requests(topic_id, 0, template, size_bytes // len(template))
    pipeline.run(broker.port, [requests], 4, wire.PRODUCE_ERROR_AT)
    return topic_id, len(requests)


def fetch_lanes(topic_id: bytes, batches: int, size: int, count: int) -> list[list[bytes]]:
    """Fetches at the starts of batches all over the log, far enough from its end to be answered in full."""
    span = batches - 2 * (size // BATCH_BYTES) - 1
    starts = [wire.fetch_request(topic_id, 0, RECORDS * (index * 7919 % span), size) for index in range(span)]
    return [[starts[(lane + index) % span] for index in range(count)] for lane in range(CONNECTIONS)]


def _run(
    broker: BrokerProcess, figures: Figures, name: str, lanes: list[list[bytes]], depth: int, error_at: int
) -> None:
    warm = max(50, len(lanes[0]) // 10)
    pipeline.run(broker.port, [lane[:warm] for lane in lanes], depth, error_at)
    measured = [lane[warm:] for lane in lanes]
    before = broker.cpu_seconds()
    load = pipeline.run(broker.port, measured, depth, error_at)
    used = broker.cpu_seconds() - before
    label = f"{name}, {depth} in flight"
    mark = MARKS[name] if depth == DEPTHS[-1] else None
    figures.add(NAME, broker.label, f"CPU per {label}", used / load.requests * 1e6, "µs", "lower", mark)
    figures.add(NAME, broker.label, f"{label}, rate", load.requests / load.seconds, "1/s", "higher")
