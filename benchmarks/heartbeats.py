"""What five hundred groups of four members cost: the latency of a produce, and the broker's CPU.

The 2,000 members use the classic protocol and send a heartbeat every three seconds, from a process of their
own. The same produce requests (one record, acks=all, steady pace, one connection) are timed with and without
them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from foreign.broker_process import BrokerProcess
from foreign.toolchain import ROOT

from benchmarks import wire
from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures

NAME = "groups"
GROUPS, MEMBERS = 500, 4
PACE_S = 0.004
READY_TIMEOUT_S = 180.0


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    groups = GROUPS // 4 if quick else GROUPS
    count = 1000 if quick else 4000
    with started(contestant, root) as broker:
        topic_id = create_topic(broker, "latency")
        _make_internal_topic(broker)
        _produce(broker, topic_id, count)
        alone = _produce(broker, topic_id, count)
        with _members(broker, groups) as (process, expect_s):
            began, cpu = time.perf_counter(), broker.cpu_seconds()
            time.sleep(expect_s)
            busy = (broker.cpu_seconds() - cpu) / (time.perf_counter() - began)
            among = _produce(broker, topic_id, count)
            heartbeats, errors = _finish(process)
        if errors or not heartbeats:
            raise RuntimeError(f"{broker.label}: {errors} of {heartbeats} heartbeats were refused")
        members = f"{groups * MEMBERS:,} members"
        for label, samples in (("no groups", alone), (members, among)):
            cuts = statistics.quantiles(samples, n=100)
            figures.add(NAME, contestant, f"produce, {label}, p50", cuts[49] * 1e3, "ms", "lower")
            figures.add(NAME, contestant, f"produce, {label}, p99", cuts[98] * 1e3, "ms", "lower")
        figures.add(NAME, contestant, f"CPU of {members}' heartbeats", busy * 100, "%", "lower")


def _make_internal_topic(broker: BrokerProcess) -> None:
    """Have the topic of offsets made; whoever asks meanwhile may hear that the coordinator is elsewhere."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "first"})
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            consumer.committed([TopicPartition("latency", 0)], timeout=60)
            break
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    consumer.close()


def _produce(broker: BrokerProcess, topic_id: bytes, count: int) -> list[float]:
    """Round trips at a steady pace, so that they meet heartbeats where they come."""
    request = wire.produce_request(topic_id, 0, bytes(wire.batch(1, 100)))
    samples = []
    with wire.connect(broker.port) as connection:
        for _ in range(count):
            began = time.perf_counter()
            wire.ask(connection, request)
            samples.append(time.perf_counter() - began)
            time.sleep(max(0.0, PACE_S - samples[-1]))
    return samples


@contextmanager
def _members(broker: BrokerProcess, groups: int) -> Iterator[tuple[subprocess.Popen[str], float]]:
    command = [sys.executable, "-m", "benchmarks.group_members", str(broker.port), str(groups), str(MEMBERS)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        if process.stdout.readline().strip() != "ready" or time.monotonic() > deadline:
            raise RuntimeError(f"the groups of {broker.label} did not get ready")
        yield process, 6.0
    finally:
        process.kill()
        process.wait()


def _finish(process: subprocess.Popen[str]) -> tuple[int, int]:
    out, _ = process.communicate(timeout=60)
    heartbeats, errors = out.split()
    return int(heartbeats), int(errors)
