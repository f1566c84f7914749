"""Work on the partitions of a frame: a function that takes a partition's rows as Arrow tables and answers.

``mapInArrow`` would be the word for it, but PySpark's needs pandas, which nothing here uses. So the function
runs inside an Arrow UDF over all columns: it reads all rows of its partition and gives its answer with the
last one. Memory holds one Arrow batch at a time. Called by the stores that write from Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Work = Callable[[Iterator[pa.Table]], str]


def work_on_partitions(rows: DataFrame, work: Work) -> list[str]:
    """Run ``work`` once for each partition that has rows, as a task, and return the answers.

    A task that Spark repeats is worked again, and one answer of it counts.
    """

    def answer(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        lengths = []

        def tables() -> Iterator[pa.Table]:
            for batch in batches:
                lengths.append(len(batch))
                yield pa.Table.from_batches([pa.RecordBatch.from_struct_array(batch)])

        text = work(tables())
        *before, last = lengths or [0]
        yield from (pa.nulls(length, pa.string()) for length in before)
        if last:
            yield pa.concat_arrays([pa.nulls(last - 1, pa.string()), pa.array([text])])

    # Spark may compute what it takes for a function of its input twice.
    worked = arrow_udf(answer, "string").asNondeterministic()  # type: ignore[call-overload]
    answers = rows.select(worked(F.struct(*rows.columns)).alias("answer"))
    return [row.answer for row in answers.where(F.col("answer").isNotNull()).collect()]
