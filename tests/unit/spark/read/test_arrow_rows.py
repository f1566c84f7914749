from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.read._arrow_rows import BatchAssembler


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 20_000), max_size=20))
def test_small_batches_are_put_together_and_every_row_goes_out_once_in_order(sizes: list[int]) -> None:
    assembler = BatchAssembler()
    at = 0
    out: list[pa.RecordBatch] = []
    for size in sizes:
        out += assembler.add(pa.record_batch({"n": pa.array(range(at, at + size), pa.int64())}))
        at += size
    out += assembler.rest()
    assert [value for batch in out for value in batch.column("n").to_pylist()] == list(range(at))
    assert all(batch.num_rows >= 8192 for batch in out[:-1])


def test_nothing_comes_of_nothing() -> None:
    assert list(BatchAssembler().rest()) == []
