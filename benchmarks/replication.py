"""Three brokers: producing with acks=all to three replicas and to one, and consuming.

Topics have three partitions, one led by each broker; `min.insync.replicas` is 2 with three replicas. CPU is
the sum of the three brokers, per GB of record data. Clients are librdkafka (no idempotence, linger 5 ms,
batches of 1 MB) and Kafka 4.3's `kafka-producer-perf-test` and `kafka-consumer-perf-test` at defaults, on the
same machine; with Kafka's tools the CPU includes the brokers' idle CPU while the tool's JVM starts.
"sequential" is one producer on a bare socket that sends a record once the previous one is acknowledged. Kafka
4.3 runs its KRaft controllers inside the brokers; the CPU of ZooKeeper, which Kafka 3.9 and Tidelog use, is
not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient

from benchmarks import acknowledgements, perf_tools, rdkafka_load
from benchmarks.contestants import BROKERS, Cluster, cluster, create_replicated_topic
from benchmarks.figures import Better, Figures

NAME = "replication"
REPLICAS = {"three replicas": 3, "one replica": 1}
SIZES = {100: 120_000_000, 1000: 480_000_000}
"""How many bytes of records go in each size."""


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    part = 4 if quick else 1
    with cluster(contestant, root) as running:
        load = _Load(running, figures)
        load.warm_up()
        for size, total in SIZES.items():
            for replicas in REPLICAS:
                for tool in load.tools:
                    load.throughput(tool, replicas, size, total // size // part)
            for tool in load.tools:
                load.compare(tool, size)
        for replicas in REPLICAS:
            load.sequential(replicas, 6000 // part)
        load.compare_sequential()


class _Load:
    """One cluster and what is done to it."""

    def __init__(self, running: Cluster, figures: Figures) -> None:
        self._cluster = running
        self._figures = figures
        self._topics = 0
        self._last: dict[str, float] = {}
        self.tools: dict[str, tuple[Callable[..., float], Callable[..., float]]] = {
            "librdkafka": (self._rdkafka_produce, self._rdkafka_consume),
            "Kafka's tools": (self._perf_produce, self._perf_consume),
        }

    def warm_up(self) -> None:
        """Connections, group coordinators and hot paths, which a JVM has to compile first."""
        topic = self._new_topic("three replicas")
        for size in SIZES:
            self._rdkafka_produce(topic, size, 60_000)
            self._rdkafka_consume(topic, 60_000)
        self._perf_produce(topic, max(SIZES), 60_000)
        self._perf_consume(topic, 60_000 * (len(SIZES) + 1))
        acknowledgements.sequential(self._cluster.brokers[0].port, topic, 100, 3000)
        self._delete(topic)

    def throughput(self, tool: str, replicas: str, size: int, count: int) -> None:
        topic = self._new_topic(replicas)
        produce, consume = self.tools[tool]
        # Who consumes reads from the leaders alone, however many replicas there are.
        for kind in ("produce", "consume") if REPLICAS[replicas] > 1 else ("produce",):
            before = self._cluster.cpu_seconds()
            rate = produce(topic, size, count) if kind == "produce" else consume(topic, count)
            used = self._cluster.cpu_seconds() - before
            name = f"{kind} {size} B, {replicas}, {tool}"
            self._add(name, rate, "records/s", "higher")
            self._add(f"{name}, data", rate * size / 1e6, "MB/s", "higher")
            self._add(f"{name}, CPU", used / (count * size / 1e9), "s/GB", "lower")
        self._delete(topic)

    def compare(self, tool: str, size: int) -> None:
        three, one = (self._last[f"produce {size} B, {replicas}, {tool}, CPU"] for replicas in REPLICAS)
        self._add(f"three replicas against one: CPU per GB, {size} B, {tool}", three / one, "×", "lower")

    def sequential(self, replicas: str, count: int) -> None:
        topic = self._new_topic(replicas)
        waits = acknowledgements.sequential(self._cluster.brokers[0].port, topic, 100, count)
        self._add(f"p50 of an acknowledgement, sequential, {replicas}", waits.p50_ms, "ms", "lower")
        self._add(f"p99 of an acknowledgement, sequential, {replicas}", waits.p99_ms, "ms", "lower")
        self._delete(topic)

    def compare_sequential(self) -> None:
        three, one = (self._last[f"p50 of an acknowledgement, sequential, {each}"] for each in REPLICAS)
        name = "three replicas against one: p50 of an acknowledgement, sequential"
        self._add(name, three / one, "×", "lower")

    # Clients: each gives the records per second

    def _rdkafka_produce(self, topic: str, size: int, count: int) -> float:
        sent, seconds = rdkafka_load.produce(self._cluster.addresses, topic, BROKERS, size, count)
        return sent / seconds

    def _rdkafka_consume(self, topic: str, count: int) -> float:
        received, seconds = rdkafka_load.consume(self._cluster.addresses, topic, BROKERS, count)
        return received / seconds

    def _perf_produce(self, topic: str, size: int, count: int) -> float:
        return self._complete(perf_tools.produce(self._cluster.addresses, topic, size, count), count)

    def _perf_consume(self, topic: str, count: int) -> float:
        return self._complete(perf_tools.consume(self._cluster.addresses, topic, count), count)

    def _complete(self, done: perf_tools.Throughput, count: int) -> float:
        if done.records < count:
            raise RuntimeError(f"{self._cluster.name}: {done.records} of {count} records")
        return done.records_per_s

    # Topics

    def _new_topic(self, replicas: str) -> str:
        self._topics += 1
        topic = f"records-{self._topics}"
        ids = [broker.node_id for broker in self._cluster.brokers]
        number = REPLICAS[replicas]
        assignment = [(ids[index:] + ids[:index])[:number] for index in range(BROKERS)]
        least = str(max(1, number - 1))
        create_replicated_topic(self._cluster, topic, assignment, {"min.insync.replicas": least})
        return topic

    def _delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.addresses})
        admin.delete_topics([topic])[topic].result(60)

    def _add(self, name: str, value: float, unit: str, better: Better) -> None:
        self._last[name] = value
        self._figures.add(NAME, self._cluster.name, name, value, unit, better)
