"""Records to parcels of the ledger's parts, and how many parts there are."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tidelog.errors import TidelogError
from tidelog.spark.pipelines.quality import quality_of
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.partition_work import Parcel, from_bytes
from tidelog_rewards import events
from tidelog_rewards.jobs.earnings.packing import LETTERS, QUALITY, entries_of, pack, pack_range
from tidelog_rewards.jobs.earnings.parts import DEFAULT_PARTS, LedgerParts, ledger_parts
from tidelog_rewards.jobs.earnings.schema import Credit, TaskStep
from tidelog_rewards.jobs.earnings.sqlite_ledger import SqliteLedger
from tidelog_rewards.phones.phone_tokens import CLEAR

CREDIT, TASK = events.CREDIT.topic, events.TASK.topic
ONE = LedgerParts(1, Path())
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


def record(topic: str, offset: int, **fields: object) -> dict[str, object]:
    event = {
        "event_id": f"e{offset}",
        "event_time": "2026-03-02T12:00:00.123Z",
        "user_id": "ann",
        "device_id": "d",
        "ip": "10.0.0.1",
        **fields,
    }
    written = datetime(2026, 3, 2, 13, tzinfo=UTC)
    value = json.dumps(event).encode()
    return {
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestamp": written,
        "key": b"k",
        "value": value,
    }


def batch(*records: dict[str, object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(records), schema=SCHEMA)


def packed(*records: dict[str, object], parts: LedgerParts = ONE) -> list[Parcel]:
    return list(pack(parts, "earnings", CLEAR)(iter([batch(*records)])))


def letters_of(parcels: list[Parcel]) -> list[bytes]:
    return [parcel.data for parcel in parcels if parcel.kind == LETTERS]


def test_impossible_records_count_as_malformed_and_not_as_events() -> None:
    (told,) = (
        parcel.data
        for parcel in packed(
            record(CREDIT, 0, source="task", amount_cents=5, app_version="1"),
            record(CREDIT, 1, source="task", amount_cents=10_000_000_001, app_version="1", task_id="t"),
            record(CREDIT, 1, source="task", amount_cents=5),
            record(TASK, 2, task_id="t", step=4, steps=3, app_version="1"),
        )
        if parcel.kind == QUALITY
    )
    found = quality_of([told])
    assert (found.records, found.malformed, found.duplicated) == (4, 2, 0)
    assert found.nulls == {"app_version": 1, "task_id": 2}
    assert (found.seen["app_version"], found.seen["amount_cents"]) == (2, 3)


def test_records_become_entries_and_impossible_ones_letters_that_say_why() -> None:
    parcels = packed(
        record(CREDIT, 0, source="task", amount_cents=5),
        record(TASK, 1, task_id="t", step=2, steps=3),
        record(CREDIT, 2, source="task", amount_cents=10_000_000_001),
        record(TASK, 3, task_id="t", step=4, steps=3),
        record(CREDIT, 4, source="theft", amount_cents=5),
        record(TASK, 5, task_id="t", step=1, steps=10_001),
    )
    credits, steps = entries_of(parcels)
    time = "2026-03-02T12:00:00.123Z"
    assert credits == [Credit("ann", "2026-03-02", "task", "e0", 5, time)]
    assert steps == [TaskStep("ann", "t", 2, time, 3)]
    [found] = [letter for packed in letters_of(parcels) for letter in from_bytes(packed)]
    reasons = {}
    codes = []
    for letter in found.to_pylist():
        headers = {header["key"]: header["value"].decode() for header in letter["headers"]}
        place = f"{headers['topic']}/{headers['partition']}/{headers['offset']}"
        assert letter["key"].decode() == f"earnings/{place}/{headers['code']}"
        assert (letter["topic"], headers["key"], headers["pipeline"]) == (
            events.DEAD_LETTERS,
            "k",
            "earnings",
        )
        reasons[int(headers["offset"])] = headers["reason"]
        codes.append(headers["code"])
    assert sorted(codes) == ["choice:source", "range:amount_cents", "range:step", "range:steps"]
    assert reasons[2] == "field amount_cents: more than 10000000000"
    assert reasons[3] == "field step: more than field steps"
    assert "theft" in reasons[4]
    assert reasons[5] == "field steps: more than 10000"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("2026-03-02T12:00:00.123456Z", "2026-03-02T12:00:00.123Z"),
        ("2026-03-02 12:00:00.123Z", "2026-03-02T12:00:00.123Z"),
        ("2026-03-02T12:00:00Z", "2026-03-02T12:00:00.000Z"),
        ("2026-03-02T01:30:00.5+09:00", "2026-03-01T16:30:00.500Z"),
        ("2026-03-01T23:30:00.000-12:00", "2026-03-02T11:30:00.000Z"),
    ],
)
def test_times_are_kept_in_utc_with_milliseconds_however_they_are_written(written: str, kept: str) -> None:
    normal = record(CREDIT, 1, source="task", amount_cents=1)
    other = record(CREDIT, 2, source="task", amount_cents=1, event_time=written)
    credits, _ = entries_of(packed(normal, other))
    assert [(each.day, each.event_time) for each in credits[1:]] == [(kept[:10], kept)]


def test_a_users_entries_are_in_one_part_and_letters_where_their_record_says() -> None:
    parts = LedgerParts(3, Path())
    users = [f"user-{number}" for number in range(20)]
    both = {"source": "task", "amount_cents": 1, "task_id": "t", "step": 1, "steps": 1}
    sent = [
        record(CREDIT if number % 2 else TASK, number, user_id=user, **both)
        for number, user in enumerate(users * 2)
    ]
    broken = [{**record(CREDIT, 100 + number), "value": b"{"} for number in range(4)]
    found = packed(*sent, *broken, parts=parts)
    for parcel in found:
        credits, steps = entries_of([parcel])
        named = [*(each.user_id for each in credits), *(each.user_id for each in steps)]
        assert {parts.of(user) for user in named} <= {parcel.part}
    credits, steps = entries_of(found)
    assert len(credits) + len(steps) == 40
    assert len(letters_of(found)) == 1
    assert len({parts.of(user) for user in users}) == 3


def test_a_backfill_takes_the_events_of_its_range_only() -> None:
    days = [
        record(CREDIT, day, source="task", amount_cents=day, event_time=f"2026-03-0{day}T00:00:00.000Z")
        for day in (1, 2)
    ]
    chosen = pack_range(ONE, "2026-03-01T00:00:00.001Z", "2026-03-02T00:00:00.001Z")
    parcels = list(chosen(iter([batch(*days, {**days[0], "value": b"{"})])))
    credits, _ = entries_of(parcels)
    assert [each.amount_cents for each in credits] == [2]
    assert letters_of(parcels) == []


def test_the_number_of_parts_is_that_of_the_first_run(tmp_path: Path) -> None:
    first = ledger_parts(PipelineSettings("", tmp_path, state_partitions=3))
    assert first.count == 3
    assert ledger_parts(PipelineSettings("", tmp_path)) == first
    assert ledger_parts(PipelineSettings("", tmp_path, state_partitions=3)) == first
    with pytest.raises(TidelogError, match="has 3 parts, and 5 state partitions are asked for: leave"):
        ledger_parts(PipelineSettings("", tmp_path, state_partitions=5))
    assert ledger_parts(PipelineSettings("", tmp_path / "other")).count == DEFAULT_PARTS


def test_a_ledger_of_before_there_were_parts_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    settings = PipelineSettings("", tmp_path)
    SqliteLedger(settings.tables).close()
    with pytest.raises(TidelogError, match=r"tables.sqlite holds a ledger of earnings.*: give another --d"):
        ledger_parts(settings)
    assert not (tmp_path / "earnings").exists()
    # Cassandra's is no file.
    assert ledger_parts(replace(settings, cassandra="127.0.0.1")).count == DEFAULT_PARTS


def test_other_tables_in_the_file_are_no_ledger(tmp_path: Path) -> None:
    settings = PipelineSettings("", tmp_path)
    with sqlite3.connect(settings.tables) as connection:
        connection.execute("CREATE TABLE user_regions (user_id TEXT)")
    assert ledger_parts(settings).count == DEFAULT_PARTS


@pytest.mark.parametrize("note", ["{", '{"parts":1,"single_file":true}', "{}"])
def test_a_note_that_says_something_else_is_refused_with_the_mend(tmp_path: Path, note: str) -> None:
    ledger_parts(PipelineSettings("", tmp_path))
    path = tmp_path / "earnings" / "parts.json"
    path.write_text(note)
    with pytest.raises(TidelogError, match=r"does not say how many parts the ledger has .* delete it$"):
        ledger_parts(PipelineSettings("", tmp_path))
    assert path.read_text() == note
