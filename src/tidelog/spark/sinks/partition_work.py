"""Work in Spark's tasks on the rows of a frame as Arrow batches; all that comes to the driver are answers.

:func:`work_on_partitions` is one stage: a function for each partition of the frame. :func:`work_on_parts` is
two with a shuffle between them: tasks make *parcels* of their rows, each addressed to a part, and one task
for each part unpacks what is there for it. A parcel is one row to Spark, whatever is in it, so that the JVM
moves a few large values and not an event's columns. Parts are numbers that the caller computes, not hashes of
Spark's: what a part is called does not change with parallelism.

PySpark's own ``mapInArrow`` needs pandas, which nothing here uses, for a check of its arguments;
:func:`map_in_arrow` is the same without it. Called by stores and jobs; the functions run in Python workers,
again where Spark repeats a task, and memory holds one Arrow batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Iterator[pa.Table]], str]


class Parcel(NamedTuple):
    """Something for the task of a part."""

    part: int
    kind: str
    data: bytes


_ANSWER = T.StructType([T.StructField("answer", T.StringType())])
_PARCEL = T.StructType(
    [
        T.StructField("part", T.IntegerType()),
        T.StructField("kind", T.StringType()),
        T.StructField("data", T.BinaryType()),
    ]
)
_ARROW_ANSWER = pa.schema([("answer", pa.string())])
_ARROW_PARCEL = pa.schema([("part", pa.int32()), ("kind", pa.string()), ("data", pa.binary())])


def map_in_arrow(rows: DataFrame, function: Callable[[Batches], Batches], schema: T.StructType) -> DataFrame:
    """What ``function`` makes of the batches of each partition."""
    mapped = UserDefinedFunction(
        function, schema, name="map_in_arrow", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = mapped(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def work_on_partitions(rows: DataFrame, work: Work) -> list[str]:
    """Run ``work`` once for each partition that has rows, as a task, and return the answers.

    A task that Spark repeats is worked again, and one answer of it counts.
    """

    def answer(batches: Batches) -> Batches:
        if (filled := with_rows(batches)) is not None:
            yield _answer(work(pa.Table.from_batches([batch]) for batch in filled))

    return _collected(map_in_arrow(rows, answer, _ANSWER))


def work_on_parts(
    rows: DataFrame,
    pack: Callable[[Batches], Iterable[Parcel]],
    parts: int,
    unpack: Callable[[int, Iterator[Parcel]], Iterable[str]],
) -> list[str]:
    """Have tasks pack the rows into parcels and one task per part unpack them; returns all answers.

    ``unpack`` is called for parts that have parcels only; those of a part come in no order.
    """

    def packed(batches: Batches) -> Batches:
        for parcel in pack(batches):
            yield pa.RecordBatch.from_pylist([parcel._asdict()], schema=_ARROW_PARCEL)

    def unpacked(batches: Batches) -> Batches:
        if (filled := with_rows(batches)) is not None:
            for text in unpack(task_number(), _parcels(filled)):
                yield _answer(text)

    parcels = map_in_arrow(rows, packed, _PARCEL)
    return _collected(map_in_arrow(parcels.repartitionById(parts, "part"), unpacked, _ANSWER))


def task_number() -> int:
    """The number of the partition that this task works on."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def with_rows(batches: Iterable[pa.RecordBatch]) -> Batches | None:
    """The batches from the first one with rows on; None where there is none."""
    remaining = iter(batches)
    for batch in remaining:
        if batch.num_rows:
            return chain([batch], remaining)
    return None


def to_bytes(batch: pa.RecordBatch) -> bytes:
    """A batch as the content of a parcel."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = stream.getvalue().to_pybytes()
    return content


def from_bytes(content: bytes) -> Batches:
    """The batches that :func:`to_bytes` has packed."""
    with pa.ipc.open_stream(content) as reader:
        yield from reader


def _parcels(batches: Batches) -> Iterator[Parcel]:
    for batch in batches:
        yield from map(Parcel, *(batch.column(name).to_pylist() for name in _ARROW_PARCEL.names))


def _answer(text: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"answer": text}], schema=_ARROW_ANSWER)


def _collected(answers: DataFrame) -> list[str]:
    return [row.answer for row in answers.collect()]
