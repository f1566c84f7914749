from __future__ import annotations

from math import inf, nan

import pytest

from tidelog.config.client_quotas import quota_entity
from tidelog.controller.quota_changes import QuotaAlteration, QuotaEdit, QuotaOp, plan_quota_changes
from tidelog.errors import ErrorCode, KafkaError

ALICE = (("user", "alice"),)
PRODUCE, REQUEST = "producer_byte_rate", "request_percentage"


def _plan(
    names: tuple[tuple[str, str | None], ...], *ops: tuple[str, float | None]
) -> QuotaEdit | KafkaError:
    (outcome,) = plan_quota_changes([QuotaAlteration(names, [QuotaOp(*op) for op in ops])], {"no.such.host"})
    return outcome


def test_an_edit_changes_quotas_and_leaves_credentials() -> None:
    outcome = _plan(ALICE, (PRODUCE, 1024.0), (REQUEST, None))
    assert isinstance(outcome, QuotaEdit)
    assert outcome.edit({"SCRAM-SHA-256": "salt=…", REQUEST: "50.0"}) == {
        "SCRAM-SHA-256": "salt=…",
        PRODUCE: "1024",
    }


def test_a_removal_of_what_is_no_quota_changes_nothing() -> None:
    entries = {
        "SCRAM-SHA-256": "salt=…",
        "some.config": "1",
        REQUEST: "50.0",
        "connection_creation_rate": "5",
    }
    outcome = _plan(ALICE, *((key, None) for key in entries), ("no.such.key", None))
    assert isinstance(outcome, QuotaEdit)
    assert outcome.edit(entries) == {"SCRAM-SHA-256": "salt=…", "some.config": "1"}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (PRODUCE, 1e15, "1000000000000000"),
        (PRODUCE, 2.0**63, str(2**63 - 1)),
        (REQUEST, 50.0, "50.0"),
        (REQUEST, 12.5, "12.5"),
        (REQUEST, 0.0001, "1.0E-4"),
        (REQUEST, 12345678.0, "1.2345678E7"),
        (REQUEST, inf, "Infinity"),
    ],
)
def test_values_are_written_as_kafka_writes_them(key: str, value: float, text: str) -> None:
    outcome = _plan(ALICE, (key, value))
    assert isinstance(outcome, QuotaEdit)
    assert outcome.values == {key: text}


@pytest.mark.parametrize(
    ("names", "key", "value", "words"),
    [
        (ALICE, PRODUCE, 0.0, "must be greater than 0"),
        (ALICE, PRODUCE, -5.0, "must be greater than 0"),
        (ALICE, REQUEST, -inf, "must be greater than 0"),
        (ALICE, PRODUCE, nan, "must be a number"),
        (ALICE, PRODUCE, inf, "too large for a LONG"),
        (ALICE, PRODUCE, 10.5, "cannot be a fractional value"),
        (ALICE, "connection_creation_rate", 5.0, "Invalid configuration key"),
        ((("ip", "192.0.2.1"),), "connection_creation_rate", 2.0**31, "too large for an INT"),
        ((("ip", "192.0.2.1"),), PRODUCE, 5.0, "Invalid configuration key"),
        ((("ip", "no.such.host"),), "connection_creation_rate", 5.0, "not a valid IP"),
        ((("ip", None), ("user", "a")), PRODUCE, 5.0, "Invalid quota entity combination"),
        ((("group", "g"),), PRODUCE, 5.0, "Unhandled client quota entity type: group"),
        ((("user", ""),), PRODUCE, 5.0, "Empty user not supported"),
        ((), PRODUCE, 5.0, "Invalid empty client quota entity"),
    ],
)
def test_what_nobody_can_mean_is_refused(
    names: tuple[tuple[str, str | None], ...], key: str, value: float, words: str
) -> None:
    outcome = _plan(names, (key, value))
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INVALID_REQUEST
    assert words in outcome.message


def test_an_entity_named_twice_is_refused_and_the_others_are_not() -> None:
    op = [QuotaOp(PRODUCE, 5.0)]
    bob = (("user", "bob"),)
    outcomes = plan_quota_changes(
        [QuotaAlteration(ALICE, op), QuotaAlteration(bob, op), QuotaAlteration(ALICE, op)]
    )
    assert [isinstance(each, KafkaError) for each in outcomes] == [True, False, True]


def test_an_entity_is_the_same_in_whatever_order_it_is_named() -> None:
    assert quota_entity({"client-id": "c", "user": None}) == (("user", None), ("client-id", "c"))
