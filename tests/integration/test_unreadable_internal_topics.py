"""What nobody can read in an internal topic costs nobody his groups and transactions after a restart.

The admin client's id may write whatever it likes into internal topics, and logs may hold batches that were
accepted before batches were looked into. Both are stepped over, and one line names them.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from foreign.broker_process import BrokerProcess
from tests.rigs.exactly_once.brokers import transaction_broker
from tests.rigs.exactly_once.producers import Confluent, read
from tests.rigs.group_members.topics import create
from tests.rigs.raw_client import RawClient

from tidelog.coordinator.stored_record import encode_key, encode_value
from tidelog.errors import ErrorCode
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.records.batch import ATTRIBUTES_AT, RECORD_COUNT_AT, iter_batches, set_base_offset, write_crc
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataKey, OffsetCommitKey
from tidelog.wire.internal_topics.transaction_state import TransactionLogKey, TransactionLogValue
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ONE_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
DECODERS = {
    CONSUMER_OFFSETS_TOPIC: "--offsets-decoder",
    TRANSACTION_STATE_TOPIC: "--transaction-log-decoder",
}
STATE_99 = TransactionLogValue(producer_id=5, transaction_status=99, transaction_partitions=None)
RECORDS = {
    CONSUMER_OFFSETS_TOPIC: [
        (b"k", b"v"),
        (b"\x7f\xff later", b"v"),
        (b"\0\1\0\5ab", b"v"),
        (encode_key(OffsetCommitKey(group="g", topic="t")), b"\0\4\0"),
        (encode_key(OffsetCommitKey(group="g", topic="t")), b"\0\x63 of another release"),
        (encode_key(GroupMetadataKey(group="g")), b"\0\3\0\1"),
    ],
    TRANSACTION_STATE_TOPIC: [
        (b"k", b"v"),
        (b"\x7f\xff later", b"v"),
        (b"\0\0\0\5ab", b"v"),
        (encode_key(TransactionLogKey(transactional_id="x")), b"\0\0\0"),
        (encode_key(TransactionLogKey(transactional_id="x")), encode_value(STATE_99, 0)),
    ],
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = transaction_broker(tmp_path, ONE_PARTITION)
    broker.start()
    yield broker
    broker.kill()


def write(broker: BrokerProcess, topic: str) -> None:
    """As the admin client: what is no record of the topic at all."""
    records = [Record(timestamp=1, key=key, value=value) for key, value in RECORDS[topic]]
    with RawClient("127.0.0.1", broker.port) as client:
        client.client_id = "__admin_client"
        for codec in (Codec.NONE, Codec.GZIP):
            data = PartitionProduceData(index=0, records=encode_batch(records, codec=codec))
            request = ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            )
            answer = client.ask(9, request, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def poison(directory: Path) -> None:
    """Batches that an earlier release would have taken, at the end of a log that nobody has open."""
    (log,) = directory.glob("*.log")
    end = max(header.next_offset for _, header in iter_batches(log.read_bytes()))
    whole = encode_batch([Record(timestamp=1, key=b"\0\1", value=b"v")] * 2)
    miscounted = bytearray(whole)
    struct.pack_into(">i", miscounted, RECORD_COUNT_AT, 7)
    empty = bytearray(whole[:61])
    with log.open("ab") as file:
        for batch in (miscounted, empty, *(packed(whole, codec) for codec in Codec if codec)):
            struct.pack_into(">i", batch, 8, len(batch) - 12)
            set_base_offset(batch, 0, end)
            write_crc(batch, 0, len(batch))
            file.write(batch)
            end += 2


def packed(whole: bytes, codec: Codec) -> bytearray:
    """A batch whose bytes are said to be of ``codec`` and are not."""
    batch = bytearray(whole)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, codec)
    return batch


def commit(broker: BrokerProcess, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: BrokerProcess) -> int:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    (found,) = consumer.committed([TopicPartition("t", 0)], timeout=30)
    consumer.close()
    assert found.error is None
    return int(found.offset)


def dumped(path: Path, decoder: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "log", "dump", str(path), decoder],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done.stdout


def lines_of(broker: BrokerProcess, topic: str) -> list[str]:
    output = broker.output.read_text(errors="replace")
    return [line for line in output.splitlines() if f"{topic}-0" in line and "cannot be" in line]


def test_groups_and_transactions_live_on_beside_what_cannot_be_read(broker: BrokerProcess) -> None:
    create(broker.address, "t", 1)
    commit(broker, 3)
    producer = Confluent(broker.address, "x")
    producer.begin()
    producer.send("t", b"first")
    producer.send_offsets("g", {("t", 0): 4})
    producer.commit()
    for topic in RECORDS:
        write(broker, topic)
    commit(broker, 5)
    broker.kill()
    for topic in RECORDS:
        poison(broker.data_dir / f"{topic}-0")
    broker.start()

    assert committed(broker) == 5
    commit(broker, 6)
    producer.begin()
    producer.send("t", b"second")
    producer.send_offsets("g", {("t", 0): 7})
    producer.commit()
    assert read(broker.address, "t", 0) == [b"first", b"second"]
    assert committed(broker) == 7
    admin = AdminClient({"bootstrap.servers": broker.address})
    assert admin.describe_consumer_groups(["g"])["g"].result(30).group_id == "g"

    for topic, records in RECORDS.items():
        (line,) = lines_of(broker, topic)
        assert f"{2 * len(records)} records and 6 batches cannot be read" in line
    broker.stop()
    broker.start()
    assert committed(broker) == 7
    for topic, records in RECORDS.items():
        first, again = lines_of(broker, topic)
        assert f"{2 * len(records)} records and 6 batches cannot be read" in again, first
        (log,) = (broker.data_dir / f"{topic}-0").glob("*.log")
        assert "unreadable: " in dumped(log, DECODERS[topic])
