"""``TopicScan``: a topic as a ``pyarrow.dataset.Dataset``, and its scanners.

A dataset is the one kind of Python object to which DuckDB and polars pass projections and filters. The base
classes are Arrow's, whose own methods need a dataset of Arrow's C++ library: every public method is written
here or refused, and a test holds that there is no other. All rows come from ``scan_pass``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Never

import pyarrow as pa
import pyarrow.dataset as ds

from tidelog.client.scanning._scan_bounds import check_batch_size
from tidelog.client.scanning._scan_pass import SCHEMA, Request, read
from tidelog.client.scanning._scan_source import ScanSource, ScanStatistics
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    import pandas
    import polars


def open_scan(
    source: ScanSource, *, columns: Iterable[str] | None, where: Any, limit: int | None, batch_size: int
) -> TopicScan:
    """The scan of a topic; checks ``columns`` and ``where``."""
    names = tuple(SCHEMA.names if columns is None else columns)
    _check_columns(names, SCHEMA.names)
    if len(set(names)) < len(names):
        raise ConfigError(f"columns names {max(names, key=names.count)!r} twice")
    _check_condition("where", where)
    return TopicScan(source, Request(columns=names, where=where, limit=limit, batch_size=batch_size))


class TopicScan(ds.Dataset):
    """A topic as a lazy table, made by ``tidelog.scan``.

    pyarrow, DuckDB and polars use it as a dataset, and everything that speaks Arrow's C stream protocol as a
    stream. Each use is a pass that begins anew; the offsets that it reads are those of the first.

    Example::

        orders = tidelog.scan("orders", bootstrap_servers="localhost:9092")
        duckdb.sql("SELECT key, max(timestamp) FROM orders GROUP BY key")
        orders.to_polars().filter(pl.col("partition") == 0).head(10).collect()
    """

    def __init__(self, source: ScanSource, request: Request) -> None:
        self._source = source
        self._request = request

    def __repr__(self) -> str:
        source = self._source
        return f"<scan of topic {source.topic!r} from {_shown(source.start)} to {_shown(source.end)}>"

    def __reduce__(self) -> Never:
        raise TypeError("a scan cannot be pickled, because it has connections: call tidelog.scan there")

    @property
    def schema(self) -> pa.Schema:
        """The columns: of topic, partition, offset, timestamp, timestamp_type, key, value and headers."""
        return pa.schema([SCHEMA.field(name) for name in self._request.columns])

    @property
    def statistics(self) -> ScanStatistics:
        """How much all passes of this scan have fetched, decoded and returned so far."""
        return self._source.statistics.copy()

    def snapshot(self) -> dict[int, tuple[int, int]]:
        """Return the offsets that every pass reads, by partition: the first, and the one behind the last.

        Asks the brokers at the first call.

        Raises:
            KafkaError: The topic, a partition or an offset does not exist, or may not be read.

        Example::

            print(orders.snapshot())  # {0: (0, 1500), 1: (20, 1480)}
        """
        return {each.partition: (each.start, each.end) for each in self._source.snapshot()}

    def scanner(
        self,
        columns: list[str] | dict[str, Any] | None = None,
        filter: Any = None,
        batch_size: int | None = None,
        **options: object,
    ) -> TopicScanner:
        """Return a reader of some columns and rows, as ``pyarrow.dataset.Dataset.scanner`` does.

        Args:
            columns: Names, or expressions by the names of their results; all columns by default.
            filter: A ``pyarrow.compute.Expression``; other rows are left out.
            batch_size: At most so many rows in one record batch.
            options: pyarrow's other options, which concern files and threads, have no effect.

        Raises:
            ConfigError: There is no such column, or ``filter`` is not an expression.

        Example::

            orders.scanner(columns=["offset"], filter=pc.field("partition") == 0).to_table()
        """
        request = self._request
        _check_condition("filter", filter)
        if batch_size is not None:
            check_batch_size(batch_size)
        if columns is None:
            selected: Any = request.columns
        elif isinstance(columns, dict):
            selected = columns
        else:
            selected = tuple(columns)
            _check_columns(selected, self.schema.names)
        return TopicScanner(
            self._source,
            Request(
                columns=selected,
                where=request.where,
                limit=request.limit,
                filter=_both(request.filter, filter),
                batch_size=request.batch_size if batch_size is None else min(batch_size, request.batch_size),
            ),
        )

    def filter(self, expression: Any) -> TopicScan:
        """Return the same scan with only the rows for which ``expression`` is true.

        Example::

            orders.filter(pc.field("offset") >= 100).to_table()
        """
        _check_condition("filter", expression)
        request = self._request
        return TopicScan(
            self._source,
            Request(
                columns=request.columns,
                where=request.where,
                limit=request.limit,
                filter=_both(request.filter, expression),
                batch_size=request.batch_size,
            ),
        )

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a ``pyarrow.RecordBatchReader``; its memory is bounded whatever the topic's size.

        Example::

            for batch in orders.to_reader():
                print(batch.num_rows)
        """
        return self.scanner().to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        if requested_schema is None:
            return self.to_reader().__arrow_c_stream__()
        wanted = pa.Schema._import_from_c_capsule(requested_schema)
        if not set(wanted.names) <= set(self.schema.names):
            return self.to_reader().__arrow_c_stream__()
        return self.scanner(columns=wanted.names).to_reader().cast(wanted).__arrow_c_stream__()

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows in record batches; options as for ``scanner``.

        Example::

            for batch in orders.to_batches(columns=["value"]):
                print(batch.num_rows)
        """
        return self.scanner(**options).to_batches()

    def to_table(self, **options: Any) -> pa.Table:
        """Read all rows into a ``pyarrow.Table``; options as for ``scanner``.

        Example::

            orders.to_table(columns=["key", "value"])
        """
        return self.scanner(**options).to_table()

    to_arrow = to_table

    def to_pandas(self, *, columns: list[str] | None = None, filter: Any = None) -> pandas.DataFrame:
        """Read all rows into a ``pandas.DataFrame``.

        Example::

            orders.to_pandas(columns=["offset", "timestamp"])
        """
        return self.to_table(columns=columns, filter=filter).to_pandas()

    def to_polars(self) -> polars.LazyFrame:
        """Return a ``polars.LazyFrame``, which passes projections, filters and limits on.

        Polars reads record batch by record batch, so its streaming engine keeps memory bounded.

        Raises:
            ImportError: polars is not installed.

        Example::

            orders.to_polars().filter(pl.col("offset") >= 100).select("key", "value").collect()
        """
        from tidelog.client.scanning._polars_scan import lazy_frame

        return lazy_frame(self)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows into a ``pyarrow.Table``; options as for ``scanner``.

        Example::

            orders.head(10, columns=["offset", "value"])
        """
        return self.scanner(**options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Count the rows; keys and values are not decoded, and offsets alone do not say how many there are.

        Example::

            orders.count_rows(filter=pc.field("partition") == 0)
        """
        return self.scanner(filter=filter, **options).count_rows()

    def take(self, indices: object, **options: Any) -> pa.Table:
        """Read the rows at these positions into a ``pyarrow.Table``; reads the whole topic.

        Example::

            orders.take([0, 100])
        """
        return self.to_table(**options).take(indices)

    # What datasets of files have

    @property
    def partition_expression(self) -> Never:
        """Not available: a scan has no expression that all of its rows satisfy."""
        _refuse("partition_expression")

    def get_fragments(self, filter: object = None) -> Never:
        """Not available: a scan consists of no files."""
        _refuse("get_fragments")

    def replace_schema(self, schema: object) -> Never:
        """Not available: use the argument ``columns``."""
        _refuse("replace_schema")

    def sort_by(self, *arguments: object, **options: object) -> Never:
        """Not available: read the rows into a table first."""
        _refuse("sort_by")

    def join(self, *arguments: object, **options: object) -> Never:
        """Not available: read the rows into a table first."""
        _refuse("join")

    def join_asof(self, *arguments: object, **options: object) -> Never:
        """Not available: read the rows into a table first."""
        _refuse("join_asof")


class TopicScanner(ds.Scanner):
    """Some columns and rows of a topic, as a ``pyarrow.dataset.Scanner``; each method is a pass."""

    def __init__(self, source: ScanSource, request: Request) -> None:
        self._source = source
        self._request = request

    def __reduce__(self) -> Never:
        raise TypeError("a scanner cannot be pickled: call tidelog.scan there")

    def limited(self, rows: int) -> TopicScanner:
        """A scanner of the first rows of this one; of all where a filter comes behind a limit."""
        return TopicScanner(self._source, self._request.limited(rows))

    @property
    def dataset_schema(self) -> pa.Schema:
        """All columns that a scan has."""
        return SCHEMA

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the result."""
        columns = self._request.columns
        if isinstance(columns, dict):
            return ds.dataset(SCHEMA.empty_table()).scanner(columns=columns).projected_schema
        return pa.schema([SCHEMA.field(name) for name in columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a ``pyarrow.RecordBatchReader``."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in record batches."""
        return read(self._source, self._request)

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Not available: a scan consists of no fragments; use ``to_batches``."""
        _refuse("scan_batches")

    def to_table(self) -> pa.Table:
        """All rows as a ``pyarrow.Table``."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows as a ``pyarrow.Table``."""
        rows = self.limited(num_rows).to_batches()
        found: list[pa.RecordBatch] = []
        try:
            for batch in rows:
                found.append(batch.slice(0, num_rows))
                num_rows -= found[-1].num_rows
                if not num_rows:
                    break
        finally:
            rows.close()  # type: ignore[attr-defined]
        return pa.Table.from_batches(found, self.projected_schema)

    def count_rows(self) -> int:
        """How many rows there are."""
        request = self._request
        counted = Request(
            columns=(),
            where=request.where,
            limit=request.limit,
            filter=request.filter,
            batch_size=request.batch_size,
        )
        return sum(batch.num_rows for batch in read(self._source, counted))

    def take(self, indices: object) -> pa.Table:
        """The rows at these positions as a ``pyarrow.Table``."""
        return self.to_table().take(indices)


def _both(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _check_condition(name: str, condition: object) -> None:
    if condition is None:
        return
    if not isinstance(condition, ds.Expression):
        raise ConfigError(
            f"{name} is a pyarrow.compute.Expression such as pc.field('offset') >= 100, "
            f"got {type(condition).__name__}"
        )
    try:
        ds.dataset(SCHEMA.empty_table()).scanner(filter=condition)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            f"{name} {condition} does not fit the columns of a scan: {str(error).splitlines()[0]}"
        ) from error


def _check_columns(names: Iterable[object], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"a scan has no column {name!r}; it has {', '.join(known)}")


def _shown(bound: object) -> str:
    return bound.isoformat() if hasattr(bound, "isoformat") else str(bound)


def _refuse(name: str) -> Never:
    raise NotImplementedError(f"a scan has no {name}: read it into a table first, with to_table()")
