"""Records as columns: the half of the clients' codec that makes no Python object per record.

``column_reader`` reads batches straight into Arrow's memory layout, ``column_writer`` makes batches of such
columns; both are compiled and interpreted like ``records/record_codec``. This is their face, and what the
clients, the Spark source and ``records/arrow`` import.
"""

from __future__ import annotations

from tidelog.records.column_reader import COMPILED, BinaryColumn, RecordColumns, decode_columns
from tidelog.records.column_writer import BinaryView, ColumnSource, append_rows, murmur2, partition_rows

__all__ = [
    "COMPILED",
    "BinaryColumn",
    "BinaryView",
    "ColumnSource",
    "RecordColumns",
    "append_rows",
    "decode_columns",
    "murmur2",
    "partition_rows",
]
