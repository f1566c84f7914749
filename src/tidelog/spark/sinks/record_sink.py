"""Records to topics from Spark's tasks, exactly once, as part of whatever else the task does.

The protocol is that of ``format("tidelog")`` (decision 0007): a task writes its records and a note that they
were written in one transaction, and a batch that comes again adds nothing. What is different is who calls:
not Spark's writer, for which each write is a job of its own, but a function in a task that has more to do,
such as bringing a table up to date. The driver is given the tasks' answers and has the last word
(:meth:`RecordSink.finish`), in the first batch of a run only, as there.

Task numbers are the caller's, and part of the name: a batch that comes again must be cut the same way, so use
a number of tasks that does not follow the number of cores. Works with the brokers of either connector.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from tidelog.spark.settings import connector_options
from tidelog.spark.sinks.partition_work import work_on_partitions
from tidelog.spark.sinks.table import Batch
from tidelog.spark.write._batch_writer import finish_write
from tidelog.spark.write.epoch_task import write_exactly_once
from tidelog.spark.write.write_message import WriteName, WrittenTask
from tidelog.spark.write.write_options import write_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.settings import PipelineSettings

RECORD = ("topic", "key", "value", "headers")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORD_SCHEMA = pa.schema(
    [("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)]
)
"""The columns of records on their way to topics."""


@dataclass(frozen=True, slots=True)
class NamedBatch:
    """Which write this is, and by whom: a run of a streaming query, or a program."""

    application: str
    version: int
    run_id: str
    streaming: bool

    @property
    def batch(self) -> Batch:
        """Its name for tables."""
        return Batch(self.application, self.version)


def micro_batch(session: SparkSession, group: str, batch_id: int) -> NamedBatch:
    """The micro-batch that ``foreachBatch`` is called with, on the thread that it is called on.

    Its application is the checkpoint's id: a fresh checkpoint numbers its batches from 0 again.
    """
    context = session.sparkContext
    query_id, run_id = (
        context.getLocalProperty(name) for name in ("sql.streaming.queryId", "spark.jobGroup.id")
    )
    return NamedBatch(f"{group}-{query_id}", batch_id, run_id or uuid4().hex, streaming=True)


def single_batch(application: str) -> NamedBatch:
    """A write that comes once."""
    run_id = uuid4().hex
    return NamedBatch(f"{application}-{run_id}", 0, run_id, streaming=False)


class RecordSink:
    """Writes the records of one batch; made on the driver, pickled to tasks, finished on the driver."""

    def __init__(self, settings: PipelineSettings, batch: NamedBatch, *, same_content: bool = True) -> None:
        """``same_content``: a batch that comes again has the same records, not only as many."""
        given = {
            **connector_options(settings),
            "txnAppId": batch.application,
            "txnVersion": str(batch.version),
            "replayCheck": "content" if same_content else "count",
        }
        # Brokers know nothing of batches without records.
        self.options = replace(write_options(given, streaming=False), fails_on_missing_epoch=False)
        self._batch = batch

    def write(self, task: int, records: Iterable[pa.RecordBatch]) -> WrittenTask:
        """Write the records of a task (:data:`RECORD_SCHEMA`).

        ``records`` are asked for when every earlier attempt at this task, of whatever run, has come to its
        end. They are asked for, and may have their effects, also where they were written before.
        """
        batch = self._batch
        name = WriteName(batch.application, batch.version, batch.run_id, task, streaming=batch.streaming)
        return write_exactly_once(records, self.options, name)

    def told(self, written: WrittenTask) -> str:
        """What a task has written, as the driver is told of it."""
        return base64.b64encode(pickle.dumps(written)).decode()

    def finish(self, answers: Sequence[str]) -> int:
        """Commit what tasks have left open, given all their :meth:`told`; how many records there are."""
        written = [pickle.loads(base64.b64decode(each)) for each in answers]
        tasks = [each for each in written if isinstance(each, WrittenTask)]
        finish_write([*tasks], self.options, commit=True)
        return sum(task.content.rows for task in tasks)


def write_records(records: DataFrame, sink: RecordSink) -> int:
    """Write a frame of records (the columns :data:`RECORD`), of which there are few, from one task.

    One Spark job, whose task does nothing where there are none. Returns how many there are.
    """

    def write(tables: Iterator[pa.Table]) -> str:
        return sink.told(sink.write(0, (batch for table in tables for batch in table.to_batches())))

    return sink.finish(work_on_partitions(records.select(*RECORD).repartition(1), write))
