"""What the driver sends to a task: the offset ranges that it reads, and how it logs in to do so."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.spark.read._planning import Task
from tidelog.spark.runtime._executor_login import TokenLogin


class RangeInputPartition(InputPartition):
    """One Spark task's part of the log; travels pickled, so as plain tuples."""

    def __init__(self, task: Task, login: TokenLogin | None = None) -> None:
        super().__init__(tuple(tuple(each) for each in task))
        self.login = login
        """The token of now, where tasks log in by one; a stream outlives the first."""

    @property
    def ranges(self) -> Task:
        return tuple(OffsetRange(*each) for each in self.value)
