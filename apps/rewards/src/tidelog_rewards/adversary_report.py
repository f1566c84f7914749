"""How well rules detect the adversaries of the generator: precision and recall by pattern and by threshold.

Recall of a pattern: the share of its cases that an incident accuses. Precision: of the incidents that accuse
a case of the pattern or honest people of the same pipeline, the share that accuse the pattern. A point of the
curve asks how it would be if incidents were reported from another score on; the rules are applied once, with
a threshold below all of them. No Spark, and no broker.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tidelog_rewards.detection.alert_tasks import Detector
from tidelog_rewards.detection.detection_rules import RulesName, load_rules
from tidelog_rewards.detection.offline import LogRecord, detect_offline
from tidelog_rewards.generator.adversaries import BEYOND_REACH, PATTERNS, Adversaries
from tidelog_rewards.jobs.account_switch import schema as switch_schema
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.jobs.invite_fraud import schema as invite_schema
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector

THRESHOLDS = (40, 50, 60, 65, 70, 80, 90)
_LOWEST = 30


@dataclass(frozen=True, slots=True)
class PatternScore:
    """One pattern at one threshold; a share of nothing is None."""

    pattern: str
    is_fraud: bool
    threshold: int
    cases: int
    accused: int
    """Cases that an incident accuses: found, where it is fraud."""
    incidents: int
    false_alarms: int
    """Incidents of the pipelines of this pattern that accuse honest people."""

    @property
    def recall(self) -> float | None:
        return self.accused / self.cases if self.is_fraud and self.cases else None

    @property
    def precision(self) -> float | None:
        every = self.incidents + self.false_alarms
        return self.incidents / every if self.is_fraud and every else None


@dataclass(frozen=True, slots=True)
class AdversaryReport:
    """All patterns at all thresholds, and what all cheats within reach come to."""

    patterns: tuple[PatternScore, ...]
    usual: int
    """The threshold of the rules."""

    def at(self, threshold: int) -> list[PatternScore]:
        """The patterns at one threshold."""
        return [each for each in self.patterns if each.threshold == threshold]

    def total(self, threshold: int) -> PatternScore:
        """All cheats that are within reach, together."""
        mine = [each for each in self.at(threshold) if each.is_fraud and each.pattern not in BEYOND_REACH]
        return PatternScore(
            "all within reach",
            True,
            threshold,
            sum(each.cases for each in mine),
            sum(each.accused for each in mine),
            sum(each.incidents for each in mine),
            sum(each.incidents for each in self.at(threshold) if not each.is_fraud),
        )


def score_adversaries(
    seeds: Iterable[int], rules: Path | None = None, thresholds: Sequence[int] = THRESHOLDS
) -> AdversaryReport:
    """Apply rules to the adversaries of seeds."""
    switch = load_rules(switch_schema.NAME, switch_schema.Rules, rules)
    invite = load_rules(invite_schema.NAME, invite_schema.Rules, rules)
    usual = switch.rules.alert_score
    every = sorted({*thresholds, usual})
    lowest = min(_LOWEST, *every)
    detectors: tuple[tuple[Detector, RulesName], ...] = (
        (
            SwitchDetector(msgspec.structs.replace(switch.rules, alert_score=lowest)),
            RulesName(switch.version, switch.digest),
        ),
        (
            InviteDetector(msgspec.structs.replace(invite.rules, alert_score=lowest)),
            RulesName(invite.version, invite.digest),
        ),
    )
    cases: Counter[str] = Counter()
    accused: dict[int, Counter[str]] = defaultdict(Counter)
    incidents: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for seed in seeds:
        made = Adversaries(seed)
        cases.update(case.pattern for case in made.cases)
        owner = {name: at for at, case in enumerate(made.cases) for name in case.names}
        for detector, name in detectors:
            found = detect_offline(detector, name, _records(made, detector.kind.topic))
            for threshold in every:
                by_case = _accused(found, owner, threshold)
                accused[threshold].update(made.cases[at].pattern for at in by_case)
                for at, number in by_case.items():
                    incidents[threshold][detector.name, made.cases[at].pattern] += number
    return AdversaryReport(tuple(_scores(cases, accused, incidents, every)), usual)


def _records(made: Adversaries, topic: str) -> Iterable[LogRecord]:
    for offset, (moment, value) in enumerate(made.records(topic)):
        yield LogRecord(topic, 0, offset, moment, None, value)


def _accused(found: Iterable[Mapping[str, Any]], owner: Mapping[str, int], threshold: int) -> Counter[int]:
    """How many incidents accuse each case."""
    by_case: Counter[int] = Counter()
    for told in found:
        if told["peak"] < threshold:
            continue
        names = {*told.get("accounts", ()), *told["devices"], *told.get("inviters", ())}
        if told["subject_kind"] in {"ring", "chain", "tree"}:
            names |= {*told["invitees"]}
        cases = Counter(owner[name] for name in names if name in owner)
        if cases:
            by_case[cases.most_common(1)[0][0]] += 1
    return by_case


def _scores(
    cases: Counter[str],
    accused: Mapping[int, Counter[str]],
    incidents: Mapping[int, Counter[tuple[str, str]]],
    thresholds: Sequence[int],
) -> Iterable[PatternScore]:
    fraud = {name for name, (_, is_fraud) in PATTERNS.items() if is_fraud}
    for threshold in thresholds:
        found = incidents[threshold]
        false = Counter[str]()
        for (pipeline, pattern), number in found.items():
            if pattern not in fraud:
                false[pipeline] += number
        for pattern in ("ordinary", *PATTERNS):
            mine = {pipeline: number for (pipeline, name), number in found.items() if name == pattern}
            yield PatternScore(
                pattern,
                pattern in fraud,
                threshold,
                cases[pattern],
                accused[threshold][pattern],
                sum(mine.values()),
                sum(false[pipeline] for pipeline in mine) if pattern in fraud else 0,
            )
