"""Configs described and listed: topics, brokers, loggers, and kinds of resources that do not exist."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.side import Side

from tidelog.config.options.broker_options import BROKER_OPTIONS
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
ME = "1"


def describe(
    side: Side, *resources: tuple[int, str, list[str] | None], version: int = 4, synonyms: bool = True
) -> object:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ],
        include_synonyms=synonyms,
    )
    answer = side.ask(version, request)
    if isinstance(answer, dict):
        for result in answer["results"]:
            result["configs"].sort(key=lambda each: each["name"])
    return answer


def value_of(side: Side, kind: int, name: str, key: str) -> object:
    """One config's value, source and synonyms."""
    answer = describe(side, (kind, name, [key]))
    assert isinstance(answer, dict)
    return [
        (each["value"], each["config_source"], each["synonyms"]) for each in answer["results"][0]["configs"]
    ]


# Describing


@case(versions=range(1, 5))
def describe_topic(side: Side, version: int) -> object:
    keys = ["retention.ms", "cleanup.policy", "min.insync.replicas", "no.such.key"]
    return describe(side, (TOPIC, side.topic(cleanup_policy="compact"), keys), version=version)


@case()
def describe_whole_topic(side: Side) -> object:
    return describe(side, (TOPIC, side.topic(compression_type="zstd"), None))


@case()
def describe_topic_without_synonyms(side: Side) -> object:
    return describe(side, (TOPIC, side.topic(), ["retention.ms", "segment.ms"]), synonyms=False)


@case({"empty": [], "one": ["retention.ms"], "twice": ["retention.ms", "retention.ms"], "unknown": ["nope"]})
def describe_keys(side: Side, keys: list[str]) -> object:
    return describe(side, (TOPIC, side.topic(), keys))


RESOURCES: dict[str, tuple[int, str]] = {
    "topic-impossible": (TOPIC, "bad name"),
    "topic-empty": (TOPIC, ""),
    "broker-other": (BROKER, "77"),
    "broker-not-a-number": (BROKER, "abc"),
    "broker-negative": (BROKER, "-1"),
    "logger-other": (LOGGER, "77"),
    "logger-empty": (LOGGER, ""),
    "logger-not-a-number": (LOGGER, "abc"),
    "client-metrics-empty": (CLIENT_METRICS, ""),
    "group-empty": (GROUP, ""),
    "type-0": (0, "x"),
    "type-3": (3, "x"),
    "type-99": (99, "x"),
    "type-negative": (-1, "x"),
}


@case(RESOURCES)
def describe_odd_resource(side: Side, resource: tuple[int, str]) -> object:
    return describe(side, (*resource, None))


@case()
def describe_unknown_topic(side: Side) -> object:
    return describe(side, (TOPIC, side.name_of("none"), None))


@case()
def describe_good_and_bad(side: Side) -> object:
    return describe(
        side, (TOPIC, side.topic(), ["retention.ms"]), (TOPIC, side.name_of("none"), None), (99, "x", None)
    )


@case()
def describe_twice(side: Side) -> object:
    name = side.topic()
    return describe(side, (TOPIC, name, ["segment.ms"]), (TOPIC, name, ["retention.ms"]))


@case()
def describe_nothing(side: Side) -> object:
    return describe(side)


@case()
def describe_broker(side: Side) -> object:
    keys = [
        *("log.retention.hours", "log.retention.minutes", "log.retention.ms", "message.max.bytes"),
        *("num.network.threads", "log.cleaner.threads", "ssl.keystore.password", "auto.create.topics.enable"),
        *("log.roll.ms", "log.roll.hours", "background.threads", "no.such.key", "compression.type"),
    ]
    return describe(side, (BROKER, ME, keys))


OWN_OPTIONS = {
    *("advertised.listeners", "broker.id", "controller.listener.names", "listener.security.protocol.map"),
    *("listeners", "log.dir", "log.dirs", "node.id"),
}
"""What two brokers on one machine cannot have in common."""


@case()
def describe_every_option_that_is_honoured(side: Side) -> object:
    """Value, type, default, synonyms, and whether it can change, of all options in our table."""
    keys = sorted(
        name for name, each in BROKER_OPTIONS.items() if name not in OWN_OPTIONS and not each.internal
    )
    answer = describe(side, (BROKER, ME, keys))
    assert isinstance(answer, dict)
    return {each["name"]: each for each in answer["results"][0]["configs"]}


@case()
def describe_broker_defaults(side: Side) -> object:
    return describe(side, (BROKER, "", None))


# Listing


KINDS: dict[str, list[int]] = {
    "all": [],
    "topics": [TOPIC],
    "brokers": [BROKER],
    "loggers": [LOGGER],
    "client-metrics": [CLIENT_METRICS],
    "groups": [GROUP],
    "unknown": [99],
    "zero": [0],
    "two": [TOPIC, BROKER],
}


@case(KINDS)
def list_resources(side: Side, kinds: list[int]) -> object:
    side.topic()
    return _mine(side, side.ask(1, ListConfigResourcesRequest(resource_types=kinds)))


@case()
def list_client_metrics(side: Side) -> object:
    return side.ask(0, ListConfigResourcesRequest())


def _mine(side: Side, answer: object) -> object:
    """Leaves the topics of others out."""
    if isinstance(answer, dict):
        found = [
            each
            for each in answer["config_resources"]
            if each["resource_type"] != TOPIC or each["resource_name"].startswith(side.prefix)
        ]
        answer["config_resources"] = sorted(
            found, key=lambda each: (each["resource_type"], each["resource_name"])
        )
    return answer
