"""What a table is, and what every store of tables does: the interface between pipelines and their tables.

The invariant of all stores: ``upsert`` with the same rows again, in the same or in another batch, leaves what
one call leaves. So a micro-batch that Spark replays after a crash changes nothing. The stores are held to it
by one contract suite (``tests/contract/table_sinks.py``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ColumnType = Literal["string", "long", "double", "boolean", "time"]
Row = Mapping[str, object]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


class TableError(TidelogError):
    """A table that cannot be written or read; the text names it and the mend."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column; ``time`` is a moment in UTC with milliseconds."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: a row is known by its primary key, and a later row with the same key replaces it."""

    name: str
    columns: tuple[ColumnSpec, ...]
    primary_key: tuple[str, ...]
    partition_key: tuple[str, ...] = ()
    """The first columns of the primary key, by which Cassandra spreads rows; empty means the first alone."""
    append_only: bool = False
    """A row that is there never changes: nulls need not be written, which Cassandra keeps as deletions."""
    newest_by: str = ""
    """A column of type time: a row does not replace one that is newer by it. Empty: the later write wins."""
    then_by: str = ""
    """A column that settles which of two rows of one moment is the newer: that with the greater value.
    Cassandra, which compares no values, settles it by the whole row. Empty: the later write wins."""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for name in (self.name, *names):
            # Names go into statements as they are.
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} is not a name: small letters, digits and _, at most 48")
        if len(set(names)) != len(names):
            raise ValueError(f"table {self.name} has a column twice")
        if not self.primary_key or not set(self.primary_key) <= set(names):
            raise ValueError(f"the primary key of table {self.name} must be columns of it")
        if self.primary_key[: len(self.partition_key)] != self.partition_key:
            raise ValueError(f"the partition key of table {self.name} must begin its primary key")
        if self.newest_by and ColumnSpec(self.newest_by, "time") not in self.columns:
            raise ValueError(f"table {self.name} has no time {self.newest_by} to tell the newest row by")
        if self.then_by and (not self.newest_by or self.then_by not in names):
            raise ValueError(f"table {self.name} cannot settle by {self.then_by} which row is the newer")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns that Cassandra spreads rows by."""
        return self.partition_key or self.primary_key[:1]

    @property
    def clustering(self) -> tuple[str, ...]:
        """The columns that Cassandra orders rows by within a partition."""
        return self.primary_key[len(self.partition) :]

    @property
    def values(self) -> tuple[str, ...]:
        """The columns outside the primary key."""
        return tuple(name for name in self.names if name not in self.primary_key)


@dataclass(frozen=True, slots=True)
class Batch:
    """Which write this is: the same application and version again means the same rows again."""

    application: str
    version: int


class TableSink(ABC):
    """A store of tables. Made and used on the driver; ``upsert`` may work on the executors."""

    @abstractmethod
    def ensure(self, table: TableSpec) -> None:
        """Create the table if it is missing.

        :raises TableError: the store cannot be reached, or has a table of that name with other columns.
        """

    @abstractmethod
    def upsert(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        """Write rows, each with the table's columns, and return how many; a key that is there is replaced.

        Rows of one frame that share a key should be equal in the rest: which of them stays is not said.
        """

    def upsert_each(
        self, tables: Sequence[TableSpec], rows: DataFrame, by: str, batch: Batch
    ) -> dict[str, int]:
        """Write a wide frame whose column ``by`` names the table of each row; return how many for each.

        Rows that name none of the tables are left out.
        """
        return {table.name: self.upsert(table, rows.where(rows[by] == table.name), batch) for table in tables}

    @abstractmethod
    def rows(self, table: TableSpec) -> Iterator[Row]:
        """All rows, in no order, each key once; times are aware and in UTC. For tests and small tables."""

    def close(self) -> None:  # noqa: B027 (most stores hold nothing)
        """Let go of connections; the store can be used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ChangingTableSink(TableSink):
    """A store of tables whose rows change; it may be sent to tasks, which then write by themselves."""

    @abstractmethod
    def write(self, table: TableSpec, rows: Iterable[Sequence[object]]) -> int:
        """Upsert rows with values in the order of the table's columns, times in milliseconds since 1970.

        For tasks: the table is there already. Returns how many rows there were; see :meth:`upsert`.
        """

    def check_host(self) -> None:
        """Refuse, in a task that has something else to write before, what :meth:`write` would refuse.

        :raises TableError: the store takes no rows from this machine.
        """
