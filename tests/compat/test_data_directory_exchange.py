"""Data directories change hands: Tidelog opens what Apache Kafka wrote, and Kafka loads what Tidelog wrote.

Kafka's broker keeps topics in its metadata log, so it cannot be pointed at a foreign directory. For the way
back it gets topics of its own with the same names, whose partitions' files are then replaced by Tidelog's.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat import workload
from tests.compat.conftest import BROKER_OPTIONS, available
from tests.compat.workload import Contents

CLEAN_MARK = ".kafka_cleanshutdown"


class History:
    """What a broker held when it was stopped."""

    def __init__(self, broker: BrokerProcess) -> None:
        workload.write(broker.address)
        self.committed = workload.read(broker.address)
        self.uncommitted = workload.read(broker.address, isolation="read_uncommitted")
        self.topic_ids = workload.topic_ids(broker.address)
        self.data_dir = broker.data_dir


def assert_same(found: Contents, expected: Contents) -> None:
    assert found.keys() == expected.keys()
    for place, records in expected.items():
        if place[0] == workload.COMPACTED:  # the cleaner may have gone on meanwhile
            assert workload.latest_by_key(found[place]) == workload.latest_by_key(records)
        elif place[0] == "trimmed":
            # Brokers write down where a log starts once a minute: after a crash deleted records may be back.
            assert found[place][-len(records) :] == records
        else:
            assert found[place] == records, place


@pytest.fixture(scope="module", params=["kafka-4", "kafka-3.9"])
def jars(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module", params=["stopped", "killed"])
def kafkas(
    request: pytest.FixtureRequest, jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[History]:
    """A directory that Apache Kafka left behind, in good order or by kill -9."""
    with available():
        kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), BROKER_OPTIONS, jars=jars)
        kafka.start()
    try:
        history = History(kafka)
        if request.param == "stopped":
            kafka.stop()
        yield history
    finally:
        kafka.kill()


@pytest.fixture
def adopted(kafkas: History, tmp_path: Path) -> Iterator[Tidelog]:
    """Tidelog on a copy of Kafka's directory."""
    tidelog = Tidelog(tmp_path / "tidelog", BROKER_OPTIONS)
    shutil.copytree(kafkas.data_dir, tidelog.data_dir)
    (tidelog.data_dir / ".lock").unlink(missing_ok=True)
    tidelog.start()
    yield tidelog
    tidelog.kill()


def test_tidelog_opens_kafkas_directory_with_all_topics_ids_and_records(
    adopted: Tidelog, kafkas: History
) -> None:
    assert workload.topic_ids(adopted.address) == kafkas.topic_ids
    assert_same(workload.read(adopted.address), kafkas.committed)
    assert_same(workload.read(adopted.address, isolation="read_uncommitted"), kafkas.uncommitted)


def test_tidelog_goes_on_writing_in_kafkas_directory(adopted: Tidelog, kafkas: History) -> None:
    producer = workload.open_producer(
        adopted.address, **{"enable.idempotence": True, "compression.codec": "zstd"}
    )
    for index in range(50):
        producer.produce("codec-gzip", partition=0, key=b"new", value=b"%d" % index)
    workload.flush_all(producer)
    place = ("codec-gzip", 0)
    before = kafkas.committed[place]
    assert adopted.stop() == 0
    adopted.start()
    after = workload.read(adopted.address, [place])[place]
    assert after[: len(before)] == before
    assert [(each.offset, each.value) for each in after[len(before) :]] == [
        (before[-1].offset + 1 + index, b"%d" % index) for index in range(50)
    ]


@pytest.fixture(scope="module", params=["stopped", "killed"])
def tidelogs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A directory that Tidelog left behind, in good order or by kill -9."""
    tidelog = Tidelog(tmp_path_factory.mktemp("tidelog"), BROKER_OPTIONS)
    tidelog.start()
    try:
        history = History(tidelog)
        if request.param == "stopped":
            assert tidelog.stop() == 0
        else:
            tidelog.kill()
        yield history
    finally:
        tidelog.kill()


@pytest.mark.parametrize("shutdown", ["clean", "unclean"])
def test_kafka_loads_the_partitions_that_tidelog_wrote(
    tidelogs: History, jars: str, shutdown: str, tmp_path: Path
) -> None:
    with available():
        kafka = ApacheKafka(tmp_path / "kafka", BROKER_OPTIONS, jars=jars)
        kafka.start()
    try:
        workload.create_topics(kafka.address)
        kafka.stop()
        transplant(tidelogs.data_dir, kafka.data_dir)
        if shutdown == "unclean":  # Kafka then checks every batch of every segment and rebuilds the indexes
            (kafka.data_dir / CLEAN_MARK).unlink()
        kafka.output.write_text("")
        kafka.start()
        assert_same(workload.read(kafka.address), tidelogs.committed)
        assert load_complaints(kafka.output.read_text(), shutdown) == []
    finally:
        kafka.kill()


def transplant(source: Path, target: Path) -> None:
    """Put the segments, indexes, snapshots and epochs of `source` in place of those in `target`; ids stay."""
    for partition in source.iterdir():
        if not (partition / "partition.metadata").exists() or partition.name.startswith("__"):
            continue
        destination = target / partition.name
        kept = (destination / "partition.metadata").read_bytes()
        shutil.rmtree(destination)
        shutil.copytree(partition, destination)
        (destination / "partition.metadata").write_bytes(kept)
    # Where each log starts, up to where it is flushed and up to where it is replicated is kept beside them.
    for name in ("log-start-offset", "recovery-point-offset", "replication-offset"):
        checkpoint = source / f"{name}-checkpoint"
        if checkpoint.exists():
            shutil.copy(checkpoint, target)


def load_complaints(output: str, shutdown: str) -> list[str]:
    """What Kafka's log loading had to mend; after an unclean stop it rebuilds everything anyway."""
    expected = r"Found file .*\.snapshot" if shutdown == "clean" else r"recover|rebuil|Found file"
    return [
        line
        for line in output.splitlines()
        if re.search(r"UnifiedLog|LogLoader|LogSegment|Index|Corrupt|ProducerState|LocalLog", line)
        and re.search(r"WARN|ERROR", line)
        and not re.search(expected, line, re.IGNORECASE)
    ]
