"""A scan as a polars ``LazyFrame``: projections, filters and limits go down into the pass.

Polars passes its filter as an expression of its own, which is applied to every frame here. For pruning it is
translated by polars itself, as for datasets; a filter without a translation prunes nothing. Called by
``TopicScan.to_polars``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

if TYPE_CHECKING:
    import polars


def lazy_frame(scan: ds.Dataset) -> polars.LazyFrame:
    """The rows of a scan, read when the frame is collected."""
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise ImportError("to_polars needs the polars package: pip install polars") from error

    def frames(
        columns: list[str] | None, predicate: polars.Expr | None, rows: int | None, batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        # A TopicScan, whose module imports this one.
        condition = None if predicate is None else _translated(predicate, scan.schema)
        scanner = scan.scanner(columns=columns, filter=None if rows is not None else condition)
        request = scanner.limited(rows) if rows is not None else scanner
        for batch in request.to_batches():
            frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch])))
            yield frame if predicate is None else frame.filter(predicate)

    schema = pl.DataFrame(pl.from_arrow(scan.schema.empty_table())).schema
    return register_io_source(frames, schema=schema)


class _FilterProbe(ds.Dataset):
    """An empty dataset that notes the filter it is scanned with."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.filter_seen: Any = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **options: object) -> Any:
        self.filter_seen = filter
        return ds.dataset(self._schema.empty_table()).scanner(columns=columns)


def _translated(predicate: polars.Expr, schema: pa.Schema) -> Any:
    """The filter as pyarrow's; None where polars has no translation."""
    import polars as pl

    probe = _FilterProbe(schema)
    pl.scan_pyarrow_dataset(probe).filter(predicate).collect()
    return probe.filter_seen
