"""Where pipelines keep tables: one interface (``table``), three stores: SQLite, the lake, Cassandra."""

from __future__ import annotations

from tidelog.pipelines.framework.sinks.opening import open_event_tables as open_event_tables
from tidelog.pipelines.framework.sinks.opening import open_lake as open_lake
from tidelog.pipelines.framework.sinks.opening import open_tables as open_tables
from tidelog.pipelines.framework.sinks.table import Batch as Batch
from tidelog.pipelines.framework.sinks.table import ColumnSpec as ColumnSpec
from tidelog.pipelines.framework.sinks.table import TableError as TableError
from tidelog.pipelines.framework.sinks.table import TableSink as TableSink
from tidelog.pipelines.framework.sinks.table import TableSpec as TableSpec
