"""How long groups wait for a broker that replays a million commits, and what the replay costs.

Seconds are from the broker's first answer to the first committed offset that it returns. CPU and memory are
measured then, minus those of a start with an empty `__consumer_offsets`. Both brokers get the same files with
one partition of that topic. Kafka starts to load before it answers, so compare the CPU rather than the
seconds.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from foreign.broker_process import BrokerProcess

from benchmarks import offset_log, wire
from benchmarks.contestants import make, scratch
from benchmarks.figures import Figures

NAME = "replay"
COMMITS = 1_000_000
SHAPES = {"10,000 offsets": (1000, 10), "1 M offsets": (1000, 1000)}
OPTIONS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
OFFSET_FETCH, OFFSET_FETCH_VERSION = 9, 8
DEADLINE_S = 120.0
_AGAIN = (14, 15, 16)  # loading, not available, not the coordinator


class Start(NamedTuple):
    seconds: float
    cpu_seconds: float
    rss_bytes: int


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    commits = COMMITS // 4 if quick else COMMITS
    with scratch(root) as directory:
        broker = make(contestant, directory, OPTIONS)
        try:
            broker.start()
            _make_internal_topic(broker)
            broker.stop()
            empty = _start(broker, -1)
            broker.stop()
            for shape, (wanted_groups, partitions) in SHAPES.items():
                # A quick run with fewer commits has fewer groups to spread them over.
                groups = min(wanted_groups, commits // partitions)
                offset_log.write(broker.data_dir / "__consumer_offsets-0", commits, groups, partitions)
                expected = offset_log.last_offset(commits, groups, partitions, 0, partitions // 4)
                full = _start(broker, expected, partitions // 4)
                broker.stop()
                label = f"1 M commits of {shape}"
                scale = COMMITS / commits
                for what, value, unit in (
                    ("", full.seconds * scale, "s"),
                    (", CPU", (full.cpu_seconds - empty.cpu_seconds) * scale, "s"),
                    (", memory", (full.rss_bytes - empty.rss_bytes) / 1e6 * wanted_groups / groups, "MB"),
                ):
                    figures.add(NAME, contestant, label + what, max(value, 0.0), unit, "lower")
        finally:
            broker.kill()


def _make_internal_topic(broker: BrokerProcess) -> None:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "group-0"})
    consumer.committed([TopicPartition(offset_log.TOPIC, 0)], timeout=60)
    consumer.close()


def _start(broker: BrokerProcess, expected: int, partition: int = 0) -> Start:
    """Start the broker and wait until it tells what group 0 has committed."""
    broker.start()
    began = time.perf_counter()
    deadline = time.monotonic() + DEADLINE_S
    request = _fetch_request("group-0", partition)
    with wire.connect(broker.port) as connection:
        while True:
            code, offset = _parse(wire.ask(connection, request))
            if not code:
                break
            if code not in _AGAIN or time.monotonic() > deadline:
                raise RuntimeError(f"{broker.label} answers with error {code}")
            time.sleep(0.01)
    seconds = time.perf_counter() - began
    if offset != expected:
        raise RuntimeError(f"{broker.label} has found offset {offset}, not {expected}")
    return Start(seconds, broker.cpu_seconds(), broker.rss_bytes())


def _text(text: str) -> bytes:
    return wire.unsigned_varint(len(text) + 1) + text.encode()


def _fetch_request(group: str, partition: int) -> bytes:
    topic = _text(offset_log.TOPIC) + b"\x02" + struct.pack(">i", partition) + b"\x00"
    body = b"\x02" + _text(group) + b"\x02" + topic + b"\x00" + b"\x00" + b"\x00"
    return wire.frame(OFFSET_FETCH, OFFSET_FETCH_VERSION, body)


def _parse(answer: bytes) -> tuple[int, int]:
    """The group's error and the one partition's offset."""
    pos = 4 + 1 + 4 + 1  # correlation id, tags, throttle time, one group
    pos += answer[pos]  # the group's id
    topics, pos = answer[pos] - 1, pos + 1
    if topics <= 0:
        return struct.unpack_from(">h", answer, pos)[0], -1
    pos += answer[pos]  # the topic's name
    pos += 1 + 4  # one partition, its number
    (offset,) = struct.unpack_from(">q", answer, pos)
    return 0, offset
