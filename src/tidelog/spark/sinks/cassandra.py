"""Tables in Cassandra: rows go from Spark's tasks straight to the replicas that own them.

Statements are prepared once per worker and marked idempotent; requests are routed by token; a task has at
most ``MAX_IN_FLIGHT`` of them under way and takes no further rows meanwhile, which is the back-pressure that
slows Spark down when Cassandra is slow. A request that failed for want of replicas or time is sent again
with growing pauses: an upsert may be sent any number of times. Of rows with ``newest_by`` that time is the
write's own timestamp, by which Cassandra itself lets the newest win; of two of one millisecond it is nearly
always one, and the same. The keyspace and tables are created when they are missing (``cassandra_schema``).
Called by the pipelines through ``sinks.opening``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidelog.spark.cassandra_options import CassandraOptions
from tidelog.spark.sinks.cassandra_connection import (
    CassandraCluster,
    CassandraError,
    connect,
    disconnect,
)
from tidelog.spark.sinks.cassandra_schema import CassandraSchema
from tidelog.spark.sinks.cassandra_writer import write_rows
from tidelog.spark.sinks.partition_work import Work, work_on_partitions
from tidelog.spark.sinks.table import (
    Batch,
    ChangingTableSink,
    ColumnSpec,
    Row,
    TableError,
    TableSpec,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from cassandra.cluster import Session
    from pyspark.sql import Column, DataFrame

_TABLE = "_table"


class CassandraTables(ChangingTableSink):
    """The tables of one keyspace. ``contact_points`` is ``host[:port],…``."""

    def __init__(self, contact_points: str, keyspace: str, options: CassandraOptions | None = None) -> None:
        self._cluster = CassandraCluster.at(contact_points, options)
        self._keyspace = keyspace
        self._schema = CassandraSchema(keyspace, self._cluster.options)
        self._ensured: set[TableSpec] = set()

    def ensure(self, table: TableSpec) -> None:
        if table in self._ensured:
            return
        self._schema.ensure(self._session(), table)
        self._ensured.add(table)

    def upsert(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        return self.upsert_each([table], rows.withColumn(_TABLE, F.lit(table.name)), _TABLE, batch)[
            table.name
        ]

    def upsert_each(
        self, tables: Sequence[TableSpec], rows: DataFrame, by: str, batch: Batch
    ) -> dict[str, int]:
        """See :meth:`TableSink.upsert_each`; all tables in one pass over the rows."""
        for table in tables:
            self.ensure(table)
        columns = {column.name: column for table in tables for column in table.columns}
        chosen = rows.select(F.col(by).alias(_TABLE), *(_sent(column) for column in columns.values()))
        totals = {table.name: 0 for table in tables}
        for answer in work_on_partitions(chosen, _writing(self._cluster, self._keyspace, tables)):
            for name, count in json.loads(answer).items():
                totals[name] += count
        return totals

    def write(self, table: TableSpec, rows: Iterable[Sequence[object]]) -> int:
        values = [tuple(row) for row in rows]
        write_rows(self._cluster, self._keyspace, table, values)
        return len(values)

    def rows(self, table: TableSpec) -> Iterator[Row]:
        selected = self._session().execute(
            f'SELECT {", ".join(table.names)} FROM "{self._keyspace}".{table.name}', timeout=None
        )
        for values in selected:
            yield {name: _told(value) for name, value in zip(table.names, values, strict=True)}

    def close(self) -> None:
        disconnect(self._cluster)

    def _session(self) -> Session:
        try:
            return connect(self._cluster).session
        except CassandraError as failure:
            raise TableError(str(failure)) from None


def _sent(column: ColumnSpec) -> Column:
    """Times go as milliseconds, which is what Cassandra keeps."""
    return F.unix_millis(column.name).alias(column.name) if column.type == "time" else F.col(column.name)


def _writing(cluster: CassandraCluster, keyspace: str, tables: Sequence[TableSpec]) -> Work:
    """What a task does: send its rows, and answer with how many for each table."""

    def write(batches: Iterator[pa.Table]) -> str:
        import pyarrow.compute as pc

        totals = {table.name: 0 for table in tables}
        for rows in batches:
            for table in tables:
                chosen = rows.filter(pc.equal(rows[_TABLE], table.name))
                if chosen.num_rows:
                    values = zip(*(chosen[name].to_pylist() for name in table.names), strict=True)
                    write_rows(cluster, keyspace, table, values)
                    totals[table.name] += chosen.num_rows
        return json.dumps(totals)

    return write


def _told(value: Any) -> object:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value
