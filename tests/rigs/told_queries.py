"""A cluster in which Spark's queries tell of themselves, without Spark: real sources and sinks, called as
Spark calls them, and what pipelines leave."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from tests.integration.spark_topics import Stream, fill, options

from tidelog.client.producer.producer import Producer
from tidelog.spark.pipelines.status_file import RunStatus, StatusFile
from tidelog.spark.report.sink_note import new_note
from tidelog.spark.write._batch_writer import finish_write
from tidelog.spark.write.epoch_task import write_exactly_once
from tidelog.spark.write.write_message import WriteName
from tidelog.spark.write.write_options import write_options
from tidelog.testing.broker import LocalBroker
from tidelog_rewards.events import DEAD_LETTERS, INCIDENTS

QUERY_ID = "3f0c1b4e-0000-4000-8000-00000000abcd"
RUNNING = "collect"
STATES = {"a1": "open", "b2": "updated", "c3": "closed", "d4": "dismissed"}


@dataclass
class ToldQuery:
    """A query that copies ``orders`` to ``large-orders``."""

    broker: LocalBroker
    stream: Stream
    checkpoint: Path
    epochs: int = 0

    def batch(self, rows: int) -> None:
        """One micro-batch: read, written, and noted in the checkpoint, in Spark's order."""
        fill(self.broker.bootstrap_servers, "orders", [b"x"] * rows, client_id="shop")
        end = self.stream.end_of_next()
        self._note("offsets", f"v1\n{json.dumps({'batchWatermarkMs': 1_700_000_000_000})}\n{json.dumps(end)}")
        self.stream.rows(self.stream.start, end)
        raw = options(self.broker, topic="large-orders", queryName="copies")
        given = write_options(raw, streaming=True)
        note = new_note(raw, is_stream=True)
        name = WriteName(QUERY_ID, self.epochs, "run", 0, streaming=True, note=note)
        written = pa.RecordBatch.from_pydict({"value": [b"x"] * rows})
        finish_write([write_exactly_once([written], given, name)], given, commit=True)
        self._note("commits", 'v1\n{"nextBatchWatermarkMs":0}')
        self.stream.start = end
        self.epochs += 1
        self.stream.end_of_next()  # Spark asks again when a micro-batch is done

    def _note(self, folder: str, text: str) -> None:
        (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / folder / str(self.epochs)).write_text(text)


@contextmanager
def told_query(broker: LocalBroker, checkpoint: Path) -> Iterator[ToldQuery]:
    """The query; it runs for the time of the block."""
    with Stream(options(broker, subscribe="orders", startingOffsets="earliest")) as stream:
        yield ToldQuery(broker, stream, checkpoint)


@contextmanager
def running_pipeline(directory: Path) -> Iterator[None]:
    """What ``tidelog pipeline run`` leaves of one that runs."""
    book = StatusFile(directory, RUNNING)
    book.write(
        RunStatus(
            os.getpid(),
            1,
            2,
            rows_in=100,
            rows_per_second=12.5,
            state_rows=7,
            watermark_ms=1_700_000_000_000,
            inputs=["orders"],
            outputs=["lake credit", "cassandra tidelog.credit", f"topic {DEAD_LETTERS}"],
        )
    )
    try:
        yield
    finally:
        book.close()


def write_incidents(broker: LocalBroker) -> None:
    """One incident in each state, each with an earlier record."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for peak, (name, state) in enumerate(STATES.items()):
            for told in ("open", state):
                value = {
                    "alert_id": name,
                    "pipeline": "account-switch",
                    "subject_kind": "device",
                    "subject": f"device-{name}",
                    "state": told,
                    "score": 40,
                    "peak": 50 + peak,
                    "severity": "high",
                    "opened": "2026-01-01T00:00:00Z",
                    "updated": "2026-01-01T01:00:00Z",
                    "reasons": [{"rule": "many_accounts", "points": 40}],
                }
                producer.send(INCIDENTS, json.dumps(value).encode(), key=name.encode())
