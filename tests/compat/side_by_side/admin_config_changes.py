"""Configs changed, one by one or all at once: topics, brokers, loggers, and resources that do not exist."""

from __future__ import annotations

from tests.compat.side_by_side.admin_configs import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    LOGGER,
    ME,
    TOPIC,
    describe,
    value_of,
)
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages import alter_configs, incremental_alter_configs

SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def alter(
    side: Side, *resources: tuple[int, str, list[Change]], version: int = 1, dry: bool = False
) -> object:
    return side.ask(
        version,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        incremental_alter_configs.AlterableConfig(name=key, config_operation=how, value=value)
                        for key, how, value in changes
                    ],
                )
                for kind, name, changes in resources
            ],
            validate_only=dry,
        ),
    )


def replace(
    side: Side, *resources: tuple[int, str, list[tuple[str, str | None]]], version: int = 2, dry: bool = False
) -> object:
    return side.ask(
        version,
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs],
                )
                for kind, name, configs in resources
            ],
            validate_only=dry,
        ),
    )


# Changing a topic

CHANGES: dict[str, list[Change]] = {
    "set": [("retention.ms", SET, "1000")],
    "set-spaces": [("retention.ms", SET, " 1000 ")],
    "delete": [("retention.ms", DELETE, None)],
    "delete-with-value": [("retention.ms", DELETE, "abc")],
    "delete-unset": [("segment.ms", DELETE, None)],
    "append": [("cleanup.policy", APPEND, "delete")],
    "append-again": [("cleanup.policy", APPEND, "compact")],
    "append-two": [("cleanup.policy", APPEND, "compact,delete")],
    "append-to-default": [("leader.replication.throttled.replicas", APPEND, "0:1")],
    "subtract": [("cleanup.policy", SUBTRACT, "compact")],
    "subtract-absent": [("cleanup.policy", SUBTRACT, "delete")],
    "append-no-list": [("retention.ms", APPEND, "5")],
    "append-unknown": [("nope", APPEND, "5")],
    "subtract-no-list": [("retention.ms", SUBTRACT, "5")],
    "append-bad": [("cleanup.policy", APPEND, "foo")],
    "set-unknown": [("nope", SET, "5")],
    "delete-unknown": [("nope", DELETE, None)],
    "set-bad": [("retention.ms", SET, "x")],
    "set-null": [("retention.ms", SET, None)],
    "set-empty": [("retention.ms", SET, "")],
    "append-null": [("cleanup.policy", APPEND, None)],
    "same-key-twice": [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
    "same-key-set-twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    "operation-9": [("retention.ms", 9, "1")],
    "operation-negative": [("retention.ms", -1, "1")],
    "one-good-one-bad": [("retention.ms", SET, "9"), ("segment.bytes", SET, "-1")],
    "nothing": [],
    "remote-storage": [("remote.storage.enable", SET, "true")],
    "min-isr": [("min.insync.replicas", SET, "2")],
    "set-list-twice": [("cleanup.policy", SET, "delete,delete")],
    "set-list-spaces": [("cleanup.policy", SET, " compact , delete ")],
    "set-list-empty": [("cleanup.policy", SET, "")],
}


@case(CHANGES)
def change_topic(side: Side, changes: list[Change]) -> object:
    name = side.topic(cleanup_policy="compact", retention_ms="777")
    answer = alter(side, (TOPIC, name, changes))
    side.settle()
    return [answer, describe(side, (TOPIC, name, ["retention.ms", "cleanup.policy", "segment.bytes"]))]


@case(("set", "set-bad"))
def change_topic_dry(side: Side, which: str) -> object:
    name = side.topic()
    return [alter(side, (TOPIC, name, CHANGES[which]), dry=True), value_of(side, TOPIC, name, "retention.ms")]


@case(("set", "set-unknown"))
def change_topic_in_version_0(side: Side, which: str) -> object:
    return alter(side, (TOPIC, side.topic(), CHANGES[which]), version=0)


@case(("bad name", ""))
def change_impossible_topic(side: Side, name: str) -> object:
    return alter(side, (TOPIC, name, CHANGES["set"]))


@case()
def change_unknown_topic(side: Side) -> object:
    return alter(side, (TOPIC, side.name_of("none"), CHANGES["set"]))


@case((0, 3, 99, -1))
def change_odd_type(side: Side, kind: int) -> object:
    return alter(side, (kind, "x", CHANGES["set"]))


@case()
def change_good_and_bad(side: Side) -> object:
    name = side.topic()
    answer = alter(side, (TOPIC, name, CHANGES["set"]), (TOPIC, side.name_of("none"), CHANGES["set"]))
    side.settle()
    return [_by_name(answer), value_of(side, TOPIC, name, "retention.ms")]


@case()
def change_same_topic_twice(side: Side) -> object:
    name = side.topic()
    answer = alter(side, (TOPIC, name, CHANGES["set"]), (TOPIC, name, CHANGES["delete"]))
    return [answer, value_of(side, TOPIC, name, "retention.ms")]


@case()
def change_nothing(side: Side) -> object:
    return alter(side)


def _by_name(answer: object) -> object:
    if isinstance(answer, dict):
        answer["responses"].sort(key=lambda each: (each["resource_type"], each["resource_name"]))
    return answer


# Changing a broker (validated only, unless it can be taken back)

BROKER_CHANGES: dict[str, tuple[str, list[Change]]] = {
    "other": ("77", [("message.max.bytes", SET, "100")]),
    "not-a-number": ("abc", [("message.max.bytes", SET, "100")]),
    "operation-9": (ME, [("message.max.bytes", 9, "1")]),
    "read-only": (ME, [("log.dirs", SET, "/x")]),
    "read-only-default": ("", [("broker.id", SET, "5"), ("log.dirs", SET, "/x")]),
    "bad": (ME, [("message.max.bytes", SET, "abc")]),
    "out-of-range": (ME, [("message.max.bytes", SET, "-5")]),
    "per-broker-at-default": ("", [("advertised.listeners", SET, "PLAINTEXT://x:1")]),
    "append": (ME, [("log.cleanup.policy", APPEND, "compact")]),
    "append-no-list": (ME, [("message.max.bytes", APPEND, "5")]),
    "append-unknown": (ME, [("zzz", APPEND, "5")]),
    "keystore": (ME, [("ssl.keystore.location", SET, "/x")]),
    "listener-prefix": (ME, [("listener.name.plaintext.max.connections", SET, "5")]),
    "threads": (ME, [("num.io.threads", SET, "1000")]),
    "retention-0": (ME, [("log.retention.ms", SET, "0")]),
    "retention": ("", [("log.retention.ms", SET, "86400000")]),
    "unknown": (ME, [("zzz.custom", SET, "5")]),
    "cleaner": (ME, [("log.cleaner.threads", SET, "2")]),
}


@case(BROKER_CHANGES)
def change_broker_dry(side: Side, given: tuple[str, list[Change]]) -> object:
    name, changes = given
    return alter(side, (BROKER, name, changes), dry=True)


@case(("message.max.bytes", "log.retention.ms", "leader.replication.throttled.rate", "zzz.custom"))
def change_broker_and_take_back(side: Side, key: str) -> object:
    """At the broker, at the default of all brokers, and both again away; topics follow."""
    name = side.topic()
    related = {"message.max.bytes": "max.message.bytes", "log.retention.ms": "retention.ms"}.get(key)
    seen: list[object] = []
    for target, how, value in (
        (ME, SET, "2000000"),
        ("", SET, "3000000"),
        (ME, DELETE, None),
        ("", DELETE, None),
    ):
        seen.append(alter(side, (BROKER, target, [(key, how, value)])))
        side.settle()
        seen.append(value_of(side, BROKER, ME, key))
        if related and key != "log.retention.ms":
            seen.append(value_of(side, TOPIC, name, related))
    return seen


LOGGERS: dict[str, tuple[str, list[Change]]] = {
    "unknown": (ME, [("no.such.logger", SET, "INFO")]),
    "bad-level": (ME, [("root", SET, "LOUD")]),
    "append": (ME, [("root", APPEND, "INFO")]),
    "subtract": (ME, [("root", SUBTRACT, "INFO")]),
    "delete-root": (ME, [("root", DELETE, None)]),
    "other": ("77", [("root", SET, "INFO")]),
    "empty": ("", [("root", SET, "INFO")]),
    "not-a-number": ("abc", [("root", SET, "INFO")]),
    "operation-9": (ME, [("root", 9, "INFO")]),
    "lower-case": (ME, [("root", SET, "info")]),
}


@case(LOGGERS)
def change_logger(side: Side, given: tuple[str, list[Change]]) -> object:
    name, changes = given
    return alter(side, (LOGGER, name, changes), dry=True)


@case({"empty": "", "some": "some"})
def change_group(side: Side, name: str) -> object:
    return alter(side, (GROUP, name, [("consumer.session.timeout.ms", SET, "50000")]), dry=True)


@case({"known": "interval.ms", "unknown": "nope"})
def change_client_metrics(side: Side, key: str) -> object:
    return alter(side, (CLIENT_METRICS, "some", [(key, SET, "1000")]), dry=True)


# The older way: all configs of a resource at once

REPLACEMENTS: dict[str, list[tuple[str, str | None]]] = {
    "set": [("retention.ms", "777")],
    "null": [("retention.ms", None)],
    "unknown": [("nope", "1")],
    "bad": [("retention.ms", "z")],
    "same-key-twice": [("retention.ms", "1"), ("retention.ms", "2")],
    "clear": [],
}


@case(REPLACEMENTS, versions=(0, 2))
def replace_configs(side: Side, configs: list[tuple[str, str | None]], version: int) -> object:
    name = side.topic(segment_ms="5000", retention_ms="55")
    answer = replace(side, (TOPIC, name, configs), version=version)
    side.settle()
    return [answer, describe(side, (TOPIC, name, ["retention.ms", "segment.ms"]))]


@case()
def replace_dry(side: Side) -> object:
    name = side.topic()
    return [
        replace(side, (TOPIC, name, REPLACEMENTS["set"]), dry=True),
        value_of(side, TOPIC, name, "retention.ms"),
    ]


@case(
    {
        "logger": (LOGGER, ME, [("root", "INFO")]),
        "type-99": (99, "x", [("root", "INFO")]),
        "broker-other": (BROKER, "77", [("message.max.bytes", "100")]),
        "broker-read-only": (BROKER, ME, [("log.dirs", "/x")]),
        "topic-impossible": (TOPIC, "bad name", [("retention.ms", "1")]),
    }
)
def replace_odd(side: Side, given: tuple[int, str, list[tuple[str, str | None]]]) -> object:
    return replace(side, given, dry=True)


@case()
def replace_unknown_topic(side: Side) -> object:
    return replace(side, (TOPIC, side.name_of("none"), REPLACEMENTS["set"]))
