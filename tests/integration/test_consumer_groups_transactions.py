"""A consumer's offsets in its producer's transaction: committed with it, gone with it, fenced by generation.

With TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.rigs.group_members.topics import create, fill
from tests.rigs.waiting import wait_until

from tidelog import (
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    ErrorCode,
    KafkaError,
    Producer,
    TopicPartition,
)
from tidelog.errors import TidelogError

TopicName = Callable[[], str]
PROTOCOLS = ["classic", "consumer"]
WAIT_S = 30.0


@contextmanager
def member(bootstrap: str, topic: str, protocol: Any, **options: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=topic,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **{"enable_auto_commit": False, **options},
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def transactional(bootstrap: str, topic: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-writer") as producer:
        producer.init_transactions()
        yield producer


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        records += consumer.poll(0.2)
    return records


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_are_committed_and_aborted_with_their_transaction(
    group_bootstrap: str, topic_name: TopicName, protocol: str
) -> None:
    topic = topic_name()
    fill(group_bootstrap, create(group_bootstrap, topic, 1), 10)
    at = TopicPartition(topic, 0)
    with (
        member(group_bootstrap, topic, protocol) as consumer,
        transactional(group_bootstrap, topic) as producer,
    ):
        read(consumer, 10)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({at: 4}, consumer.group_metadata())
        producer.commit_transaction()
        committed = consumer.committed([at])[at]
        assert committed is not None
        assert committed.offset == 4
        producer.begin_transaction()
        producer.send_offsets_to_transaction({at: 9}, consumer.group_metadata())
        producer.abort_transaction()
        after = consumer.committed([at])[at]
        assert after is not None
        assert after.offset == 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_thrown_out_can_neither_commit_nor_send_offsets(
    group_bootstrap: str, topic_name: TopicName, protocol: str
) -> None:
    topic = topic_name()
    fill(group_bootstrap, create(group_bootstrap, topic, 1), 10)
    at = TopicPartition(topic, 0)
    options: dict[str, object] = {"max_poll_interval_ms": 1000}
    if protocol == "classic":
        options["session_timeout_ms"] = 1000
        options["heartbeat_interval_ms"] = 100
    with (
        member(group_bootstrap, topic, protocol, **options) as slow,
        member(group_bootstrap, topic, protocol) as quick,
        transactional(group_bootstrap, topic) as producer,
    ):
        read(slow, 10)
        # Where the machine is slow, it may have left the group by now: a poll has it join again.
        wait_until(lambda: slow.poll(0.2) or slow.group_metadata().generation_id > 0, "a generation")
        read(quick, 10)  # which has got the partition because the other does not poll
        producer.begin_transaction()
        with pytest.raises(TidelogError) as refused:
            producer.send_offsets_to_transaction({at: 10}, slow.group_metadata())
        assert _codes(refused.value) & {
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.FENCED_MEMBER_EPOCH,
        }
        producer.abort_transaction()
        with pytest.raises(CommitFailedError):
            slow.commit({at: 10})
        assert quick.committed([at])[at] is None
        quick.commit()
        committed = slow.committed([at])[at]
        assert committed is not None
        assert committed.offset == 10


def _codes(error: BaseException | None) -> set[ErrorCode]:
    found = set()
    while error is not None:
        if isinstance(error, KafkaError):
            found.add(error.code)
        error = error.__cause__
    return found
