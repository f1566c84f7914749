"""What a task counts of the records that it parses: the same, whichever way they are parsed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.unit.rewards.detecting import WRITTEN as FED_AT
from tests.unit.rewards.detecting import Detecting

from tidelog.spark.pipelines.quality import NOTHING, Quality, quality_of
from tidelog_rewards import events
from tidelog_rewards.event_parser import EventParser
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.task_quality import TaskQuality

WRITTEN = datetime(2026, 3, 2, 12, tzinfo=UTC)
COMMON = {"event_time": "2026-03-02T12:00:00.000Z", "user_id": "ann", "device_id": "d", "ip": "10.0.0.1"}


def credit(event_id: str | None, **other: Any) -> bytes:
    return json.dumps({"event_id": event_id, **COMMON, "source": "task", "amount_cents": 5, **other}).encode()


def step(event_id: str, **other: Any) -> bytes:
    told = {"event_id": event_id, **COMMON, "task_id": "t", "step": 1, "steps": 2}
    return json.dumps({**told, **other}).encode()


CREDITS = [
    credit("a", app_version="1", task_id="t"),
    credit("b", app_version=None),
    credit("a", app_version="1"),
    credit(None),
    credit("c", ip=None, source="theft"),
    b"{",
    None,
]
OF_CREDITS = Quality(
    records=7,
    malformed=4,
    duplicated=1,
    reasons={"missing:event_id": 1, "missing:ip": 1, "choice:source": 1, "not-json": 1, "tombstone": 1},
    nulls={"event_id": 1, "ip": 1, "app_version": 1, "task_id": 2},
    seen={
        **{field.name: 5 for field in events.CREDIT.fields if field.required},
        **{field.name: 3 for field in events.CREDIT.fields if not field.required},
    },
)


def parsed_from(*records: tuple[str, bytes | None]) -> tuple[pa.Array, pa.Array, pa.Array]:
    topics, values = zip(*records, strict=True)
    times = [WRITTEN] * len(records)
    return pa.array(topics), pa.array(values, pa.binary()), pa.array(times, pa.timestamp("us", "UTC"))


def by_columns(values: list[bytes | None]) -> Quality:
    quality = TaskQuality()
    parser = EventParser([events.CREDIT], only=events.CREDIT)
    for value in values:  # in several Arrow batches
        quality.add(events.CREDIT, parser.columns(*parsed_from((events.CREDIT.topic, value))))
    return quality_of([quality.told()])


def by_rows(*records: tuple[str, bytes | None]) -> Quality:
    quality = TaskQuality()
    parser = EventParser([events.CREDIT, events.TASK])
    quality.add_rows(parser, parser.rows(*parsed_from(*records)))
    return quality_of([quality.told()])


def test_malformed_repeated_and_missing_things_are_counted() -> None:
    assert by_columns(CREDITS) == OF_CREDITS
    assert by_rows(*((events.CREDIT.topic, value) for value in CREDITS)) == OF_CREDITS


def test_a_field_counts_for_the_kinds_that_have_it() -> None:
    told = by_rows(
        (events.CREDIT.topic, credit("a")),
        (events.TASK.topic, step("b", app_version="1")),
        (events.TASK.topic, step("c", task_id=None)),
        ("elsewhere", b"{}"),
    )
    assert (told.records, told.malformed) == (4, 2)
    assert told.reasons == {"missing:task_id": 1, "unknown-topic": 1}
    assert (told.seen["amount_cents"], told.seen["step"], told.seen["task_id"]) == (1, 2, 3)
    assert told.null_rates["task_id"] == pytest.approx(2 / 3)
    assert told.null_rates["app_version"] == 0.5
    assert told.null_rates["step"] == 0


def test_tasks_are_added_up() -> None:
    two = quality_of([encoded(OF_CREDITS), encoded(OF_CREDITS)])
    assert (two.records, two.malformed, two.duplicated) == (14, 8, 2)
    assert two.seen["ip"] == 10
    assert two.null_rates == OF_CREDITS.null_rates
    assert quality_of([]) == NOTHING


def test_detecting_tasks_tell_of_all_that_they_have_read(tmp_path: Path) -> None:
    detecting = Detecting(tmp_path, SwitchDetector())
    login = {"phone": "1", "method": "sms", "success": False}
    moment = f"{FED_AT:%Y-%m-%dT%H:%M:%SZ}"
    failed = json.dumps({"event_id": "a", **COMMON, **login, "event_time": moment}).encode()
    detecting.feed(failed, failed, failed, b"{", tasks=2)
    told = [answer.quality for answer in detecting.answers if answer.quality is not None]
    quality = sum(told, NOTHING)
    assert (quality.records, quality.malformed, quality.duplicated) == (4, 1, 1)
    assert quality.null_rates["app_version"] == 1


def encoded(quality: Quality) -> bytes:
    return msgspec.json.encode(quality)
