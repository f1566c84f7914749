"""The same batches sent to Tidelog and to Apache Kafka leave the same files, byte for byte.

Everything that a broker may choose is taken out of its hands: producer ids, sequence numbers and timestamps
are ours. Left are the two stamps that a broker puts into a batch (offset, leader epoch), when it rolls, what
it indexes, and what it notes of producers: those must agree.
"""

from __future__ import annotations

import hashlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog, read_exactly
from tests.compat.conftest import available
from tests.compat.workload import CODECS, SEGMENT_BYTES

from tidelog.errors import ErrorCode
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch

LEADER_NOT_READY = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
TIME_MS = 1_700_000_000_000
NEVER = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
TOPICS: dict[str, dict[str, str]] = {
    **{f"codec-{codec}": {"segment.bytes": str(SEGMENT_BYTES)} for codec in CODECS},
    "dense-index": {"index.interval.bytes": "0", "segment.bytes": str(SEGMENT_BYTES)},
    "small-index": {"index.interval.bytes": "1", "segment.index.bytes": "1200"},
    "timely-roll": {"segment.ms": "3600000"},
    "idempotent": {"segment.bytes": str(SEGMENT_BYTES)},
    "recompressed": {"compression.type": "uncompressed"},
    "time-goes-back": {},
    **{
        name: {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "1.0",  # until all is written, see _compact
            "file.delete.delay.ms": "100",
        }
        for name in ("compacted", "compacted-idempotent")
    },
}
KEYS_WHEN_COMPACTED = 25


def _batch(rng: random.Random, at_ms: int, **options: int | Codec) -> bytes:
    records = [
        Record(
            timestamp=at_ms + index % 3,
            key=b"key-%d" % rng.randrange(KEYS_WHEN_COMPACTED),
            value=rng.randbytes(rng.randrange(3000)),
        )
        for index in range(rng.randrange(1, 8))
    ]
    return bytes(encode_batch(records, **options))  # type: ignore[arg-type]


def _batches(topic: str) -> Iterator[bytes]:
    """What is sent to a topic: the same for both brokers."""
    rng = random.Random(topic)
    if topic.endswith("idempotent"):
        yield from _idempotent_batches(rng)
        return
    codec = Codec[topic.removeprefix("codec-").upper()] if topic.startswith("codec-") else Codec.NONE
    codec = Codec.LZ4 if topic == "recompressed" else codec
    for index in range(400):
        step = -index if topic == "time-goes-back" else index
        yield _batch(rng, TIME_MS + step * 60_000, codec=codec)


def _idempotent_batches(rng: random.Random) -> Iterator[bytes]:
    """Three producers by turns, one of which comes back with a new epoch."""
    sequences = {(7001, 0): 0, (7002, 3): 0, (7003, 0): 0, (7001, 1): 0}
    for index in range(400):
        producer_id, epoch = key = list(sequences)[index % 3 if index < 300 else 1 + index % 3]
        count = rng.randrange(1, 6)
        records = [
            Record(
                timestamp=TIME_MS + index,
                key=b"key-%d" % rng.randrange(KEYS_WHEN_COMPACTED),
                value=rng.randbytes(rng.randrange(4000)),
            )
            for _ in range(count)
        ]
        yield bytes(
            encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequences[key])
        )
        sequences[key] += count


def _produce(connection: socket.socket, topic: str, batch: bytes) -> int:
    """Produce v7, whose plain layout is written here by hand; returns the error code."""
    name = topic.encode()
    body = (
        struct.pack(">hhih", 0, 7, 1, -1)
        + struct.pack(">hhii", -1, -1, 30_000, 1)
        + struct.pack(">h", len(name)) + name
        + struct.pack(">iii", 1, 0, len(batch)) + batch
    )  # fmt: skip
    connection.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    answer = read_exactly(connection, size)
    return int(struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name) + 4 + 4)[0])


def _fill(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = [NewTopic(name, 1, 1, config={**NEVER, **configs}) for name, configs in TOPICS.items()]
    for created in admin.create_topics(wanted).values():
        created.result(60)
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        for topic in TOPICS:
            for batch in _batches(topic):
                while (error := _produce(connection, topic, batch)) in LEADER_NOT_READY:
                    pass
                assert error == 0, f"error {error} for {topic}"
    _compact(broker, [topic for topic in TOPICS if topic.startswith("compacted")])


def _compact(broker: BrokerProcess, topics: list[str]) -> None:
    """Have the cleaner go once over all but the active segments, and wait until it is done."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    ratio = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource("topic", topic, incremental_configs=[ratio]) for topic in topics]
    for altered in admin.incremental_alter_configs(resources).values():
        altered.result(60)
    active = {
        f"{topic} 0 {max(int(log.stem) for log in (broker.data_dir / f'{topic}-0').glob('*.log'))}"
        for topic in topics
    }
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 60
    while not active <= set(checkpoint.read_text().splitlines() if checkpoint.exists() else []):
        assert time.monotonic() < deadline, f"{broker.label} did not compact {topics} within a minute"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The data directories of both brokers after the same history and an orderly stop."""
    found = {}
    for kind in (Tidelog, ApacheKafka):
        with available():
            broker = kind(tmp_path_factory.mktemp(kind.label), {"log.cleaner.backoff.ms": "200"})
            broker.start()
        try:
            _fill(broker)
            broker.stop()
        finally:
            broker.kill()
        found[kind.label] = broker.data_dir
    return found


def _digests(partition: Path) -> dict[str, str]:
    """Name and content of every file; the topic id is each broker's own."""
    return {
        file.name: f"{file.stat().st_size} bytes, {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
        for file in sorted(partition.iterdir())
        if file.name != "partition.metadata" and not file.name.endswith(".deleted")
    }


@pytest.mark.parametrize("topic", TOPICS)
def test_a_partition_has_the_same_files(directories: dict[str, Path], topic: str) -> None:
    ours = _digests(directories["tidelog"] / f"{topic}-0")
    kafkas = _digests(directories["apache"] / f"{topic}-0")
    assert ours == kafkas
    assert any(name.endswith(".index") for name in ours)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_checkpoints_say_the_same(directories: dict[str, Path], name: str) -> None:
    def entries(directory: Path) -> list[str]:
        version, count, *lines = (directory / name).read_text().splitlines()
        assert version == "0"
        assert int(count) == len(lines)
        return sorted(line for line in lines if not line.startswith("__"))

    assert entries(directories["tidelog"]) == entries(directories["apache"])
    assert len(entries(directories["tidelog"])) == len(TOPICS)


def test_the_topic_id_is_written_the_same_way(directories: dict[str, Path]) -> None:
    for directory in directories.values():
        lines = (directory / "codec-none-0" / "partition.metadata").read_text().splitlines()
        assert lines[0] == "version: 0"
        assert lines[1].startswith("topic_id: ")
        assert len(lines) == 2
