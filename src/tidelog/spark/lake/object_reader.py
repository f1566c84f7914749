"""Reads data files of tables in an object store, a row group at a time. Runs in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

BATCH_ROWS = 16_384
_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """Made on the driver, pickled to tasks."""

    io_properties: Mapping[str, str] = field(repr=False)
    """PyIceberg's; there may be secrets in them."""

    def rows(self, location: str, columns: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        """The rows of a file with some columns (name and type); those that it lacks are null."""
        from pyiceberg.io import load_file_io

        with load_file_io(dict(self.io_properties), location).new_input(location).open() as stream:
            file = pq.ParquetFile(stream)
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(BATCH_ROWS, columns=present):
                arrays = [
                    batch.column(name).cast(_TYPES[kind])
                    if name in present
                    else pa.nulls(batch.num_rows, _TYPES[kind])
                    for name, kind in columns.items()
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=[*columns])
