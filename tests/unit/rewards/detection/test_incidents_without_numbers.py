"""What an incident tells of phone numbers: tokens of their blocks."""

from __future__ import annotations

from datetime import UTC, datetime

from tidelog_rewards.detection.incidents import Judged, Point, Reason, without_numbers
from tidelog_rewards.phones.phone_keys import PhoneKey, PhoneKeys
from tidelog_rewards.phones.phone_tokens import CLEAR, PhoneTokens

TOKENS = PhoneTokens(PhoneKeys([PhoneKey("k1", datetime(1970, 1, 1, tzinfo=UTC), b"1" * 32)]), "CN")
BLOCK = "8613812345"


def judged(kind: str, subject: str) -> Judged:
    reasons = (Reason("number-block", 40, 5, BLOCK), Reason("device", 40, 5, "8613812345678"))
    return Judged(kind, subject, (Point(1, 80, reasons),), {"invitees": ["u1"]})


def test_blocks_are_tokens_as_subjects_and_as_reasons_and_nothing_else_changes() -> None:
    token = TOKENS.of_block(BLOCK)
    told = without_numbers(judged("number-block", BLOCK), TOKENS)
    assert told.subject == token
    assert [reason.value for reason in told.points[0].reasons] == [token, "8613812345678"]
    assert told.details == {"invitees": ["u1"]}
    other = without_numbers(judged("inviter", BLOCK), TOKENS)
    assert other.subject == BLOCK
    assert other.points == told.points
    assert without_numbers(judged("number-block", BLOCK), CLEAR) == judged("number-block", BLOCK)
