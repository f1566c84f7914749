"""The pipelines' own topics may hold anything: whoever may write there may write it."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from tidelog.pipelines.framework.detection_report import names_of, read_alert, rules_of
from tidelog.pipelines.framework.incident_topic import read_incident
from tidelog.pipelines.framework.redrive import read_mark
from tidelog.pipelines.framework.verdicts import Verdict, read_verdict

INCIDENT = {
    "alert_id": "a",
    "pipeline": "account-switch",
    "subject_kind": "device",
    "subject": "d",
    "state": "open",
    "score": 50,
    "peak": 50,
    "opened": "2026-01-05T12:00:00.000Z",
    "updated": "2026-01-05T12:00:00.000Z",
    "reasons": [{"rule": "switching", "points": 50, "count": 3, "value": "24 h"}],
    "history": [["2026-01-05T12:00:00.000Z", 50]],
    "rules": {"version": "1", "digest": "2"},
    "devices": ["d"],
}


@pytest.mark.parametrize("read", [read_verdict, read_mark, read_incident, read_alert])
@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{", b"7", b"{}", b"\xff", b'{"pipeline": "\xff"}', b'{"\xff": 1}'),
        b"[" * 100_000,
        b'{"other": ' + b"[" * 100_000,
    ],
    ids=lambda each: repr(each[:20]),
)
def test_what_is_none_is_none(read: Callable[[bytes], object], value: bytes) -> None:
    assert read(value) is None


def test_what_is_one_is_read() -> None:
    verdict = Verdict("dismissed", "account-switch", "device", "d", "a")
    assert read_verdict(msgspec.json.encode(verdict)) == verdict
    assert read_incident(json.dumps(INCIDENT).encode()) == INCIDENT
    assert read_incident(json.dumps({**INCIDENT, "reasons": [1]}).encode()) is None


@pytest.mark.parametrize("pipeline", ["account-switch", "invite-fraud", "another"])
def test_an_alert_can_be_judged_by_what_it_lacks(pipeline: str) -> None:
    alert = read_alert(json.dumps({"pipeline": pipeline, "other": 7}).encode())
    assert alert is not None
    assert alert["other"] == 7
    assert names_of(alert) == set()
    assert rules_of(alert) == (["account-switch"] if pipeline == "account-switch" else [])
