"""The pipelines' own topics may hold anything: whoever may write there may write it."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from tidelog.spark.dead_letters.letter import Place
from tidelog.spark.dead_letters.redrive import read_mark, read_place
from tidelog_rewards.detection.detection_report import names_of, read_alert, rules_of
from tidelog_rewards.detection.incident_topic import read_incident
from tidelog_rewards.detection.verdicts import Verdict, read_verdict

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


@pytest.mark.parametrize(
    "key",
    [
        *(None, b"", b"t", b"t/1", b"t/1/x", b"t/-1/5", b"/1/5", b"t/1/5/7", "t/\u0663/1".encode()),
        *(b"t/1/" + b"9" * 5000, b"t/" + b"9" * 5000 + b"/1", b"t/1/%d" % 2**63),
    ],
    ids=lambda each: repr(each and each[:20]),
)
def test_the_key_of_a_mark_that_names_no_place_is_none(key: bytes | None) -> None:
    assert read_place(key) is None


def test_what_is_one_is_read() -> None:
    assert read_place(b"t/1/%d" % (2**63 - 1)) == Place("t", 1, 2**63 - 1)
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
