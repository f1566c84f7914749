"""What a task tells the driver about its write, and what a write is called.

Pickled from executors to the driver, where ``epoch_commit`` reads it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.client.producer._transaction_calls import PreparedTransaction
from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.report.epoch_record import EpochRecord, task_name

if TYPE_CHECKING:
    from tidelog.spark.report.sink_note import SinkNote


@dataclass(frozen=True, slots=True)
class WriteName:
    """One task's write of one version, by one run."""

    app_id: str
    version: int
    run_id: str
    task: int
    streaming: bool
    same_tasks: bool = False
    """Whether the caller vouches that a version is always cut into the same tasks, of which those without
    rows do not write: then a task need not ask the driver to commit."""
    note: SinkNote | None = field(default=None, compare=False)
    """What the record tells of it to people."""

    @property
    def task_name(self) -> str:
        """The transactional id, and the group, of the task."""
        return task_name(self.app_id, self.task)

    @property
    def words(self) -> str:
        """For messages."""
        if self.streaming:
            return f"epoch {self.version} of query {self.app_id}"
        return f"txnVersion={self.version} of txnAppId={self.app_id}"


class WriteOutcome(enum.Enum):
    """How an exactly-once task has ended."""

    COMMITTED = "committed"
    """It has written and committed."""
    PREPARED = "prepared"
    """It has written; the driver commits."""
    FOUND = "found"
    """This version was there already, and the same."""


@dataclass(frozen=True, slots=True)
class WrittenTask(WriterCommitMessage):
    """An exactly-once task that is done."""

    name: WriteName
    content: ContentDigest
    outcome: WriteOutcome
    previous: EpochRecord | None
    """What was recorded of the task before."""
    transaction: PreparedTransaction | None = None

    def without_notes(self) -> WrittenTask:
        """As the driver needs it."""
        previous = None if self.previous is None else replace(self.previous, note=None)
        return replace(self, name=replace(self.name, note=None), previous=previous)


@dataclass(frozen=True, slots=True)
class SentRows(WriterCommitMessage):
    """An at-least-once task that is done."""

    rows: int
