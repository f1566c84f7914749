"""Where pipelines keep tables: one interface (``table``), three stores: SQLite, the lake, Cassandra."""

from __future__ import annotations

from tidelog.spark.sinks.opening import open_event_tables as open_event_tables
from tidelog.spark.sinks.opening import open_lake as open_lake
from tidelog.spark.sinks.opening import open_tables as open_tables
from tidelog.spark.sinks.table import Batch as Batch
from tidelog.spark.sinks.table import ColumnSpec as ColumnSpec
from tidelog.spark.sinks.table import TableError as TableError
from tidelog.spark.sinks.table import TableSink as TableSink
from tidelog.spark.sinks.table import TableSpec as TableSpec
