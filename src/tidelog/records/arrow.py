"""Records in Apache Arrow's classes: what was fetched as a ``RecordBatch``, and tables as batches to send.

The only module that knows pyarrow, which is optional (``pip install tidelog[arrow]``) and is imported when
the first function here is called. Buffers go over uncopied in both directions where Arrow's layout is the one
of ``records/column_codec``: byte strings and text with 32-bit offsets, 64-bit integers, times in
milliseconds. Other types are converted by Arrow first. Called by the clients' ``poll_arrow`` and
``send_arrow``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from tidelog.ids import TopicPartition
from tidelog.records.column_codec import BinaryColumn, BinaryView, ColumnSource, RecordColumns, append_rows
from tidelog.records.compression import Codec
from tidelog.records.record import RecordHeader
from tidelog.records.record_codec import BatchBuilder

# Arrow's binary arrays hold 2 GB each; rows are taken in portions well below that.
_PORTION_ROWS = 1 << 16
# What one answer of the usual size holds.
_CONSTANT_ROWS = 1 << 14


@functools.cache
def load_pyarrow() -> ModuleType:
    """The pyarrow package; an ``ImportError`` that says how to get it where it is missing."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("Arrow needs the pyarrow package: pip install 'tidelog[arrow]'") from error
    return pyarrow  # type: ignore[no-any-return]


@functools.cache
def arrow_schema(*, with_headers: bool = False) -> Any:
    """The ``pyarrow.Schema`` of what :func:`to_arrow` returns."""
    pa = load_pyarrow()
    fields = [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
    if with_headers:
        pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pair), nullable=False))
    return pa.schema(fields)


def to_arrow(topic: str, partition: int, columns: RecordColumns, names: Sequence[str] | None = None) -> Any:
    """The records of one partition as a ``pyarrow.RecordBatch`` on the memory of ``columns``.

    ``columns`` must not be added to afterwards. ``names`` are the columns to make; by default all, with
    ``headers`` if they were read with headers.
    """
    pa = load_pyarrow()
    schema, kinds = _schema_and_types(with_headers=columns.with_headers)
    wanted = schema.names if names is None else names
    made = {
        name: _column(pa, name, kinds[schema.get_field_index(name)], topic, partition, columns)
        for name in wanted
    }
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    return pa.RecordBatch.from_arrays(list(made.values()), schema=schema)


def _column(pa: ModuleType, name: str, kind: Any, topic: str, partition: int, columns: RecordColumns) -> Any:
    rows = columns.rows
    if name == "offset":
        return _numbers(pa, kind, rows, columns.offsets)
    if name == "timestamp":
        return _numbers(pa, kind, rows, columns.timestamps)
    if name == "timestamp_type":
        return _numbers(pa, kind, rows, columns.timestamp_types)
    if name == "value":
        return _binary(pa, kind, columns.values)
    if name == "headers":
        return _header_lists(pa, kind, columns)
    if name == "key" and columns.keys.null_count < rows:
        return _binary(pa, kind, columns.keys)
    constants = _constants if rows <= _CONSTANT_ROWS else _constants.__wrapped__
    constant = constants(topic, partition, max(rows, _CONSTANT_ROWS))
    return constant[("topic", "partition", "key").index(name)].slice(0, rows)


def _header_lists(pa: ModuleType, kind: Any, columns: RecordColumns) -> Any:
    names, values = (pa.string(), columns.header_keys), (pa.binary(), columns.header_values)
    pairs = pa.StructArray.from_arrays(
        [_binary(pa, *names), _binary(pa, *values)], fields=list(kind.value_type)
    )
    ends = pa.py_buffer(columns.header_ends)
    return pa.Array.from_buffers(kind, columns.rows, [None, ends], 0, children=[pairs])


def to_table(found: Iterable[tuple[TopicPartition, RecordColumns]], *, with_headers: bool) -> Any:
    """A ``pyarrow.Table`` of the records of several partitions, each as :func:`to_arrow` makes them."""
    batches = [to_arrow(*partition, columns) for partition, columns in found]
    return load_pyarrow().Table.from_batches(batches, arrow_schema(with_headers=with_headers))


