"""``df.write.format("tidelog")``: at least once, or exactly once with ``txnAppId`` and ``txnVersion``.

Made on the driver by ``data_source``, pickled to the tasks. The client is loaded when it is needed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tidelog.errors import ConfigError
from tidelog.spark.write._write_columns import check_columns
from tidelog.spark.write.write_message import WriteName, WriteOutcome, WrittenTask
from tidelog.spark.write.write_options import WriteOptions, write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tidelog.spark.report.sink_note import SinkNote


class TidelogWriter(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic can be appended to only: use mode('append')")
        self._options = write_options(options, streaming=False)
        check_columns(schema, self._options.topic)
        self._options.login.for_tasks()
        self._run_id = uuid.uuid4().hex
        self._raw = options
        self._note: SinkNote | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What goes to the tasks: the note is made when they are planned, and the options stay here."""
        note = None
        if self._options.reports_batches:
            from tidelog.spark.report.sink_note import new_note

            note = new_note(self._raw, is_stream=False)
        return {**self.__dict__, "_raw": {}, "_note": note}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        from tidelog.spark.write._write_task import write_at_least_once
        from tidelog.spark.write.epoch_task import write_exactly_once

        options = self._options
        if not options.exactly_once:
            return write_at_least_once(iterator, options)
        context = TaskContext.get()
        assert context is not None
        assert options.app_id is not None
        assert options.version is not None
        name = WriteName(
            options.app_id,
            options.version,
            self._run_id,
            context.partitionId(),
            streaming=False,
            note=self._note,
        )
        return write_exactly_once(iterator, options, name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended well."""
        finish_write(messages, self._options, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed for good."""
        finish_write(messages, self._options, commit=False)


def finish_write(messages: list[WriterCommitMessage | None], options: WriteOptions, *, commit: bool) -> None:
    """The driver's part, where there is one: tasks that have committed by themselves leave nothing to do."""
    tasks = [message for message in messages if isinstance(message, WrittenTask)]
    if all(task.outcome is WriteOutcome.COMMITTED for task in tasks):
        return
    from tidelog.spark.write._epoch_commit import abort_epoch, commit_epoch

    (commit_epoch if commit else abort_epoch)(tasks, options)
