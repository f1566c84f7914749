"""What a writing job may set, and what it is told otherwise."""

from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.spark.runtime._executor_login import DriverLogin
from tidelog.spark.write.write_options import write_options

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def test_a_stream_is_written_exactly_once_and_a_batch_at_least_once() -> None:
    assert write_options(BROKER, streaming=True).exactly_once
    assert not write_options(BROKER, streaming=False).exactly_once


def test_a_stream_may_be_written_at_least_once() -> None:
    assert not write_options(BROKER | {"deliveryGuarantee": "at-least-once"}, streaming=True).exactly_once


def test_a_batch_with_a_name_and_a_version_is_written_exactly_once() -> None:
    options = write_options(BROKER | {"txnAppId": "orders", "txnVersion": "7"}, streaming=False)
    assert options.exactly_once
    assert (options.app_id, options.version) == ("orders", 7)


def test_names_are_taken_in_any_case_as_spark_hands_them_over() -> None:
    raw = BROKER | {"txnappid": "orders", "TXNVERSION": "7", "Topic": " out "}
    assert write_options(raw, streaming=False).topic == "out"


@pytest.mark.parametrize(
    ("given", "streaming", "told"),
    [
        ({"txnAppId": "orders"}, False, "set txnVersion"),
        ({"txnVersion": "1"}, False, "set txnAppId"),
        ({"txnAppId": "orders"}, True, "query id"),
        ({"deliveryGuarantee": "exactly-once"}, False, "set txnAppId and txnVersion"),
        ({"txnAppId": "a", "txnVersion": "1", "deliveryGuarantee": "at-least-once"}, False, "leave them out"),
        ({"deliveryGuarantee": "once"}, True, "deliveryGuarantee"),
        ({"txnAppId": "a", "txnVersion": "-1"}, False, "txnVersion"),
        ({"kafka.key.serializer": "x"}, True, "DataFrame operations"),
        ({"kafka.value.serializer": "x"}, True, "DataFrame operations"),
        ({"kafka.transactional.id": "x"}, True, "txnAppId"),
        ({"kafka.transactional_id": "x"}, True, "txnAppId"),
        ({"kafka.enable.idempotence": "false"}, True, "at-least-once"),
        ({"kafka.acks": "1"}, True, "acks"),
        ({"kafka.linger": "1"}, True, "linger.ms"),
        ({"topics": "x"}, True, "topic"),
        ({"topic": " "}, True, "option topic is empty"),
        ({"checkpointInterval": "1"}, True, "no option checkpointInterval"),
    ],
)
def test_what_cannot_be_is_refused_with_the_mend(given: dict[str, str], streaming: bool, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        write_options(BROKER | given, streaming=streaming)


def test_brokers_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        write_options({"topic": "out"}, streaming=False)


def test_options_of_the_producer_are_passed_on_and_win_over_the_sinks_own() -> None:
    options = write_options(BROKER | {"kafka.linger.ms": "50", "kafka.batch.size": "1000"}, streaming=True)
    settings = options.producer_options("task-0")
    assert settings["linger.ms"] == "50"
    assert settings["batch.size"] == "1000"
    assert settings["transactional.id"] == "task-0"
    assert int(settings["transaction.timeout.ms"]) == 900_000
    assert "transactional.id" not in options.producer_options()


@pytest.mark.parametrize("text", ["SASL_SSL", " SASL_SSL", "sasl_plaintext\n"])
def test_a_password_stays_on_the_driver_however_its_options_are_written(text: str) -> None:
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "ann", "kafka.sasl_password": "secret"}
    options = write_options(BROKER | login | {"kafka.security.protocol": text}, streaming=True)
    assert isinstance(options.login, DriverLogin)
    assert "secret" not in options.client.values()
