"""Subscriptions to clients' metrics: what they may say, and which clients they are for."""

from __future__ import annotations

import pytest

from tidelog.config.client_metrics import check_subscription, read_subscription
from tidelog.errors import ErrorCode, KafkaError

CLIENT: dict[str, str | None] = {
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAg",
    "client_id": "orders-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.3.0",
    "client_source_address": "10.0.0.7",
    "client_source_port": "50422",
}


def test_nothing_said_is_for_everybody_and_asks_for_nothing() -> None:
    found = read_subscription({})
    assert (found.metrics, found.interval_ms) == ((), 300_000)
    assert found.is_for(CLIENT)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("client_id=orders-1", True),
        ("client_id=orders", False),
        ("client_id=orders-\\d+", True),
        (" client_id = (orders|bills)-.* , client_software_version=4\\..* ", True),
        ("client_id=orders.*,client_source_port=1", False),
        ("client_source_address=10\\.0\\.0\\.[1-9]", True),
        ("client_instance_id=[A-Za-z0-9_-]{22}", True),
        ("client_id=a,client_id=orders-1", True),
    ],
)
def test_all_selectors_must_match_the_whole_of_what_a_client_is(match: str, fits: bool) -> None:
    assert read_subscription({"match": match}).is_for(CLIENT) is fits


@pytest.mark.parametrize("value", [None, "x" * 300, "a\nb", "a\x00b"])
def test_what_a_client_does_not_say_or_says_at_hostile_length_is_matched_by_nothing(
    value: str | None,
) -> None:
    assert not read_subscription({"match": "client_id=.*"}).is_for({**CLIENT, "client_id": value})


def test_an_expression_that_would_take_ages_in_java_is_matched_at_once() -> None:
    found = read_subscription({"match": "client_id=(a+)+b"})
    assert not found.is_for({**CLIENT, "client_id": "a" * 250})


@pytest.mark.parametrize(
    ("entries", "code", "words"),
    [
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
        ({"interval.ms": "soon"}, ErrorCode.INVALID_CONFIG, "interval.ms"),
        ({"metrics": "a,,b"}, ErrorCode.INVALID_CONFIG, "'metrics' values must not be empty"),
        ({"match": "client_id=a,"}, ErrorCode.INVALID_CONFIG, "'match' values must not be empty"),
        ({"nope": "1"}, ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: nope"),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ({"match": "client_id="}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ({"match": "a=b"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: a=b"),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ({"match": "client_id=[a"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ({"match": "client_id=(?=a)b"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ({"match": "client_id=" + "(a|b)" * 400}, ErrorCode.INVALID_CONFIG, "too long"),
    ],
)
def test_what_cannot_be_used_is_refused(entries: dict[str, str], code: ErrorCode, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refused:
        check_subscription("s", entries)
    assert refused.value.code == code


def test_a_subscription_has_a_name() -> None:
    with pytest.raises(KafkaError, match="Subscription name can't be empty"):
        check_subscription("", {"metrics": "*"})
