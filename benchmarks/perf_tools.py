"""Kafka's own load tools, `kafka-producer-perf-test` and `kafka-consumer-perf-test`, of Apache Kafka 4.3.

They are started as their scripts start them and told what to send or read; what they print at the end is
their own measurement, in which the start of their JVM is not.
"""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

from benchmarks import apache

TIMEOUT_S = 300
PATIENCE_MS = 60_000
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec \(")
_CONSUMED_COUNT, _FETCH_RATE = 4, 9  # columns of what the consumer prints


class Throughput(NamedTuple):
    records: int
    records_per_s: float


def produce(addresses: str, topic: str, size: int, count: int) -> Throughput:
    """Send records as fast as it goes, with acks=all and everything else at the client's default."""
    arguments = ["--bootstrap-server", addresses, "--topic", topic, "--num-records", str(count)]
    arguments += ["--record-size", str(size), "--throughput", "-1", "--command-property", "acks=all"]
    return parse_produced(_run("ProducerPerformance", arguments))


def consume(addresses: str, topic: str, count: int) -> Throughput:
    """Read that many records from the beginning; the rate is without the time to join the group."""
    arguments = ["--bootstrap-server", addresses, "--topic", topic, "--num-records", str(count)]
    # The first group of all waits for the topic of offsets to be made, on a busy machine longer than 10 s.
    arguments += ["--hide-header", "--timeout", str(PATIENCE_MS)]
    return parse_consumed(_run("ConsumerPerformance", arguments))


def command(tool: str) -> list[str]:
    return apache.command(apache.KRAFT_JARS, apache.PERF_HEAP, f"org.apache.kafka.tools.{tool}")


def parse_produced(output: str) -> Throughput:
    """The last line that sums up; those before it are of intervals."""
    found = [match for line in output.splitlines() if (match := _SENT.match(line))]
    if not found:
        raise RuntimeError(f"kafka-producer-perf-test said:\n{output[-2000:]}")
    return Throughput(int(found[-1][1]), float(found[-1][2]))


def parse_consumed(output: str) -> Throughput:
    rows = [line.split(", ") for line in output.splitlines() if line.count(", ") >= _FETCH_RATE]
    if not rows:
        raise RuntimeError(f"kafka-consumer-perf-test said:\n{output[-2000:]}")
    return Throughput(int(rows[-1][_CONSUMED_COUNT]), float(rows[-1][_FETCH_RATE]))


def _run(tool: str, arguments: list[str]) -> str:
    done = subprocess.run(
        [*command(tool), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=apache.environment(),
    )
    if done.returncode != 0:
        raise RuntimeError(f"{tool} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout
