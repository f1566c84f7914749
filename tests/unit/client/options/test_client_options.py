from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, StreamConsumer
from tidelog.client._network.from_options import network_settings
from tidelog.client.options import ADMIN, CONSUMER, PRODUCER, ClientConfig, ClientKind
from tidelog.client.options import client_config as module
from tidelog.client.options.foreign_names import FOREIGN_NAMES, options_named
from tidelog.client.options.unsupported import UNSUPPORTED_NAMES
from tidelog.errors import ConfigError

KINDS = (PRODUCER, CONSUMER, ADMIN)


def parse(kind: ClientKind, **keywords: Any) -> ClientConfig:
    return ClientConfig.parse(kind, {"bootstrap.servers": "127.0.0.1:9092", **keywords})


def refusal(kind: ClientKind, **keywords: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        parse(kind, **keywords)
    return str(refused.value)


def test_keywords_and_a_mapping_in_kafkas_names_mean_the_same() -> None:
    by_mapping = ClientConfig.parse(PRODUCER, {"bootstrap.servers": "a:1", "linger.ms": "7", "acks": "all"})
    by_keywords = ClientConfig.parse(PRODUCER, bootstrap_servers=["a:1"], linger_ms=7, acks="all")
    assert dict(by_mapping) | {"client.id": ""} == dict(by_keywords) | {"client.id": ""}
    assert by_mapping.given == {"bootstrap.servers", "linger.ms", "acks"}


def test_keywords_win_over_the_mapping_and_none_means_not_set() -> None:
    config = ClientConfig.parse(
        PRODUCER, {"bootstrap.servers": "a:1", "linger.ms": "7"}, linger_ms=9, client_id=None, batch_size=None
    )
    assert config.int("linger.ms") == 9
    assert config.int("batch.size") == 16_384
    assert config.str("client.id").startswith("producer-")


def test_values_may_be_pythons_own() -> None:
    config = ClientConfig.parse(
        CONSUMER,
        bootstrap_servers=("a:1", "b:2"),
        group_id="g",
        enable_auto_commit=False,
        value_deserializer=bytes.decode,
        ssl_truststore_location=Path("ca.pem"),
        partition_assignment_strategy=["sticky", "range", "sticky"],
        interceptor_classes=[object],
    )
    assert config.list("bootstrap.servers") == ("a:1", "b:2")
    assert config.bool("enable.auto.commit") is False
    assert config.object("value.deserializer") is bytes.decode
    assert config.str("ssl.truststore.location") == "ca.pem"
    assert config.list("partition.assignment.strategy") == ("sticky", "range")
    assert config.list("interceptor.classes") == (object,)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (PRODUCER, {"liger_ms": 1}, "a producer has no option liger_ms; did you mean linger_ms?"),
        (PRODUCER, {"zzz": 1}, "a producer has no option zzz"),
        (PRODUCER, {"group_id": "g"}, "group_id is an option of a consumer, not of a producer"),
        (CONSUMER, {"linger_ms": 1}, "linger_ms is an option of a producer, not of a consumer"),
        (PRODUCER, {"linger_ms": "soon"}, "Invalid value soon for configuration linger.ms"),
        (PRODUCER, {"linger_ms": -1}, "Value must be at least 0"),
        (PRODUCER, {"linger_ms": True}, "Invalid value true for configuration linger.ms"),
        (PRODUCER, {"linger_ms": [1]}, "linger.ms cannot be a list: give it as an int"),
        (PRODUCER, {"linger_ms": 1.5}, "Invalid value 1.5 for configuration linger.ms"),
        (CONSUMER, {"auto_offset_reset": "first"}, "either 'earliest', 'latest', 'none'"),
        (CONSUMER, {"isolation_level": "serializable"}, "read_committed, read_uncommitted"),
        (PRODUCER, {"bootstrap.servers": 5}, "bootstrap.servers takes 'host:port' or a list of them, not 5"),
        (ADMIN, {"bootstrap.servers": [5]}, "bootstrap.servers takes 'host:port' or a list of them, not [5]"),
        (CONSUMER, {"bootstrap.servers": {"a": 1}}, "bootstrap.servers takes 'host:port' or a list of them"),
        (ADMIN, {"security_protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_mend(
    kind: ClientKind, options: dict[str, Any], words: str
) -> None:
    assert words in refusal(kind, **options)


def test_a_misspelt_name_in_kafkas_spelling_gets_a_suggestion_in_it() -> None:
    with pytest.raises(ConfigError, match=r"did you mean linger\.ms\?"):
        ClientConfig.parse(PRODUCER, {"bootstrap.servers": "a:1", "lingr.ms": 1})


def test_every_bad_value_is_named_at_once() -> None:
    text = refusal(PRODUCER, linger_ms="x", batch_size="y")
    assert "linger.ms" in text
    assert "batch.size" in text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_without_bootstrap_servers_there_is_no_client(kind: ClientKind) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is not set"):
        ClientConfig.parse(kind)


def test_options_of_java_alone_are_warned_about_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_warned", set())
    with caplog.at_level(logging.WARNING):
        parse(PRODUCER, auto_include_jmx_reporter=True)
        parse(PRODUCER, auto_include_jmx_reporter=True)
    assert [record.message for record in caplog.records] == [
        "option auto.include.jmx.reporter has no effect here: There is no JMX (see `metric.reporters`), and "
        "all figures are always kept."
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_option_is_both_honoured_and_without_effect(kind: ClientKind) -> None:
    assert not set(kind.options) & set(UNSUPPORTED_NAMES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_defaults_keep_their_own_bounds(kind: ClientKind) -> None:
    for option in kind.options.values():
        if option.check is not None and option.name != "bootstrap.servers":
            option.check(option.name, option.default)


def test_passwords_are_never_shown() -> None:
    config = parse(
        ADMIN,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="u",
        sasl_password="hush",
    )
    assert "hush" not in repr(config)
    assert "sasl.password=[hidden]" in repr(config)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"acks": 1, "enable_idempotence": True}, "cannot have acks=1: set acks to all"),
        ({"acks": "0", "transactional_id": "t"}, "cannot have acks=0"),
        ({"retries": 0, "enable_idempotence": True}, "cannot have retries=0"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"transactional_id": "t", "enable_idempotence": False}, "transactional.id needs enable.idempotence"),
        ({"transactional_id": ""}, "String must be non-empty"),
        ({"delivery_timeout_ms": 1000}, "linger.ms + request.timeout.ms, which is 30005"),
    ],
)
def test_producers_refuse_what_would_break_their_promises(options: dict[str, Any], words: str) -> None:
    assert words in refusal(PRODUCER, **options)


def test_producers_give_up_idempotence_that_nobody_asked_for() -> None:
    assert not parse(PRODUCER, acks=1).bool("enable.idempotence")
    assert not parse(PRODUCER, retries=0).bool("enable.idempotence")
    assert parse(PRODUCER).bool("enable.idempotence")
    assert parse(PRODUCER, enable_idempotence=False, max_in_flight_requests_per_connection=9)


def test_limits_of_time_make_room_for_one_request() -> None:
    assert parse(PRODUCER, request_timeout_ms=200_000).int("delivery.timeout.ms") == 200_005
    assert parse(CONSUMER, request_timeout_ms=90_000).int("default.api.timeout.ms") == 90_000
    assert parse(CONSUMER, default_api_timeout_ms=10).int("request.timeout.ms") == 10
    assert parse(ADMIN, default_api_timeout_ms=10).int("request.timeout.ms") == 10
    refused = refusal(ADMIN, default_api_timeout_ms=10, request_timeout_ms=20)
    assert "default.api.timeout.ms=10" in refused
    assert "lower request.timeout.ms, or leave it out" in refused


def test_messages_have_the_right_article() -> None:
    assert refusal(ADMIN, linger_ms=5) == "linger_ms is an option of a producer, not of an admin client"
    assert refusal(ADMIN, nonsense=5).startswith("an admin client has no option nonsense")
    assert "is an option of an admin client" not in refusal(CONSUMER, linger_ms=5)


def test_acks_have_one_spelling() -> None:
    assert [parse(PRODUCER, acks=acks).str("acks") for acks in ("all", -1, 1, "0")] == ["-1", "-1", "1", "0"]


def test_consumers_without_a_group_do_not_commit() -> None:
    assert parse(CONSUMER).bool("enable.auto.commit") is False
    assert parse(CONSUMER, group_id="g").bool("enable.auto.commit") is True
    assert "set group.id" in refusal(CONSUMER, enable_auto_commit=True)


