"""Batch reading: the offsets are found once, on the driver, and read by the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.errors import ConfigError
from tidelog.spark.read._data_loss import report_data_loss
from tidelog.spark.read._input_partition import RangeInputPartition
from tidelog.spark.read._offset_reader import OffsetReader
from tidelog.spark.read._planning import available_cores, plan_tasks
from tidelog.spark.read._schema import check_schema
from tidelog.spark.read._source_options import SourceOptions, source_options


class TidelogReader(DataSourceReader):
    """Reads what lies between two places of each partition."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options: SourceOptions = source_options(options, streaming=False)
        check_schema(self._options, schema)
        self._schema = schema
        # Here, where what the brokers say against it is read by somebody, and not while it is pickled.
        self._options.login.for_tasks()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        offsets = OffsetReader(options)
        try:
            found = offsets.partitions()
            starts = offsets.resolve(options.starting, found, starting=True)
            ends = offsets.resolve(options.ending, found, starting=False)
        finally:
            offsets.close()
        ranges = []
        for partition in sorted(found.partitions):
            start, end = starts.offsets.get(partition), ends.offsets.get(partition)
            if start is None or end is None:
                report_data_loss(
                    f"partition {partition} was deleted while the batch was planned, and an unknown number "
                    "of offsets are gone",
                    fail=options.fail_on_data_loss,
                )
                continue
            if start > end:
                raise ConfigError(
                    f"{partition} would be read from offset {start} to {end}: choose a start before the end"
                )
            ranges.append(OffsetRange(*partition, start, end, starts.topic_ids.get(partition.topic)))
        tasks = plan_tasks(
            ranges,
            available_cores(),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        # Spark needs one partition at least.
        return [RangeInputPartition(task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from tidelog.spark.read._range_reader import read_ranges

        assert isinstance(partition, RangeInputPartition)
        return read_ranges(partition.ranges, self._options, self._schema)
