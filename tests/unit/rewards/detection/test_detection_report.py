"""The score can praise and can blame: each figure moves when, and only when, detection changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog_rewards.detection.detection_report import read_truth, score


def incident(rule: str, *users: str, devices: tuple[str, ...] = (), complete: bool = True) -> dict[str, Any]:
    pipeline = "account-switch" if rule == "account-switch" else "invite-fraud"
    return {
        "record": "incident",
        "pipeline": pipeline,
        "rule": rule,
        "complete": complete,
        "users": list(users),
        "devices": list(devices),
    }


def honest(case: str, *users: str) -> dict[str, Any]:
    return {"record": "honest", "case": case, "users": list(users), "devices": []}


def switch_alert(device: str) -> dict[str, Any]:
    return {"pipeline": "account-switch", "devices": [device], "alert_id": device}


def invite_alert(kind: str, *inviters: str, rules: tuple[str, ...], **more: Any) -> dict[str, Any]:
    return {
        "pipeline": "invite-fraud",
        "alert_id": "x",
        "subject_kind": kind,
        "inviters": list(inviters),
        "invitees": [],
        "devices": [],
        "reasons": [{"rule": rule} for rule in rules],
        **more,
    }


def figures(truth: list[dict[str, Any]], alerts: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    return {rule.rule: (rule.precision, rule.recall) for rule in score(truth, alerts).rules}


def test_an_incident_without_an_alert_lowers_recall() -> None:
    truth = [incident("account-switch", devices=("d1",)), incident("account-switch", devices=("d2",))]
    assert figures(truth, [switch_alert("d1"), switch_alert("d2")]) == {"account-switch": (1.0, 1.0)}
    assert figures(truth, [switch_alert("d1")]) == {"account-switch": (1.0, 0.5)}
    assert figures(truth, []) == {"account-switch": (None, 0.0)}


def test_an_alert_without_an_incident_lowers_precision_and_names_the_honest_case() -> None:
    truth = [incident("burst", "u1"), honest("office", "u2")]
    alerts = [
        invite_alert("inviter", "u1", rules=("burst",)),
        invite_alert("inviter", "u2", rules=("burst",)),
    ]
    report = score(truth, alerts)
    assert [(rule.precision, rule.recall) for rule in report.rules] == [(0.5, 1.0)]
    assert (report.accused, report.honest_cases) == ({"office": 1}, {"office": 1})
    assert report.below(0.95) == list(report.rules)
    assert report.below(0.5) == []


def test_an_incident_counts_as_found_only_by_its_own_rule() -> None:
    truth = [incident("address", "u1")]
    assert figures(truth, [invite_alert("inviter", "u1", rules=("burst",))]) == {
        "address": (None, 0.0),
        "burst": (1.0, None),
    }


def test_an_incident_that_was_cut_short_is_neither_missed_nor_a_false_alarm() -> None:
    truth = [incident("burst", "u1", complete=False)]
    assert score(truth, []).rules == ()
    assert figures(truth, [invite_alert("inviter", "u1", rules=("burst",))]) == {"burst": (1.0, None)}


def test_an_invited_person_is_not_accused_but_a_member_of_a_ring_is() -> None:
    truth = [incident("cycle", "u1")]
    ring = invite_alert("ring", "u7", rules=("cycle",), invitees=["u1"])
    star = invite_alert("inviter", "u7", rules=("cycle",), invitees=["u1"])
    assert figures(truth, [ring]) == {"cycle": (1.0, 1.0)}
    assert figures(truth, [star]) == {"cycle": (0.0, 0.0)}


def test_a_file_that_is_no_truth_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    path.write_text('{"record": "run"}\nhello\n')
    with pytest.raises(TidelogError, match="line 2 is no JSON"):
        read_truth(path)
