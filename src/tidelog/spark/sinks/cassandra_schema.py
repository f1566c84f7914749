"""Keyspace and tables in Cassandra: made where they are missing, brought up to date where they are older.

Drivers do this when a pipeline starts, several at the same time perhaps; tasks find tables as they should be.
Each change may be made by two at once: who comes second looks again and finds it done. After a change we wait
until all nodes agree on the schema. A table may have more columns than we know, of a newer release; one of
ours that it lacks is added. Who has no right to make tables can use those that are there: nothing is asked
for that is not needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelog.spark.cassandra_options import CassandraOptions, Replication, Window
from tidelog.spark.sinks.cassandra_connection import first_error
from tidelog.spark.sinks.table import ColumnSpec, ColumnType, TableError, TableSpec

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from cassandra.metadata import KeyspaceMetadata, TableMetadata

logger = logging.getLogger(__name__)

MAX_REPLICATION_FACTOR = 3
CHANGE_TIMEOUT_S = 60.0

_TYPES: dict[ColumnType, str] = {
    "string": "text",
    "long": "bigint",
    "double": "double",
    "boolean": "boolean",
    "time": "timestamp",
}
_BY_TIME = "TimeWindowCompactionStrategy"


class CassandraSchema:
    """What is in one keyspace."""

    def __init__(self, keyspace: str, options: CassandraOptions) -> None:
        self._keyspace = keyspace
        self._options = options
        self._told = False

    def ensure(self, session: Session, table: TableSpec) -> None:
        """See to keyspace and table.

        :raises TableError: the table has another key or a column of another type, or changes are refused.
        """
        keyspace = self._ensured_keyspace(session)
        if table.name not in keyspace.tables:
            self._change(session, self._create(table))
        self._ensure_columns(session, table)
        self._ensure_options(session, table)

    # -- the keyspace

    def _ensured_keyspace(self, session: Session) -> KeyspaceMetadata:
        cluster = session.cluster
        if self._keyspace not in cluster.metadata.keyspaces:
            replication = self._options.replication or self._usual_replication(session)
            self._change(
                session,
                f'CREATE KEYSPACE IF NOT EXISTS "{self._keyspace}" WITH replication = {replication.cql}',
            )
            cluster.refresh_keyspace_metadata(self._keyspace)
        keyspace = cluster.metadata.keyspaces[self._keyspace]
        self._tell_other_replication(keyspace)
        return keyspace

    def _usual_replication(self, session: Session) -> Replication:
        nodes: dict[str, int] = {}
        for host in session.cluster.metadata.all_hosts():
            nodes[host.datacenter] = nodes.get(host.datacenter, 0) + 1
        factors = {name: min(count, MAX_REPLICATION_FACTOR) for name, count in nodes.items()}
        return Replication("NetworkTopologyStrategy", tuple(sorted(factors.items())))

    def _tell_other_replication(self, keyspace: KeyspaceMetadata) -> None:
        """Said once; to change it data must be moved, which is not for us to start."""
        wanted, strategy = self._options.replication, keyspace.replication_strategy
        if wanted is None or self._told:
            return
        self._told = True
        if hasattr(strategy, "dc_replication_factors"):
            factors = {name: int(count) for name, count in strategy.dc_replication_factors.items()}
        else:
            factors = {"replication_factor": int(getattr(strategy, "replication_factor", 0))}
        there = Replication(strategy.name, tuple(sorted(factors.items())))
        if there != wanted:
            logger.warning(
                "keyspace %s is there with replication %s, and keeps it; to have %s, use ALTER KEYSPACE and "
                "repair its nodes",
                self._keyspace,
                there.cql,
                wanted.cql,
            )

    # -- tables

    def _create(self, table: TableSpec) -> str:
        partition = ", ".join(table.partition)
        key = ", ".join([f"({partition})", *table.clustering])
        columns = ", ".join(f"{column.name} {_TYPES[column.type]}" for column in table.columns)
        text = f"CREATE TABLE IF NOT EXISTS {self._name(table)} ({columns}, PRIMARY KEY ({key}))"
        ttl_s, window = self._options.ttl_of(table.name), self._options.window_of(table.name)
        wishes = [
            *([f"default_time_to_live = {ttl_s}"] if ttl_s is not None else []),
            *([f"compaction = {_compaction(window)}"] if window is not None else []),
        ]
        return f"{text} WITH {' AND '.join(wishes)}" if wishes else text

    def _ensure_columns(self, session: Session, table: TableSpec) -> None:
        there = self._table(session, table)
        self._check(there, table)
        for column in _missing(there, table):
            try:
                self._change(session, f"ALTER TABLE {self._name(table)} ADD {column.name} {_type(column)}")
            except TableError:
                # Another driver may have been quicker.
                there = self._table(session, table)
                if column in _missing(there, table):
                    raise
                self._check(there, table)
                continue
            logger.warning("column %s was added to table %s", column.name, self._name(table))

    def _check(self, there: TableMetadata, table: TableSpec) -> None:
        """A table that would refuse each row is told of once."""
        way_out = "drop the table, or choose another --keyspace"
        partition = tuple(column.name for column in there.partition_key)
        key = tuple(column.name for column in there.primary_key)
        if (partition, key) != (table.partition, table.primary_key):
            wanted = f"(({', '.join(table.partition)}), {', '.join(table.clustering)})"
            raise TableError(
                f"table {table.name} in keyspace {self._keyspace} of Cassandra has another primary key than "
                f"{wanted}: {way_out}"
            )
        for column in table.columns:
            found = there.columns.get(column.name)
            if found is not None and found.cql_type != _type(column):
                raise TableError(
                    f"column {column.name} of table {table.name} in keyspace {self._keyspace} of Cassandra "
                    f"is {found.cql_type} and should be {_type(column)}, which cannot be changed: {way_out}"
                )

    def _ensure_options(self, session: Session, table: TableSpec) -> None:
        """Lifetime and compaction as the options say; what they do not say stays."""
        there = self._table(session, table).options
        lifetime_s = int(there.get("default_time_to_live") or 0)
        if lifetime_s and not table.append_only:
            raise TableError(
                f"rows of table {self._name(table)} go after {lifetime_s} s, and must stay, since values are "
                f"computed from them: ALTER TABLE {self._name(table)} WITH default_time_to_live = 0, and "
                "backfill what is gone"
            )
        ttl_s, window = self._options.ttl_of(table.name), self._options.window_of(table.name)
        if ttl_s is not None and lifetime_s != ttl_s:
            self._change(session, f"ALTER TABLE {self._name(table)} WITH default_time_to_live = {ttl_s}")
            logger.warning(
                "rows of table %s that are written from now on go after %d s", self._name(table), ttl_s
            )
        if window is not None and not _is_by(there.get("compaction") or {}, window):
            self._change(session, f"ALTER TABLE {self._name(table)} WITH compaction = {_compaction(window)}")
            logger.warning(
                "table %s is compacted by windows of %d %s from now on",
                self._name(table),
                window.size,
                window.unit.lower(),
            )

    # -- floor

    def _name(self, table: TableSpec) -> str:
        return f'"{self._keyspace}".{table.name}'

    def _table(self, session: Session, table: TableSpec) -> TableMetadata:
        """The table as it is now, by whomever."""
        session.cluster.refresh_table_metadata(self._keyspace, table.name)
        return session.cluster.metadata.keyspaces[self._keyspace].tables[table.name]

    def _change(self, session: Session, text: str) -> None:
        from cassandra.cluster import NoHostAvailable
        from cassandra.protocol import ErrorMessage

        from cassandra import DriverException

        try:
            future = session.execute_async(text, timeout=CHANGE_TIMEOUT_S)
            future.result()
        except (DriverException, ErrorMessage, NoHostAvailable) as failure:
            # The statement tells which keyspace or table it is, and holds no secret.
            raise TableError(
                f"Cassandra refuses `{text}`: {first_error(failure)}; mend the option or right it names, or "
                "choose another --keyspace"
            ) from failure
        if not future.is_schema_agreed:
            raise TableError(
                "the nodes of Cassandra do not agree on the schema: see with `nodetool describecluster` "
                "which one differs, restart it, and start again"
            )


def _type(column: ColumnSpec) -> str:
    return _TYPES[column.type]


def _missing(there: TableMetadata, table: TableSpec) -> list[ColumnSpec]:
    return [column for column in table.columns if column.name not in there.columns]


def _compaction(window: Window) -> str:
    return (
        f"{{'class': '{_BY_TIME}', 'compaction_window_unit': '{window.unit}', "
        f"'compaction_window_size': {window.size}}}"
    )


def _is_by(compaction: Any, window: Window) -> bool:
    kind = str(compaction.get("class", "")).rpartition(".")[2]
    size, unit = compaction.get("compaction_window_size"), compaction.get("compaction_window_unit")
    return (kind, str(size), unit) == (_BY_TIME, str(window.size), window.unit)
