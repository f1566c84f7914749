"""Transactions as three libraries make them: all or nothing, over partitions and offsets; zombies fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from tests.rigs.exactly_once.producers import CLIENTS, Confluent, Transactional, fenced, read, wait_until
from tests.rigs.group_members.topics import create

TopicName = Callable[[], str]
Open = Callable[..., Transactional]


@pytest.fixture(params=CLIENTS)
def open_producer(request: pytest.FixtureRequest, transaction_bootstrap: str) -> Iterator[Open]:
    """Makes producers of one library."""
    made: list[Transactional] = []

    def make(transactional_id: str, **more: object) -> Transactional:
        made.append(CLIENTS[request.param](transaction_bootstrap, transactional_id, **more))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in answer.result(20).topic_partitions}


def test_committed_records_are_seen_and_aborted_ones_are_not(
    transaction_bootstrap: str, topic_name: TopicName, open_producer: Open
) -> None:
    topic = topic_name()
    create(transaction_bootstrap, topic, 1)
    producer = open_producer(topic)
    for number in range(6):
        producer.begin()
        for part in range(3):
            producer.send(topic, b"%d/%d" % (number, part))
        if number % 2:
            producer.flush()
            producer.abort()
        else:
            producer.commit()
    everything = [b"%d/%d" % (number, part) for number in range(6) for part in range(3)]
    assert read(transaction_bootstrap, topic, isolation="read_uncommitted") == everything
    assert read(transaction_bootstrap, topic) == [each for each in everything if each[0] in b"024"]


def test_all_partitions_of_a_transaction_are_seen_together(
    transaction_bootstrap: str, topic_name: TopicName, open_producer: Open
) -> None:
    topic, other = topic_name(), topic_name()
    places = create(transaction_bootstrap, topic, 3) + create(transaction_bootstrap, other, 2)
    producer = open_producer(topic)
    producer.begin()
    for name, partition in places:
        producer.send(name, b"x", partition)
    producer.flush()
    for name, partition in places:
        assert read(transaction_bootstrap, name, partition) == []
        assert read(transaction_bootstrap, name, partition, "read_uncommitted") == [b"x"]
    producer.commit()
    for name, partition in places:
        visible = partial(read, transaction_bootstrap, name, partition)
        wait_until("the marker", partial(lambda visible: visible() == [b"x"], visible))


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    transaction_bootstrap: str, topic_name: TopicName, open_producer: Open
) -> None:
    topic, group = topic_name(), topic_name()
    create(transaction_bootstrap, topic, 2)
    producer = open_producer(group)
    for offset, committing in ((3, True), (7, False), (5, True)):
        before = committed(transaction_bootstrap, group)
        producer.begin()
        producer.send(topic, b"%d" % offset, 1)
        producer.send_offsets(group, {(topic, 0): offset})
        assert committed(transaction_bootstrap, group) == before
        if committing:
            producer.commit()
        else:
            producer.abort()
        wanted = {(topic, 0): offset} if committing else before
        wait_until(
            "the offsets", partial(lambda wanted: committed(transaction_bootstrap, group) == wanted, wanted)
        )
    assert read(transaction_bootstrap, topic, 1) == [b"3", b"5"]


def test_a_zombie_is_fenced_and_its_transaction_aborted(
    transaction_bootstrap: str, topic_name: TopicName, open_producer: Open
) -> None:
    topic = topic_name()
    create(transaction_bootstrap, topic, 1)
    zombie = open_producer(topic)
    zombie.begin()
    zombie.send(topic, b"of the zombie")
    zombie.flush()
    heir = open_producer(topic)
    with pytest.raises(Exception) as caught:
        zombie.commit()
    assert fenced(caught.value), caught.value
    heir.begin()
    heir.send(topic, b"of the heir")
    heir.commit()
    assert read(transaction_bootstrap, topic) == [b"of the heir"]


def test_a_zombie_cannot_send_after_the_heir_has_begun(
    transaction_bootstrap: str, topic_name: TopicName, open_producer: Open
) -> None:
    topic = topic_name()
    create(transaction_bootstrap, topic, 1)
    zombie = open_producer(topic)
    heir = open_producer(topic)
    heir.begin()
    heir.send(topic, b"of the heir")
    zombie.begin()
    # Which call finds out, and what it raises once the producer is lost, is the library's business.
    with pytest.raises(Exception):  # noqa: B017, PT012
        zombie.send(topic, b"of the zombie")
        zombie.flush()
        zombie.commit()
    heir.commit()
    assert read(transaction_bootstrap, topic) == [b"of the heir"]
    assert read(transaction_bootstrap, topic, isolation="read_uncommitted") == [b"of the heir"]


def test_transactions_without_records_leave_nothing_behind(
    transaction_bootstrap: str, topic_name: TopicName, open_producer: Open
) -> None:
    topic = topic_name()
    create(transaction_bootstrap, topic, 1)
    producer = open_producer(topic)
    for number in range(4):
        producer.begin()
        producer.commit() if number % 2 else producer.abort()
    producer.begin()
    producer.send(topic, b"x")
    producer.commit()
    assert read(transaction_bootstrap, topic) == [b"x"]


def test_many_small_transactions_one_after_another(
    transaction_bootstrap: str, topic_name: TopicName, open_producer: Open
) -> None:
    """With transaction version 2 each has an epoch of its own; the partition changes under them."""
    topic = topic_name()
    create(transaction_bootstrap, topic, 3)
    producer = open_producer(topic)
    for number in range(40):
        producer.begin()
        producer.send(topic, b"%d" % number, number % 3)
        producer.commit()
    for partition in range(3):
        wanted = [b"%d" % number for number in range(partition, 40, 3)]
        visible = partial(read, transaction_bootstrap, topic, partition)
        wait_until("all records", partial(lambda visible, wanted: visible() == wanted, visible, wanted))


def test_a_transaction_that_takes_too_long_is_aborted(
    transaction_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    create(transaction_bootstrap, topic, 1)
    slow = Confluent(transaction_bootstrap, topic, 1000)
    slow.begin()
    slow.send(topic, b"too late")
    slow.flush()
    quick = Confluent(transaction_bootstrap, f"{topic}-other")
    quick.begin()
    quick.send(topic, b"in time")
    quick.commit()
    wait_until("the abort", lambda: read(transaction_bootstrap, topic) == [b"in time"])
    with pytest.raises(KafkaException) as caught:
        slow.commit()
    assert caught.value.args[0].fatal() or caught.value.args[0].txn_requires_abort()
