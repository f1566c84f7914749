from __future__ import annotations

import pytest

from tidelog.config.options.broker_options import BROKER_OPTIONS
from tidelog.config.options.topic_options import TOPIC_OPTIONS
from tidelog.controller.config_changes import (
    ConfigOp,
    OpType,
    check_entries,
    check_ops,
    edit_broker_configs,
    edit_topic_configs,
)
from tidelog.errors import ErrorCode, KafkaError

POLICY = "cleanup.policy"


@pytest.mark.parametrize(
    ("current", "op", "expected"),
    [
        ({}, ConfigOp("retention.ms", OpType.SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "5"}, ConfigOp("retention.ms", OpType.SET, "6"), {"retention.ms": "6"}),
        ({"retention.ms": "5"}, ConfigOp("retention.ms", OpType.DELETE, None), {}),
        ({"retention.ms": "5"}, ConfigOp("retention.ms", OpType.DELETE, "ignored"), {}),
        ({}, ConfigOp("no.such.name", OpType.DELETE, None), {}),
        ({}, ConfigOp(POLICY, OpType.APPEND, "compact"), {POLICY: "delete,compact"}),
        ({POLICY: "compact"}, ConfigOp(POLICY, OpType.APPEND, "compact,delete"), {POLICY: "compact,delete"}),
        ({POLICY: "compact,delete"}, ConfigOp(POLICY, OpType.SUBTRACT, "compact"), {POLICY: "delete"}),
        ({POLICY: "delete"}, ConfigOp(POLICY, OpType.SUBTRACT, "compact"), {POLICY: "delete"}),
        ({POLICY: "delete"}, ConfigOp(POLICY, OpType.SUBTRACT, "delete"), {POLICY: ""}),
        ({POLICY: ""}, ConfigOp(POLICY, OpType.APPEND, "compact"), {POLICY: "compact"}),
    ],
)
def test_topic_entries_are_edited_one_by_one(
    current: dict[str, str], op: ConfigOp, expected: dict[str, str]
) -> None:
    before = dict(current)
    assert edit_topic_configs(current, [op], TOPIC_OPTIONS) == expected
    assert current == before


def test_several_edits_apply_in_their_order() -> None:
    ops = [ConfigOp("retention.ms", OpType.SET, "1"), ConfigOp(POLICY, OpType.APPEND, "compact")]
    edited = edit_topic_configs({}, ops, TOPIC_OPTIONS)
    assert edited == {"retention.ms": "1", POLICY: "delete,compact"}


@pytest.mark.parametrize(
    ("name", "op", "message"),
    [
        ("retention.ms", OpType.APPEND, "Can't APPEND to key retention.ms because its type is not LIST."),
        ("no.such", OpType.SUBTRACT, "Can't SUBTRACT to key no.such because its type is not LIST."),
    ],
)
def test_only_lists_of_a_topic_can_be_appended_to(name: str, op: OpType, message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        edit_topic_configs({}, [ConfigOp(name, op, "5")], TOPIC_OPTIONS)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize(
    ("name", "op", "message"),
    [
        (
            "message.max.bytes",
            OpType.APPEND,
            "Config value append is not allowed for config key: message.max.bytes",
        ),
        (
            "message.max.bytes",
            OpType.SUBTRACT,
            "Config value subtract is not allowed for config key: message.max.bytes",
        ),
        ("zzz", OpType.APPEND, "Unknown config name: zzz"),
    ],
)
def test_only_lists_of_a_broker_can_be_appended_to(name: str, op: OpType, message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        edit_broker_configs({}, [ConfigOp(name, op, "5")], BROKER_OPTIONS)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, message)


def test_broker_entries_are_edited_from_the_options_default() -> None:
    ops = [ConfigOp("log.cleanup.policy", OpType.APPEND, "compact")]
    assert edit_broker_configs({}, ops, BROKER_OPTIONS) == {"log.cleanup.policy": "delete,compact"}


def test_an_entry_that_comes_twice_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        check_entries([("a", "1"), ("a", "2")])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message == "Error due to duplicate config keys"


def test_null_values_are_refused_except_to_delete() -> None:
    check_ops([ConfigOp("a", OpType.DELETE, None)])
    with pytest.raises(KafkaError) as refused:
        check_ops([ConfigOp("a", OpType.SET, None), ConfigOp("b", OpType.APPEND, None)])
    assert refused.value.message == "Null value not supported for : a, b"


def test_an_unknown_edit_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        check_ops([ConfigOp("a", 9, "1")])
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown operations type 9",
    )
