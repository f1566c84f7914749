"""Pruning leaves out only what a filter cannot match, whatever the filter."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.scanning._pruning import Pruner
from tidelog.client.scanning._scan_pass import SCHEMA

ENDS = {0: 0, 1: 1, 2: 40, 3: 23}
ROWS = pa.table(
    {
        "partition": pa.array([number for number, end in ENDS.items() for _ in range(end)], pa.int32()),
        "offset": pa.array([offset for end in ENDS.values() for offset in range(end)], pa.int64()),
        # Times are not in order.
        "timestamp": pa.array(
            [offset * 7 % 20 for end in ENDS.values() for offset in range(end)], pa.timestamp("ms", "UTC")
        ),
        "key": pa.array([b"%d" % offset for end in ENDS.values() for offset in range(end)], pa.binary()),
    }
)


def time(at_ms: int) -> pa.Scalar:
    return pa.scalar(at_ms, pa.timestamp("ms", "UTC"))


def compared(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    field = pc.field(name)
    return st.one_of(
        values.map(lambda value: field >= value),
        values.map(lambda value: field > value),
        values.map(lambda value: field < value),
        values.map(lambda value: field == value),
        values.map(lambda value: field != value),
    )


conditions = st.recursive(
    st.one_of(
        compared("offset", st.integers(-3, 45)),
        compared("partition", st.integers(-1, 5)),
        compared("timestamp", st.integers(-3, 25).map(time)),
        st.lists(st.integers(0, 45), min_size=1, max_size=3).map(
            lambda given: pc.field("offset").isin(given)
        ),
        st.just(pc.field("key") == b"5"),
        st.just(pc.field("offset") + 1 > 20),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda each: ~each),
    ),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(conditions)
def test_no_matching_row_is_left_out(condition: Any) -> None:
    pruner = Pruner(condition, SCHEMA)
    kept = pruner.partitions(list(ENDS))
    for row in ROWS.filter(condition).select(["partition", "offset", "timestamp"]).to_pylist():
        partition, offset = row["partition"], row["offset"]
        assert partition in kept
        start, end = pruner.offsets(partition, 0, ENDS[partition])
        assert start <= offset < end
        assert pruner.earliest_ms(partition) <= row["timestamp"].timestamp() * 1000 + 0.5


@pytest.mark.parametrize(
    ("condition", "kept", "offsets", "earliest_ms"),
    [
        (pc.field("offset") >= 10, [0, 1, 2, 3], (10, 40), 0),
        (pc.field("offset").isin([7, 9]), [0, 1, 2, 3], (7, 10), 0),
        ((pc.field("partition") == 2) & (pc.field("offset") < 5), [2], (0, 5), 0),
        ((pc.field("partition") == 2) & (pc.field("timestamp") >= time(100)), [2], (0, 40), 100),
        ((pc.field("partition") == 3) | (pc.field("offset") > 90), [0, 1, 2, 3], (40, 40), 0),
        (pc.field("key") == b"x", [0, 1, 2, 3], (0, 40), 0),
    ],
    ids=str,
)
def test_places_and_times_are_found_to_the_record(
    condition: Any, kept: list[int], offsets: tuple[int, int], earliest_ms: int
) -> None:
    pruner = Pruner(condition, SCHEMA)
    assert pruner.partitions(list(ENDS)) == kept
    start, end = pruner.offsets(2, 0, 40)
    assert (start, end) == offsets or (start == end and offsets[0] == offsets[1])
    assert pruner.earliest_ms(2) == earliest_ms
