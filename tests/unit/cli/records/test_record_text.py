from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.records.record_text import (
    bytes_from_json,
    bytes_to_json,
    headers_from_json,
    headers_to_json,
    readable,
)


@given(st.none() | st.binary())
def test_every_key_and_value_survives_json(data: bytes | None) -> None:
    fields = json.loads(json.dumps(bytes_to_json("value", data)))
    assert bytes_from_json("value", fields) == data


@given(st.lists(st.tuples(st.text(), st.none() | st.binary())))
def test_headers_survive_json_in_order_and_with_duplicates(headers: list[tuple[str, bytes | None]]) -> None:
    assert headers_from_json(json.loads(json.dumps(headers_to_json(headers)))) == headers


def test_headers_may_be_a_plain_object() -> None:
    assert headers_from_json({"a": "1", "b": None}) == [("a", b"1"), ("b", None)]
    assert headers_from_json(None) == []


@pytest.mark.parametrize(
    "fields", [{"value": 5}, {"value": "a", "value_base64": "YQ=="}, {"value_base64": "?"}, {"value": []}]
)
def test_what_is_no_text_or_base64_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="value"):
        bytes_from_json("value", fields)


@pytest.mark.parametrize("headers", ["text", 5, [["a", "b"]], [{"value": "b"}], {"a": 5}])
def test_what_are_no_headers_is_refused(headers: object) -> None:
    with pytest.raises(ValueError):
        headers_from_json(headers)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "null"),
        (b"plain", "plain"),
        ("wörld".encode(), "wörld"),
        (b"a\tb\n\x1b[31m", "a\\tb\\n\\x1b[31m"),
        (b"\xff\x00", "base64:/wA="),
    ],
)
def test_what_a_person_sees_is_one_harmless_line(data: bytes | None, text: str) -> None:
    assert readable(data) == text
