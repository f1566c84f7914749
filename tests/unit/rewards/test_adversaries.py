"""Adversaries: the same for the same seed, every pattern in it, and how well rules find held-out ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog_rewards.adversary_report import AdversaryReport, score_adversaries
from tidelog_rewards.events import INVITE, LOGIN
from tidelog_rewards.generator.adversaries import BEYOND_REACH, HELD_OUT, PATTERNS, Adversaries

LEAST = 0.9


@pytest.fixture(scope="module")
def report() -> AdversaryReport:
    return score_adversaries(range(HELD_OUT, HELD_OUT + 3))


def test_the_same_seed_makes_the_same_events_and_another_one_others() -> None:
    first, again, other = (list(Adversaries(seed, repeats=1).records(LOGIN.topic)) for seed in (5, 5, 6))
    assert first == again != other
    assert first == sorted(first, key=lambda each: each[0])


def test_every_pattern_has_events_and_cases_share_no_name() -> None:
    made = Adversaries(3, repeats=2, people=10)
    assert {case.pattern for case in made.cases} == {"ordinary", *PATTERNS}
    names = [name for case in made.cases for name in case.names]
    assert len(names) == len(set(names))
    assert all(list(made.records(topic)) for topic in (LOGIN.topic, INVITE.topic))


def test_cheats_of_held_out_seeds_are_found_and_few_honest_people_accused(report: AdversaryReport) -> None:
    total = report.total(report.usual)
    assert total.recall is not None
    assert total.recall >= LEAST, [each for each in report.at(report.usual) if each.is_fraud]
    assert total.precision is not None
    assert total.precision >= LEAST, [each for each in report.at(report.usual) if not each.is_fraud]
    missed = {each.pattern for each in report.at(report.usual) if each.is_fraud and not each.accused}
    assert missed <= set(BEYOND_REACH)


def test_a_higher_threshold_finds_less_and_accuses_fewer(report: AdversaryReport) -> None:
    thresholds = sorted({each.threshold for each in report.patterns})
    totals = [report.total(each) for each in thresholds]
    assert [each.accused for each in totals] == sorted((each.accused for each in totals), reverse=True)
    false = [each.false_alarms for each in totals]
    assert false == sorted(false, reverse=True)
    assert totals[0].accused > totals[-1].accused


def test_rules_that_are_blind_are_seen_to_be(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('version = "blind"\n[invite-fraud]\ncycle_points = 0\n')
    blind = score_adversaries([HELD_OUT], path, thresholds=(60,))
    by_pattern = {each.pattern: each for each in blind.at(60)}
    assert by_pattern["ring"].accused == 0
    assert by_pattern["burst"].accused == by_pattern["burst"].cases
