"""The pipelines' own topics may hold anything: whoever may write there may write it."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

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


@pytest.mark.parametrize("read", [read_verdict, read_mark, read_incident])
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
