"""Transactions over a kill -9 of the broker: ended ones stay ended, open ones are ended by somebody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, KafkaException
from foreign.broker_process import BrokerProcess, Tidelog
from tests.integration.test_transactions_clients import committed
from tests.integration.test_transactions_log import end_of
from tests.rigs.exactly_once.brokers import transaction_broker
from tests.rigs.exactly_once.producers import Confluent, fenced, read, wait_until
from tests.rigs.group_members.topics import create

from tidelog.records.batch import iter_batches

TopicName = Callable[[], str]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may kill."""
    broker = transaction_broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def crash(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def test_ended_transactions_stay_ended(broker: BrokerProcess) -> None:
    create(broker.address, "t", 2)
    producer = Confluent(broker.address, "x")
    for number in range(6):
        producer.begin()
        producer.send("t", b"%d" % number, number % 2)
        producer.send_offsets("g", {("t", 0): number})
        producer.commit() if number < 4 else producer.abort()
        if number in (1, 3, 5):
            crash(broker)
    assert read(broker.address, "t", 0) == [b"0", b"2"]
    assert read(broker.address, "t", 1) == [b"1", b"3"]
    assert committed(broker.address, "g") == {("t", 0): 3}
    producer.begin()
    producer.send("t", b"later")
    producer.commit()
    wait_until("the next one", lambda: read(broker.address, "t", 0) == [b"0", b"2", b"later"])


def test_an_open_transaction_goes_on_after_the_crash(broker: BrokerProcess) -> None:
    create(broker.address, "t", 1)
    producer = Confluent(broker.address, "x")
    producer.begin()
    producer.send("t", b"before")
    producer.flush()
    crash(broker)
    assert read(broker.address, "t") == []
    producer.send("t", b"after")
    producer.commit()
    wait_until("the commit", lambda: read(broker.address, "t") == [b"before", b"after"])


def test_an_open_transaction_is_aborted_by_its_timeout_after_the_crash(broker: BrokerProcess) -> None:
    create(broker.address, "t", 1)
    # Apache Kafka forgets the marker if the time is up before it knows who leads the partition again.
    slow = Confluent(broker.address, "slow", 1500 if isinstance(broker, Tidelog) else 14_000)
    slow.begin()
    slow.send("t", b"slow")
    slow.send_offsets("g", {("t", 0): 9})
    slow.flush()
    quick = Confluent(broker.address, "quick")
    quick.begin()
    quick.send("t", b"quick")
    quick.commit()
    crash(broker)
    wait_until("the abort", lambda: read(broker.address, "t") == [b"quick"])
    assert committed(broker.address, "g") == {}


def test_an_open_transaction_is_aborted_by_the_next_life_after_the_crash(broker: BrokerProcess) -> None:
    create(broker.address, "t", 1)
    zombie = Confluent(broker.address, "x")
    zombie.begin()
    zombie.send("t", b"of the zombie")
    zombie.flush()
    crash(broker)
    heir = Confluent(broker.address, "x")
    heir.begin()
    heir.send("t", b"of the heir")
    heir.commit()
    wait_until("the markers", lambda: read(broker.address, "t") == [b"of the heir"])
    with pytest.raises(KafkaException) as caught:
        zombie.commit()
    assert fenced(caught.value), caught.value


def cut_last_batch(directory: Path) -> None:
    """Take the last batch from a partition's log, as if the crash had come before it."""
    log = max(directory.glob("*.log"))
    data = log.read_bytes()
    position = [pos for pos, _ in iter_batches(data)][-1]
    with log.open("r+b") as file:
        file.truncate(position)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_whose_end_was_only_prepared_is_completed_after_the_crash(
    broker: BrokerProcess, end: str
) -> None:
    """The coordinator has written down how it ends; the markers and the completion are lost."""
    create(broker.address, "t", 2)
    producer = Confluent(broker.address, "x")
    producer.begin()
    for partition in range(2):
        producer.send("t", b"value", partition)
    producer.send_offsets("g", {("t", 0): 5})
    producer.flush()
    getattr(producer, end)()
    values = [b"value"] if end == "commit" else []
    offsets = {("t", 0): 5} if end == "commit" else {}
    wait_until("the offsets", lambda: committed(broker.address, "g") == offsets)
    wait_until("the markers", lambda: all(ends(broker.address, p) == 2 for p in range(2)))
    broker.kill()
    (transactions,) = [each for each in broker.data_dir.glob("__transaction_state-*") if written(each)]
    (group,) = [each for each in broker.data_dir.glob("__consumer_offsets-*") if written(each)]
    for directory in (transactions, group, broker.data_dir / "t-0", broker.data_dir / "t-1"):
        cut_last_batch(directory)
    broker.start()
    wait_until("the markers", lambda: all(ends(broker.address, p) == 2 for p in range(2)))
    wait_until("the offsets", lambda: committed(broker.address, "g") == offsets)
    for partition in range(2):
        assert read(broker.address, "t", partition) == values


def written(directory: Path) -> bool:
    return any(log.stat().st_size for log in directory.glob("*.log"))


def ends(bootstrap: str, partition: int) -> int:
    """Where the stable part of the partition ends."""
    return end_of(bootstrap, "t", IsolationLevel.READ_COMMITTED, partition)
