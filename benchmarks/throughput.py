"""Throughput of producing and consuming through librdkafka, and the broker's CPU per GB of record data.

confluent-kafka, no idempotence, acks=all. On few cores the client limits the records per second, since it
needs more CPU than the broker; the CPU per GB is the broker's alone.
"""

from __future__ import annotations

from pathlib import Path

from foreign.broker_process import BrokerProcess

from benchmarks import rdkafka_load
from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures
from benchmarks.request_cost import warm_up

NAME = "throughput"
PARTITIONS = 2


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with started(contestant, root) as broker:
        total = (150 if quick else 600) * 1_000_000
        warm_up(broker)
        for size in (100, 1000):
            topic = f"records-{size}"
            create_topic(broker, topic, PARTITIONS)
            count = total // size
            rdkafka_load.produce(broker.address, topic, PARTITIONS, size, count // 10)
            before = broker.cpu_seconds()
            sent, seconds = rdkafka_load.produce(broker.address, topic, PARTITIONS, size, count)
            _report(broker, figures, f"produce {size} B", size, sent, seconds, before)
            before = broker.cpu_seconds()
            received, seconds = rdkafka_load.consume(broker.address, topic, PARTITIONS, count)
            _report(broker, figures, f"consume {size} B", size, received, seconds, before)
        _singles(broker, figures, 20_000 if quick else 80_000)
        figures.add(NAME, contestant, "RSS after this load", broker.rss_bytes() / 1e6, "MB", "lower")


def _singles(broker: BrokerProcess, figures: Figures, count: int) -> None:
    single = rdkafka_load.SINGLE
    create_topic(broker, "singles", PARTITIONS)
    rdkafka_load.produce(broker.address, "singles", PARTITIONS, 100, 2000, single)
    before = broker.cpu_seconds()
    sent, seconds = rdkafka_load.produce(broker.address, "singles", PARTITIONS, 100, count, single)
    used = broker.cpu_seconds() - before
    figures.add(NAME, broker.label, "produce 100 B, one per request", sent / seconds, "records/s", "higher")
    figures.add(NAME, broker.label, "CPU per such request", used / sent * 1e6, "µs", "lower")


def _report(
    broker: BrokerProcess, figures: Figures, name: str, size: int, count: int, seconds: float, before: float
) -> None:
    used = broker.cpu_seconds() - before
    figures.add(NAME, broker.label, name, count / seconds, "records/s", "higher")
    figures.add(NAME, broker.label, f"{name}, data", count * size / seconds / 1e6, "MB/s", "higher")
    figures.add(NAME, broker.label, f"{name}, broker CPU", used / (count * size / 1e9), "s/GB", "lower")
