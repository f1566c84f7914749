"""How well the pipelines detect: alerts held against what the generator has planted, rule by rule.

Recall of a rule: the share of its planted incidents that an alert names for that very rule. Precision of a
rule: the share of the alerts with that rule that name a planted incident, of whichever kind. Incidents that
the end of the run cut short are not counted as missed. Of several alerts with one id the newest counts.

``tidelog events score`` prints it; tests assert it. Reads topics with the client; no Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tidelog.client import TopicPartition
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError
from tidelog.spark.dead_letters.letter_reader import open_consumer
from tidelog_rewards.detection.verdicts import records_to_the_end
from tidelog_rewards.events import ACCOUNT_SWITCH_ALERTS, INVITE_FRAUD_ALERTS

ACCOUNT_SWITCH = "account-switch"


@dataclass(frozen=True, slots=True)
class RuleScore:
    """One rule's figures; a share of nothing is None."""

    pipeline: str
    rule: str
    planted: int
    found: int
    alerts: int
    false_alarms: int

    @property
    def recall(self) -> float | None:
        """Found of planted."""
        return self.found / self.planted if self.planted else None

    @property
    def precision(self) -> float | None:
        """True of all alerts."""
        return 1 - self.false_alarms / self.alerts if self.alerts else None


@dataclass(frozen=True, slots=True)
class DetectionReport:
    """All rules, what was missed, and which honest people were taken for fraudsters."""

    rules: tuple[RuleScore, ...]
    missed: tuple[Mapping[str, Any], ...]
    false_alarms: tuple[Mapping[str, Any], ...]
    accused: Mapping[str, int]
    """Honest cases of the truth that have an alert, by name."""
    honest_cases: Mapping[str, int]
    """Honest cases in all, by name."""

    def below(self, minimum: float) -> list[RuleScore]:
        """The rules whose precision or recall is less, or that have nothing to show for what was planted."""
        return [
            rule
            for rule in self.rules
            if (rule.recall is not None and rule.recall < minimum)
            or (rule.precision is not None and rule.precision < minimum)
        ]


def read_truth(path: Path) -> list[dict[str, Any]]:
    """The incidents and honest cases of a truth file."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            record = msgspec.json.decode(line)
        except DECODE_ERRORS as error:
            raise TidelogError(f"{path}, line {number} is no JSON ({error}): is it a truth file?") from None
        if isinstance(record, dict) and record.get("record") in ("incident", "honest"):
            found.append(record)
    return found


def read_alerts(options: Mapping[str, object]) -> list[dict[str, Any]]:
    """All alerts of both pipelines, of each id the newest."""
    newest: dict[tuple[str, bytes | None], dict[str, Any]] = {}
    with open_consumer(options) as consumer:
        there = consumer.list_topics()
        for topic in (ACCOUNT_SWITCH_ALERTS, INVITE_FRAUD_ALERTS):
            partitions = [TopicPartition(topic, each.partition) for each in there.get(topic, ())]
            for record in records_to_the_end(consumer, partitions):
                newest.pop((topic, record.key), None)
                told = None if record.value is None else read_alert(record.value)
                if told is not None:
                    newest[topic, record.key] = told
    return list(newest.values())


class _Rule(msgspec.Struct):
    rule: str


class _Alert(msgspec.Struct):
    """What an alert is judged by."""

    pipeline: str
    subject_kind: str = ""
    devices: list[str] = []
    inviters: list[str] = []
    invitees: list[str] = []
    reasons: list[_Rule] = []


def read_alert(value: bytes) -> dict[str, Any] | None:
    """The alert that a record's value is; None where it is none: whoever may write may write anything."""
    try:
        judged_by = msgspec.json.decode(value, type=_Alert)
        told: dict[str, Any] = msgspec.json.decode(value)
    except DECODE_ERRORS:
        return None
    return {**msgspec.to_builtins(judged_by), **told}


def score(truth: Iterable[Mapping[str, Any]], alerts: Iterable[Mapping[str, Any]]) -> DetectionReport:
    """Hold alerts against the truth."""
    records = list(truth)
    incidents = [record for record in records if record["record"] == "incident"]
    honest = [record for record in records if record["record"] == "honest"]
    guilty = {name for incident in incidents for name in (*incident["users"], *incident["devices"])}
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    of_rule: dict[tuple[str, str], list[bool]] = defaultdict(list)
    false_alarms, accused_names = [], set()
    for alert in alerts:
        names = names_of(alert)
        is_true = bool(names & guilty)
        if not is_true:
            false_alarms.append(alert)
            accused_names |= names
        for rule in rules_of(alert):
            named[alert["pipeline"], rule] |= names
            of_rule[alert["pipeline"], rule].append(is_true)
    complete = [incident for incident in incidents if incident["complete"]]
    missed = [
        incident
        for incident in complete
        if not named[incident["pipeline"], incident["rule"]] & _identity(incident)
    ]
    return DetectionReport(
        tuple(_rule_scores(complete, missed, of_rule)),
        tuple(missed),
        tuple(false_alarms),
        _by_case(case for case in honest if accused_names & {*case["users"], *case["devices"]}),
        _by_case(honest),
    )


def rules_of(alert: Mapping[str, Any]) -> list[str]:
    """The rules that an alert names."""
    if alert["pipeline"] == ACCOUNT_SWITCH:
        return [ACCOUNT_SWITCH]
    return [reason["rule"] for reason in alert["reasons"]]


def names_of(alert: Mapping[str, Any]) -> set[str]:
    """Whom an alert accuses: devices, or the inviters; of a ring, a chain and a tree all members."""
    if alert["pipeline"] == ACCOUNT_SWITCH:
        return {*alert["devices"]}
    names = (
        {*alert["inviters"], *alert["devices"]} if alert["subject_kind"] == "device" else {*alert["inviters"]}
    )
    return names | {*alert["invitees"]} if alert["subject_kind"] in {"ring", "chain", "tree"} else names


def _identity(incident: Mapping[str, Any]) -> set[str]:
    """By what an alert must name an incident: a device by itself, a ring by its accounts."""
    return set(incident["devices"] if incident["pipeline"] == ACCOUNT_SWITCH else incident["users"])


def _rule_scores(
    complete: list[Mapping[str, Any]],
    missed: list[Mapping[str, Any]],
    of_rule: Mapping[tuple[str, str], list[bool]],
) -> Iterator[RuleScore]:
    keys = {(incident["pipeline"], incident["rule"]) for incident in complete} | set(of_rule)
    for pipeline, rule in sorted(keys):
        planted = sum((each["pipeline"], each["rule"]) == (pipeline, rule) for each in complete)
        lost = sum((each["pipeline"], each["rule"]) == (pipeline, rule) for each in missed)
        verdicts = of_rule.get((pipeline, rule), [])
        yield RuleScore(
            pipeline, rule, planted, planted - lost, len(verdicts), sum(not verdict for verdict in verdicts)
        )


def _by_case(cases: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for case in cases:
        counts[case["case"]] += 1
    return dict(sorted(counts.items()))
