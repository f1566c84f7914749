"""The catalog of a lake, and its tables: made when they are missing, given columns that are new.

    <lake>/catalog.sqlite           which metadata of a table is the current one; PyIceberg's SQL catalog
    <lake>/<table>/metadata/…       Iceberg's metadata, manifest lists and manifests
    <lake>/<table>/data/…           data files, see ``data_files``

With a REST catalog the tables are where that puts them; with a warehouse they are in an object store, as
``<warehouse>/<table>-<unique>/…``, and the catalog alone is in the lake's directory. Tables are in the
namespace ``tidelog``, partitioned by the day of ``event_time``. Columns are only ever added: an older file
reads as null there. Used on the driver and by ``tidelog lake``; PyIceberg is loaded when a catalog is opened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from tidelog.spark.lake.data_files import DAY, EVENT_TIME, FIELD_ID, TableFiles, local_path
from tidelog.spark.lake.lake_note import (
    SQLITE,
    LakeError,
    LakeSettings,
    first_line,
    lake_note,
    note_moved,
    wanted_note,
    write_note,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType

T = TypeVar("T")

NAMESPACE = "tidelog"
CATALOG_FILE = "catalog.sqlite"
KEPT_SNAPSHOTS = 100
LOCK_TIMEOUT_S = 60
_PROPERTIES = {
    "format-version": "2",
    # A stream commits every few seconds: what nobody needs any more goes with the commit.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.min-snapshots-to-keep": str(KEPT_SNAPSHOTS),
}
_INSTALL = 'the lake needs PyIceberg, which is not installed: pip install "tidelog[spark]"'


class LakeCatalog:
    """The catalog of one lake."""

    def __init__(self, settings: LakeSettings) -> None:
        self._root = settings.root.absolute()
        self._note = wanted_note(settings)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise LakeError(f"the lake {settings.root} cannot be written: {failure}") from failure
        self._catalog = self._opened(settings)
        there = lake_note(settings)
        if there is not None:
            note_moved(settings, there)
            return
        # Nothing is noted before the catalog and the store have answered: they may be another's addresses.
        if self._note.warehouse:
            self._asked(self._try_store)
        write_note(self._root, self._note)

    def _opened(self, settings: LakeSettings) -> Catalog:
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.catalog.sql import SqlCatalog
            from sqlalchemy import URL
        except ModuleNotFoundError as error:
            raise LakeError(_INSTALL) from error

        if self._note.catalog != SQLITE:
            # Also reads PYICEBERG_CATALOG__TIDELOG__…, where passwords may be.
            properties = {"type": "rest", "uri": self._note.catalog, **settings.properties}
            return self._asked(lambda: load_catalog(NAMESPACE, **properties))
        database = str(self._root / CATALOG_FILE)
        uri = URL.create("sqlite", database=database, query={"timeout": str(LOCK_TIMEOUT_S)})
        properties = {"uri": uri.render_as_string(), "warehouse": self._warehouse}
        if not self._note.warehouse:
            return self._asked(lambda: SqlCatalog(NAMESPACE, **properties))
        # Also reads PYICEBERG_CATALOG__TIDELOG__S3__…
        properties = {**settings.properties, **properties, "type": "sql"}
        return self._asked(lambda: load_catalog(NAMESPACE, **properties))

    def _asked(self, ask: Callable[[], T]) -> T:
        """What the catalog answers; one that cannot be asked is told of in a sentence."""
        from pyiceberg.exceptions import RESTError
        from sqlalchemy.exc import SQLAlchemyError

        # ValueError: what PyArrow does not understand.
        of_store: tuple[type[Exception], ...] = (OSError, ValueError) if self._note.warehouse else ()
        try:
            return ask()
        except of_store as failure:
            raise LakeError(
                f"the lake's tables under {self._note.warehouse} cannot be reached: "
                f"{first_line(failure)}; look at --lake-property s3.endpoint and at the keys"
            ) from failure
        except (SQLAlchemyError, RESTError, OSError) as failure:
            where = str(self._root / CATALOG_FILE) if self._note.catalog == SQLITE else self._note.catalog
            reason = first_line(getattr(failure, "orig", None) or failure)
            raise LakeError(
                f"the lake's catalog {where} cannot be used: {type(failure).__name__}: {reason}"
            ) from failure

    def _try_store(self) -> None:
        """Write something where the tables are to be, and take it away again."""
        from pyiceberg.io import load_file_io

        location = f"{self._note.warehouse}/.tidelog-{uuid.uuid4().hex}"
        io = load_file_io(dict(self._catalog.properties), location)
        with io.new_output(location).create() as stream:
            stream.write(b"")
        with suppress(OSError):  # who collects need not have the right to delete
            io.delete(location)

    @property
    def _warehouse(self) -> str:
        """Where tables are, but for those of a REST catalog."""
        return self._note.warehouse or str(self._root)

    def names(self) -> list[str]:
        """The tables that are there."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            return sorted(
                identifier[-1] for identifier in self._asked(lambda: self._catalog.list_tables(NAMESPACE))
            )
        except NoSuchNamespaceError:
            return []

    def table(self, name: str) -> Table:
        """A table as it is now.

        :raises LakeError: there is none of that name.
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._asked(lambda: self._catalog.load_table((NAMESPACE, name)))
        except NoSuchTableError:
            there = ", ".join(self.names()) or "none yet"
            raise LakeError(f"the lake {self._root} has no table {name}; its tables: {there}") from None

    def ensure(self, name: str, columns: Mapping[str, str]) -> Table:
        """The table, made if it is missing, with these columns (name and type) among its own.

        :raises LakeError: it has a column of another type, or is partitioned by something else.
        """
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            found = self._asked(lambda: self._catalog.load_table((NAMESPACE, name)))
        except NoSuchTableError:
            try:
                return self._asked(lambda: self._created(name, columns))
            except TableAlreadyExistsError:  # somebody else was quicker
                found = self.table(name)
        self._check_partitions(found)
        return self._with_columns(found, columns)

    def _created(self, name: str, columns: Mapping[str, str]) -> Table:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import DayTransform
        from pyiceberg.types import NestedField

        fields = [
            NestedField(number, column, iceberg_type(kind), required=False)
            for number, (column, kind) in enumerate(columns.items(), start=1)
        ]
        source = next(field.field_id for field in fields if field.name == EVENT_TIME)
        by_day = PartitionField(source_id=source, field_id=1000, transform=DayTransform(), name=DAY)
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        # A plain path: PyIceberg takes a file URI apart at # and ?, which a path may have.
        location = f"{self._warehouse}/{name}" if self._note.catalog == SQLITE else None
        if self._note.warehouse:
            # Another lake may be there, too: to each of them files of the other belong to no snapshot.
            location = f"{location}-{uuid.uuid4().hex}"
        return self._catalog.create_table(
            (NAMESPACE, name), Schema(*fields), location, PartitionSpec(by_day), properties=_PROPERTIES
        )

    def _check_partitions(self, table: Table) -> None:
        from pyiceberg.transforms import DayTransform

        fields = [
            (table.schema().find_column_name(field.source_id), field.transform)
            for field in table.spec().fields
        ]
        if len(fields) != 1 or fields[0][0] != EVENT_TIME or not isinstance(fields[0][1], DayTransform):
            raise LakeError(
                f"table {table.name()[-1]} of the lake is not partitioned by day({EVENT_TIME}), as its files "
                "are written: give it that partition spec again"
            )

    def _with_columns(self, table: Table, columns: Mapping[str, str]) -> Table:
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(10):
            missing = _missing(table, columns)
            if not missing:
                break
            try:
                with table.update_schema() as update:
                    for column, kind in missing.items():
                        update.add_column(column, iceberg_type(kind))
            except CommitFailedException:  # somebody else has changed the table; perhaps in the same way
                pass
            table = self.table(table.name()[-1])
        else:
            raise LakeError(f"table {table.name()[-1]} is changed by others all the time: try again")
        return table


def iceberg_type(kind: str) -> IcebergType:
    """The type of a column."""
    from pyiceberg.types import BooleanType, DoubleType, LongType, StringType, TimestamptzType

    types: dict[str, IcebergType] = {
        "string": StringType(),
        "long": LongType(),
        "double": DoubleType(),
        "boolean": BooleanType(),
        "time": TimestamptzType(),
    }
    return types[kind]


def _missing(table: Table, columns: Mapping[str, str]) -> dict[str, str]:
    """Columns that the table does not have yet."""
    there = {field.name: field.field_type for field in table.schema().fields}
    for column, kind in columns.items():
        if column in there and there[column] != iceberg_type(kind):
            raise LakeError(
                f"table {table.name()[-1]} of the lake has column {column} as {there[column]}, not as "
                f"{iceberg_type(kind)}: rename that column of the table, or give another --directory"
            )
    return {column: kind for column, kind in columns.items() if column not in there}


def table_files(table: Table, columns: list[str] | None = None) -> TableFiles:
    """What tasks must know to write files with some columns of a table; all of them if None."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema: Schema = table.schema()
    arrow = schema_to_pyarrow(schema if columns is None else schema.select(*columns))
    assert all(FIELD_ID in column.metadata for column in arrow)
    location = table.properties.get("write.data.path") or f"{table.location()}/data"
    properties = {} if local_path(location) is not None else dict(table.io.properties)
    return TableFiles(table.name()[-1], location, arrow, properties)
