"""What a stranger gets wrong about the clients is told at once, and spoils nothing of what comes after it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tidelog import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientClosedError,
    ClientError,
    ConfigError,
    ConfigResource,
    Consumer,
    ErrorCode,
    KafkaError,
    NewPartitions,
    NewTopic,
    Producer,
    ProducerRecord,
    ResourceType,
    TopicPartition,
    TransactionStateError,
)
from tidelog.client.consumer.errors import IllegalStateError
from tidelog.client.serialization import SerializationError

# A wait for metadata would take this long: longer than a test may.
OPTIONS = {"max.block.ms": 600_000}
RESOURCE = ConfigResource(ResourceType.TOPIC, "orders")
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
        with pytest.raises(KafkaError, match="got -1") as refused:
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
        ({TopicPartition("orders", 0): "5"}, "got '5'"),
        ({TopicPartition("orders", 0): -5}, "got -5"),
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
        pytest.raises(ClientError, match=r"expected a list of .*, even for one"),
    ):
        call(admin, "orders")


def test_configs_are_changed_by_a_mapping_of_names_to_values(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    resource = ConfigResource(ResourceType.TOPIC, name)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, configs={"retention.ms": 1000})])[0].raise_for_error()
        changes: dict[str, str | int | float | bool] = {
            "segment.bytes": 2_000_000,
            "preallocate": True,
            "cleanup.policy": "compact",
        }
        for result in admin.alter_configs({resource: changes}):
            result.raise_for_error()
        (described,) = admin.describe_configs([resource])
    values = {each.name: each.value for each in described.entries}
    kept = {
        "retention.ms": "1000",
        "segment.bytes": "2000000",
        "preallocate": "true",
        "cleanup.policy": "compact",
    }
    assert values | kept == values


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([RESOURCE], "takes the changes of each ConfigResource"),
        ({"orders": {"retention.ms": "1"}}, "not those of 'orders'"),
        ({RESOURCE: "retention.ms=1"}, "not 'retention.ms=1' for topic 'orders'"),
        ({RESOURCE: [("retention.ms", "1")]}, "lists of AlterConfigOp, not .'retention.ms', '1'. for topic"),
        (
            {RESOURCE: {"retention.ms": None}},
            r"AlterConfigOp\('retention.ms', None, .*DELETE\)",
        ),
        ({RESOURCE: {"retention.ms": [1]}}, "the value of config retention.ms is a str, a number or a bool"),
        ({RESOURCE: {5: "1"}}, "the name of a config is a str, not 5"),
    ],
    ids=repr,
)
def test_config_changes_of_another_form_are_refused_with_the_right_one(
    bootstrap: str, changes: Any, words: str
) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin, pytest.raises(ClientError, match=words):
        admin.alter_configs(changes)


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        ({"orders": -1}, "topic 'orders' cannot have -1 partitions: give the new total"),
        ({"orders": NewPartitions(0)}, "topic 'orders' cannot have 0 partitions"),
        ({"orders": "6"}, "takes the number of partitions that each topic shall have"),
        ([NewPartitions(6)], "takes the number of partitions that each topic shall have"),
    ],
    ids=repr,
)
def test_a_number_of_partitions_that_cannot_be_is_refused(bootstrap: str, totals: Any, words: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin, pytest.raises(ClientError, match=words):
        admin.create_partitions(totals)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ([(None, b"x")], "the key of a header is a str, got None"),
        ({None: b"x"}, "the key of a header is a str, got None"),
        ([(b"h", b"x")], "the key of a header is a str, got b'h'"),
        ([("h", "x")], "the value of header 'h' is bytes or None, not str: encode it"),
        ([("a", b"b", b"c")], "headers are pairs of a str and bytes"),
        ("abc", "headers are pairs of a str and bytes"),
        (5, "headers are pairs of a str and bytes"),
    ],
    ids=repr,
)
def test_headers_that_cannot_be_sent_are_refused_with_the_reason(
    producer: Producer, headers: Any, words: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    for _ in range(2):  # before and after the topic is known
        with pytest.raises(SerializationError, match=words):
            producer.send(name, b"x", headers=headers)
        taken: Any = [("h", b"x"), ["n", None], ("v", memoryview(b"x"))]
        producer.send(name, b"x", headers=taken).result(60)


def test_a_key_or_value_that_cannot_be_sent_is_named(
    producer: Producer, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    given: Any = "text"
    for _ in range(2):  # before and after the topic is known
        with pytest.raises(
            SerializationError, match=r"str cannot be sent .* record's key: .* key_serializer"
        ):
            producer.send(name, b"x", key=given)
        with pytest.raises(
            SerializationError, match=r"str cannot be sent .* record's value: .* value_serializer"
        ):
            producer.send(name, given)
        producer.send(name, b"x").result(60)


def test_a_serializer_that_refuses_says_whether_of_the_key_or_the_value(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    with (
        Producer(
            OPTIONS, bootstrap_servers=bootstrap, key_serializer="str", value_serializer="json"
        ) as producer,
        pytest.raises(SerializationError, match="the record's key: a int cannot be sent"),
    ):
        producer.send(topic_name(), {}, key=5)


def test_transactional_calls_in_the_wrong_order_name_the_call_that_comes_first(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    calls: list[Callable[[Producer], object]] = [
        lambda producer: producer.commit_transaction(),
        lambda producer: producer.abort_transaction(),
        lambda producer: producer.send(name, b"x"),
        lambda producer: producer.send_offsets_to_transaction({TopicPartition(name, 0): 1}, "g"),
    ]
    with Producer(OPTIONS, bootstrap_servers=bootstrap, transactional_id=name) as producer:
        for call in (lambda producer: producer.begin_transaction(), *calls):
            with pytest.raises(TransactionStateError, match=r"call init_transactions\(\) first"):
                call(producer)
        with (
            pytest.raises(TransactionStateError, match=r"call init_transactions\(\) first"),
            producer.transaction(),
        ):
            pass
        producer.init_transactions()
        for call in calls:
            with pytest.raises(TransactionStateError, match=r"call begin_transaction\(\) first"):
                call(producer)
        with pytest.raises(TransactionStateError, match=r"is called once: call begin_transaction\(\)"):
            producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(
            TransactionStateError, match=r"call commit_transaction\(\) or abort_transaction\(\)"
        ):
            producer.begin_transaction()
        producer.send(name, b"x")
        producer.commit_transaction()


def test_one_partition_counts_as_a_collection_of_one(
    consumer: Consumer, producer: Producer, topic_name: Callable[[], str]
) -> None:
    place = TopicPartition(topic_name(), 0)
    producer.send(place.topic, b"x").result(60)
    consumer.assign([place])
    assert consumer.end_offsets(place) == {place: 1}
    assert consumer.committed(place) == {place: None}
    consumer.pause(place)
    assert consumer.paused() == {place}
    consumer.resume(place)
    consumer.seek_to_end(place)
    assert consumer.position(place) == 1
    for wrong in ("orders", 5):
        with pytest.raises(IllegalStateError, match="give a collection of partitions"):
            consumer.end_offsets(wrong)  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError, match="an offset is a number from 0 on, not '1'"):
        consumer.seek(place, "1")  # type: ignore[arg-type]


def test_methods_of_other_libraries_do_what_they_mean(
    consumer: Consumer, producer: Producer, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    place = TopicPartition(name, 0)
    theirs_of_producer: Any = producer
    theirs: Any = consumer
    assert theirs_of_producer.produce(name, b"0", b"k", headers=[("h", b"x")]).get(timeout=60).offset == 0
    assert theirs_of_producer.send_and_wait(name, b"1", timestamp_ms=5).offset == 1
    with pytest.raises(ClientError, match=r"calls function\(metadata, error\)"):
        theirs_of_producer.produce(name, b"x", on_delivery=print)
    for number in range(2, 6):
        producer.send(name, b"%d" % number)
    theirs_of_producer.flush(60)
    consumer.assign([place])
    first = theirs.getone()
    assert (first.key, first.value, first.headers) == (b"k", b"0", (("h", b"x"),))
    assert next(consumer).value == b"1"
    consumer.seek(place, 1)
    found = theirs.getmany(timeout_ms=60_000, max_records=2)
    assert {where: [each.value for each in records] for where, records in found.items()} == {
        place: [b"1", b"2"]
    }
    assert [each.value for each in theirs.consume(2, timeout=60)] == [b"3", b"4"]
    assert name in theirs.topics()
    assert theirs.consumer_group_metadata() == consumer.group_metadata()
    with pytest.raises(
        TypeError, match=r"call poll\(timeout=0\.5\), in seconds, which returns a list of records"
    ):
        theirs.poll(timeout_ms=500)
    with pytest.raises(TypeError, match=r"poll\(\) has no argument update_offsets"):
        theirs.poll(update_offsets=False)
    with pytest.raises(ClientError, match=r"pause\(\) the others"):
        theirs.getone(place)
    with pytest.raises(AttributeError, match="Consumer has no method highwater: call `end_offsets"):
        theirs.highwater(place)
    theirs.stop()
    with (
        Consumer(bootstrap_servers=producer.config.list("bootstrap.servers")) as alone,
        pytest.raises(IllegalStateError, match=r"set group\.id, or read partitions without one by assign"),
    ):
        alone.subscribe([name])


def test_asyncio_methods_of_other_libraries_do_what_they_mean(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()

    async def main() -> None:
        producer: Any = AsyncProducer(bootstrap_servers=bootstrap)
        assert (await producer.send_and_wait(name, b"0", key=b"k")).offset == 0
        assert (await producer.send_and_wait(name, b"1")).offset == 1
        await producer.stop()
        consumer: Any = AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(name, 0)])
        async for record in consumer:
            assert record.value == b"0"
            break
        assert (await anext(consumer)).value == b"1"
        consumer.seek_to_beginning()
        assert (await consumer.getone()).value == b"0"
        ((_, records),) = (await consumer.getmany(timeout_ms=60_000)).items()
        assert [each.value for each in records] == [b"1"]
        await consumer.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)

    asyncio.run(main())


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"timeout": "3"}, r"poll\(\) takes timeout as a number of seconds, got '3'"),
        ({"timeout": float("nan")}, "got nan"),
        ({"timeout": None}, "got None"),
        ({"max_records": 0}, "max_records as a number from 1 on, got 0"),
        ({"max_records": -1}, "got -1"),
    ],
    ids=repr,
)
def test_a_poll_with_invalid_arguments_is_refused(
    consumer: Consumer, arguments: dict[str, Any], words: str
) -> None:
    consumer.subscribe("orders")
    with pytest.raises((TypeError, ValueError), match=words):
        consumer.poll(**arguments)


def test_an_iteration_with_an_invalid_timeout_names_the_argument(consumer: Consumer) -> None:
    consumer.subscribe("orders")
    timeout: Any = "3"
    with pytest.raises(TypeError, match=r"records\(\) takes timeout as a number of seconds, got '3'"):
        next(iter(consumer.records(timeout=timeout)))


def test_an_invalid_pattern_is_refused(consumer: Consumer) -> None:
    with pytest.raises(IllegalStateError, match=r"pattern='\(' is not a valid regular expression"):
        consumer.subscribe(pattern="(")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda admin, place: admin.list_offsets([place]),
            "list_offsets takes a mapping of partitions, as {Top",
        ),
        (lambda admin, place: admin.list_offsets({place: "latest"}), "OffsetSpec.LATEST}"),
        (
            lambda admin, place: admin.delete_records({place: "5"}),
            "delete_records takes a mapping of partitions",
        ),
    ],
)
def test_offsets_that_are_not_numbers_by_partition_are_refused(
    bootstrap: str, call: Callable[[Admin, TopicPartition], object], words: str
) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin, pytest.raises(ClientError, match=words):
        call(admin, TopicPartition("orders", 0))


def test_the_type_of_a_resource_may_be_its_name_and_nothing_unknown() -> None:
    topic: Any = "topic"
    assert ConfigResource(topic, "orders") == ConfigResource(ResourceType.TOPIC, "orders")
    for unknown in ("topics", 3, None):
        kind: Any = unknown
        with pytest.raises(ClientError, match=f"one of ResourceType.UNKNOWN, .*, got {unknown!r}"):
            ConfigResource(kind, "orders")


def test_the_numbers_of_a_new_topic_are_numbers() -> None:
    three: Any = "3"
    with pytest.raises(ClientError, match="partitions of NewTopic is an int, got '3'"):
        NewTopic("orders", partitions=three)


def test_a_consumer_with_an_invalid_server_raises_and_leaves_nothing_to_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = Consumer(bootstrap_servers="http://a:9092")
    for _ in range(2):
        with pytest.raises(ConfigError, match="write HOST:PORT"):
            consumer.partitions_for("orders")
    consumer.close()
    assert not caplog.records


def test_a_listener_without_the_methods_of_one_is_refused(consumer: Consumer) -> None:
    class Half:
        def on_partitions_assigned(self, partitions: object) -> None: ...

    for given in (print, Half()):
        listener: Any = given
        with pytest.raises(IllegalStateError, match="a listener is a RebalanceListener, got"):
            consumer.subscribe("orders", listener=listener)
    assert not consumer.subscription()


@pytest.mark.parametrize("topics", ["^ord.*", ["^ord.*"], "two words", "", "o" * 250, ".."], ids=repr)
def test_a_subscription_to_a_name_that_no_topic_can_have_is_refused(consumer: Consumer, topics: Any) -> None:
    with pytest.raises(KafkaError, match=r"is no valid topic name: .* pass pattern=") as refused:
        consumer.subscribe(topics)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not consumer.subscription()


@pytest.mark.parametrize("wait", [False, True], ids=["before a poll", "after a poll"])
def test_a_closed_consumer_may_be_woken_up(bootstrap: str, topic_name: Callable[[], str], wait: bool) -> None:
    consumer = Consumer(bootstrap_servers=bootstrap)
    consumer.assign([(topic_name(), 0)])
    if wait:
        consumer.poll(timeout=0)
    consumer.close()
    consumer.wakeup()


SECONDS: list[tuple[str, Callable[[Any], object]]] = [
    ("position", lambda client: client.position(("orders", 0), timeout="5")),
    ("committed", lambda client: client.committed([("orders", 0)], timeout="5")),
    ("beginning_offsets", lambda client: client.beginning_offsets([("orders", 0)], "5")),
    ("end_offsets", lambda client: client.end_offsets([("orders", 0)], "5")),
    ("offsets_for_times", lambda client: client.offsets_for_times({("orders", 0): 0}, "5")),
    ("partitions_for", lambda client: client.partitions_for("orders", "5")),
    ("list_topics", lambda client: client.list_topics("5")),
    ("commit", lambda client: client.commit(timeout="5")),
    ("poll_arrow", lambda client: client.poll_arrow("5")),
    ("client_instance_id", lambda client: client.client_instance_id("5")),
    ("close", lambda client: client.close("5")),
]


@pytest.mark.parametrize(("method", "call"), SECONDS, ids=[each[0] for each in SECONDS])
def test_a_timeout_of_a_consumer_that_is_not_a_number_is_refused_by_name(
    consumer: Consumer, method: str, call: Callable[[Any], object]
) -> None:
    consumer.assign([("orders", 0)])
    with pytest.raises(TypeError, match=rf"^{method}\(\) takes timeout as a number of seconds, got '5'"):
        call(consumer)


def test_a_timeout_of_a_producer_that_is_not_a_number_is_refused_by_name(producer: Any) -> None:
    for method in ("flush", "client_instance_id", "close"):
        with pytest.raises(TypeError, match=rf"^{method}\(\) takes timeout as a number of seconds, got '5'"):
            getattr(producer, method)("5")
    with pytest.raises(TypeError, match=r"^health\(\) takes patience as a number of seconds, got '5'"):
        producer.health(patience="5")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda consumer: consumer.assign(None), r"as \[TopicPartition\('orders', 0\)\], not None"),
        (lambda consumer: consumer.position([("orders", 0)]), r"got \[\('orders', 0\)\]"),
        (lambda consumer: consumer.current_lag("orders"), "got 'orders'"),
        (lambda consumer: consumer.offsets_for_times([("orders", 0)]), "times are given by partition"),
        (lambda consumer: consumer.offsets_for_times({"orders": 0}), "got 'orders'"),
        (lambda consumer: consumer.offsets_for_times({("orders", 0): "now"}), "got 'now' for"),
        (lambda consumer: consumer.offsets_for_times({("orders", 0): -1}), "got -1 for"),
    ],
    ids=range(7),
)
def test_partitions_and_times_of_another_form_are_refused(
    consumer: Consumer, call: Callable[[Any], object], words: str
) -> None:
    consumer.assign([("orders", 0)])
    with pytest.raises(IllegalStateError, match=words):
        call(consumer)


def test_a_name_of_partitions_that_is_no_str_is_not_waited_for(consumer: Any) -> None:
    with pytest.raises(KafkaError, match="a topic's name is a str, got None"):
        consumer.partitions_for(None)


def test_pairs_and_single_partitions_name_partitions(
    consumer: Any, producer: Producer, topic_name: Callable[[], str]
) -> None:
    place = TopicPartition(topic_name(), 0)
    producer.send(place.topic, b"x", timestamp_ms=1000).result(60)
    consumer.assign(place)
    assert consumer.assignment() == {place}
    assert consumer.offsets_for_times({tuple(place): 0})[place].offset == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda admin: admin.alter_group_offsets(5, {("orders", 0): 1}), "group_id as a str, got 5"),
        (
            lambda admin: admin.alter_group_offsets("g", {("orders", 0): "1"}),
            "alter_group_offsets takes a map",
        ),
        (
            lambda admin: admin.alter_group_offsets("g", [("orders", 0)]),
            "alter_group_offsets takes a mapping",
        ),
        (
            lambda admin: admin.delete_group_offsets("g", ["orders"]),
            r"delete_group_offsets\(\) takes a list of",
        ),
        (
            lambda admin: admin.describe_producers("orders"),
            r"describe_producers\(\) takes a list of partitions",
        ),
        (lambda admin: admin.elect_leaders("preferred"), r"elect_leaders\(\) takes a list of partitions"),
        (lambda admin: admin.list_partition_reassignments("x"), "takes a list of partitions"),
        (lambda admin: admin.alter_partition_reassignments({("orders", 0): 1}), r"\{TopicPar.*: \[1, 2\]\}"),
        (lambda admin: admin.alter_partition_reassignments({("orders", 0): "1"}), "takes a mapping of part"),
        (lambda admin: admin.describe_log_dirs(["1"]), "expected a list of int"),
        (lambda admin: admin.alter_replica_log_dirs({("orders", 0): "/d"}), "takes a mapping of replicas"),
        (
            lambda admin: admin.describe_acls("ann"),
            r"describe_acls\(\) takes wanted as a AclFilter, got 'ann'",
        ),
        (lambda admin: admin.create_acls(["ann"]), "expected a list of AclBinding"),
        (lambda admin: admin.delete_acls(["ann"]), "expected a list of AclFilter"),
        (lambda admin: admin.describe_user_scram_credentials("ann"), "expected a list of str, even for one"),
        (lambda admin: admin.alter_user_scram_credentials("ann"), "expected a list of ScramUpsertion|Scram"),
        (lambda admin: admin.alter_user_scram_credentials([5]), "expected a list of"),
        (lambda admin: admin.describe_client_quotas("ann"), r"describe_client_quotas\(\) takes a mapping"),
        (lambda admin: admin.update_features({"metadata.version": 20}), r"FeatureUpdate\(20\)"),
        (lambda admin: admin.fence_producer(["tx"]), r"fence_producer\(\) takes transactional_id as a str"),
        (lambda admin: admin.abort_transaction("tx"), "marker as a AbortMarker"),
        (lambda admin: admin.renew_delegation_token("x"), "hmac as a bytes, got 'x'"),
        (lambda admin: admin.expire_delegation_token("x"), "hmac as a bytes, got 'x'"),
        (lambda admin: admin.list_groups(states=["Idle"]), "'Idle' is not a GroupState; those are .*Stable"),
        (lambda admin: admin.list_config_resources("topic"), "expected a list"),
        (lambda admin: admin.create_topics({"orders": 3}), "expected a list of NewTopic"),
    ],
    ids=range(26),
)
def test_arguments_of_admin_calls_of_another_form_are_refused_before_anything_is_sent(
    bootstrap: str, call: Callable[[Any], object], words: str
) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin, pytest.raises(ClientError, match=words):
        call(admin)


def test_admin_calls_take_pairs_and_the_values_of_states(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    with Admin(bootstrap_servers=bootstrap) as given:
        admin: Any = given
        admin.create_topics([NewTopic(name)])[0].raise_for_error()
        assert admin.list_offsets({(name, 0): -1})[TopicPartition(name, 0)].offset == 0
        admin.alter_group_offsets("strangers-moved", {(name, 0): 0})[0].raise_for_error()
        (found,) = [
            group
            for group in admin.list_groups(states=["Empty"]).groups
            if group.group_id == "strangers-moved"
        ]
        assert found.state == "Empty"
        admin.delete_group_offsets("strangers-moved", [(name, 0)])[0].raise_for_error()


def test_parts_of_a_new_topic_have_their_types() -> None:
    wrong: dict[str, Any] = {"name": 5, "configs": [("a", "b")], "assignments": [[1]]}
    for part, given in wrong.items():
        with pytest.raises(ClientError, match=f"{part} of NewTopic is a .*, got "):
            NewTopic(**({"name": "orders"} | {part: given}))


@pytest.mark.parametrize(
    ("offsets", "group", "words"),
    [
        ({("orders", 0): 1}, None, r"the group of the consumer, as consumer\.group_metadata\(\), or its id"),
        ({("orders", 0): 1}, 5, "not 5"),
        ([("orders", 0, 1)], "g", "takes the offset of the next record by partition"),
        ({"orders": 1}, "g", r"not \{'orders': 1\}"),
        ({("orders", 0): "1"}, "g", "not {.*: '1'}"),
        ({("orders", 0): -1}, "g", "not {.*: -1}"),
    ],
    ids=range(6),
)
def test_offsets_for_a_transaction_of_another_form_are_refused_and_spoil_nothing(
    bootstrap: str, topic_name: Callable[[], str], offsets: Any, group: Any, words: str
) -> None:
    name = topic_name()
    with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        with producer.transaction():
            with pytest.raises(ClientError, match=words):
                producer.send_offsets_to_transaction(offsets, group)
            sent = producer.send(name, b"x")
        assert sent.result(60).offset == 0


@pytest.mark.parametrize("known", [False, True], ids=["unknown topic", "known topic"])
def test_callbacks_and_timestamps_of_a_record_are_checked_before_it_is_sent(
    producer: Any, topic_name: Callable[[], str], known: bool
) -> None:
    name = topic_name()
    if known:
        producer.send(name, b"x").result(60)
    for wrong in ("now", -5, datetime(2026, 1, 1), 2**63):
        with pytest.raises(SerializationError, match="timestamp_ms is a number of milliseconds since 1970"):
            producer.send(name, b"x", timestamp_ms=wrong)
    with pytest.raises(TypeError, match=r"send\(\) takes on_delivery as a function, got 5"):
        producer.send(name, b"x", on_delivery=5)
    sent = producer.send(name, b"x", timestamp_ms=datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(TypeError, match=r"add_done_callback\(\) takes callback as a function, got 5"):
        sent.add_done_callback(5)
    written = sent.result(60)
    assert (written.offset, written.timestamp_ms) == (int(known), 1_767_225_600_000)


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_serializer_that_returns_no_bytes_is_named(bootstrap: str, part: str) -> None:
    serializer: dict[str, Any] = {f"{part}_serializer": lambda given: str(given)}
    record: dict[str, Any] = {part: 5}
    words = f"{part}_serializer returns bytes or None, and has returned str for topic 'orders'"
    with (
        Producer(bootstrap_servers=bootstrap, **serializer) as producer,
        pytest.raises(SerializationError, match=words),
    ):
        producer.send("orders", **record)


def test_getone_of_a_closed_consumer_says_so(bootstrap: str) -> None:
    closed: Any = Consumer(bootstrap_servers=bootstrap)
    closed.close()
    with pytest.raises(ClientClosedError, match="the consumer is closed"):
        closed.getone()

    async def main() -> None:
        consumer: Any = AsyncConsumer(bootstrap_servers=bootstrap)
        await consumer.close()
        with pytest.raises(ClientClosedError, match="the consumer is closed"):
            await consumer.getone()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda consumer: consumer.subscribe("orders", on_assign=print),
            r"subscribe\(\) has no .* listener=…",
        ),
        (
            lambda consumer: consumer.commit(asynchronous=True),
            r"commit\(\) has no .* commit_nowait\(\) does not",
        ),
        (
            lambda consumer: consumer.commit(message=5),
            r"commit\(\{record.topic_partition: record.offset \+ 1\}",
        ),
        (lambda consumer: consumer.commit(offset=5), r"commit\(\) has no argument offset$"),
        (
            lambda consumer: consumer.consume(count=5),
            r"^consume\(\) got an unexpected keyword argument 'count'",
        ),
    ],
    ids=range(5),
)
def test_keywords_of_other_libraries_are_refused_with_ours(
    consumer: Any, call: Callable[[Any], object], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        call(consumer)
    assert not consumer.subscription()


def test_an_asynchronous_client_is_refused_on_another_loop_and_on_none(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    producer = AsyncProducer(bootstrap_servers=bootstrap)
    consumer = AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    admin = AsyncAdmin(bootstrap_servers=bootstrap)
    with pytest.raises(ClientError, match=r"an AsyncProducer works on an event loop: .*, or use Producer"):
        producer.send(name, b"x")

    async def use() -> None:
        await producer.send(name, b"x")
        consumer.assign([(name, 0)])
        assert [each.value for each in await consumer.poll(60)] == [b"x"]
        await admin.list_topics()

    async def use_elsewhere() -> None:
        with pytest.raises(ClientError, match="an AsyncProducer belongs to the event loop that it was first"):
            await producer.send(name, b"y")
        with pytest.raises(ClientError, match="an AsyncConsumer belongs to the event loop"):
            await consumer.poll(60)
        with pytest.raises(ClientError, match="an AsyncAdmin belongs to the event loop"):
            await admin.list_topics()

    with asyncio.Runner() as runner:
        runner.run(use())
        asyncio.run(use_elsewhere())

        async def close() -> None:
            await producer.close()
            await consumer.close()
            await admin.close()

        runner.run(close())


def test_a_closed_producer_cannot_be_entered_or_started(bootstrap: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap)
    producer.close()
    with pytest.raises(ClientClosedError), producer:
        pass

    async def main() -> None:
        closed = AsyncProducer(bootstrap_servers=bootstrap)
        await closed.close()
        with pytest.raises(ClientClosedError):
            await closed.start()

    asyncio.run(main())


def test_the_keys_of_a_mapping_are_names(bootstrap: str, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name)])[0].raise_for_error()
        resource = ConfigResource(ResourceType.TOPIC, name)
        (described,) = admin.describe_configs([resource], names={"retention.ms": "-1"})
        assert [entry.name for entry in described.entries] == ["retention.ms"]
        place = TopicPartition(name, 0)
        assert list(admin.describe_producers({place: 5})) == [place]
