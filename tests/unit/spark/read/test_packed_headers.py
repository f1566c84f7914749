"""Headers as bytes: every record's own, none where there are none."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.read.packed_headers import packed, unpacked

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@given(st.lists(HEADERS, max_size=6))
def test_what_was_packed_is_unpacked(records: list[list[tuple[str, bytes | None]]]) -> None:
    names = pa.array([name for headers in records for name, _ in headers], pa.string())
    values = pa.array([value for headers in records for _, value in headers], pa.binary())
    ends = [0, *accumulate(map(len, records))]
    made = packed(names, values, ends)
    assert made.type == pa.binary()
    assert [unpacked(each) for each in made.to_pylist()] == records
    assert [each is None for each in made.to_pylist()] == [not headers for headers in records]