def test_options_of_one_group_protocol_are_refused_by_the_other() -> None:
    assert "group.remote.assignor cannot be set when group.protocol=classic" in refusal(
        CONSUMER, group_remote_assignor="range"
    )
    text = refusal(CONSUMER, group_protocol="CONSUMER", session_timeout_ms=1000, heartbeat_interval_ms=1)
    assert "heartbeat.interval.ms, session.timeout.ms cannot be set when group.protocol=consumer" in text
    assert "must be below session.timeout.ms" in refusal(CONSUMER, heartbeat_interval_ms=45_000)


@pytest.mark.parametrize(
    "text", ["earliest", "LATEST", "none", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"]
)
def test_offset_reset_takes_words_and_durations(text: str) -> None:
    assert parse(CONSUMER, auto_offset_reset=text).str("auto.offset.reset") == text


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h", ""])
def test_offset_reset_refuses_durations_that_are_none(text: str) -> None:
    assert "by_duration" in refusal(CONSUMER, auto_offset_reset=text)


def test_clients_without_a_name_are_called_by_kind_and_purpose() -> None:
    assert parse(PRODUCER, transactional_id="t").str("client.id") == "producer-t"
    assert parse(CONSUMER, group_id="g", group_instance_id="i").str("client.id") == "consumer-g-i"
    first, second = (parse(ADMIN).str("client.id") for _ in range(2))
    assert first.startswith("adminclient-")
    assert first != second
    assert parse(ADMIN, client_id="mine").str("client.id") == "mine"


def test_the_pause_before_reconnecting_grows_only_if_told() -> None:
    settings = network_settings(parse(ADMIN, reconnect_backoff_ms=2000))
    assert (settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms) == (2000, 2000)
    settings = network_settings(parse(ADMIN))
    assert (settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms) == (50, 1000)


def test_the_network_gets_its_settings_from_the_options() -> None:
    producer = network_settings(parse(PRODUCER, client_id="p", max_block_ms=5, metadata_max_idle_ms=6000))
    assert producer.client_id == "p"
    assert producer.api_timeout_ms == 5
    assert producer.metadata_max_idle_ms == 6000
    assert producer.allow_auto_create_topics
    assert producer.security is None
    consumer = network_settings(parse(CONSUMER, allow_auto_create_topics="false", send_buffer_bytes=4096))
    assert not consumer.allow_auto_create_topics
    assert consumer.send_buffer_bytes == 4096
    assert consumer.connections_max_idle_ms == 540_000
    assert network_settings(parse(ADMIN)).connections_max_idle_ms == 300_000
    assert network_settings(parse(ADMIN, retries=2)).retries == 2
    assert network_settings(parse(PRODUCER, retries=2)).retries is None


CLIENTS = (Consumer, AsyncConsumer, Producer, AsyncProducer, Admin, AsyncAdmin)


def refused_by(client: Callable[..., object], *arguments: object, **keywords: object) -> str:
    with pytest.raises(ConfigError) as refused:
        client(*arguments, **keywords)
    return str(refused.value)


@pytest.mark.parametrize("consumer", [Consumer, AsyncConsumer])
def test_topics_in_the_place_of_options_are_refused_with_the_way_to_subscribe(
    consumer: Callable[..., object],
) -> None:
    text = refused_by(consumer, "orders", bootstrap_servers="127.0.0.1:9092", group_id="g")
    assert "then `subscribe(['orders'])`" in text
    assert "then `subscribe(['orders', 'bills'])`" in refused_by(consumer, "orders", "bills")


@pytest.mark.parametrize("client", CLIENTS)
def test_an_address_in_the_place_of_options_is_refused_with_the_option_for_it(
    client: Callable[..., object],
) -> None:
    assert "bootstrap_servers='localhost:9092'" in refused_by(client, "localhost:9092")
    for nonsense in (5, ["localhost:9092"], b"orders", [("bootstrap.servers", "a:1")]):
        assert "options as a mapping or by their names" in refused_by(client, nonsense)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_name_of_an_option_is_a_str(client: Callable[..., object]) -> None:
    assert "an option's name is a str, got 5" in refused_by(client, {"bootstrap.servers": "a:1", 5: 6})


@pytest.mark.parametrize(
    ("streams", "handler", "words"),
    [
        ("orders", print, "say how many streams read each topic, as {'orders': 4}"),
        (["orders"], print, "say how many streams read each topic, as {'orders': 4}"),
        ({"orders": "four"}, print, "at least one stream for each"),
        ({"orders": True}, print, "at least one stream for each"),
        ({"orders": 0}, print, "at least one stream for each"),
        ({}, print, "name at least one topic"),
        ({"orders": 1}, "print", "got 'print'"),
    ],
)
def test_streams_and_handlers_that_cannot_be_used_are_refused(streams: Any, handler: Any, words: str) -> None:
    text = refused_by(StreamConsumer, streams, handler, bootstrap_servers="127.0.0.1:9092", group_id="g")
    assert words in text


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (CONSUMER, {"ssl_cafile": "x"}, "a consumer has no option ssl_cafile: it is ssl_truststore_location"),
        (CONSUMER, {"ssl.ca.location": "x"}, "it is ssl.truststore.location"),
        (CONSUMER, {"consumer_timeout_ms": 1}, "`records(timeout=…)`"),
        (PRODUCER, {"sasl_plain_username": "ann"}, "it is sasl_username"),
        (PRODUCER, {"on_delivery": print}, "give `on_delivery` to each `send`"),
        (ADMIN, {"api_version": (2, 5)}, "versions are negotiated"),
        (PRODUCER, {"bootstrap_server": "a:1"}, "did you mean bootstrap_servers?"),
        (CONSUMER, {"servers": "a:1"}, "it is bootstrap.servers"),
        (CONSUMER, {"brokers": "a:1"}, "it is bootstrap.servers"),
        (CONSUMER, {"group": "g"}, "it is group.id"),
        (CONSUMER, {"topics": ["orders"]}, "topics are given to `subscribe`"),
        (PRODUCER, {"compression": "gzip"}, "it is compression.type"),
        (PRODUCER, {"linger": 5}, "did you mean linger.ms?"),
        (PRODUCER, {"max_batch_size": 1}, "it is batch_size"),
        (PRODUCER, {"oauth_cb": print}, "it is sasl_login_callback_handler_class"),
        (CONSUMER, {"rebalance_timeout_ms": 1}, "it is max_poll_interval_ms"),
        (CONSUMER, {"queued.min.messages": 1}, "bound what is fetched ahead"),
        (PRODUCER, {"conf": {}}, "the mapping comes first and has no name"),
        (ADMIN, {"config": {}}, "the mapping comes first and has no name"),
        (ADMIN, {"socks5_proxy": "a:1"}, "proxies are not supported"),
        (ADMIN, {"sasl_kerberos_name": "a"}, "tickets are for sasl_kerberos_service_name"),
        (ADMIN, {"zzz": 1}, "docs/reference/client-configuration.md lists them"),
    ],
)
def test_another_clients_name_for_an_option_is_answered_with_ours(
    kind: ClientKind, options: dict[str, Any], words: str
) -> None:
    assert words in refusal(kind, **options)


