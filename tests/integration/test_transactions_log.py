"""What transactions do to a partition: its stable end, other producers beside them, compaction over them."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, NewTopic, OffsetSpec
from tests.rigs.exactly_once.producers import TIMEOUT_S, Confluent, read, read_offsets, wait_until
from tests.rigs.group_members.topics import create

TopicName = Callable[[], str]


def end_of(bootstrap: str, topic: str, isolation: IsolationLevel, partition: int = 0) -> int:
    """Where readers of this kind find the end of a partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(topic, partition)
    asked = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)
    answer: ListOffsetsResultInfo = asked[place].result(TIMEOUT_S)
    return int(answer.offset)


def test_an_open_transaction_holds_back_what_comes_after_it(
    transaction_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    create(transaction_bootstrap, topic, 1)
    plain = Producer({"bootstrap.servers": transaction_bootstrap})
    plain.produce(topic, b"before")
    plain.flush(TIMEOUT_S)
    slow = Confluent(transaction_bootstrap, f"{topic}-slow")
    slow.begin()
    slow.send(topic, b"slow")
    slow.flush()
    quick = Confluent(transaction_bootstrap, f"{topic}-quick")
    quick.begin()
    quick.send(topic, b"quick")
    quick.commit()
    plain.produce(topic, b"after")
    plain.flush(TIMEOUT_S)
    assert read(transaction_bootstrap, topic) == [b"before"]
    assert end_of(transaction_bootstrap, topic, IsolationLevel.READ_COMMITTED) == 1
    assert end_of(transaction_bootstrap, topic, IsolationLevel.READ_UNCOMMITTED) == 5
    slow.abort()
    wait_until(
        "the stable end", lambda: end_of(transaction_bootstrap, topic, IsolationLevel.READ_COMMITTED) == 6
    )
    assert read(transaction_bootstrap, topic) == [b"before", b"quick", b"after"]
    assert read(transaction_bootstrap, topic, isolation="read_uncommitted") == [
        *(b"before", b"slow", b"quick", b"after")
    ]


def test_interleaved_transactions_of_many_producers(
    transaction_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    create(transaction_bootstrap, topic, 1)
    idempotent = Producer({"bootstrap.servers": transaction_bootstrap, "enable.idempotence": True})
    producers = [Confluent(transaction_bootstrap, f"{topic}-{each}") for each in range(4)]
    wanted = []
    for turn in range(3):
        for number, producer in enumerate(producers):
            producer.begin()
            for part in range(2):
                value = b"%d %d %d" % (turn, number, part)
                producer.send(topic, value)
                producer.flush()
                if (turn + number) % 2:
                    wanted.append(value)
            value = b"idempotent %d %d" % (turn, number)
            idempotent.produce(topic, value)
            assert idempotent.flush(TIMEOUT_S) == 0
            wanted.append(value)
        for number, producer in reversed(list(enumerate(producers))):
            producer.commit() if (turn + number) % 2 else producer.abort()
    wait_until("all markers", lambda: read(transaction_bootstrap, topic) == wanted)


def test_aborted_records_are_gone_after_compaction_and_committed_ones_stay(
    transaction_bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name()
    admin = AdminClient({"bootstrap.servers": transaction_bootstrap})
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(TIMEOUT_S)
    producer = Confluent(transaction_bootstrap, topic, **{"batch.num.messages": 100})
    padding = bytes(1000)
    for turn in range(12):
        producer.begin()
        for number in range(100):
            producer.send(topic, b"%d " % turn + padding, key=b"key %d" % number)
        producer.flush()
        producer.abort() if turn % 3 == 2 else producer.commit()
    producer.begin()
    for number in range(1100):
        producer.send(topic, b"filler" + padding, key=b"filler %d" % number)
    producer.commit()

    def cleaned() -> bool:
        raw = read_offsets(transaction_bootstrap, topic, isolation="read_uncommitted")
        values = [value[:3].strip() for _, value in raw if not value.startswith(b"filler")]
        return values == [b"10"] * 100

    wait_until("a compacted log", cleaned)
    kept = [value for value in read(transaction_bootstrap, topic) if not value.startswith(b"filler")]
    assert [value[:3].strip() for value in kept] == [b"10"] * 100
