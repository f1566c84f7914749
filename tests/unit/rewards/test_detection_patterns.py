"""Patterns by hand: cheats that are found, honest people who are left alone, and cheats that nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.rewards.crafted import CASES, Case, Crafted
from tests.unit.rewards.detecting import Detecting

from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector

PAGE = Path(__file__).parents[3] / "docs" / "pipelines" / "detection.md"


def kinds_found(case: Case, directory: Path) -> list[str]:
    """The kinds of the incidents that a pattern raises, in batches of forty."""
    made = Crafted()
    case.events(made)
    found: list[str] = []
    for detector, events in ((SwitchDetector(), made.logins), (InviteDetector(), made.invitations)):
        stream = Detecting(directory / detector.name, detector)
        values = [value for _, value in sorted(events)]
        while stream.offset < len(values):
            stream.feed(*values[stream.offset : stream.offset + 40])
        found += [told["subject_kind"] for told in stream.incidents.values()]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_cheats_are_found_once_per_subject_and_honest_people_left_alone(case: Case, tmp_path: Path) -> None:
    found = kinds_found(case, tmp_path)
    assert set(found) == set(case.kinds)
    assert len(found) <= 2, "one incident for each subject, however long it lasts"


def test_the_page_tells_what_is_found_and_what_is_not() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    told = {cells[1].strip(): cells[2].strip() for cells in rows}
    for case in CASES:
        expected = "**missed**" if case.missed else ", ".join(case.kinds) or "silent"
        assert told.get(case.name) == expected, case.name
