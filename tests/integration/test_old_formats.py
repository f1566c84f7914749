"""A broker on segments of message formats 0 and 1, read by everything that reads topics."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.integration.command_line import CommandLine
from tests.integration.spark_topics import options, read_batch
from tests.rigs.old_formats import EVERY_FORMAT, Old, in_sets, numbered_records, old_set, seen

from tidelog import Admin, Consumer, Producer
from tidelog.cli import commands
from tidelog.errors import CorruptRecordError
from tidelog.ids import TopicPartition
from tidelog.records.compression import Codec
from tidelog.records.legacy import pack_legacy
from tidelog.testing.broker_thread import BrokerThread

WAIT_S = 20.0
RECORDS = 60
TOPICS = {f"old-v{magic}-{codec.label}": (magic, codec) for magic, codec in EVERY_FORMAT}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories as a broker before 0.11 left them: segments, and nothing else."""
    directory = tmp_path_factory.mktemp("old") / "data"
    for topic, (magic, codec) in TOPICS.items():
        for name in (topic, f"only-{topic}"):
            partition = directory / f"{name}-0"
            partition.mkdir(parents=True)
            sets = in_sets(numbered_records(RECORDS), magic, codec)
            (partition / f"{0:020d}.log").write_bytes(b"".join(sets))
    return directory


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[BrokerThread]:
    """A broker that found them, and has taken a few records more."""
    with BrokerThread(data_dir, options={"log.retention.ms": "-1"}) as running:
        with Producer(bootstrap_servers=running.bootstrap) as producer:
            for topic in TOPICS:
                for record in numbered_records(5, first=RECORDS):
                    producer.send(topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp)
            producer.flush()
        yield running


def expected(topic: str) -> list[Old]:
    magic, _ = TOPICS[topic]
    return [*seen(numbered_records(RECORDS), magic), *numbered_records(5, first=RECORDS)]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("start", [0, 10])
def test_our_consumer_reads_them(broker: BrokerThread, topic: str, start: int) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap, max_poll_records=4) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, start)
        found: list[Old] = []
        for record in consumer.records(timeout=WAIT_S):
            found.append(Old(record.offset, record.timestamp, record.key, record.value))
            if len(found) == RECORDS + 5 - start:
                break
    assert found == expected(topic)[start:]


@pytest.mark.parametrize("topic", TOPICS)
def test_our_consumer_reads_them_into_columns(broker: BrokerThread, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 3)
        found: list[Old] = []
        while len(found) < RECORDS + 2:
            table = consumer.poll_arrow(timeout=WAIT_S)
            assert table.num_rows
            columns = [table.column(name).to_pylist() for name in ("offset", "key", "value")]
            found += [Old(offset, 0, key, value) for offset, key, value in zip(*columns, strict=True)]
    assert found == [record._replace(timestamp=0) for record in expected(topic)[3:]]


@pytest.mark.parametrize("topic", TOPICS)
def test_librdkafka_reads_them(broker: BrokerThread, topic: str) -> None:
    client = LibrdkafkaConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "check.crcs": True}
    )
    try:
        client.assign([LibrdkafkaPartition(topic, 0, 10)])
        messages = client.consume(RECORDS - 5, WAIT_S)
    finally:
        client.close()
    assert [(each.offset(), each.key(), each.value()) for each in messages] == [
        (record.offset, record.key, record.value) for record in expected(topic)[10:]
    ]


# kafka-python needs a further library for the lz4 of format 0, aiokafka does not read it.
without_old_lz4 = pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "old-v0-lz4"])


@without_old_lz4
def test_kafka_python_reads_them(broker: BrokerThread, topic: str) -> None:
    wanted = [(record.offset, record.key, record.value) for record in expected(topic)[10:]]
    client = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=int(WAIT_S * 1000))
    try:
        client.assign([KafkaPythonPartition(topic, 0)])
        client.seek(KafkaPythonPartition(topic, 0), 10)
        found = [(each.offset, each.key, each.value) for each in islice(client, len(wanted))]
    finally:
        client.close()
    assert found == wanted


@without_old_lz4
def test_aiokafka_reads_them(broker: BrokerThread, topic: str) -> None:
    # It takes all of an answer for the format of its first batch: no other may follow.
    wanted = [(record.offset, record.key, record.value) for record in expected(topic)[10:RECORDS]]
    topic = f"only-{topic}"

    async def read() -> list[tuple[int, bytes | None, bytes | None]]:
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as reader:
            reader.assign([AioPartition(topic, 0)])
            reader.seek(AioPartition(topic, 0), 10)
            async with asyncio.timeout(WAIT_S):
                messages = [await reader.getone() for _ in wanted]
        return [(each.offset, each.key, each.value) for each in messages]

    assert asyncio.run(read()) == wanted


