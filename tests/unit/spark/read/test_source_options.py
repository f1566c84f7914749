from __future__ import annotations

import pickle

import pytest

from tidelog.client.consumer._fetch.fetch_config import fetch_config
from tidelog.client.options import CONSUMER, ClientConfig
from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition
from tidelog.spark.read._offsets import (
    EarliestLimit,
    GlobalTimestampLimit,
    LatestLimit,
    SpecificLimit,
    TimestampLimit,
)
from tidelog.spark.read._source_options import SourceOptions, source_options
from tidelog.spark.runtime._executor_login import DriverLogin, GivenLogin
from tidelog.spark.runtime._options import SOURCE_OPTIONS, duration_ms

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def options(streaming: bool | None = True, /, **given: str) -> SourceOptions:
    return source_options({**SERVERS, "subscribe": "orders", **given}, streaming=streaming)


def refusal(raw: dict[str, str], *, streaming: bool | None = True) -> str:
    with pytest.raises(ConfigError) as error:
        source_options({**SERVERS, **raw}, streaming=streaming)
    return str(error.value)


def test_names_of_options_are_read_in_any_case() -> None:
    read = options(MAXOFFSETSPERTRIGGER="5", failondataloss="FALSE", IncludeHeaders="true")
    assert (read.max_offsets_per_trigger, read.fail_on_data_loss, read.include_headers) == (5, False, True)


def test_topics_are_separated_by_commas() -> None:
    assert options(subscribe=" a, b,,a ").topics == ("a", "b")


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert options(True).starting == LatestLimit()
    batch = options(False)
    assert (batch.starting, batch.ending) == (EarliestLimit(), LatestLimit())


def test_a_timestamp_for_all_goes_before_one_each_and_before_offsets() -> None:
    by_partition = '{"orders":{"0":7}}'
    offsets = {"startingOffsets": "earliest"}
    assert options(**offsets).starting == EarliestLimit()
    offsets["startingOffsetsByTimestamp"] = by_partition
    assert options(**offsets).starting == TimestampLimit({TopicPartition("orders", 0): 7})
    assert options(**offsets, startingTimestamp="9").starting == GlobalTimestampLimit(9)


def test_offsets_in_json_are_read() -> None:
    read = options(False, startingOffsets='{"orders":{"0":3}}', endingOffsets='{"orders":{"0":-1}}')
    assert read.starting == SpecificLimit({TopicPartition("orders", 0): 3})
    assert read.ending == SpecificLimit({TopicPartition("orders", 0): -1})


def test_exactly_one_option_says_what_to_read() -> None:
    assert "set one of the options subscribe, subscribePattern and assign" in refusal({})
    both = refusal({"subscribe": "a", "assign": '{"a":[0]}'})
    assert both == "options subscribe and assign exclude one another: leave all but one out"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"subscribePattern": " "}, "is empty"),
        ({"assign": "orders"}, "must look like"),
    ],
)
def test_what_to_read_must_make_sense(raw: dict[str, str], words: str) -> None:
    assert words in refusal(raw)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert f"option {name} has no meaning for a stream" in refusal({"subscribe": "a", name: "1"})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "cannot be earliest"),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":5}}'},
            "behind its endingOffsets 5",
        ),
        ({"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"1":9}}'}, "only one of"),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":9}}', "endingOffsetsByTimestamp": '{"a":{"0":5}}'},
            "behind its endingOffsetsByTimestamp",
        ),
    ],
)
def test_a_batch_has_a_beginning_before_its_end(raw: dict[str, str], words: str) -> None:
    assert words in refusal({"subscribe": "a", **raw}, streaming=False)


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_client_options_that_spark_replaces_are_refused(name: str) -> None:
    assert f"option kafka.{name} cannot be set: " in refusal({"subscribe": "a", f"kafka.{name}": "x"})


