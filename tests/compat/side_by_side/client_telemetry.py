"""Clients' telemetry (KIP-714): subscriptions, what clients are told of them, and which pushes are refused.

Apache Kafka does not advertise the two requests without a plugin that receives what is pushed, but answers
them; what is pushed is not looked at there, so that is not compared here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from tests.compat.side_by_side.admin_config_changes import DELETE, SET, Change, alter, replace
from tests.compat.side_by_side.admin_configs import CLIENT_METRICS, describe
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.side import Side

from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest

APPEND = 2
ZSTD = 4
OPTIONS = ("metrics", "interval.ms", "match")

# Changing subscriptions

CHANGES: dict[str, list[Change]] = {
    "interval-least": [("interval.ms", SET, "100")],
    "interval-most": [("interval.ms", SET, "3600000")],
    "interval-below": [("interval.ms", SET, "99")],
    "interval-above": [("interval.ms", SET, "3600001")],
    "interval-no-number": [("interval.ms", SET, "soon")],
    "interval-null": [("interval.ms", SET, None)],
    "interval-append": [("interval.ms", APPEND, "1000")],
    "metrics-empty": [("metrics", SET, "")],
    "metrics-star": [("metrics", SET, "*")],
    "metrics-append": [("metrics", APPEND, "org.apache.kafka.producer.")],
    "metrics-twice": [("metrics", SET, "a,b,a")],
    "match-empty-item": [("match", SET, "client_id=a,")],
    "metrics-empty-item": [("metrics", SET, "a,,b")],
    "match-empty": [("match", SET, "")],
    "match-two": [("match", SET, "client_id=a.*, client_software_version = 11.1.*")],
    "match-unknown-selector": [("match", SET, "client=a")],
    "match-no-equals": [("match", SET, "client_id")],
    "match-no-value": [("match", SET, "client_id=")],
    "match-two-equals": [("match", SET, "client_id=a=b")],
    "match-trailing-equals": [("match", SET, "client_id=a=")],
    "match-bad-regex": [("match", SET, "client_id=[a")],
    "match-same-selector-twice": [("match", SET, "client_id=a,client_id=b")],
    "unknown": [("nope", SET, "1")],
    "unknown-append": [("nope", APPEND, "1")],
    "delete-unset": [("metrics", DELETE, None)],
    "operation-9": [("metrics", 9, "1")],
    "nothing": [],
}


@case(CHANGES)
def change_dry(side: Side, changes: list[Change]) -> object:
    return alter(side, (CLIENT_METRICS, side.prefix, changes), dry=True)


@case({"empty": "", "odd": "odd name/% ü"})
def change_named(side: Side, name: str) -> object:
    return alter(side, (CLIENT_METRICS, name, [("interval.ms", SET, "1000")]), dry=True)


@case()
def life_of_a_subscription(side: Side) -> object:
    name = side.prefix
    seen = [describe(side, (CLIENT_METRICS, name, None))]
    steps: list[list[Change]] = [
        [("metrics", SET, "org.apache.kafka.producer."), ("interval.ms", SET, "1000")],
        [("metrics", SET, "org.apache.kafka.consumer.")],
        [("match", SET, "client_id=a")],
        [("interval.ms", SET, "1")],
        [(each, DELETE, None) for each in OPTIONS],
    ]
    for changes in steps:
        seen.append(alter(side, (CLIENT_METRICS, name, changes)))
        side.settle()
        seen.append(describe(side, (CLIENT_METRICS, name, None)))
        seen += [_listed(side, version) for version in (0, 1)]
    return seen


@case()
def replace_a_subscription(side: Side) -> object:
    name = side.prefix
    seen = [replace(side, (CLIENT_METRICS, name, [("interval.ms", "1000"), ("metrics", "*")]))]
    side.settle()
    seen.append(replace(side, (CLIENT_METRICS, name, [("metrics", "a")])))
    side.settle()
    seen.append(describe(side, (CLIENT_METRICS, name, ["metrics", "interval.ms"])))
    seen.append(replace(side, (CLIENT_METRICS, name, [])))
    side.settle()
    return [*seen, _listed(side, 0)]


def _listed(side: Side, version: int) -> object:
    kinds = [CLIENT_METRICS] if version else []
    answer = side.ask(version, ListConfigResourcesRequest(resource_types=kinds))
    assert isinstance(answer, dict)
    return [each for each in answer["config_resources"] if each["resource_name"].startswith(side.prefix)]


# Asking

PATTERNS = {
    "whole": "client_id=side-by-side",
    "part": "client_id=side",
    "any": "client_id=.*",
    "choice": "client_id=(other|side)-by-[a-z]+",
    "escape": "client_source_address=127\\.0\\.0\\.1",
    "other-address": "client_source_address=10\\..*",
    "port": "client_source_port=\\d+",
    "no-software": "client_software_name=.*",
    "no-software-version": "client_software_version=.*",
    "instance": "client_instance_id=.{22}",
    "all-of-two": "client_id=side.*,client_source_port=[0-9]{2,5}",
    "one-of-two": "client_id=side.*,client_source_port=0",
    "case": "client_id=SIDE-BY-SIDE",
}


def instance(side: Side, which: str = "") -> Uuid:
    """An instance id of this case's own, the same on both sides."""
    return Uuid(hashlib.md5(f"{side.prefix}{which}".encode(), usedforsecurity=False).digest())


