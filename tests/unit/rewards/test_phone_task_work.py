"""The tasks of phone-region and the table of users, which they write without knowing of each other."""

from __future__ import annotations

import json
import pickle
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.record_sink import RecordSink, single_batch
from tidelog.spark.sinks.sqlite import SqliteTables
from tidelog.spark.sinks.table import TableError
from tidelog_rewards import events
from tidelog_rewards.jobs.phone_region import task_work
from tidelog_rewards.jobs.phone_region.enriching import Reading
from tidelog_rewards.jobs.phone_region.schema import TABLE
from tidelog_rewards.jobs.phone_region.task_work import LookedUp, enriching, looking_up
from tidelog_rewards.phones.phone_tokens import CLEAR

READING = Reading(CLEAR, "CN", "en")
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY = TimeRange(NOON - timedelta(hours=12), NOON + timedelta(hours=12))

Login = tuple[str, int, str, str]
"""User, microseconds after noon, event id, number."""


def logins(told: Sequence[Login]) -> pa.Table:
    return pa.table(
        {
            "topic": pa.array([events.LOGIN.topic] * len(told), pa.string()),
            "value": pa.array([value_of(*each) for each in told], pa.binary()),
            "timestamp": pa.array([NOON] * len(told), pa.timestamp("us", "UTC")),
        }
    )


def value_of(user: str, time_us: int, event_id: str, phone: str) -> bytes:
    fields = {
        "event_id": event_id,
        "event_time": (NOON + timedelta(microseconds=time_us)).isoformat(),
        "user_id": user,
        "device_id": "d",
        "ip": "10.0.0.1",
        "phone": phone,
        "method": "sms",
        "success": True,
    }
    return json.dumps(fields).encode()


def look_up(tables: SqliteTables, *told: Sequence[Login]) -> LookedUp:
    """What a task does that is given these batches."""
    answer = looking_up(tables, DAY, READING)(map(logins, told))
    return msgspec.json.decode(answer, type=LookedUp)


def ensured(directory: Path) -> SqliteTables:
    tables = SqliteTables(directory / "tables.sqlite")
    tables.ensure(TABLE)
    return tables


def numbers(tables: SqliteTables) -> dict[object, tuple[object, object]]:
    return {row["user_id"]: (row["event_id"], row["e164"]) for row in tables.rows(TABLE)}


ANN: Login = ("ann", 0, "e1", "+8613812345678")


def test_a_task_on_another_machine_than_the_table_refuses_before_it_writes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = pickle.loads(pickle.dumps(SqliteTables(tmp_path / "tables.sqlite")))
    # Whoever writes to a topic is found out: nobody is there.
    sink = RecordSink(PipelineSettings("127.0.0.1:1", tmp_path), single_batch("test"))
    driver = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-7")
    for work in (looking_up(tables, DAY, READING), enriching(sink, tables, "phone-region", READING)):
        with pytest.raises(
            TableError, match=f"is on {driver}, and a task runs on worker-7; name a Cassandra"
        ):
            work(iter([logins([ANN])]))
    assert list(tmp_path.iterdir()) == []


def test_a_task_on_the_drivers_machine_writes(tmp_path: Path) -> None:
    tables = ensured(tmp_path)
    assert look_up(tables, [ANN]) == LookedUp(read=1, users=1)
    assert numbers(tables) == {"ann": ("e1", "+8613812345678")}


def test_a_task_holds_a_bounded_number_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_work, "MOST_USERS", 2)
    tables = ensured(tmp_path)
    batches = [[(f"u{number}", number, f"e{number}", "+8613812345678")] for number in range(5)]
    again: list[Login] = [("u0", 9, "e9", "+8613912345678")]
    assert look_up(tables, *batches, again) == LookedUp(read=6, users=6)
    assert numbers(tables) == {
        **{f"u{number}": (f"e{number}", "+8613812345678") for number in range(1, 5)},
        "u0": ("e9", "+8613912345678"),
    }


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from("uvwxyz"), st.integers(0, 2)),
        max_size=8,
        unique_by=lambda each: each[2],
    ),
    st.randoms(use_true_random=False),
)
def test_any_order_and_split_of_events_among_tasks_leaves_the_same_rows(
    told: list[tuple[str, int, str, int]], draw: Random
) -> None:
    found: list[Login] = [
        # Of one millisecond, or not: the table knows of no microseconds.
        (user, time * 600, event_id, f"+861381234567{digit}")
        for user, time, event_id, digit in told
    ]
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        whole, parts = ensured(Path(one)), ensured(Path(other))
        look_up(whole, found)
        for each in draw.sample(found, len(found)):
            look_up(parts, [each])
        assert numbers(whole) == numbers(parts)
