"""What the driver sends to a task: the offset ranges that it reads."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from tidelog.spark.planning import OffsetRange, Task


class RangeInputPartition(InputPartition):
    """One Spark task's part of the log; travels pickled, so as plain tuples."""

    def __init__(self, task: Task) -> None:
        super().__init__(tuple(tuple(each) for each in task))

    @property
    def ranges(self) -> Task:
        return tuple(OffsetRange(*each) for each in self.value)