def test_brokers_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is not set"):
        source_options({"subscribe": "a"})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribepatern", "subscribePattern"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("isolation.level", "kafka.isolation.level"),
        ("isolation_level", "kafka.isolation.level"),
        ("headers", "includeHeaders"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(written: str, meant: str) -> None:
    text = refusal({"subscribe": "a", written: "x"})
    assert text == f"the data source tidelog has no option {written}; did you mean {meant}?"


def test_a_path_is_refused() -> None:
    assert "has no path" in refusal({"subscribe": "a", "path": "x"})


@pytest.mark.parametrize(
    "written", ["kafka.isolation.level", "kafka.isolation_level", "KAFKA.Isolation.Level"]
)
@pytest.mark.parametrize("text", ["read_committed", " read_committed", "read_committed\t\n"])
def test_a_reader_means_by_its_isolation_level_what_its_connection_means(written: str, text: str) -> None:
    read = options(**{written: text})
    config = fetch_config(ClientConfig.parse(CONSUMER, read.client_for("executor")))
    assert (read.read_committed, config.isolation_level) == (True, 1)


@pytest.mark.parametrize(
    ("protocol", "password"),
    [
        ("kafka.security.protocol", "kafka.sasl.password"),
        ("kafka.security_protocol", "kafka.sasl_password"),
    ],
)
@pytest.mark.parametrize("text", ["SASL_SSL", " SASL_SSL", "sasl_ssl "])
def test_a_password_stays_on_the_driver_however_its_options_are_written(
    protocol: str, password: str, text: str
) -> None:
    login = {"kafka.sasl.mechanism": " SCRAM-SHA-256", "kafka.sasl.username": "ann", password: "secret"}
    read = options(**{protocol: text}, **login)
    assert isinstance(read.login, DriverLogin)
    assert "secret" not in read.client.values()
    assert read.client_for("driver")["sasl.password"] == "secret"


def test_a_client_option_is_set_once() -> None:
    text = refusal({"subscribe": "a", "kafka.isolation.level": "x", "kafka.isolation_level": "y"})
    assert text == "option kafka.isolation.level is set twice, once as kafka.isolation_level: leave one out"


def test_a_token_that_a_job_was_given_goes_to_executors() -> None:
    token = {"kafka.sasl.username": "id", "kafka.sasl.password": "hmac", "kafka.sasl.tokenauth": " TRUE "}
    given = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256", **token}
    assert isinstance(options(**given).login, GivenLogin)


def test_an_option_that_spark_replaces_is_refused_by_its_other_name_too() -> None:
    text = refusal({"subscribe": "a", "kafka.auto_offset_reset": "earliest"})
    assert text.startswith("option kafka.auto.offset.reset cannot be set: ")


def test_an_unknown_client_option_is_refused_with_the_nearest_one() -> None:
    assert "did you mean isolation.level?" in refusal({"subscribe": "a", "kafka.isolation.levels": "x"})


@pytest.mark.parametrize(
    "raw",
    [
        {"minPartitions": "0"},
        {"maxRecordsPerPartition": "-1"},
        {"maxOffsetsPerTrigger": "many"},
        {"failOnDataLoss": "perhaps"},
        {"maxTriggerDelay": "soon"},
        {"startingOffsetsByTimestampStrategy": "earliest"},
        {"startingTimestamp": "-5"},
        {"startingOffsets": '{"a":{"0":-3}}'},
        {"valueFormat": "avro"},
        {"kafka.isolation.level": "read_all"},
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(raw: dict[str, str]) -> None:
    (name,) = raw
    assert name.removeprefix("kafka.") in refusal({"subscribe": "a", **raw})


def test_min_offsets_cannot_be_above_max_offsets() -> None:
    text = refusal({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"})
    assert text == "minOffsetsPerTrigger=9 is above maxOffsetsPerTrigger=8: lower it"


def test_json_values_need_a_schema_and_others_have_none() -> None:
    assert "set valueSchema" in refusal({"subscribe": "a", "valueFormat": "json"})
    assert "set valueFormat to json" in refusal({"subscribe": "a", "valueSchema": "id INT"})


def test_a_group_names_the_connections_and_is_not_joined() -> None:
    assert options(**{"kafka.group.id": "g"}).client_for("driver")["client.id"] == "g-driver"
    assert options(groupIdPrefix="mine").client_for("executor")["client.id"] == "mine-executor"
    assert "group.id" not in options(**{"kafka.group.id": "g"}).client


def test_options_travel_to_executors() -> None:
    read = options(startingOffsets='{"orders":{"0":3}}')
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("500ms", 500), ("10 seconds", 10_000), ("7", 7)])
def test_lengths_of_time_are_written_as_spark_writes_them(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


def test_every_option_is_documented() -> None:
    assert all(option.doc for option in SOURCE_OPTIONS.values())
