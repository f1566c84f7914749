"""The file of rules: what it says counts, what is wrong is said with its place, and changes are taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidelog_rewards.detection.detection_rules import (
    NEVER,
    RulesError,
    WatchedRules,
    faded_count,
    least_of,
    load_rules,
    points_of,
)
from tidelog_rewards.jobs.account_switch.schema import NAME, USUAL, Rules


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_says_what_differs_and_its_version_and_digest_name_it(tmp_path: Path) -> None:
    path = written(tmp_path / "rules.toml", 'version = "mine"\n[account-switch]\nalert_score = 70\n')
    ruled = load_rules(NAME, Rules, path)
    assert (ruled.version, ruled.rules.alert_score, ruled.rules.burst) == ("mine", 70, USUAL.rules.burst)
    assert ruled.digest != USUAL.digest
    same = written(tmp_path / "same.toml", 'version = "other words"\n')
    assert load_rules(NAME, Rules, same).digest == USUAL.digest


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[account-switch]\n", "has no version"),
        ('version = "1"\n[acount-switch]\n', "section 'acount-switch' that no pipeline knows"),
        ('version = "1"\n[account-switch]\nscore = 3\n', r"\[account-switch\]: .*unknown field `score`"),
        ('version = "1"\n[account-switch]\nalert_score = "high"\n', r"Expected `int`.*alert_score"),
        ('version = "1"\n[account-switch]\nlateness_s = 0\n', r">= 1.*lateness_s"),
        (
            'version = "1"\n[account-switch]\nburst = [[5, 60], [4, 70]]\n',
            "burst must rise from step to step",
        ),
        ('version = "1"\n[account-switch]\nburst = [[5, 160]]\n', r"<= 100"),
        ('version = "1"\n[account-switch]\nquiet_s = 10000000000000\n', r"<= 2592000.*quiet_s"),
        ('version = "1"\n[account-switch]\nburst_s = 10000000000000000000\n', r"burst_s"),
        ('version = "1"\n[account-switch]\nburst = [[10000000000000000000, 65]]\n', r"burst"),
        ('version = "1"\n[account-switch]\nregular_logins = 1\n', r">= 2.*regular_logins"),
        ('version = "1"\n[account-switch.allow]\nshop = ["d"]\n', "'shop', but there are the kinds device"),
        ("version = ", "is no TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(RulesError, match=complaint):
        load_rules(NAME, Rules, written(tmp_path / "rules.toml", text))


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="cannot be read"):
        load_rules(NAME, Rules, tmp_path / "none.toml")


def test_a_change_is_taken_and_a_broken_one_keeps_the_old_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "rules.toml", 'version = "1"\n')
    watched = WatchedRules(NAME, Rules, path)
    written(path, 'version = "2"\n[account-switch]\nalert_score = 61\n')
    assert (watched.look().version, watched.look().rules.alert_score) == ("2", 61)
    with caplog.at_level(logging.ERROR):
        written(path, 'version = "3"\n[account-switch]\nalert_score = -1\n')
        assert (watched.look().version, watched.look().version) == ("2", "2")
    assert len(caplog.records) == 1
    assert "goes on with the rules of version 2" in caplog.text
    written(path, 'version = "4 again"\n')
    assert watched.look().version == "4 again"


def test_points_are_those_of_the_highest_step_that_is_reached() -> None:
    steps = ((5, 10), (8, 40))
    assert [points_of(count, steps) for count in (4, 5, 7, 8, 99)] == [0, 10, 10, 40, 40]


def test_evidence_counts_less_the_older_it_is_and_in_any_order() -> None:
    day_us, month_s = 86_400_000_000, 30 * 86_400
    assert faded_count([0, 60_000_000, 120_000_000], month_s) == 3
    assert faded_count([30 * day_us] * 10, month_s) == 5
    assert faded_count([30 * day_us] * 10, 0) == 10
    ages = [number * day_us + number for number in range(30)]
    assert faded_count(ages, month_s) == faded_count(reversed(ages), month_s) == 22
    assert faded_count([], month_s) == 0


def test_the_least_count_is_that_of_all_rules_that_are_not_switched_off() -> None:
    assert least_of(((5, 10), (8, 40)), (), ((3, 10),)) == 3
    assert least_of((), ()) == NEVER
    assert points_of(NEVER, ()) == 0
