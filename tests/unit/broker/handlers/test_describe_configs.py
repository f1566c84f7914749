from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.context import RequestContext
from tidelog.broker.handlers import describe_configs
from tidelog.config.config_entries import ConfigSource
from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.options import OptionType
from tidelog.scheduling.slices import run_to_end
from tidelog.security.session import Session
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

Run = Callable[..., None]
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


async def _describe(broker: Any, kind: int, name: str, *keys: str, version: int = 4, **asked: bool) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    request = DescribeConfigsRequest(resources=[resource], **asked)
    (result,) = (await broker.call("describe_configs", request, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_own_values_come_first_and_its_brokers_stand_behind_them(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", configs={"segment.bytes": "3000000"})])
        keys = ("segment.bytes", "cleanup.policy", "no.such")
        result = await _describe(broker, TOPIC, "t", *keys, version=version, include_synonyms=True)
        assert result.error_code == 0
        by_name = {config.name: config for config in result.configs}
        assert by_name.keys() == {"segment.bytes", "cleanup.policy"}
        own = by_name["segment.bytes"]
        assert (own.value, own.config_source, own.read_only) == ("3000000", ConfigSource.TOPIC_CONFIG, False)
        assert [(each.name, each.value, each.source) for each in own.synonyms] == [
            ("segment.bytes", "3000000", ConfigSource.TOPIC_CONFIG),
            ("log.segment.bytes", "2000000", ConfigSource.STATIC_BROKER_CONFIG),
            ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
        ]
        assert by_name["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
        assert own.config_type == (OptionType.INT if version >= 3 else 0)

    run(body, {"log.segment.bytes": "2000000"})


def test_synonyms_and_documentation_come_only_when_asked_for(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        (bare,) = (await _describe(broker, TOPIC, "t", "retention.bytes")).configs
        assert (bare.synonyms, bare.documentation) == ([], None)
        asked = await _describe(
            broker, TOPIC, "t", "retention.bytes", include_synonyms=True, include_documentation=True
        )
        (full,) = asked.configs
        assert full.synonyms
        assert "oldest segments" in full.documentation

    run(body)


def test_a_broker_describes_itself_with_what_is_read_only_and_what_is_secret(run: Run) -> None:
    async def body(broker: Any) -> None:
        result = await _describe(broker, BROKER, "1", include_synonyms=True)
        by_name = {config.name: config for config in result.configs}
        assert (by_name["log.dirs"].read_only, by_name["log.dirs"].config_source) == (
            True,
            ConfigSource.STATIC_BROKER_CONFIG,
        )
        assert (by_name["message.max.bytes"].read_only, by_name["message.max.bytes"].value) == (
            False,
            "1048588",
        )
        custom = by_name["my.own.option"]
        assert (custom.value, custom.is_sensitive) == (None, True)
        assert len(by_name) > 60

    run(body, {"my.own.option": "5"})


RATE = "leader.replication.throttled.rate"


def test_a_broker_that_stands_alone_lists_what_kafka_4_has(run: Run) -> None:
    async def body(broker: Any) -> None:
        names = {config.name for config in (await _describe(broker, BROKER, "1")).configs}
        assert not {name for name in names if name.startswith("zookeeper.")}
        assert not names & {"broker.id.generation.enable", "control.plane.listener.name", RATE}
        assert "controlled.shutdown.enable" in names
        assert (await _describe(broker, BROKER, "1", "zookeeper.session.timeout.ms")).configs == []

    run(body)


def test_what_it_would_not_list_is_told_once_it_was_given(run: Run) -> None:
    async def body(broker: Any) -> None:
        (given,) = (await _describe(broker, BROKER, "1", "zookeeper.session.timeout.ms")).configs
        assert (given.value, given.config_source) == ("9000", ConfigSource.STATIC_BROKER_CONFIG)
        await broker.controller.change_broker_config(lambda now: {RATE: "5000"}, every_broker=False)
        (rate,) = (await _describe(broker, BROKER, "1", RATE, include_synonyms=True)).configs
        assert (rate.value, rate.read_only, rate.config_type) == ("5000", False, OptionType.LONG)
        assert [each.source for each in rate.synonyms] == [ConfigSource.DYNAMIC_BROKER_CONFIG]

    run(body, {"zookeeper.session.timeout.ms": "9000"})


def test_the_default_of_all_brokers_shows_only_what_was_set_there(run: Run) -> None:
    async def body(broker: Any) -> None:
        assert (await _describe(broker, BROKER, "")).configs == []
        await broker.controller.change_broker_config(
            lambda now: {"message.max.bytes": "5000"}, every_broker=True
        )
        (config,) = (await _describe(broker, BROKER, "", include_synonyms=True)).configs
        assert (config.name, config.value, config.config_source) == (
            "message.max.bytes",
            "5000",
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        )
        assert len(config.synonyms) == 1

    run(body)


def test_loggers_are_described_with_the_level_that_holds_for_them(run: Run) -> None:
    async def body(broker: Any) -> None:
        logging.getLogger("tests.described").setLevel(logging.ERROR)
        logging.getLogger("tests.described.below")
        result = await _describe(broker, LOGGER, "1", "tests.described", "tests.described.below", "root")
        assert {config.name: config.value for config in result.configs} == {
            "tests.described": "ERROR",
            "tests.described.below": "ERROR",
            "root": "WARN",
        }
        assert {config.config_source for config in result.configs} == {
            ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        }

    run(body)


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (
            TOPIC,
            "",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            BROKER,
            "7",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 7",
        ),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 7"),
        (LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (
            CLIENT_METRICS,
            "",
            ErrorCode.INVALID_REQUEST,
            "Client metrics subscription name must not be empty",
        ),
    ],
)
def test_what_cannot_be_described_is_refused(
    run: Run, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    async def body(broker: Any) -> None:
        result = await _describe(broker, kind, name)
        assert (result.error_code, result.error_message, result.configs) == (code, message, [])

    run(body)


def test_a_type_that_does_not_exist_refuses_the_whole_request(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=TOPIC, resource_name="t"),
                DescribeConfigsResource(resource_type=99, resource_name="x"),
            ]
        )
        results = (await broker.call("describe_configs", request, 4)).results
        assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2

    run(body)


def test_what_is_named_very_often_is_described_as_often_of_the_same_entries(run: Run) -> None:
    """A broker has almost two hundred options, and five bytes name it; its id can be written in many ways."""

    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        named = [(BROKER, "1"), (BROKER, "01"), (BROKER, "+1"), (TOPIC, "t"), (TOPIC, "t"), (LOGGER, "1")]
        named += [(LOGGER, "001"), (GROUP, "g"), (GROUP, "h"), (CLIENT_METRICS, "c"), (CLIENT_METRICS, "d")]
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in named
        ]
        connection: Any = SimpleNamespace(session=Session("127.0.0.1"))
        work = describe_configs.handle(
            RequestContext(connection, 4, 1, "me"),
            DescribeConfigsRequest(resources=resources),
            broker.config,
            broker.image,
            broker.dynamic_configs,
            broker.authorization,
        )
        results = run_to_end(work).results
        assert [(each.resource_type, each.resource_name) for each in results] == named
        assert all(each.configs for each in results)
        assert len({id(each.configs) for each in results}) == len({kind for kind, _ in named})

    run(body)


def test_of_one_resource_named_twice_each_has_the_keys_asked_for_there(run: Run) -> None:
    async def body(broker: Any) -> None:
        resources = [
            DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=keys)
            for keys in (["log.dirs"], None, ["message.max.bytes", "log.dirs"])
        ]
        request = DescribeConfigsRequest(resources=resources)
        first, second, third = (await broker.call("describe_configs", request, 4)).results
        assert [each.name for each in first.configs] == ["log.dirs"]
        assert len(second.configs) > 60
        assert {each.name for each in third.configs} == {"message.max.bytes", "log.dirs"}

    run(body)