@functools.cache
def _schema_and_types(*, with_headers: bool) -> tuple[Any, tuple[Any, ...]]:
    schema = arrow_schema(with_headers=with_headers)
    return schema, tuple(schema.types)


@functools.lru_cache(maxsize=128)
def _constants(topic: str, partition: int, rows: int) -> tuple[Any, Any, Any]:
    """Columns that are the same for all records of a partition: its topic, its number, and keys if none has.

    Tables show the beginning of them, so that they are made once.
    """
    pa = load_pyarrow()
    schema = arrow_schema()
    zeros = pa.py_buffer(bytes(4 * rows))
    numbers = partition.to_bytes(4, sys.byteorder, signed=True) * rows
    return (
        pa.DictionaryArray.from_buffers(
            schema.field("topic").type, rows, [None, zeros], pa.array([topic]), 0
        ),
        _numbers(pa, schema.field("partition").type, rows, numbers),
        pa.nulls(rows, pa.binary()),
    )


def _numbers(pa: ModuleType, kind: Any, rows: int, buffer: bytes | memoryview) -> Any:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)], 0)


def _binary(pa: ModuleType, kind: Any, column: BinaryColumn) -> Any:
    buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in column.buffers()]
    return pa.Array.from_buffers(kind, column.rows, buffers, column.null_count)


def column_sources(table: Any, timestamp_ms: int) -> list[ColumnSource]:
    """The rows of a ``pyarrow.Table`` or ``RecordBatch`` in portions that batches can be made of.

    Its columns are ``key``, ``value`` (byte strings or text), ``timestamp`` (times, or integers in
    milliseconds) and ``headers`` (lists of pairs, or maps); each may be missing, but not both of key and
    value. A record whose timestamp is missing or null gets ``timestamp_ms``. The other columns that
    :func:`to_arrow` makes may stand there and are not read: where rows go is for the caller to say.
    """
    pa = load_pyarrow()
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    names = table.schema.names
    known = ("key", "value", "timestamp", "headers", "topic", "partition", "offset", "timestamp_type")
    unknown = [name for name in names if name not in known]
    if unknown or not {"key", "value"} & set(names):
        raise ValueError(
            f"a table to send has a key or a value column, and no column {', '.join(unknown) or 'else'}; "
            f"this one has {', '.join(names) or 'none'}"
        )
    sources = []
    for portion in table.to_batches(max_chunksize=_PORTION_ROWS):
        columns = plain_columns(portion)
        sources.append(row_source(columns, _headers(columns), timestamp_ms))
    return sources


SENDABLE = ("key", "value", "headers", "timestamp", "partition")
"""The columns of a table that ``send_batch`` takes."""


def check_sendable(schema: Any) -> None:
    """Raise ``ValueError`` unless every column can be sent: its name is in ``SENDABLE``, its type fits."""
    names = schema.names
    unknown = [name for name in names if name not in SENDABLE]
    if unknown and unknown[0].startswith("__index_level_"):
        raise ValueError(
            "the index of this data frame would be lost: drop it with reset_index(drop=True), or make it a "
            "column with reset_index()"
        )
    if unknown:
        raise ValueError(
            f"a table to send has no column {unknown[0]!r}: its columns are {', '.join(SENDABLE)}; drop or "
            "rename the others"
        )
    if doubled := [name for name in SENDABLE if names.count(name) > 1]:
        raise ValueError(f"the table to send has several columns {doubled[0]!r}: keep one")
    if not {"key", "value"} & set(names):
        raise ValueError(
            f"a table to send has a key or a value column; this one has {', '.join(names) or 'none'}"
        )
    for name in names:
        _check_type(name, schema.field(name).type)


