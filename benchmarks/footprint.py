"""What an idle broker costs: startup time, memory and CPU, empty and with 1,000 partitions.

Startup time is from the launch of the process to the answer to a Metadata request. Kafka's directory is
formatted beforehand.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from foreign.broker_process import BrokerProcess

from benchmarks.contestants import make, scratch
from benchmarks.figures import Figures

NAME = "footprint"
TOPICS, PARTITIONS_EACH = 10, 100
AT_REST_S = 3.0


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with scratch(root) as directory:
        broker = make(contestant, directory)
        try:
            _start(
                make(contestant, directory / "first"), stop=True
            )  # for the file cache and compiled modules
            broker.prepare()  # formatting the directory is not part of a start
            figures.add(NAME, contestant, "start on an empty directory", _start(broker), "s", "lower")
            _at_rest(broker, figures, "at rest")
            _make_partitions(broker)
            broker.stop()
            figures.add(NAME, contestant, "start on 1,000 partitions", _start(broker), "s", "lower")
            _at_rest(broker, figures, "at rest, 1,000 partitions")
            broker.kill()
            figures.add(
                NAME, contestant, "start on 1,000 partitions after kill -9", _start(broker), "s", "lower"
            )
        finally:
            broker.kill()


def _start(broker: BrokerProcess, *, stop: bool = False) -> float:
    started_at = time.perf_counter()
    broker.start()
    seconds = time.perf_counter() - started_at
    if stop:
        broker.stop()
    return seconds


def _at_rest(broker: BrokerProcess, figures: Figures, name: str) -> None:
    before = broker.cpu_seconds()
    time.sleep(AT_REST_S)
    used = broker.cpu_seconds() - before
    figures.add(NAME, broker.label, f"RSS {name}", broker.rss_bytes() / 1e6, "MB", "lower")
    figures.add(NAME, broker.label, f"CPU {name}", used / AT_REST_S * 100, "%", "lower")


def _make_partitions(broker: BrokerProcess) -> None:
    """1,000 partitions with a record in each."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    names = [f"many-{index}" for index in range(TOPICS)]
    for made in admin.create_topics([NewTopic(name, PARTITIONS_EACH, 1) for name in names]).values():
        made.result(120)
    producer = Producer({"bootstrap.servers": broker.address})
    for name in names:
        for partition in range(PARTITIONS_EACH):
            producer.produce(name, b"x" * 100, partition=partition)
    if producer.flush(120):
        raise TimeoutError(f"{broker.label} did not acknowledge a record per partition within 120 s")
