"""The fingerprint of rows: blind to their order, and to nothing else."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.write._write_columns import Part
from tidelog.spark.write.write_digest import digest

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
Row = tuple[bytes | None, bytes | None, list[dict[str, Any]] | None]

_bytes = st.none() | st.binary(max_size=6)
_headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": _bytes}), max_size=2
)
rows = st.lists(st.tuples(_bytes, _bytes, _headers), max_size=8)


def _part(given: list[Row], topic: str = "t", partition: int | None = None) -> Part:
    columns = {
        "key": pa.array([row[0] for row in given], pa.binary()),
        "value": pa.array([row[1] for row in given], pa.binary()),
        "headers": pa.array([row[2] for row in given], pa.list_(PAIR)),
    }
    return Part(topic, partition, pa.record_batch(columns))


def _values(*values: str | None, **more: Any) -> ContentDigest:
    return digest(Part("t", None, pa.record_batch({"value": pa.array(values, pa.string()), **more})))


@settings(deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_order_does_not_matter(given_rows: list[Row], chance: random.Random) -> None:
    shuffled = list(given_rows)
    chance.shuffle(shuffled)
    assert digest(_part(given_rows)) == digest(_part(shuffled))


@settings(deadline=None)
@given(rows, st.integers(0, 8))
def test_digests_of_parts_add_up(given_rows: list[Row], cut: int) -> None:
    first, rest = digest(_part(given_rows[:cut])), digest(_part(given_rows[cut:]))
    assert first.plus(rest) == digest(_part(given_rows))


@settings(deadline=None)
@given(rows, rows)
def test_other_rows_have_another_digest(some: list[Row], others: list[Row]) -> None:
    same = sorted(map(_plain, some)) == sorted(map(_plain, others))
    assert (digest(_part(some)) == digest(_part(others))) == same


def _plain(row: Row) -> str:
    """Null headers are no headers."""
    key, value, headers = row
    return repr((key, value, [(each["key"], each["value"]) for each in headers or ()]))


@settings(deadline=None)
@given(rows)
def test_text_of_a_digest_is_all_of_it(given_rows: list[Row]) -> None:
    found = digest(_part(given_rows))
    assert ContentDigest.of(found.rows, found.text) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_part([(b"ab", b"c", None)]), _part([(b"a", b"bc", None)])),
        (_part([(None, b"", None)]), _part([(b"", None, None)])),
        (_part([(None, b"a", None)]), _part([(None, b"a", None)], topic="u")),
        (_part([(None, b"a", None)]), _part([(None, b"a", None)], partition=0)),
        (_part([(None, b"a", None)] * 2), _part([(None, b"a", None)])),
        (_part([(b"1", b"x", None), (b"2", b"y", None)]), _part([(b"1", b"y", None), (b"2", b"x", None)])),
    ],
    ids=["border", "null", "topic", "partition", "count", "pairing"],
)
def test_what_looks_alike_is_told_apart(one: Part, other: Part) -> None:
    assert digest(one) != digest(other)


def test_text_and_its_bytes_are_the_same() -> None:
    as_bytes = Part("t", None, pa.record_batch({"value": pa.array([b"a", b"b"])}))
    large = Part("t", None, pa.record_batch({"value": pa.array(["a", "b"], pa.large_string())}))
    assert _values("a", "b") == digest(as_bytes) == digest(large)


def test_slices_are_read_from_where_they_begin() -> None:
    whole = pa.record_batch({"value": ["a", "b", None, "d"]})
    assert digest(Part("t", None, whole.slice(1, 2))) == _values("b", None)


def test_nothing_has_the_empty_digest() -> None:
    assert _values() == ContentDigest()
