"""The rules of events without Spark: the quick way and the thorough one say the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tidelog.pipelines.framework import events
from tidelog.pipelines.framework.event_parser import EventParser

WRITTEN = datetime(2026, 11, 1, tzinfo=UTC)
CREDIT: dict[str, Any] = {
    "event_id": "e-1",
    "event_time": "2026-10-31T12:00:00.123Z",
    "user_id": "u-1",
    "device_id": "d-1",
    "ip": "10.0.0.1",
    "source": "task",
    "amount_cents": 250,
}


def parsed(*values: bytes | None, topic: str = events.CREDIT.topic) -> list[dict[str, Any]]:
    found = EventParser(events.LOGS).columns(
        pa.array([topic] * len(values), pa.string()),
        pa.array(values, pa.binary()),
        pa.array([WRITTEN] * len(values), pa.timestamp("us", "UTC")),
    )
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def credit(**changes: Any) -> bytes:
    return json.dumps({**CREDIT, **changes}).encode()


def test_no_records_are_no_rows() -> None:
    assert parsed() == []


def test_an_event_has_its_fields_and_none_of_other_kinds() -> None:
    (row,) = parsed(credit(dwell_ms=5))
    assert (row["kind"], row["amount_cents"], row["dwell_ms"], row["reason"]) == ("credit", 250, None, None)
    assert row["event_time"] == datetime(2026, 10, 31, 12, 0, 0, 123_000, UTC)


def test_bad_records_do_not_change_their_neighbours() -> None:
    rows = parsed(credit(), b"\xff", credit(event_time="2026-02-30T00:00:00Z"), None, credit(user_id="u-2"))
    assert [row["user_id"] for row in rows] == ["u-1", None, None, None, "u-2"]
    assert [row["reason"] is None for row in rows] == [True, False, False, False, True]
    assert rows[0]["event_time"] == rows[4]["event_time"] == datetime(2026, 10, 31, 12, 0, 0, 123_000, UTC)


@pytest.mark.parametrize(
    "value",
    [
        credit().replace(b'"event_id"', b'"event_id": 5, "event_id"'),
        credit().replace(b'"e-1"', b'"\\ud800"'),
        credit(**{"dwell_ms of another kind": 5}),
    ],
)
def test_what_the_quick_way_refuses_too_strictly_is_an_event(value: bytes) -> None:
    (row,) = parsed(value)
    assert row["reason"] is None
    assert row["amount_cents"] == 250


@pytest.mark.parametrize(
    "value",
    [
        credit(extra="?").replace(b"?", b"\xff"),
        credit(amount_cents=2**63),
        credit(event_time="2026-10-31T12:00:00+19:00"),
        credit(event_time="2026-10-31T12:00:00.1234567Z"),
        credit(event_time="2026-10-31T12:00:00Z\n"),
        credit() + b"{}",
        b'{"extra": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_event_is_refused_by_both(value: bytes) -> None:
    (row,) = parsed(value)
    assert row["reason"]
    parser = EventParser(events.LOGS)
    assert parser.explain(events.CREDIT, events.CREDIT.topic, value, WRITTEN)[1] == (
        row["code"],
        row["reason"],
    )