def _check_type(name: str, kind: Any) -> None:
    pa = load_pyarrow()
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if name in ("key", "value"):
        if not _is_binary(pa, kind):
            raise ValueError(f"the {name} column holds {kind}, not byte strings or text: encode it first")
    elif name == "timestamp":
        if not (types.is_timestamp(kind) or types.is_integer(kind) or types.is_null(kind)):
            raise ValueError(f"the timestamp column holds {kind}, not times or integers in milliseconds")
    elif name == "partition":
        if not (types.is_integer(kind) or types.is_null(kind)):
            raise ValueError(f"the partition column holds {kind}, not integers")
    elif not (_holds_pairs(types, kind) or types.is_null(kind)):
        raise ValueError(
            f"the headers column holds {kind}, not maps, or lists of structs with the fields key and value"
        )


def _holds_pairs(types: Any, kind: Any) -> bool:
    if types.is_map(kind):
        return True
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    pair = kind.value_type
    return bool(types.is_struct(pair)) and {field.name for field in pair} == {"key", "value"}


def _is_binary(pa: ModuleType, kind: Any) -> bool:
    types = pa.types
    return any(
        is_kind(kind)
        for is_kind in (
            types.is_binary, types.is_string, types.is_large_string, types.is_string_view,
            types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view, types.is_null,
        )
    )  # fmt: skip


def plain_columns(batch: Any) -> dict[str, Any]:
    """The columns of a record batch that make records, keys and values with 32-bit offsets, times in ms."""
    pa = load_pyarrow()
    columns: dict[str, Any] = {}
    for name in ("key", "value", "timestamp", "headers"):
        if name not in batch.schema.names:
            continue
        array = batch.column(name)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        _check_type(name, array.type)
        if name in ("key", "value"):
            types, kind = pa.types, array.type
            if types.is_large_string(kind) or types.is_string_view(kind):
                array = array.cast(pa.string())
            elif not (types.is_binary(kind) or types.is_string(kind)):
                array = array.cast(pa.binary())
        elif name == "timestamp":
            if pa.types.is_timestamp(array.type):
                array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
            array = array.cast(pa.int64())
        columns[name] = array
    return columns


def row_source(
    columns: dict[str, Any], headers: list[Sequence[RecordHeader]] | None, timestamp_ms: int
) -> ColumnSource:
    """What batches are made of, of columns as :func:`plain_columns` makes them."""
    rows = len(next(iter(columns.values())))
    return ColumnSource(
        rows,
        keys=_view(columns.get("key")),
        values=_view(columns.get("value")),
        timestamp_ms=timestamp_ms,
        timestamps=_timestamps(columns.get("timestamp"), timestamp_ms),
        headers=headers,
    )


def _view(array: Any) -> BinaryView | None:
    if array is None:
        return None
    if not len(array):
        return BinaryView(0, bytes(4), None)
    validity, offsets, data = array.buffers()
    return BinaryView(len(array), offsets, data, validity, array.offset)


def _timestamps(array: Any, timestamp_ms: int) -> memoryview | None:
    if array is None:
        return None
    if array.null_count:
        array = array.fill_null(timestamp_ms)
    if not len(array):
        return memoryview(b"")
    return memoryview(array.buffers()[1]).cast("B")[8 * array.offset : 8 * (array.offset + len(array))]


def _headers(columns: dict[str, Any]) -> list[Sequence[RecordHeader]] | None:
    if "headers" not in columns:
        return None
    rows: list[Sequence[RecordHeader]] = []
    for pairs in columns["headers"].to_pylist():
        rows.append(
            [(pair["key"], pair["value"]) if isinstance(pair, dict) else tuple(pair) for pair in pairs or ()]
        )
    return rows


def encode_columns(
    table: Any,
    *,
    limit_bytes: int,
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    compression_ratio: float = 1.0,
) -> list[BatchBuilder]:
    """The rows of a table for one partition, in batches yet to be closed; see :func:`column_sources`."""
    builders: list[BatchBuilder] = []
    for source in column_sources(table, timestamp_ms):
        at = append_rows(builders[-1], source) if builders else 0
        while at < source.rows:
            builders.append(BatchBuilder(limit_bytes, codec, level, compression_ratio=compression_ratio))
            at = append_rows(builders[-1], source, at)
    return builders
