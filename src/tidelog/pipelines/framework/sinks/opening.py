"""Chooses the stores: Cassandra when there are contact points, else an SQLite file; the lake in its form."""

from __future__ import annotations

from tidelog.pipelines.framework.sinks.lake import Lake
from tidelog.pipelines.framework.sinks.parquet import ParquetLake
from tidelog.pipelines.framework.sinks.sqlite import SqliteTables
from tidelog.pipelines.framework.sinks.table import ChangingTableSink
from tidelog.pipelines.lake.form import wanted_note, write_note
from tidelog.pipelines.pipeline import PipelineSettings


def open_tables(settings: PipelineSettings) -> ChangingTableSink:
    """The store for tables whose rows change. Nothing is connected before the first call."""
    if settings.cassandra is None:
        return SqliteTables(settings.tables)
    return _cassandra(settings.cassandra, settings)


def open_lake(settings: PipelineSettings) -> Lake:
    """The lake, in the form that it has, or is to have where it is new.

    :raises LakeError: it is there in another form.
    """
    note = wanted_note(settings.lake_settings)
    if note.form == "parquet":
        write_note(settings.lake, note)
        return ParquetLake(settings.lake)
    # Plain Parquet does without PyIceberg.
    from tidelog.pipelines.framework.sinks.iceberg import IcebergLake

    return IcebergLake(settings.lake_settings)


def open_event_tables(settings: PipelineSettings) -> ChangingTableSink | None:
    """The store for event logs beside the lake; None where the lake is their table."""
    if settings.cassandra is None:
        return None
    return _cassandra(settings.cassandra, settings)


def _cassandra(contact_points: str, settings: PipelineSettings) -> ChangingTableSink:
    # Without contact points nobody needs its driver.
    from tidelog.pipelines.framework.sinks.cassandra import CassandraTables

    return CassandraTables(contact_points, settings.keyspace, settings.cassandra_options)
