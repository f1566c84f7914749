"""Spark's queries by their checkpoints, with the files that Spark writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tidelog.client.metadata import Node
from tidelog.client.resources import ClusterDescription
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.spark_queries import query_rows
from tidelog.ids import TopicPartition
from tidelog.spark.report.application import Application
from tidelog.spark.report.query_report import REPORT_PREFIX, BatchReport, QueryReport, encode

NOW_MS = 1_800_000_000_000
ENDS = {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 50}


def snapshot(*reports: tuple[str, QueryReport, tuple[int, int]]) -> Snapshot:
    """A look at a cluster in which queries have reported, each with a name and where it stands."""
    node = Node(1, "h", 9092)
    committed = {
        f"{REPORT_PREFIX}{name}": {TopicPartition("orders", at): each for at, each in enumerate(position)}
        for name, _, position in reports
    }
    notes = {f"{REPORT_PREFIX}{name}": (encode(report),) for name, report, _ in reports}
    cluster = ClusterDescription("c", node, (node,))
    return Snapshot(0.0, NOW_MS, cluster, {}, ENDS, {}, (), {}, committed, notes=notes)


def report(app: str, *planned_ms: int) -> QueryReport:
    batches = [BatchReport(each, 5, 100) for each in planned_ms]
    return QueryReport(NOW_MS, NOW_MS - 60_000, Application(app, "h", app), len(batches), recent=batches)


def batch(checkpoint: Path, number: int, *sources: object, done: bool = True, watermark_ms: int = 0) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits").mkdir(exist_ok=True)
    head = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {}}
    lines = ["v1", json.dumps(head), *(json.dumps(each) for each in sources)]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    if done:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_query_stands_where_its_last_batch_that_is_done_ended(tmp_path: Path) -> None:
    path = tmp_path / "clicks"
    batch(path, 6, {"orders": {"0": 10, "1": 10}})
    batch(path, 7, {"orders": {"0": 90, "1": 45}, "orders#id:abc": {}}, watermark_ms=1234)
    batch(path, 8, {"orders": {"0": 100, "1": 50}}, done=False)
    (path / "metadata").write_text('{"id":"a-query"}')
    (row,) = query_rows([tmp_path], snapshot())
    assert (row.name, row.query_id, row.batch, row.planned) == ("clicks", "a-query", 7, 8)
    assert (row.lag, row.watermark_ms, row.problem) == (15, 1234, None)
    assert [(each.topic, each.position, each.end) for each in row.topics] == [("orders", 135, 150)]


def test_other_sources_and_unknown_topics_have_no_lag(tmp_path: Path) -> None:
    batch(tmp_path, 0, {"gone": {"0": 5}}, 17, "x")
    (row,) = query_rows([tmp_path], snapshot())
    assert [(each.topic, each.lag) for each in row.topics] == [("gone", None)]
    assert row.lag is None


def test_files_that_cannot_be_read_are_said_and_what_is_no_checkpoint_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "something").mkdir()
    torn = tmp_path / "torn"
    batch(torn, 0)
    for head in (b"{\xff", b"[" * 100_000):
        (torn / "offsets" / "0").write_bytes(b"v1\n" + head + b"\n{}")
        (row,) = query_rows([tmp_path, tmp_path / "nowhere"], snapshot())
        assert row.problem is not None
        assert "cannot read its files" in row.problem


def test_files_of_any_bytes_are_looked_at(tmp_path: Path) -> None:
    for name, path in (("metadata", "metadata"), ("offsets", "offsets/0")):
        for number, content in enumerate((b'{"id": "\xff"}', b"[" * 100_000, b"v1\n{}\n" + b"[" * 100_000)):
            torn = tmp_path / f"{name}-{number}"
            batch(torn, 0)
            (torn / path).write_bytes(content)
    assert len(query_rows([tmp_path], snapshot())) == 6


def test_a_query_that_has_done_nothing_yet_has_no_place(tmp_path: Path) -> None:
    batch(tmp_path / "new", 0, {"orders": {"0": 1, "1": 1}}, done=False)
    (row,) = query_rows([tmp_path], snapshot())
    assert (row.batch, row.planned, row.topics, row.lag) == (None, 0, [], None)


def test_a_report_and_a_checkpoint_that_stand_at_the_same_place_are_one_query(tmp_path: Path) -> None:
    """Also where two queries stand at the same place: the nearest times go together."""
    for name, written_ms in (("early", NOW_MS - 30_000), ("late", NOW_MS - 10_000)):
        batch(tmp_path / name, 6, {"orders": {"0": 80, "1": 40}})
        batch(tmp_path / name, 7, {"orders": {"0": 90, "1": 45}, "orders#id:abc": {}})
        os.utime(tmp_path / name / "offsets" / "7", (written_ms / 1000, written_ms / 1000))
    seen = snapshot(
        ("one", report("late app", NOW_MS - 10_010), (90, 45)),
        ("two", report("early app", NOW_MS - 30_010), (90, 45)),
        ("three", report("elsewhere", NOW_MS - 10_000), (91, 45)),
    )
    rows = {each.name: each for each in query_rows([tmp_path], seen)}
    assert {name: (each.application, each.batch, each.lag) for name, each in rows.items()} == {
        "early": ("early app", 7, 15),
        "late": ("late app", 7, 15),
        "elsewhere": ("elsewhere", None, 14),
    }
    assert all(each.running for each in rows.values())


def test_a_query_with_two_sources_is_one(tmp_path: Path) -> None:
    batch(tmp_path / "join", 3, {"orders": {"0": 90, "1": 45}}, {"orders": {"0": 10, "1": 10}})
    seen = snapshot(
        ("one", report("app", NOW_MS - 5000), (90, 45)), ("two", report("app", NOW_MS - 5001), (10, 10))
    )
    (row,) = query_rows([tmp_path], seen)
    assert (row.name, row.running, row.batches) == ("join", True, 1)
