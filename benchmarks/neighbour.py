"""What a well-behaved client notices while another client attacks the broker.

The well-behaved client produces one record (acks=all) and fetches one every ten milliseconds. Times count
from when a request was due. Memory is the broker's peak resident set during the attack. Each attack runs
against one broker and against the leader of three brokers with three replicas, all at defaults, one request
at a time unless stated:

- "tiny records": a 49 KB gzip batch with 32 MB of 7-byte records whose offsets do not rise, sent to topics
  with defaults, with compaction, with another `compression.type`, with `message.timestamp.before.max.ms`, and
  with a timestamp days ahead;
- "valid records": as many as fit into a 1 MB batch, to topics with defaults and with another
  `compression.type`, and ListOffsets by time on such a batch;
- "1 GB record": a 1 MB gzip batch with one record of 1 GB, to a topic with another `compression.type`, and
  ListOffsets by time on such a batch if the broker accepted it;
- "unread Metadata": a hundred clients request the metadata of 200 partitions without pause and read nothing;
- "half-sent frames": two thousand clients announce 1 MB and send 100 KB.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from foreign.broker_process import BrokerProcess
from foreign.toolchain import ROOT

from benchmarks import attacks, heavy_batches, neighbour_probe, wire
from benchmarks.attacks import Attack
from benchmarks.contestants import cluster, started, topic_id
from benchmarks.figures import Figures

NAME = "neighbour"
TOPIC = "neighbour"
METADATA_TOPICS, METADATA_PARTITIONS = 20, 10
SETTLE_S = 300.0
TOPICS: dict[str, dict[str, str]] = {
    TOPIC: {},
    "default": {},
    "ahead": {},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "zstd"},
    "bounded": {"message.timestamp.before.max.ms": str(heavy_batches.DAY_MS)},
    "dense": {},
    "dense-recompressed": {"compression.type": "zstd"},
    "listed": {},
    "huge": {"compression.type": "zstd"},
    "huge-listed": {},
}


class Brokers(NamedTuple):
    """One broker or three, of which the first leads everything."""

    where: str
    processes: Sequence[BrokerProcess]

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.processes)


class Seen(NamedTuple):
    """What the neighbour saw, in seconds."""

    produce: list[float]
    fetch: list[float]
    failures: int


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    seconds = 2.0 if quick else 6.0
    with started(contestant, root) as broker:
        _attack_all(contestant, Brokers("one broker", [broker]), figures, seconds)
    with cluster(contestant, root) as running:
        _attack_all(contestant, Brokers("three brokers", running.brokers), figures, seconds)


def _attack_all(contestant: str, brokers: Brokers, figures: Figures, seconds: float) -> None:
    wanted = _create_topics(brokers)
    _watch(brokers, wanted, None, seconds)  # connections and hot paths
    for label, attack in _attacks(brokers):
        for broker in brokers.processes:
            _forget_peak(broker)
        seen = _watch(brokers, wanted, attack, seconds)
        peak = max(map(_peak_bytes, brokers.processes))
        name = f"{brokers.where}, {label}"
        for kind, samples in (("produce", seen.produce), ("fetch", seen.fetch)):
            cuts = statistics.quantiles(samples, n=100)
            for share, value in (("p50", cuts[49]), ("p99", cuts[98]), ("longest", max(samples))):
                figures.add(NAME, contestant, f"{name}: {kind} {share}", value * 1e3, "ms", "lower")
        figures.add(NAME, contestant, f"{name}: repeated", seen.failures, "requests", "lower")
        figures.add(NAME, contestant, f"{name}: peak memory", peak / 1e6, "MB", "lower")
        _settle(brokers)


def _attacks(brokers: Brokers) -> Iterator[tuple[str, Attack | None]]:
    tiny, dense, huge = heavy_batches.tiny(), heavy_batches.dense(), heavy_batches.huge()
    ahead = heavy_batches.tiny(ahead_ms=10 * heavy_batches.DAY_MS)
    yield "nobody attacks", None
    yield "tiny records", _producing("default", tiny)
    yield "tiny records, compacted", _producing("compacted", tiny)
    yield "tiny records, another compression", _producing("recompressed", tiny)
    yield "tiny records, bounded timestamps", _producing("bounded", tiny)
    yield "tiny records, ahead of time", _producing("ahead", ahead)
    yield "valid records", _producing("dense", dense)
    yield "valid records, another compression", _producing("dense-recompressed", dense)
    yield "valid records, ListOffsets", _listing(brokers, "listed", dense)
    yield "1 GB record, another compression", _producing("huge", huge)
    yield "1 GB record, ListOffsets", _listing(brokers, "huge-listed", huge)
    yield "unread Metadata", attacks.unread_metadata
    yield "half-sent frames", attacks.half_sent_frames


def _producing(topic: str, batch: bytes) -> Attack:
    return attacks.repeating(wire.produce_request_by_name(topic, 0, batch))


def _listing(brokers: Brokers, topic: str, batch: bytes) -> Attack:
    """ListOffsets onto a batch that is in the log by then, if the broker has taken it."""
    with wire.connect(brokers.processes[0].port) as connection:
        connection.settimeout(SETTLE_S)
        with contextlib.suppress(ConnectionError):
            wire.ask(connection, wire.produce_request_by_name(topic, 0, batch))
    newest = int.from_bytes(batch[35:43], "big")
    return attacks.repeating(attacks.list_offsets_request(topic, newest))


def _watch(brokers: Brokers, wanted: bytes, attack: Attack | None, seconds: float) -> Seen:
    """Let the neighbour work for some seconds while the attack goes on."""
    ports = ",".join(str(broker.port) for broker in brokers.processes)
    command = [sys.executable, "-m", "benchmarks.neighbour_probe", ports, wanted.hex(), str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    stop = threading.Event()
    attacker = threading.Thread(target=attack or _nothing, args=(brokers.processes[0].port, stop))
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the neighbour of {brokers.where} was not served before the attack")
        attacker.start()
        threading.Timer(seconds, stop.set).start()
        out, _ = process.communicate(timeout=2 * (neighbour_probe.BOUND_S + seconds))
    finally:
        stop.set()
        process.kill()
        process.wait()
        if attacker.ident is not None:
            attacker.join()
    if process.returncode:
        raise RuntimeError(f"{brokers.processes[0].label}, {brokers.where}: the neighbour was not served")
    return Seen(**json.loads(out))


def _nothing(_port: int, stop: threading.Event) -> None:
    stop.wait()


def _create_topics(brokers: Brokers) -> bytes:
    """Those that are attacked and those that Metadata tells of; returns the id of the neighbour's."""
    admin = AdminClient({"bootstrap.servers": brokers.addresses})
    replicas = [broker.node_id for broker in brokers.processes]
    made = [
        NewTopic(topic, 1, replica_assignment=[replicas], config=configs) for topic, configs in TOPICS.items()
    ]
    made += [
        NewTopic(f"many-{index}", METADATA_PARTITIONS, replica_assignment=[replicas] * METADATA_PARTITIONS)
        for index in range(METADATA_TOPICS)
    ]
    for created in admin.create_topics(made).values():
        created.result(60)
    deadline = time.monotonic() + 60
    while True:
        found = admin.list_topics(timeout=60).topics
        if all(
            name in found and len(found[name].partitions[0].isrs) == len(replicas)
            for name in (each.topic for each in made)
        ):
            return topic_id(brokers.addresses, TOPIC)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{brokers.where}: topics are not there, or not in sync, after 60 s")
        time.sleep(0.1)


def _settle(brokers: Brokers) -> None:
    """Wait until all brokers answer at once again."""
    deadline = time.monotonic() + SETTLE_S
    for broker in brokers.processes:
        while True:
            began = time.monotonic()
            if broker.serves() and time.monotonic() - began < 0.1:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{broker.label} has not come to rest {SETTLE_S} s after an attack")
            time.sleep(0.1)


def _forget_peak(broker: BrokerProcess) -> None:
    """Let the kernel note the peak of the resident set anew, see proc_pid_clear_refs(5)."""
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")


def _peak_bytes(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024
