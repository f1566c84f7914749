from __future__ import annotations

import pytest

from tidelog.controller.topic_names import (
    collision_index,
    reason_invalid,
    validate_no_collision,
    validate_topic_name,
)
from tidelog.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "orders", "a.b_c-D9", "...", "__consumer_offsets", "x" * 249])
def test_names_that_kafka_allows_are_valid(name: str) -> None:
    assert reason_invalid(name) is None
    validate_topic_name(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "x" * 250,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (
            "a b",
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
    ],
)
def test_bad_names_are_refused_with_kafkas_text(name: str, message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message == message


@pytest.mark.parametrize("name", ["ünïcode", "tab\t", "new\nline", "slash/", "trailing\n", "٣"])
def test_anything_outside_ascii_letters_digits_and_three_signs_is_refused(name: str) -> None:
    assert reason_invalid(name) is not None


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    index = collision_index(["a.b", "plain"])
    with pytest.raises(KafkaError) as refused:
        validate_no_collision("a_b", index)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message == "Topic 'a_b' collides with existing topic: a.b"


def test_names_without_dot_and_underscore_never_collide() -> None:
    validate_no_collision("plain", collision_index(["plain", "a.b"]))
    validate_no_collision("a.c", collision_index(["a.b"]))
