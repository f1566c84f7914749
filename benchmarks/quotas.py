"""How accurately quotas are enforced, and what a client without a quota notices of throttled clients.

Three clients (librdkafka, Java's perf tools, Tidelog's) each have a client id with a quota of 1 MB/s to
produce, then 1 MB/s to consume, and run at full speed at the same time. For a minute from each client's first
byte the benchmark measures how much the log grew or how much the consumer read, in bytes of batches; the
figure is the distance from the quota. As in Kafka, ten seconds' worth of bytes is accepted at once and then
waited for. Meanwhile a client without a quota produces one record every ten milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer as RdKafkaConsumer
from confluent_kafka import Producer as RdKafkaProducer
from confluent_kafka import TopicPartition as RdKafkaPartition
from foreign.broker_process import BrokerProcess

import tidelog.client as ours
from benchmarks import apache, perf_tools, pipeline, wire
from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures
from tidelog.client.admin.quotas import QuotaAlteration

NAME = "quotas"
CLIENTS = ("librdkafka", "java", "tidelog")
QUOTA_BYTES = 1_000_000
RECORD_BYTES = 10_000
MEASURED_S, START_S = 60.0, 30.0
_PROBES_S = 0.01
_SAMPLES_S = 0.2
_FILL_BYTES = int((MEASURED_S + 60) * QUOTA_BYTES)

Load = Callable[[str, threading.Event], None]
Sample = tuple[float, dict[str, float]]


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    measured_s = 20.0 if quick else MEASURED_S
    with started(contestant, root) as broker, ours.Admin(bootstrap_servers=broker.address) as admin:
        create_topic(broker, "neighbour")
        for client in CLIENTS:
            limits = {"producer_byte_rate": QUOTA_BYTES, "consumer_byte_rate": QUOTA_BYTES}
            (result,) = admin.alter_client_quotas([QuotaAlteration({"client-id": f"{client}-load"}, limits)])
            result.raise_for_error()
            create_topic(broker, f"{client}-in")
            _fill(broker, f"{client}-out")
        alone = _probe(broker, 5.0)
        with _running(broker.address, PRODUCERS):
            with _sampled(lambda: _written(admin), measured_s + START_S) as grown:
                beside = _probe(broker, measured_s)
            for client in CLIENTS:
                _add(figures, broker, f"produce, {client}", _rate(grown, client, measured_s))
        figures.add(NAME, broker.label, "neighbour alone, p99", _p99(alone), "ms", "lower")
        figures.add(NAME, broker.label, "neighbour of throttled clients, p99", _p99(beside), "ms", "lower")
        consumers = {name: Reading(name) for name in CLIENTS}
        with (
            _running(broker.address, {name: each.run for name, each in consumers.items()}),
            _sampled(
                lambda: {name: each.read for name, each in consumers.items()}, measured_s + START_S
            ) as read,
        ):
            pass
        for client in CLIENTS:
            _add(figures, broker, f"consume, {client}", _rate(read, client, measured_s))


@contextlib.contextmanager
def _sampled(look: Callable[[], dict[str, float]], seconds: float) -> Iterator[list[Sample]]:
    """Look again and again, for so long; the samples are there at the end."""
    samples: list[Sample] = []
    end = time.monotonic() + seconds

    def run() -> None:
        while time.monotonic() < end:
            samples.append((time.monotonic(), look()))
            time.sleep(_SAMPLES_S)

    sampler = threading.Thread(target=run)
    sampler.start()
    try:
        yield samples
    finally:
        sampler.join()


def _rate(samples: list[Sample], client: str, seconds: float) -> float:
    """The bytes a second from the moment on at which there were any."""
    _, first = samples[0]
    began = next(number for number, (_, bytes_) in enumerate(samples) if bytes_[client] > first[client])
    start_s, _ = samples[max(began - 1, 0)]
    end_s, last = next((each for each in samples if each[0] >= start_s + seconds), samples[-1])
    return (last[client] - first[client]) / (end_s - start_s)


def _add(figures: Figures, broker: BrokerProcess, what: str, rate: float) -> None:
    print(f"    {broker.label}: {what}: {rate / QUOTA_BYTES:.2%} of the quota", flush=True)
    figures.add(NAME, broker.label, f"{what}: off by", abs(rate / QUOTA_BYTES - 1) * 100, "%", "lower")


def _p99(times_s: list[float]) -> float:
    return statistics.quantiles(times_s, n=100)[98] * 1000


def _fill(broker: BrokerProcess, topic: str) -> None:
    topic_id = create_topic(broker, topic)
    template = wire.batch(1, RECORD_BYTES, producer_id=wire.new_producer_id(broker.port))
    requests = wire.produce_requests(topic_id, 0, template, _FILL_BYTES // len(template))
    pipeline.run(broker.port, [requests], 4, wire.PRODUCE_ERROR_AT)


def _written(admin: ours.Admin) -> dict[str, float]:
    """The bytes that each producer has in its log."""
    sizes = dict.fromkeys(CLIENTS, 0.0)
    for dirs in admin.describe_log_dirs().values():
        for log_dir in dirs.log_dirs:
            for replica in log_dir.replicas:
                client = replica.partition.topic.removesuffix("-in")
                if client in sizes:
                    sizes[client] += replica.size_bytes
    return sizes


def _probe(broker: BrokerProcess, seconds: float) -> list[float]:
    """Produce a small record again and again; how long each took."""
    request = wire.produce_request_by_name("neighbour", 0, bytes(wire.batch(1, 100)))
    times: list[float] = []
    end = time.monotonic() + seconds
    with wire.connect(broker.port, 30.0) as connection:
        while (began := time.monotonic()) < end:
            wire.ask(connection, request)
            times.append(time.monotonic() - began)
            time.sleep(max(_PROBES_S - times[-1], 0))
    return times


@contextlib.contextmanager
def _running(address: str, loads: dict[str, Load]) -> Iterator[None]:
    """The clients at work."""
    stop = threading.Event()
    threads = [threading.Thread(target=load, args=(address, stop)) for load in loads.values()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _rdkafka_produce(address: str, stop: threading.Event) -> None:
    producer = RdKafkaProducer(
        {"bootstrap.servers": address, "client.id": "librdkafka-load", "queue.buffering.max.kbytes": 2048}
    )
    value = os.urandom(RECORD_BYTES)
    while not stop.is_set():
        try:
            producer.produce("librdkafka-in", value)
        except BufferError:
            producer.poll(0.05)
    producer.purge()
    producer.flush(5)


def _our_produce(address: str, stop: threading.Event) -> None:
    value = os.urandom(RECORD_BYTES)
    options = {"bootstrap.servers": address, "client.id": "tidelog-load", "buffer.memory": 2 << 20}
    with ours.Producer(options, delivery_timeout_ms=300_000) as producer:
        while not stop.is_set():
            producer.send("tidelog-in", value)


def _java(tool: str, arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*perf_tools.command(tool), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=apache.environment(),
    )


def _java_produce(address: str, stop: threading.Event) -> None:
    arguments = ["--bootstrap-server", address, "--topic", "java-in", "--num-records", "100000000"]
    arguments += ["--record-size", str(RECORD_BYTES), "--throughput", "-1", "--command-property"]
    arguments += ["client.id=java-load", "buffer.memory=2097152"]
    running = _java("ProducerPerformance", arguments)
    drained = threading.Thread(target=running.communicate)
    drained.start()
    stop.wait()
    running.send_signal(signal.SIGKILL)
    drained.join()


PRODUCERS: dict[str, Load] = {
    "librdkafka": _rdkafka_produce,
    "java": _java_produce,
    "tidelog": _our_produce,
}


class Reading:
    """A consumer at work, and the bytes of batches that it has read."""

    def __init__(self, client: str) -> None:
        self.read = 0.0
        self.run: Load = {"librdkafka": self._rdkafka, "java": self._java, "tidelog": self._ours}[client]
        self._batch_bytes = len(wire.batch(1, RECORD_BYTES))

    def _rdkafka(self, address: str, stop: threading.Event) -> None:
        consumer = RdKafkaConsumer(
            {
                "bootstrap.servers": address,
                "client.id": "librdkafka-load",
                "group.id": "unused",
                "queued.max.messages.kbytes": 2048,
            }
        )
        consumer.assign([RdKafkaPartition("librdkafka-out", 0, 0)])
        while not stop.is_set():
            self.read += len(consumer.consume(100, 0.2)) * self._batch_bytes
        consumer.close()

    def _ours(self, address: str, stop: threading.Event) -> None:
        options = {"bootstrap.servers": address, "client.id": "tidelog-load", "auto.offset.reset": "earliest"}
        with ours.Consumer(options) as consumer:
            consumer.assign([ours.TopicPartition("tidelog-out", 0)])
            while not stop.is_set():
                self.read += len(consumer.poll(0.2)) * self._batch_bytes

    def _java(self, address: str, stop: threading.Event) -> None:
        arguments = ["--bootstrap-server", address, "--topic", "java-out", "--num-records", "100000000"]
        arguments += ["--timeout", "600000", "--show-detailed-stats", "--reporting-interval", "200"]
        arguments += ["--command-property", "client.id=java-load"]
        running = _java("ConsumerPerformance", arguments)

        def follow() -> None:
            assert running.stdout is not None
            for line in running.stdout:
                columns = line.split(", ")
                # time, thread, MB, MB/s, messages, …
                if len(columns) > 5 and columns[4].strip().isdigit():
                    self.read = int(columns[4]) * self._batch_bytes

        follower = threading.Thread(target=follow)
        follower.start()
        stop.wait()
        running.send_signal(signal.SIGKILL)
        running.wait()
        follower.join()
