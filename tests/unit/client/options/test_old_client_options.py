"""Names and values that options of clients had before Kafka 0.9."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from tidelog.client._address import Address, zookeeper_connect
from tidelog.client._network.zookeeper_brokers import Registration
from tidelog.client.options import ADMIN, CONSUMER, PRODUCER, ClientConfig, ClientKind
from tidelog.client.options import old_names as module
from tidelog.client.options.foreign_names import FOREIGN_NAMES
from tidelog.client.options.old_names import OLD_OPTIONS, overlaid
from tidelog.client.options.unsupported import UNSUPPORTED_NAMES
from tidelog.errors import ConfigError
from tidelog.properties import parse_properties

KINDS = (PRODUCER, CONSUMER, ADMIN)

# The property files of the old specification, as they are there.
OLD_PRODUCER = """
metadata.broker.list=122.144.134.82:9092,122.144.134.67:9092
serializer.class=kafka.serializer.StringEncoder
request.required.acks=1
#partitioner.class
#async config
producer.type=async
batch.num.messages=50
"""
OLD_CONSUMER = """
zookeeper.connect=122.144.134.67:2181
group.id=cassandra-logger-consumer
request.required.acks=1
zookeeper.session.timeout.ms=40000
zookeeper.sync.time.ms=2000
auto.commit.enable = true
auto.commit.interval.ms=1000
partition.assignment.strategy=range
"""


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", set())


def given(kind: ClientKind, options: Mapping[str, object]) -> dict[str, object]:
    config = ClientConfig.parse(kind, options)
    return {name: config[name] for name in config.given}


def with_broker(**options: object) -> dict[str, object]:
    return {"bootstrap.servers": "a:1", **{name.replace("_", "."): value for name, value in options.items()}}


def refusal(kind: ClientKind, options: Mapping[str, object]) -> str:
    with pytest.raises(ConfigError) as refused:
        ClientConfig.parse(kind, options)
    return str(refused.value)


def test_the_old_producers_file_works_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = parse_properties(OLD_PRODUCER)
    assert given(PRODUCER, options) == {
        "bootstrap.servers": ("122.144.134.82:9092", "122.144.134.67:9092"),
        "value.serializer": "str",
        "key.serializer": "str",
        "acks": "1",
    }
    given(PRODUCER, options)
    (warning,) = [record.message for record in caplog.records]
    for words in (
        "metadata.broker.list is now bootstrap.servers;",
        "serializer.class is now value.serializer=str;",
        "request.required.acks is now acks;",
        "producer.type has no effect: every producer sends in the background",
        "batch.num.messages has no effect: batch.size bounds a batch, in bytes",
    ):
        assert words in warning


def test_the_old_consumers_file_works_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert given(CONSUMER, parse_properties(OLD_CONSUMER)) == {
        "bootstrap.servers": ("zookeeper://122.144.134.67:2181",),
        "group.id": "cassandra-logger-consumer",
        "session.timeout.ms": 40_000,
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 1000,
        "partition.assignment.strategy": ("range",),
    }
    (warning,) = [record.message for record in caplog.records]
    for words in (
        "zookeeper.connect is now bootstrap.servers=zookeeper://122.144.134.67:2181",
        "tidelog groups import-zookeeper",
        "zookeeper.session.timeout.ms is now session.timeout.ms;",
        "zookeeper.sync.time.ms has no effect",
        "auto.commit.enable is now enable.auto.commit",
        "request.required.acks has no effect on a consumer, which has no option acks",
    ):
        assert words in warning


@pytest.mark.parametrize(
    ("kind", "old", "current"),
    [
        (PRODUCER, {"compression.codec": "snappy"}, {"compression.type": "snappy"}),
        (PRODUCER, {"compression.codec": "1"}, {"compression.type": "gzip"}),
        (PRODUCER, {"compressed.topics": ""}, {}),
        (PRODUCER, {"producer.type": "sync"}, {"linger.ms": 0}),
        (PRODUCER, {"producer.type": "async", "queue.buffering.max.ms": "20"}, {"linger.ms": 20}),
        (PRODUCER, {"producer.type": "sync", "queue.buffering.max.ms": "20"}, {"linger.ms": 0}),
        (PRODUCER, {"message.send.max.retries": "3"}, {"retries": 3}),
        (PRODUCER, {"queue.enqueue.timeout.ms": "-1"}, {"max.block.ms": 2**31 - 1}),
        (PRODUCER, {"queue.enqueue.timeout.ms": "500"}, {"max.block.ms": 500}),
        (PRODUCER, {"block.on.buffer.full": "true"}, {"max.block.ms": 2**31 - 1}),
        (PRODUCER, {"block.on.buffer.full": "false"}, {}),
        (
            PRODUCER,
            {"block_on_buffer_full": True, "metadata_fetch_timeout_ms": 5},
            {"max.block.ms": 2**31 - 1},
        ),
        (PRODUCER, {"block_on_buffer_full": False, "metadata_fetch_timeout_ms": 5}, {"max.block.ms": 5}),
        (PRODUCER, {"timeout.ms": "7000"}, {"request.timeout.ms": 7000}),
        (PRODUCER, {"topic.metadata.refresh.interval.ms": "-1"}, {"metadata.max.age.ms": 2**31 - 1}),
        (PRODUCER, {"queue.buffering.max.messages": "10000"}, {}),
        (
            PRODUCER,
            {
                "serializer.class": "kafka.serializer.StringEncoder",
                "key.serializer.class": "kafka.serializer.DefaultEncoder",
            },
            {"value.serializer": "str", "key.serializer": "bytes"},
        ),
        (
            PRODUCER,
            {"serializer.class": "kafka.serializer.StringEncoder", "key.serializer": "json"},
            {"value.serializer": "str", "key.serializer": "json"},
        ),
        (CONSUMER, {"auto.offset.reset": "smallest"}, {"auto.offset.reset": "earliest"}),
        (CONSUMER, {"auto_offset_reset": "largest"}, {"auto.offset.reset": "latest"}),
        (CONSUMER, {"fetch.message.max.bytes": 5}, {"max.partition.fetch.bytes": 5}),
        (CONSUMER, {"fetch_wait_max_ms": 5}, {"fetch.max.wait.ms": 5}),
        (CONSUMER, {"zookeeper.session.timeout.ms": "400"}, {"session.timeout.ms": 6000}),
        (CONSUMER, {"offsets.storage": "kafka", "dual.commit.enabled": "false"}, {}),
        (CONSUMER, {"consumer.timeout.ms": "-1"}, {}),
        (
            CONSUMER,
            {"offsets.channel.socket.timeout.ms": "5000", "socket.timeout.ms": "7000"},
            {"request.timeout.ms": 7000},
        ),
        (ADMIN, {"socket.receive.buffer.bytes": 65536}, {"receive.buffer.bytes": 65536}),
    ],
)
def test_an_old_option_sets_the_current_one(
    kind: ClientKind, old: dict[str, object], current: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    assert given(kind, {"bootstrap.servers": "a:1", **old}) == {"bootstrap.servers": ("a:1",), **current}
    (warning,) = caplog.records
    for name in old:
        if name in module._BY_NAME:
            assert name in warning.message


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (PRODUCER, with_broker(request_required_acks=1, acks="all"), ("request.required.acks", " acks,")),
        (CONSUMER, with_broker(metadata_broker_list="b:1"), ("metadata.broker.list", "bootstrap.servers")),
        (
            CONSUMER,
            {"bootstrap_servers": "a:1", "zookeeper_connect": "z:2181"},
            ("zookeeper_connect", "bootstrap_servers"),
        ),
    ],
)
def test_a_current_option_and_an_old_name_for_it_are_refused(
    kind: ClientKind, options: dict[str, object], words: tuple[str, ...]
) -> None:
    text = refusal(kind, options)
    assert all(each in text for each in (*words, "is set as well")), text


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (PRODUCER, {"serializer.class": "com.acme.LogEncoder"}, "set value.serializer to str"),
        (PRODUCER, {"key.serializer.class": "com.acme.LogEncoder"}, "set key.serializer to str"),
        (PRODUCER, {"compressed.topics": "a,b"}, "one producer for each codec"),
        (PRODUCER, {"queue.enqueue.timeout.ms": "0"}, "set max.block.ms instead"),
        (PRODUCER, {"block.on.buffer.full": "maybe"}, "neither true nor false"),
        (PRODUCER, {"producer.type": "later"}, "neither sync nor async"),
        (PRODUCER, {"request.required.acks": "2"}, "acks"),
        (CONSUMER, {"offsets.storage": "zookeeper"}, "tidelog groups import-zookeeper"),
        (CONSUMER, {"dual.commit.enabled": "true"}, "tidelog groups import-zookeeper"),
        (CONSUMER, {"consumer.timeout.ms": "1000"}, "records(timeout=…)"),
        (CONSUMER, {"consumer.id": "c"}, "group.instance.id"),
    ],
)
def test_an_old_option_that_cannot_be_honored_is_refused_with_the_remedy(
    kind: ClientKind, options: dict[str, object], words: str
) -> None:
    assert words in refusal(kind, {"bootstrap.servers": "a:1", **options})


def test_brokers_that_are_listed_count_before_zookeeper(caplog: pytest.LogCaptureFixture) -> None:
    shared = {"zookeeper.connect": "z:2181", "metadata.broker.list": "a:1"}
    assert given(CONSUMER, shared)["bootstrap.servers"] == ("a:1",)
    assert "zookeeper.connect has no effect, as metadata.broker.list sets bootstrap.servers" in caplog.text


def test_keywords_win_over_old_names_in_the_mapping() -> None:
    config = ClientConfig.parse(
        PRODUCER, {"metadata.broker.list": "a:1", "request.required.acks": "1"}, bootstrap_servers="b:2"
    )
    assert (config.list("bootstrap.servers"), config.str("acks")) == (("b:2",), "1")


def test_a_layer_replaces_the_same_option_of_the_one_below_under_any_name() -> None:
    assert overlaid({"zookeeper.connect": "z:1", "acks": "1"}, {"metadata.broker.list": "a:1"}) == {
        "acks": "1",
        "metadata.broker.list": "a:1",
    }
    assert overlaid({"request.required.acks": "1"}, {"acks": "all"}) == {"acks": "all"}
    assert overlaid({"linger_ms": "1"}, {"queue.buffering.max.ms": "5"}) == {"queue.buffering.max.ms": "5"}


def test_old_names_are_no_current_ones_and_name_options_that_exist() -> None:
    current = {name for kind in KINDS for name in kind.options}
    names = [each.name for each in OLD_OPTIONS]
    assert len(set(names)) == len(names)
    assert not set(names) & (current | FOREIGN_NAMES.keys() | UNSUPPORTED_NAMES.keys())
    assert {each.current for each in OLD_OPTIONS if each.current is not None} <= current


def test_zookeeper_servers_stand_in_one_bootstrap_server() -> None:
    (server,) = ClientConfig.parse(ADMIN, {"zookeeper.connect": "a:2181, b:2181/kafka"}).list(
        "bootstrap.servers"
    )
    assert zookeeper_connect([server]) == zookeeper_connect(server) == "a:2181,b:2181/kafka"
    assert zookeeper_connect(["a:1", "b:2"]) is None
    with pytest.raises(ConfigError, match="give it alone"):
        zookeeper_connect([server, "a:1"])
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is empty"):
        ClientConfig.parse(ADMIN, {"zookeeper.connect": " "})


@pytest.mark.parametrize(
    ("registration", "protocol", "expected"),
    [
        ({"host": "h", "port": 9092}, "PLAINTEXT", [("h", 9092)]),
        ({"host": "h", "port": 9092}, "SSL", []),
        ({"endpoints": ["SSL://h:9093", "PLAINTEXT://[::1]:9092"]}, "PLAINTEXT", [("::1", 9092)]),
        (
            {
                "endpoints": ["INSIDE://h:1", "OUTSIDE://h:2"],
                "listener_security_protocol_map": {"INSIDE": "PLAINTEXT", "OUTSIDE": "SASL_SSL"},
            },
            "SASL_SSL",
            [("h", 2)],
        ),
    ],
)
def test_a_broker_is_found_at_the_listener_of_the_clients_protocol(
    registration: dict[str, Any], protocol: str, expected: list[tuple[str, int]]
) -> None:
    assert Registration(**registration).addresses(protocol) == [Address(*each) for each in expected]


def test_the_warning_comes_once_per_process(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            given(PRODUCER, with_broker(request_required_acks=1))
    assert len(caplog.records) == 1
