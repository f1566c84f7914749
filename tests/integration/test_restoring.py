"""Restoring from a compacted changelog: reading until the position is the end offset, as applications do.

The logs are compacted without a broker and then served by one. In some of them the active segment is empty,
as a crash in the middle of its first batch leaves it, so that the end of the log has been compacted, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.rigs.compacted_log import CompactedLog, in_transaction

from tidelog.client.consumer.consumer import Consumer
from tidelog.ids import TopicPartition
from tidelog.records.control import ControlType
from tidelog.testing.broker_process import BrokerProcess

DEADLINE_S = 30.0
ISOLATIONS = ["read_committed", "read_uncommitted"]


def transaction(log: CompactedLog, sequence: int, value: bytes | None, *, committed: bool = True) -> None:
    log.append((b"a", value), **in_transaction(1, sequence))
    log.end_transaction(ControlType.COMMIT if committed else ControlType.ABORT, 1)


def clean_until_nothing_changes(log: CompactedLog) -> None:
    """Roll, so that the active segment is empty, and compact when no producer is active any more."""
    log.log.roll()
    for _ in range(4):
        log.compact_again()
        log.log.producers.remove_expired(log.clock.time_ms())


def superseded_transactions(log: CompactedLog) -> None:
    for number in range(4):
        transaction(log, number, b"%d" % number)
    log.log.roll()
    transaction(log, 4, b"4")
    log.compact()


def marker_behind_a_cleaned_segment(log: CompactedLog) -> None:
    log.append((b"a", b"1"), **in_transaction(1, 0))
    log.log.roll()
    log.end_transaction(ControlType.ABORT, 1)
    log.compact()


def marker_with_an_epoch_of_its_own(log: CompactedLog) -> None:
    log.append((b"a", b"1"), **in_transaction(1, 0))
    log.end_transaction(ControlType.COMMIT, 1, epoch=1)
    log.append((b"a", b"2"))
    log.log.roll()
    for _ in range(4):
        log.compact_again()
    log.append((b"b", b"1"))


def nothing_but_expired_tombstones(log: CompactedLog) -> None:
    log.append((b"a", b"1"), (b"b", b"1"))
    log.append((b"a", None))
    log.append((b"b", None))
    clean_until_nothing_changes(log)


def expired_tombstone_last(log: CompactedLog) -> None:
    log.append((b"z", b"1"))
    log.append((b"a", b"1"))
    log.append((b"a", None))
    clean_until_nothing_changes(log)


def marker_of_a_removed_transaction_last(log: CompactedLog) -> None:
    log.append((b"z", b"1"))
    transaction(log, 0, b"1")
    transaction(log, 1, None)
    clean_until_nothing_changes(log)


def aborted_transaction_last(log: CompactedLog) -> None:
    log.append((b"z", b"1"))
    transaction(log, 0, b"1", committed=False)
    clean_until_nothing_changes(log)


CHANGELOGS = [
    superseded_transactions,
    marker_behind_a_cleaned_segment,
    marker_with_an_epoch_of_its_own,
    nothing_but_expired_tombstones,
    expired_tombstone_last,
    marker_of_a_removed_transaction_last,
    aborted_transaction_last,
]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that serves each of :data:`CHANGELOGS` as a topic."""
    data_dir: Path = tmp_path_factory.mktemp("changelogs") / "data"
    options = {"log.cleaner.enable": "false"}
    with BrokerProcess(data_dir, options=options) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(each.__name__, 1, 1, config={"cleanup.policy": "compact"}) for each in CHANGELOGS]
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_S)
        broker.kill()
        for fill in CHANGELOGS:
            log = CompactedLog(data_dir, name=f"{fill.__name__}-0")
            fill(log)
            log.log.close(clean=True)
        broker.start()
        yield broker.bootstrap


def restore_with_librdkafka(bootstrap: str, topic: str, isolation: str) -> tuple[int, int]:
    consumer = LibrdkafkaConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "never-joined", "isolation.level": isolation}
    )
    place = LibrdkafkaPartition(topic, 0, 0)
    try:
        _, end = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
        consumer.assign([place])
        position = -1
        deadline = time.monotonic() + DEADLINE_S
        while position < end and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            assert message is None or message.error() is None
            position = consumer.position([place])[0].offset
        return position, end
    finally:
        consumer.close()


def restore_with_kafka_python(bootstrap: str, topic: str, isolation: str) -> tuple[int, int]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, isolation_level=isolation
    )
    place = KafkaPythonPartition(topic, 0)
    try:
        consumer.assign([place])
        consumer.seek(place, 0)
        end = consumer.end_offsets([place])[place]
        deadline = time.monotonic() + DEADLINE_S
        while consumer.position(place) < end and time.monotonic() < deadline:
            consumer.poll(timeout_ms=100)
        return consumer.position(place), end
    finally:
        consumer.close()


def restore_with_aiokafka(bootstrap: str, topic: str, isolation: str) -> tuple[int, int]:
    async def restore() -> tuple[int, int]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, isolation_level=isolation
        )
        place = AioTopicPartition(topic, 0)
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, 0)
            end = (await consumer.end_offsets([place]))[place]
            deadline = time.monotonic() + DEADLINE_S
            while await consumer.position(place) < end and time.monotonic() < deadline:
                await consumer.getmany(timeout_ms=100)
            return await consumer.position(place), end
        finally:
            await consumer.stop()

    return asyncio.run(restore())


def restore_with_tidelog(bootstrap: str, topic: str, isolation: Any) -> tuple[int, int]:
    with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        end = consumer.end_offsets([place])[place]
        deadline = time.monotonic() + DEADLINE_S
        while consumer.position(place) < end and time.monotonic() < deadline:
            consumer.poll(0.1)
        return consumer.position(place), end


READERS: dict[str, Callable[[str, str, str], tuple[int, int]]] = {
    "librdkafka": restore_with_librdkafka,
    "kafka-python": restore_with_kafka_python,
    "aiokafka": restore_with_aiokafka,
    "tidelog": restore_with_tidelog,
}


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_reaches_the_end_of_every_compacted_changelog(
    bootstrap: str, reader: str, isolation: str
) -> None:
    for fill in CHANGELOGS:
        position, end = READERS[reader](bootstrap, fill.__name__, isolation)
        assert end > 0
        assert position == end, fill.__name__
