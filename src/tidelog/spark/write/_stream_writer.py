"""``df.writeStream.format("tidelog")``: exactly once, or at least once with ``deliveryGuarantee``.

Made on the driver by ``data_source`` for each epoch, pickled to the tasks, and made again for the commit.
What names the epoch, the query id and the batch id, is known to the tasks only, which tell the driver. The
client is loaded when it is needed: Spark plans and commits each epoch in processes of their own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.errors import TidelogError
from tidelog.spark.write._batch_writer import finish_write
from tidelog.spark.write._write_columns import check_columns
from tidelog.spark.write.write_message import WriteName
from tidelog.spark.write.write_options import AT_LEAST_ONCE, write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tidelog.spark.report.sink_note import SinkNote

_QUERY_ID = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"
# Structured Streaming runs all jobs of a run in one job group, named by the run id.
_RUN_ID = "spark.jobGroup.id"


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        # Said of outputMode("complete"): each micro-batch appends all of the result, as in Spark's connector.
        del overwrite
        self._options = write_options(options, streaming=True)
        check_columns(schema, self._options.topic)
        self._options.login.for_tasks()
        self._plan_id = uuid.uuid4().hex
        self._raw = options
        self._note: SinkNote | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What goes to the tasks: the note is made when they are planned, and the options stay here."""
        note = None
        if self._options.reports_batches:
            from tidelog.spark.report.sink_note import new_note

            note = new_note(self._raw, is_stream=True)
        return {**self.__dict__, "_raw": {}, "_note": note}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        from tidelog.spark.write._write_task import write_at_least_once
        from tidelog.spark.write.epoch_task import write_exactly_once

        context = TaskContext.get()
        assert context is not None
        query_id, epoch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_EPOCH)
        name = None
        if query_id is not None and epoch is not None:
            run_id = context.getLocalProperty(_RUN_ID) or self._plan_id
            task = context.partitionId()
            name = WriteName(query_id, int(epoch), run_id, task, streaming=True, note=self._note)
        if not self._options.exactly_once:
            return write_at_least_once(iterator, self._options, name)
        if name is None:
            raise TidelogError(
                f"Spark does not say which epoch this is: set deliveryGuarantee={AT_LEAST_ONCE}, or use a "
                "trigger with micro-batches"
            )
        return write_exactly_once(iterator, self._options, name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of an epoch have ended well."""
        finish_write(messages, self._options, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed for good."""
        finish_write(messages, self._options, commit=False)
