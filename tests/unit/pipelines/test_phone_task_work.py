"""The tasks of phone-region and the machine that has the table."""

from __future__ import annotations

import pickle
import socket
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tidelog.pipelines.framework.phone_tokens import CLEAR
from tidelog.pipelines.framework.record_sink import RecordSink, single_batch
from tidelog.pipelines.framework.sinks.partition_work import Parcel
from tidelog.pipelines.framework.sinks.sqlite import SqliteTables
from tidelog.pipelines.framework.sinks.table import TableError
from tidelog.pipelines.jobs.phone_region.enriching import Reading, UserRegions
from tidelog.pipelines.jobs.phone_region.schema import TABLE
from tidelog.pipelines.jobs.phone_region.task_work import USERS, enriching, writing_users
from tidelog.pipelines.pipeline import PipelineSettings

READING = Reading(CLEAR, "CN", "en")
NOON_US = round(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp() * 1_000_000)


def found() -> Parcel:
    users = UserRegions(READING)
    users.add("ann", NOON_US, "e1", READING.reader()("+8613812345678", NOON_US))
    return Parcel(0, USERS, msgspec.msgpack.encode(users.found))


def test_a_task_on_another_machine_than_the_table_refuses_before_it_writes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = pickle.loads(pickle.dumps(SqliteTables(tmp_path / "tables.sqlite")))
    # Whoever writes to a topic is found out: nobody is there.
    sink = RecordSink(PipelineSettings("127.0.0.1:1", tmp_path), single_batch("test"))
    driver = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-7")
    refused = f"is on {driver}, and a task runs on worker-7; name a Cassandra"
    with pytest.raises(TableError, match=refused):
        list(writing_users(tables, READING)(0, iter([found()])))
    with pytest.raises(TableError, match=refused):
        list(enriching(sink, tables, "phone-region", READING)(iter([pa.record_batch({"value": [b"{"]})])))
    assert list(tmp_path.iterdir()) == []


def test_a_task_on_the_drivers_machine_writes(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path / "tables.sqlite")
    tables.ensure(TABLE)
    assert list(writing_users(tables, READING)(0, iter([found()]))) == ['["written", "1"]']
    assert [row["user_id"] for row in tables.rows(TABLE)] == ["ann"]
