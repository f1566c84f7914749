"""Filters: what can be said, what it means, and that nothing else can be said."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.console.records.decoded import DecodedField
from tidelog.console.records.filter_expression import Filter, FilterError
from tidelog.console.records.raw import RawRecord

RECORD = RawRecord(
    3,
    42,
    1_700_000_000_000,
    b"o-42",
    b'{"price": 120, "user": {"name": "Ann", "tags": ["a", "b"]}, "none": null}',
    [("trace", b"first"), ("trace", b"last"), ("raw", b"\xff")],
)
BINARY = RECORD._replace(key=None, value=b"\xff\xfe", headers=[])


@pytest.mark.parametrize(
    "text",
    [
        "value.price > 100",
        "100 < value.price <= 120",
        'value["user"]["name"] == "Ann"',
        'value.user.name.lower() == "ann"',
        '"b" in value.user.tags',
        'value.user.tags[0] == "a"',
        'key.startswith("o-") and not key.endswith("9")',
        'headers.trace == "last"',
        'header_list[0][1] == "first"',
        'headers["raw"] is None',
        "partition == 3 and offset in (41, 42)",
        "timestamp // 1000 == 1700000000",
        "size == len(text) + len(key)",
        'matches(text, "pri.e")',
        "value.none is None and value.missing is None",
        "(1 if value.price > 1 else 0) == 1",
        "-value.price < -100",
        "value.price % 7 == 1",
    ],
)
def test_expressions_that_hold(text: str) -> None:
    assert Filter(text).matches(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "value.missing > 1",
        "value.price > 'x'",
        "value.user.name > 3",
        "value.price.deeper.still == 1",
        "key.startswith(3)",
        "value.user.tags[99] == 1",
        "value.price / 0 == 1",
        "int(key) == 1",
        'matches(text, "(")',
        "'x' * 3 == 'xxx'",
    ],
)
def test_values_that_do_not_go_together_are_false_and_no_error(text: str) -> None:
    assert not Filter(text).matches(RECORD)
    assert not Filter(text).matches(BINARY)


@pytest.mark.parametrize("value", [b'{"name": "Jos\xe9", "price": 2}', b'{"a": ' + b"[" * 100_000])
def test_a_value_that_is_nearly_json_is_none(value: bytes) -> None:
    record = RECORD._replace(value=value)
    assert not Filter("value.price > 1").matches(record)
    assert Filter("value.price is None and value == text").matches(record)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "value.price >",
        "import os",
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "(y := 1)",
        "f'{key}'",
        "open('x')",
        "value.price ** 9",
        "value.format(1)",
        "key.encode()",
        "1 << 100",
        "b'x'",
        "{**value}",
        "len(*value)",
        "value[1:2]",
        "key\x00",
        "not " * 100 + "1",
        "1" * 3000,
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        Filter(text)


def test_attributes_are_fields_and_never_pythons_own() -> None:
    assert not Filter("value.__class__").matches(RECORD)
    assert not Filter("key.__class__ == 1").matches(RECORD)
    assert Filter("value.__class__ == 1").matches(RECORD._replace(value=b'{"__class__": 1}'))


def test_numbers_stay_bounded() -> None:
    huge = " * ".join(["9" * 30] * 60)
    assert not Filter(f"{huge} > 1").matches(RECORD)


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    with contextlib.suppress(FilterError):
        Filter(text).matches(RECORD)


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_can_be_filtered(value: bytes, key: bytes) -> None:
    record = RECORD._replace(value=value, key=key)
    Filter('value.a.b == 1 or "x" in value or text > key or headers["trace"] == value').matches(record)


def test_decoded_fields_are_what_they_say() -> None:
    record = BINARY._replace(
        key=b"\x00",
        decoded_key=DecodedField("avro", b'{"id": 7}'),
        decoded_value=DecodedField("msgpack", b'{"price": 120}'),
    )
    assert Filter('key.id == 7 and value.price > 100 and "price" in text').matches(record)
    failed = BINARY._replace(decoded_value=DecodedField(problem="no"))
    assert Filter("value is None and text is None").matches(failed)