def test_advice_names_options_that_exist_for_names_that_do_not() -> None:
    ours = {name for kind in KINDS for name in kind.options}
    assert options_named() <= ours
    assert not FOREIGN_NAMES.keys() & (ours | UNSUPPORTED_NAMES.keys())


def keywords_of(library: str, names: tuple[str, str, str]) -> list[tuple[ClientKind, set[str]]]:
    clients = [getattr(pytest.importorskip(library), name) for name in names[:2]]
    clients.append(getattr(pytest.importorskip(f"{library}.admin"), names[2]))
    return [
        (kind, set(getattr(client, "DEFAULT_CONFIG", inspect.signature(client).parameters)))
        for kind, client in zip(KINDS, clients, strict=True)
    ]


@pytest.mark.parametrize(
    ("library", "names"),
    [
        ("kafka", ("KafkaProducer", "KafkaConsumer", "KafkaAdminClient")),
        ("aiokafka", ("AIOKafkaProducer", "AIOKafkaConsumer", "AIOKafkaAdminClient")),
    ],
)
def test_every_keyword_of_another_clients_constructors_is_taken_or_answered(
    library: str, names: tuple[str, str, str]
) -> None:
    for kind, keywords in keywords_of(library, names):
        for keyword in keywords:
            dotted = keyword.replace("_", ".")
            if dotted in kind.options or dotted in UNSUPPORTED_NAMES:
                continue
            assert "client-configuration.md" not in refusal(kind, **{keyword: 1}), keyword
