"""Segments of message formats 0 and 1 under Tidelog and under Apache Kafka: the same to clients and tools.

Each broker gets topics, is stopped, and starts again on segments as brokers before 0.11 wrote them, without
indexes and without the mark of a clean stop. Formats that Kafka 3.9 itself can still write are those of
test_mixed_old_formats.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat import workload
from tests.compat.conftest import BROKER_OPTIONS, Tool, available
from tests.compat.test_dump_log_segments import complaints, dump, files, gaps
from tests.rigs.old_formats import EVERY_FORMAT, Old, in_sets, numbered_records, old_set, seen

from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import MAGIC_V2, check_crc, iter_batches
from tidelog.records.compression import Codec
from tidelog.records.legacy import batch_of, parse_legacy
from tidelog.records.record import decode_batch

KINDS: dict[str, Callable[[Path], BrokerProcess]] = {
    "tidelog": lambda directory: Tidelog(directory, BROKER_OPTIONS),
    "kafka-4": lambda directory: ApacheKafka(directory, BROKER_OPTIONS, jars="kafka-4"),
    "kafka-3.9": lambda directory: ApacheKafka(directory, BROKER_OPTIONS, jars="kafka-3.9"),
}
RECORDS = 100
CLEANED_WITHIN_S = 60.0
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
CHECKPOINTS = ("recovery-point-offset", "replication-offset", "log-start-offset", "cleaner-offset")


def name(magic: int, codec: Codec, kind: str = "old") -> str:
    return f"{kind}-v{magic}-{codec.label}"


OLD = {(name(magic, codec), 0): (magic, codec) for magic, codec in EVERY_FORMAT}
CLEANED = {(name(magic, codec, "cleaned"), 0): (magic, codec) for magic, codec in EVERY_FORMAT}


def records_to_clean() -> list[Old]:
    records = numbered_records(RECORDS)
    records[20] = records[20]._replace(key=None)
    records[91] = records[91]._replace(value=None)
    return records


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    """Each broker on its own copy of the old segments, written to since."""
    with ExitStack() as stack, available():
        running: dict[str, BrokerProcess] = {}
        for kind, make in KINDS.items():
            broker = running[kind] = make(tmp_path_factory.mktemp(kind))
            broker.start()
            stack.callback(broker.kill)
            create_topics(broker.address)
            broker.stop()
            put_old_segments(broker.data_dir)
            broker.start()
        yield running


def create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(topic, 1, 1, config={"retention.ms": "-1"}) for topic, _ in OLD]
    topics += [NewTopic(topic, 1, 1, config=COMPACTED) for topic, _ in CLEANED]
    for done in admin.create_topics(topics).values():
        done.result(workload.TIMEOUT_S)


def put_old_segments(data_dir: Path) -> None:
    for (topic, index), (magic, codec) in [*OLD.items(), *CLEANED.items()]:
        directory = data_dir / f"{topic}-{index}"
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        records = records_to_clean() if (topic, index) in CLEANED else numbered_records(RECORDS)
        (directory / f"{0:020d}.log").write_bytes(b"".join(in_sets(records, magic, codec)))
        last = numbered_records(7, first=RECORDS)
        (directory / f"{RECORDS:020d}.log").write_bytes(old_set(last, magic, codec))
    (data_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for checkpoint in CHECKPOINTS:
        (data_dir / f"{checkpoint}-checkpoint").unlink(missing_ok=True)


def plain(found: workload.Contents) -> dict[tuple[str, int], list[Old]]:
    return {
        place: [Old(each.offset, each.timestamp[1] or NO_TIMESTAMP, each.key, each.value) for each in records]
        for place, records in found.items()
    }


def test_consumers_get_the_same_records(brokers: dict[str, BrokerProcess]) -> None:
    expected = {place: seen(numbered_records(RECORDS + 7), magic) for place, (magic, _) in OLD.items()}
    contents = {kind: workload.read(broker.address, list(OLD)) for kind, broker in brokers.items()}
    assert plain(contents["tidelog"]) == expected
    assert contents["tidelog"] == contents["kafka-4"] == contents["kafka-3.9"]


def test_offsets_by_time_are_the_same(brokers: dict[str, BrokerProcess]) -> None:
    times = [record.timestamp for record in numbered_records(RECORDS + 8)]
    specs = {
        "earliest": OffsetSpec.earliest(),
        "latest": OffsetSpec.latest(),
        "youngest": OffsetSpec.max_timestamp(),
        **{str(at): OffsetSpec.for_timestamp(at) for at in (0, *times[:: len(times) // 9])},
    }
    found = {kind: {} for kind in brokers}  # type: dict[str, dict[tuple[str, str], tuple[int, int]]]
    for kind, broker in brokers.items():
        admin = AdminClient({"bootstrap.servers": broker.address})
        for label, spec in specs.items():
            wanted = {TopicPartition(*place): spec for place in OLD}
            for place, done in admin.list_offsets(wanted).items():
                result = done.result(workload.TIMEOUT_S)
                found[kind][place.topic, label] = (result.offset, result.timestamp)
    assert found["tidelog"] == found["kafka-4"]
    assert found["tidelog"][name(1, Codec.GZIP), "youngest"] == (RECORDS + 6, times[RECORDS + 6])


def test_records_of_format_2_follow_the_old_ones(brokers: dict[str, BrokerProcess]) -> None:
    for broker in brokers.values():
        producer = workload.open_producer(broker.address, **{"enable.idempotence": True})
        for topic, index in OLD:
            for number in range(5):
                producer.produce(topic, b"%d" % number, key=b"new", partition=index)
        workload.flush_all(producer)
    for broker in brokers.values():
        for records in workload.read(broker.address, list(OLD)).values():
            assert [record.offset for record in records] == list(range(RECORDS + 12))
            assert [record.value for record in records[-5:]] == [b"%d" % number for number in range(5)]


def stored(data_dir: Path, place: tuple[str, int]) -> list[tuple[int, int, int, bool, list[Old]]]:
    """Of each batch its magic, last offset, attributes, whether it has a delete horizon, and its records."""
    found = []
    for path in sorted((data_dir / "{}-{}".format(*place)).glob("*.log")):
        data = path.read_bytes()
        for pos, header in iter_batches(data):
            assert check_crc(data, pos, header.size_bytes)
            batch = data[pos:] if header.magic == MAGIC_V2 else batch_of(parse_legacy(data, pos))
            records = [Old(*record[:4]) for record in decode_batch(batch)]
            has_horizon = header.delete_horizon_ms is not None
            found.append((header.magic, header.last_offset, header.attributes, has_horizon, records))
    return found


def test_compaction_leaves_the_same_batches_of_format_2(brokers: dict[str, BrokerProcess]) -> None:
    deadline = time.monotonic() + CLEANED_WITHIN_S
    kept = sorted({record.key: record.offset for record in records_to_clean() if record.key}.values())
    for kind, broker in brokers.items():
        for place in CLEANED:
            while True:
                held = [record.offset for *_, records in stored(broker.data_dir, place) for record in records]
                if held == [*kept, *range(RECORDS, RECORDS + 7)]:
                    break
                assert time.monotonic() < deadline, (kind, place, held)
                time.sleep(0.2)
    for place, (magic, _) in CLEANED.items():
        ours = stored(brokers["tidelog"].data_dir, place)
        assert ours == stored(brokers["kafka-4"].data_dir, place), place
        assert {(each[0], each[1] < RECORDS) for each in ours} == {(2, True), (magic, False)}
    contents = {kind: workload.read(broker.address, list(CLEANED)) for kind, broker in brokers.items()}
    assert contents["tidelog"] == contents["kafka-4"]
    assert plain(contents["tidelog"]) == plain(contents["kafka-3.9"])


def test_kafkas_tool_finds_nothing_wrong(brokers: dict[str, BrokerProcess], kafka_tool: Tool) -> None:
    tidelog = brokers["tidelog"]
    tidelog.stop()
    try:
        for pattern in ("old-*", "cleaned-*"):
            printed = dump(kafka_tool, files(tidelog.data_dir, "log", pattern), "--deep-iteration")
            assert complaints(printed) == []
            if pattern == "old-*":
                assert gaps(printed) == []
            indexes = files(tidelog.data_dir, "index", pattern) + files(
                tidelog.data_dir, "timeindex", pattern
            )
            assert complaints(dump(kafka_tool, indexes)) == []
    finally:
        tidelog.start()
