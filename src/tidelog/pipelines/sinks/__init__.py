"""Where pipelines keep tables: one interface (``table``), three stores: SQLite, a Parquet lake, Cassandra."""

from __future__ import annotations

from tidelog.pipelines.sinks.opening import open_event_tables as open_event_tables
from tidelog.pipelines.sinks.opening import open_lake as open_lake
from tidelog.pipelines.sinks.opening import open_tables as open_tables
from tidelog.pipelines.sinks.table import Batch as Batch
from tidelog.pipelines.sinks.table import ColumnSpec as ColumnSpec
from tidelog.pipelines.sinks.table import TableError as TableError
from tidelog.pipelines.sinks.table import TableSink as TableSink
from tidelog.pipelines.sinks.table import TableSpec as TableSpec
