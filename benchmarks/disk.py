"""A real disk instead of memory: producing with the default flush, where the kernel decides when to write,
and with `flush.messages=1`, where every acknowledgement waits for an fsync.

One broker, one partition, acks=all. "batched" is librdkafka with 1 KB records in batches of up to 1 MB. "16
producers" are 16 connections with one 1 KB request in flight each; their records can share an fsync.
"sequential" is one such connection. "write and fdatasync" is the disk's own time to append 1 KB, the lower
bound for an acknowledgement with an fsync.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from foreign.broker_process import BrokerProcess

from benchmarks import acknowledgements, pipeline, rdkafka_load, wire
from benchmarks.contestants import create_topic, scratch, started
from benchmarks.figures import OURS, Figures
from benchmarks.request_cost import warm_up

NAME = "disk"
FLUSHES: dict[str, dict[str, str]] = {
    "default flush": {},
    "flush.messages=1": {"flush.messages": "1"},
}
SIZE = 1000
PRODUCERS = 16


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    part = 4 if quick else 1
    if contestant == OURS:
        _disk_itself(root, figures)
    with started(contestant, root) as broker:
        warm_up(broker)
        for flush, configs in FLUSHES.items():
            name = flush.replace(" ", "-").replace("=", "-")
            topic_id = create_topic(broker, name, 1, configs)
            _batched(broker, figures, flush, name, 400_000 // part)
            _many(broker, figures, flush, topic_id, (4000 if configs else 40_000) // part)
            waits = acknowledgements.sequential(broker.port, name, SIZE, (1000 if configs else 5000) // part)
            figures.add(NAME, contestant, f"{flush}, sequential, p50", waits.p50_ms, "ms", "lower")
            figures.add(NAME, contestant, f"{flush}, sequential, p99", waits.p99_ms, "ms", "lower")


def _disk_itself(root: Path, figures: Figures) -> None:
    samples = []
    with scratch(root) as directory:
        file = os.open(directory / "file", os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            for _ in range(200):
                began = time.perf_counter()
                os.write(file, bytes(SIZE))
                os.fdatasync(file)
                samples.append(time.perf_counter() - began)
        finally:
            os.close(file)
    cuts = statistics.quantiles(samples, n=100)
    figures.add(NAME, OURS, "write and fdatasync, p50", cuts[49] * 1e3, "ms", "lower")
    figures.add(NAME, OURS, "write and fdatasync, p99", cuts[98] * 1e3, "ms", "lower")


def _batched(broker: BrokerProcess, figures: Figures, flush: str, topic: str, count: int) -> None:
    rdkafka_load.produce(broker.address, topic, 1, SIZE, count // 10)
    before = broker.cpu_seconds()
    sent, seconds = rdkafka_load.produce(broker.address, topic, 1, SIZE, count)
    used = broker.cpu_seconds() - before
    name = f"{flush}, batched"
    figures.add(NAME, broker.label, name, sent / seconds, "records/s", "higher")
    figures.add(NAME, broker.label, f"{name}, data", sent * SIZE / seconds / 1e6, "MB/s", "higher")
    figures.add(NAME, broker.label, f"{name}, broker CPU", used / (sent * SIZE / 1e9), "s/GB", "lower")


def _many(broker: BrokerProcess, figures: Figures, flush: str, topic_id: bytes, count: int) -> None:
    lanes = []
    for _ in range(PRODUCERS):
        template = wire.batch(1, SIZE, producer_id=wire.new_producer_id(broker.port))
        lanes.append(wire.produce_requests(topic_id, 0, template, count // PRODUCERS, acks=-1))
    before = broker.cpu_seconds()
    load = pipeline.run(broker.port, lanes, 1, wire.PRODUCE_ERROR_AT)
    used = broker.cpu_seconds() - before
    name = f"{flush}, {PRODUCERS} producers"
    figures.add(NAME, broker.label, name, load.requests / load.seconds, "records/s", "higher")
    figures.add(NAME, broker.label, f"{name}, CPU", used / load.requests * 1e6, "µs/record", "lower")