def ask(side: Side, instance_id: Uuid) -> object:
    return side.ask(0, GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


@contextmanager
def subscription(side: Side, **options: str) -> Iterator[None]:
    changes: list[Change] = [(name.replace("_", "."), SET, value) for name, value in options.items()]
    alter(side, (CLIENT_METRICS, side.prefix, changes))
    side.settle()
    try:
        yield
    finally:
        alter(side, (CLIENT_METRICS, side.prefix, [(each, DELETE, None) for each in OPTIONS]))
        side.settle()


@case()
def ask_without_subscriptions(side: Side) -> object:
    return [ask(side, instance(side)), ask(side, instance(side))]


@case()
def ask_for_an_id(side: Side) -> object:
    answer = side.expect(0, GetTelemetrySubscriptionsRequest())
    assert isinstance(answer, GetTelemetrySubscriptionsResponse)
    return [answer.error_code, answer.client_instance_id != ZERO_UUID, answer.push_interval_ms]


@case(PATTERNS)
def ask_with_a_pattern(side: Side, pattern: str) -> object:
    with subscription(side, match=pattern, interval_ms="60000", metrics="org.apache.kafka.producer."):
        return ask(side, instance(side))


@case({"star": "*", "star-and-more": "a,*,b", "one": "a.b", "none": ""})
def ask_with_metrics(side: Side, metrics: str) -> object:
    with subscription(side, metrics=metrics, interval_ms="60000"):
        return ask(side, instance(side))


@case({"longer": "3000000", "shorter": "100"})
def ask_with_an_interval(side: Side, interval_ms: str) -> object:
    with subscription(side, metrics="*", interval_ms=interval_ms):
        return ask(side, instance(side))


@case()
def ask_after_a_change(side: Side) -> object:
    seen = [ask(side, instance(side))]
    with subscription(side, metrics="*", interval_ms="60000"):
        seen += [ask(side, instance(side)), ask(side, instance(side))]
    return [*seen, ask(side, instance(side))]


# Pushing


def push(
    side: Side,
    subscription_id: int,
    *,
    which: str = "",
    metrics: bytes = b"",
    compression: int = 0,
    terminating: bool = False,
    instance_id: Uuid | None = None,
) -> object:
    request = PushTelemetryRequest(
        client_instance_id=instance(side, which) if instance_id is None else instance_id,
        subscription_id=subscription_id,
        compression_type=compression,
        metrics=metrics,
        terminating=terminating,
    )
    return side.ask(0, request)


def asked(side: Side, which: str = "") -> int:
    answer = side.expect(0, GetTelemetrySubscriptionsRequest(client_instance_id=instance(side, which)))
    assert isinstance(answer, GetTelemetrySubscriptionsResponse)
    return answer.subscription_id


@case()
def push_after_asking_and_again(side: Side) -> object:
    known = asked(side)
    return [
        push(side, known),
        push(side, known),
        push(side, known, terminating=True),
        ask(side, instance(side)),
    ]


@case()
def push_before_asking(side: Side) -> object:
    return [push(side, 7), push(side, 7), ask(side, instance(side))]


@case()
def push_with_another_subscription_id(side: Side) -> object:
    known = asked(side)
    return [push(side, known + 1), push(side, known)]


@case({"zero": bytes(16), "one": bytes(15) + b"\x01"})
def push_with_a_reserved_id(side: Side, raw: bytes) -> object:
    return push(side, 1, instance_id=Uuid(raw))


@case([5, 127, -1])
def push_with_compression(side: Side, compression: int) -> object:
    return push(side, asked(side), compression=compression, metrics=b"x")


@case({"packed": ZSTD, "plain": 0})
def push_too_large(side: Side, compression: int) -> object:
    return push(side, asked(side), compression=compression, metrics=bytes(1024 * 1024 + 1))


@case()
def push_after_the_last(side: Side) -> object:
    known = asked(side)
    return [
        push(side, known, terminating=True),
        push(side, known),
    ]


@case()
def push_the_last_twice(side: Side) -> object:
    known = asked(side)
    return [push(side, known, terminating=True), push(side, known, terminating=True)]


@case()
def push_the_last_with_another_subscription_id(side: Side) -> object:
    return push(side, asked(side) + 1, terminating=True)


@case()
def push_after_the_subscription_has_changed(side: Side) -> object:
    known = asked(side)
    with subscription(side, metrics="*", interval_ms="60000"):
        return [push(side, known), ask(side, instance(side))]
