"""Spark's queries by their checkpoints, with the files that Spark writes."""

from __future__ import annotations

import json
from pathlib import Path

from tidelog.client.metadata import Node
from tidelog.client.resources import ClusterDescription
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.spark_queries import query_rows
from tidelog.ids import TopicPartition

ENDS = {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 50}


def snapshot() -> Snapshot:
    node = Node(1, "h", 9092)
    return Snapshot(0.0, 0, ClusterDescription("c", node, (node,)), {}, ENDS, {}, (), {}, {})


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
    (torn / "offsets" / "0").write_bytes(b"v1\n{\xff\n{}")
    (row,) = query_rows([tmp_path, tmp_path / "nowhere"], snapshot())
    assert row.problem is not None
    assert "cannot be read" in row.problem


def test_a_query_that_has_done_nothing_yet_has_no_place(tmp_path: Path) -> None:
    batch(tmp_path / "new", 0, {"orders": {"0": 1, "1": 1}}, done=False)
    (row,) = query_rows([tmp_path], snapshot())
    assert (row.batch, row.planned, row.topics, row.lag) == (None, 0, [], None)
