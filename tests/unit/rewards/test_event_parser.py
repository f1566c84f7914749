"""The rules of events without Spark: the quick way and the thorough one say the same."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tidelog_rewards import event_parser, events
from tidelog_rewards.event_parser import EventParser

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


def parsed(
    *values: bytes | None, topic: str = events.CREDIT.topic, written: datetime | int = WRITTEN
) -> list[dict[str, Any]]:
    found = EventParser(events.LOGS).columns(
        pa.array([topic] * len(values), pa.string()),
        pa.array(values, pa.binary()),
        pa.array([written] * len(values), pa.timestamp("us", "UTC")),
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


@pytest.mark.parametrize("inside", ['["\\ud800"]', '{"\\ud800": 1}', '{"a": "\\ud800"}', '[["\\udfff"]]'])
def test_half_a_character_inside_a_bad_value_is_shown_as_a_question_mark(inside: str) -> None:
    (row,) = parsed(credit().replace(b'"e-1"', inside.encode()))
    assert row["code"] == "type:event_id"
    assert "?" in row["reason"]


def test_a_value_of_any_depth_becomes_a_reason() -> None:
    # From where on JSON is no JSON any more depends on the Python.
    depths = [*range(1, 40), *range(500, sys.getrecursionlimit() + 20), 100_000]
    rows = parsed(*(credit().replace(b'"e-1"', b"[" * depth + b"]" * depth) for depth in depths))
    assert {row["code"] for row in rows} == {"type:event_id", "not-json"}


@pytest.mark.parametrize("written_us", [-(2**63) + 1, -(2**60), 2**60, 2**63 - 1])
def test_records_with_timestamps_outside_of_the_calendar_are_read(written_us: int) -> None:
    event, bad = parsed(credit(), credit(amount_cents="?"), written=written_us)
    early = ["range:event_time"] if written_us < 0 else []
    assert event["code"] == (",".join(early) or None)
    assert bad["code"] == ",".join([*early, "type:amount_cents"])


def test_a_record_that_the_parser_fails_on_is_refused_and_its_neighbours_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> str:
        raise OverflowError("beyond all bounds")

    monkeypatch.setattr(event_parser, "_shown", fail)
    rows = parsed(credit(), credit(amount_cents="?"), credit(user_id="u-2"))
    assert [row["user_id"] for row in rows] == ["u-1", None, "u-2"]
    assert [row["code"] for row in rows] == [None, "unreadable", None]
    assert rows[1]["reason"] == "it could not be read (OverflowError)"


def test_too_little_memory_is_not_laid_to_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> str:
        raise MemoryError

    monkeypatch.setattr(event_parser, "_shown", fail)
    with pytest.raises(MemoryError):
        parsed(credit(amount_cents="?"))
