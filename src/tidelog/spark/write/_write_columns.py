"""Which columns a DataFrame must have to be written, and rows on their way to topics and partitions.

As in Spark's Kafka connector: ``value`` is required, ``key``, ``topic``, ``partition`` and ``headers`` may
be there, other columns are not written. :func:`check_columns` refuses a schema on the driver, before any
task runs; :func:`parts` sorts the rows of a record batch by topic and partition within Arrow, without an
object per row. Called by the writers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_BYTES = ("string", "binary")
_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES = {"topic": ("string",), "key": _BYTES, "value": _BYTES, "headers": (_HEADERS,), "partition": ("int",)}
_WRITTEN = ("key", "value", "headers")


class Part(NamedTuple):
    """Rows that go to one topic, and to one partition where the rows name it."""

    topic: str
    partition: int | None
    rows: pa.RecordBatch
    """With the columns key, value and headers, as far as they are there."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ``ConfigError`` unless a DataFrame of ``schema`` can be written (to ``topic``, where it is "
    "set)."""
    columns = {field.name: field.dataType for field in schema.fields}
    if "value" not in columns:
        found = ", ".join(columns) or "none"
        raise ConfigError(
            f"the column value is required and not there (columns: {found}): name one so with alias"
        )
    if topic is None and "topic" not in columns:
        raise ConfigError("nothing says where rows go: set the option topic, or have a column topic")
    for name, wanted in _TYPES.items():
        if name in columns and not (name == "topic" and topic is not None):
            _check_type(name, columns[name], wanted)


def _check_type(name: str, found: DataType, wanted: tuple[str, ...]) -> None:
    plain = found.simpleString().replace("`", "").lower()
    kind = plain.split(" ", 1)[0]  # a string with a collation is a string
    if kind not in wanted:
        raise ConfigError(f"the column {name} is {plain}; it must be {' or '.join(wanted)}: cast it")


def parts(batch: pa.RecordBatch, topic: str | None) -> Iterator[Part]:
    """The rows of ``batch`` by topic and partition, each part in their order."""
    names = batch.schema.names
    rows = batch.select([name for name in _WRITTEN if name in names])
    partitions = batch.column("partition") if "partition" in names else None
    if topic is not None:
        yield from _by_partition(topic, rows, partitions)
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise ConfigError("the column topic is null in some rows: set the option topic, or fill the column")
    for name, chosen in _groups(topics):
        if chosen is None:
            yield from _by_partition(name, rows, partitions)
        else:
            few = None if partitions is None else partitions.filter(chosen)
            yield from _by_partition(name, rows.filter(chosen), few)


def _by_partition(topic: str, rows: pa.RecordBatch, partitions: pa.Array | None) -> Iterator[Part]:
    if partitions is None or partitions.null_count == len(partitions):
        if rows.num_rows:
            yield Part(topic, None, rows)
        return
    for number, chosen in _groups(partitions):
        if number is not None and number < 0:
            raise ConfigError(
                f"the column partition is {number} in some rows: partitions begin with 0, null is any"
            )
        yield Part(topic, number, rows if chosen is None else rows.filter(chosen))


def _groups(column: pa.Array) -> Iterator[tuple[Any, pa.Array | None]]:
    """The values of a column and which rows have them; None: all rows."""
    import pyarrow.compute as pc

    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], None
        return
    for index, value in enumerate(values):
        yield value, pc.equal(encoded.indices, index)
