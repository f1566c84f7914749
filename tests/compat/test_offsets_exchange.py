"""Committed offsets change hands: Tidelog replays Kafka's `__consumer_offsets`, Kafka replays Tidelog's.

Both are told the same history: plain commits, one by one and again, transactions that end either way, one
that is open, and offsets that are deleted.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.conftest import available

from tidelog.records.batch import iter_batches
from tidelog.records.record import decode_batch

OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
TOPIC, PARTITIONS = "orders", 3
PATIENCE_S = 60.0
NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
OFFSETS_DIR, TRANSACTIONS_DIR = "__consumer_offsets-0", "__transaction_state-0"

Offsets = dict[tuple[str, int], tuple[int, str | None]]
EXPECTED: dict[str, Offsets] = {
    "plain": {(TOPIC, 0): (7, "seven"), (TOPIC, 1): (5, ""), (TOPIC, 2): (1 << 40, "ünïcödé")},
    "committed": {(TOPIC, 0): (10, None)},
    "aborted": {(TOPIC, 0): (1, "before")},
    "open": {(TOPIC, 0): (2, "before")},
    "deleted": {},
}


def write(address: str) -> list[Producer]:
    """Commit it all; the transactions of the producers that are given back are still open."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    commit(address, "plain", (0, 3, "three"), (1, 5, ""), (2, 1 << 40, "ünïcödé"))
    commit(address, "plain", (0, 7, "seven"))
    commit(address, "aborted", (0, 1, "before"))
    commit(address, "open", (0, 2, "before"))
    commit(address, "deleted", (0, 2, ""), (1, 3, ""))
    for future in admin.delete_consumer_groups(["deleted"]).values():
        future.result(60)
    open_transaction(address, "committed", 10).commit_transaction(60)
    open_transaction(address, "aborted", 11).abort_transaction(60)
    return [open_transaction(address, "open", 12)]


def commit(address: str, group: str, *offsets: tuple[int, int, str]) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(TOPIC, index, offset, metadata=text) for index, offset, text in offsets]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def open_transaction(address: str, group: str, offset: int) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": group})
    producer.init_transactions(60)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    producer.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata(), 60
    )
    consumer.close()
    return producer


def read(address: str, group: str) -> Offsets:
    """A group's offsets, as soon as its coordinator has loaded them."""
    admin = AdminClient({"bootstrap.servers": address})
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        try:
            found = answer.result(60).topic_partitions
            break
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    # librdkafka gives no metadata for an empty one.
    return {(each.topic, each.partition): (each.offset, each.metadata or "") for each in found}


def assert_known(address: str) -> None:
    for group, offsets in EXPECTED.items():
        expected = {place: (offset, text or "") for place, (offset, text) in offsets.items()}
        assert read(address, group) == expected, group


@pytest.fixture(scope="module", params=["kafka-4", "kafka-3.9"])
def kafkas_directory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    with available():
        kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), OPTIONS, jars=request.param)
        kafka.start()
    try:
        write(kafka.address)
        assert_known(kafka.address)
        kafka.kill()
        yield kafka.data_dir
    finally:
        kafka.kill()


def test_tidelog_knows_what_was_committed_to_kafka(kafkas_directory: Path, tmp_path: Path) -> None:
    tidelog = Tidelog(tmp_path / "tidelog", OPTIONS)
    shutil.copytree(kafkas_directory, tidelog.data_dir)
    (tidelog.data_dir / ".lock").unlink(missing_ok=True)
    tidelog.start()
    try:
        assert_known(tidelog.address)
        # A producer that comes back under the open transaction's id ends it.
        open_transaction(tidelog.address, "open", 20).commit_transaction(60)
        assert read(tidelog.address, "open") == {(TOPIC, 0): (20, "")}
    finally:
        tidelog.kill()


def test_kafka_knows_what_was_committed_to_tidelog(tmp_path: Path) -> None:
    tidelog = Tidelog(tmp_path / "tidelog", OPTIONS)
    tidelog.start()
    try:
        write(tidelog.address)
        assert_known(tidelog.address)
    finally:
        tidelog.kill()
    with available():
        kafka = ApacheKafka(tmp_path / "kafka", OPTIONS)
        kafka.start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        commit(kafka.address, "plain", (0, 0, ""))
        open_transaction(kafka.address, "committed", 0).abort_transaction(60)
        kafka.stop()
        for name in (OFFSETS_DIR, TRANSACTIONS_DIR):
            transplant(tidelog.data_dir / name, kafka.data_dir / name)
        kafka.start()
        assert_known(kafka.address)
    finally:
        kafka.kill()


def transplant(source: Path, target: Path) -> None:
    """Put the files of a partition in the place of another's, which keeps its topic id."""
    identity = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    shutil.copytree(source, target)
    (target / "partition.metadata").write_bytes(identity)


def test_commits_are_the_same_bytes(tmp_path: Path) -> None:
    found = {}
    for broker in (Tidelog(tmp_path / "tidelog", OPTIONS), ApacheKafka(tmp_path / "kafka", OPTIONS)):
        with available():
            broker.start()
        try:
            write(broker.address)
        finally:
            broker.kill()
        found[broker.label] = records_of(broker)
    assert found["tidelog"] == found["apache"]


def records_of(broker: BrokerProcess) -> list[tuple[bool, bool, bytes | None, bytes | None]]:
    """Transactional, control, key and value of every record; times and topic ids made equal."""
    found = []
    for path in sorted((broker.data_dir / OFFSETS_DIR).glob("*.log")):
        raw = path.read_bytes()
        for pos, header in iter_batches(raw):
            for record in decode_batch(raw[pos : pos + header.size_bytes]):
                value = record.value
                if value is not None and (record.key or b"")[:2] == b"\0\1":
                    value = without_time_and_id(value)
                found.append((header.is_transactional, header.is_control, record.key, value))
    return found


def without_time_and_id(value: bytes) -> bytes:
    """A value of version 4 with zeros for the commit time and the topic's id."""
    time_at = 14 + value[14]
    tags_at = time_at + 8
    id_bytes = max(len(value) - tags_at - 3, 0)
    return value[:time_at] + bytes(8) + value[tags_at : tags_at + 3] + bytes(id_bytes)
