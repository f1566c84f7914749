"""Detection without Spark: how blocks of phone numbers are named."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.unit.rewards.crafted import Crafted, block_of_many_inviters

from tidelog_rewards.cli.dry_run import phones_of
from tidelog_rewards.detection.detection_rules import RulesName
from tidelog_rewards.detection.offline import LogRecord, detect_offline
from tidelog_rewards.events import INVITE
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector
from tidelog_rewards.phones.phone_keys import FILE_NAME, ensure_keys
from tidelog_rewards.phones.phone_tokens import PhonesWritten, PhoneTokens

BLOCK = "8613912345"


def subjects(phones: PhonesWritten) -> list[str]:
    """Of the incidents that many inviters of one block raise."""
    made = Crafted()
    block_of_many_inviters(made)
    now = datetime.now(UTC)
    records = [
        LogRecord(INVITE.topic, 0, offset, now, None, value)
        for offset, (_, value) in enumerate(made.invitations)
    ]
    found = detect_offline(InviteDetector(), RulesName("1", "0"), records, phones=phones)
    assert BLOCK not in repr(found) or phones.of_block(BLOCK) == BLOCK
    return [told["subject"] for told in found]


def test_a_dry_run_names_blocks_by_tokens(tmp_path: Path) -> None:
    [subject] = subjects(phones_of(tmp_path, clear=False))
    assert subject.startswith("blk_k1_")
    assert list(tmp_path.iterdir()) == [], "a dry run leaves nothing behind"


def test_the_tokens_are_those_of_the_directory(tmp_path: Path) -> None:
    keys = ensure_keys(tmp_path / FILE_NAME)
    assert subjects(phones_of(tmp_path, clear=False)) == [PhoneTokens(keys, "CN").of_block(BLOCK)]


def test_the_block_itself_is_named_when_asked_for(tmp_path: Path) -> None:
    assert subjects(phones_of(tmp_path, clear=True)) == [BLOCK]
