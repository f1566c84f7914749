"""Chooses the stores: Cassandra when there are contact points, else an SQLite file; and the lake."""

from __future__ import annotations

from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.lake import Lake
from tidelog.spark.sinks.sqlite import SqliteTables
from tidelog.spark.sinks.table import ChangingTableSink


def open_tables(settings: PipelineSettings) -> ChangingTableSink:
    """The store for tables whose rows change. Nothing is connected before the first call."""
    if settings.cassandra is None:
        return SqliteTables(settings.tables)
    return _cassandra(settings.cassandra, settings)


def open_lake(settings: PipelineSettings) -> Lake:
    """The lake, which is made where it is new.

    :raises LakeError: it cannot be opened, or is not what the settings say.
    """
    return Lake(settings.lake_settings)


def open_event_tables(settings: PipelineSettings) -> ChangingTableSink | None:
    """The store for event logs beside the lake; None where the lake is their table."""
    if settings.cassandra is None:
        return None
    return _cassandra(settings.cassandra, settings)


def _cassandra(contact_points: str, settings: PipelineSettings) -> ChangingTableSink:
    # Without contact points nobody needs its driver.
    from tidelog.spark.sinks.cassandra import CassandraTables

    return CassandraTables(contact_points, settings.keyspace, settings.cassandra_options)