@pytest.mark.parametrize("topic", TOPICS)
def test_spark_reads_ranges_of_them(broker: BrokerThread, topic: str) -> None:
    starts, ends = json.dumps({topic: {"0": 11}}), json.dumps({topic: {"0": 40}})
    given = options(broker.bootstrap, subscribe=topic, startingOffsets=starts, endingOffsets=ends)
    table = read_batch(given)
    rows = table.select(["offset", "key", "value"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (record.offset, record.key, record.value) for record in expected(topic)[11:40]
    ]


@pytest.mark.parametrize("topic", TOPICS)
def test_commands_show_them(broker: BrokerThread, data_dir: Path, topic: str) -> None:
    tidelog = CommandLine(broker.bootstrap)
    printed = tidelog.ok("consume", topic, "--offset", "3", "--until-end", "--key")
    wanted = expected(topic)[3:]
    assert printed.splitlines() == [
        f"{record.key!r}\t{record.value!r}".replace("b'", "").replace("'", "") for record in wanted
    ]
    segment = str(data_dir / f"{topic}-0" / f"{0:020d}.log")
    with redirect_stdout(StringIO()) as out:
        assert commands.run(["log", "dump", segment]) == 0
    assert "BAD" not in out.getvalue()


def test_what_cannot_be_read_is_named_and_stops_no_other_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = numbered_records(3, first=5)
    for topic in ("bad", "good"):
        partition = tmp_path / "data" / f"{topic}-0"
        partition.mkdir(parents=True)
        bad = pack_legacy(4, 1, Codec.GZIP, 1, None, b"no gzip") if topic == "bad" else b""
        (partition / f"{0:020d}.log").write_bytes(bad + old_set(good, 1, Codec.GZIP))
    with (
        caplog.at_level(logging.ERROR),
        BrokerThread(tmp_path / "data", options={"log.retention.ms": "-1"}) as broker,
        Consumer(bootstrap_servers=broker.bootstrap) as consumer,
    ):
        bad_place, good_place = TopicPartition("bad", 0), TopicPartition("good", 0)
        consumer.assign([bad_place])
        consumer.seek(bad_place, 0)
        with pytest.raises(CorruptRecordError, match="partition bad-0, offset 0: gzip data cannot be"):
            next(consumer.records(timeout=WAIT_S))
        # The application seeks past it.
        consumer.seek(bad_place, 5)
        assert next(consumer.records(timeout=WAIT_S)).offset == 5
        found = consumer.offsets_for_times({bad_place: good[1].timestamp})[bad_place]
        assert found is not None
        assert found.offset == 6
        consumer.assign([good_place])
        consumer.seek(good_place, 0)
        assert next(consumer.records(timeout=WAIT_S)).offset == 5
    assert not caplog.messages


@pytest.mark.parametrize("topic", ["old-v0-none", "old-v1-lz4"])
def test_a_log_is_moved_to_another_directory_as_it_is(tmp_path: Path, topic: str) -> None:
    magic, codec = TOPICS[topic]
    here, there = tmp_path / "here", tmp_path / "there"
    (here / f"{topic}-0").mkdir(parents=True)
    there.mkdir()
    data = b"".join(in_sets(numbered_records(2000), magic, codec))
    (here / f"{topic}-0" / f"{0:020d}.log").write_bytes(data)
    place = TopicPartition(topic, 0)
    options = {"log.dirs": f"{here},{there}", "log.retention.ms": "-1"}
    with BrokerThread(here, options=options) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        (broker_id,) = admin.describe_log_dirs()
        (move,) = admin.alter_replica_log_dirs({(broker_id, place): str(there)})
        assert move.error is None
        deadline = time.monotonic() + WAIT_S
        while broker.call(lambda inner: inner.partitions.get(*place).log.files.log_dir) != there:
            assert time.monotonic() < deadline, "the log was not moved"
            time.sleep(0.02)
        with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            consumer.assign([place])
            consumer.seek(place, 1990)
            found = [each.offset for each in islice(consumer.records(timeout=WAIT_S), 10)]
    assert found == list(range(1990, 2000))
    moved = sorted((there / f"{topic}-0").glob("*.log"))
    assert b"".join(path.read_bytes() for path in moved) == data
