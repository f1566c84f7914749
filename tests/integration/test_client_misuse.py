"""What a stranger gets wrong about the clients is told at once, and spoils nothing of what comes after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog import (
    Admin,
    ClientError,
    Consumer,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerRecord,
    TopicPartition,
)
from tidelog.client.consumer.errors import IllegalStateError

# A wait for metadata would take this long: longer than a test may.
OPTIONS = {"max.block.ms": 600_000}
NO_TOPICS = (None, b"orders", 5, ["orders"])


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(OPTIONS, bootstrap_servers=bootstrap) as producer:
        yield producer


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    with Consumer(
        bootstrap_servers=bootstrap, group_id="strangers", auto_offset_reset="earliest"
    ) as consumer:
        yield consumer


@pytest.mark.parametrize("topic", NO_TOPICS, ids=repr)
def test_a_topic_that_is_no_str_is_refused_and_the_producer_goes_on(
    producer: Producer, topic: Any, topic_name: Callable[[], str]
) -> None:
    for given in ((topic, b"x"), (ProducerRecord(topic, b"x"),)):
        with pytest.raises(KafkaError, match="a topic's name is a str") as refused:
            producer.send(*given)
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert producer.send(topic_name(), b"x").result(60).offset == 0


def test_a_negative_partition_is_not_waited_for(producer: Producer, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    for _ in range(2):  # before and after the topic is known
        with pytest.raises(KafkaError, match=r"-1 .* is none") as refused:
            producer.send(name, b"x", partition=-1)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        producer.send(name, b"x").result(60)


@pytest.mark.parametrize("topics", [b"orders", 5, [5], [None], ["orders", b"orders"]], ids=repr)
def test_a_subscription_to_what_is_no_topic_is_refused_and_the_consumer_goes_on(
    consumer: Consumer, producer: Producer, topics: Any, topic_name: Callable[[], str]
) -> None:
    with pytest.raises(KafkaError, match="a topic's name is a str"):
        consumer.subscribe(topics)
    name = topic_name()
    producer.send(name, b"x").result(60)
    consumer.assign([(name, 0)])
    assert [record.value for record in consumer.poll(timeout=60)] == [b"x"]


@pytest.mark.parametrize(
    "partitions", ["orders", ["orders"], [("orders", "0")], [("orders", -1)], [5]], ids=repr
)
def test_an_assignment_of_what_is_no_partition_is_refused(consumer: Consumer, partitions: Any) -> None:
    with pytest.raises(IllegalStateError, match="a partition is named by its topic and number"):
        consumer.assign(partitions)


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ({"orders": 5}, "a partition is named by its topic and number"),
        ([1], "offsets to commit are given by partition"),
        ({TopicPartition("orders", 0): "5"}, "'5' .* is none"),
        ({TopicPartition("orders", 0): -5}, "-5 .* is none"),
    ],
    ids=repr,
)
def test_a_commit_of_what_is_no_offset_is_refused(consumer: Consumer, offsets: Any, words: str) -> None:
    with pytest.raises(IllegalStateError, match=words):
        consumer.commit(offsets)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin, name: admin.create_topics(name),
        lambda admin, name: admin.create_topics([name]),
        lambda admin, name: admin.delete_topics(name),
        lambda admin, name: admin.delete_topics([5]),
        lambda admin, name: admin.describe_topics(name),
        lambda admin, name: admin.describe_configs(name),
        lambda admin, name: admin.describe_groups(name),
        lambda admin, name: admin.delete_groups(name),
        lambda admin, name: admin.list_group_offsets(name),
        lambda admin, name: admin.describe_transactions(name),
        lambda admin, name: admin.remove_group_members("g", name),
    ],
)
def test_a_name_in_the_place_of_a_list_is_not_taken_for_its_letters(
    bootstrap: str, call: Callable[[Admin, str], object]
) -> None:
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        pytest.raises(ClientError, match=r"give a list of .*, even for one"),
    ):
        call(admin, "orders")


def test_a_producer_that_cannot_start_says_why_and_leaves_nothing_behind() -> None:
    program = "from tidelog import Producer; Producer(bootstrap_servers='host:port')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "the port must be a number" in done.stderr
    assert "was not closed" not in done.stderr


FORKING = """
import os, sys
from tidelog import ClientClosedError, Consumer, Producer, TopicPartition

bootstrap, topic = sys.argv[1:]


def refused(call):
    try:
        return f"no error, but {call()!r}"
    except ClientClosedError as error:
        return "was made before this process was forked" in str(error)


with (
    Producer(bootstrap_servers=bootstrap) as producer,
    Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
):
    for number in range(100):
        sent = producer.send(topic, b"%d" % number)
    sent.result(60)
    consumer.assign([TopicPartition(topic, 0)])
    first = consumer.poll(60, max_records=1)
    child = os.fork()
    if child == 0:
        print("send", refused(lambda: producer.send(topic, b"lost")), flush=True)
        print("header", refused(lambda: producer.send(topic, b"lost", headers={"h": b"x"})), flush=True)
        print("flush", refused(producer.flush), flush=True)
        print("poll", refused(lambda: consumer.poll(0, max_records=1)), flush=True)
        print("poll_arrow", refused(lambda: consumer.poll_arrow(0)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent", producer.send(topic, b"last").result(60).offset, first[0].value, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_is_refused_by_the_short_ways_too(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    arguments = [sys.executable, "-c", FORKING, bootstrap, topic_name()]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "send True",
        "header True",
        "flush True",
        "poll True",
        "poll_arrow True",
        "parent 100 b'0'",
    ]
