"""Masks: what is hidden, and that whoever may not see it finds it nowhere."""

from __future__ import annotations

import json

import pytest

from tidelog.console.records.decoded import DecodedField
from tidelog.console.records.masking import Mask, hide
from tidelog.console.records.raw import RawRecord
from tidelog.console.settings import MaskRule


def masked(value: bytes | None, *fields: str) -> bytes | None:
    record = RawRecord(0, 0, 0, b"key", value, [("secret", b"abc")])
    return Mask([MaskRule(fields=fields)]).apply(record).value


@pytest.mark.parametrize(
    "value",
    [
        b'{"phone": "13800138000", "phone": null}',
        b'{"user": {"phone": "13800138000"}, "user": 1}',
        b'[{"a": {"phone": "13800138000"}, "a": {}}]',
        b'{"phon\\u0065": "13800138000", "phone": null}',
    ],
)
def test_a_name_that_comes_twice_hides_nothing_behind_its_last_value(value: bytes) -> None:
    assert b"13800138000" not in (masked(value, "phone") or b"")


def test_values_without_such_fields_stay_as_they_are() -> None:
    value = b'{ "id": 12345678901234567890, "x": [1.50, {}] }'
    assert masked(value, "phone") is value


def test_fields_are_found_by_name_at_any_depth_and_by_path() -> None:
    value = json.dumps(
        {"phone": "13800138000", "users": [{"phone": "13900139000", "id": 1}], "a": {"b": "secret"}}
    )
    shown = json.loads(masked(value.encode(), "phone", "a.b") or b"")
    assert shown == {"phone": "13****00", "users": [{"phone": "13****00", "id": 1}], "a": {"b": "****"}}


def test_whole_objects_and_numbers_are_hidden() -> None:
    shown = json.loads(
        masked(b'{"card": {"number": 1}, "pin": 1234, "nothing": null}', "card", "pin", "nothing") or b""
    )
    assert shown == {"card": "****", "pin": "****", "nothing": None}


def test_a_value_that_is_no_json_is_hidden_as_a_whole() -> None:
    assert masked(b"phone=13800138000", "phone") == b"****"
    assert masked(b'"13800138000"', "phone") == b"****"
    assert masked(b'{"phone": "13800138000"', "phone") == b"****"
    assert masked(b"[" * 5000, "phone") == b"****"
    assert masked(b'{"name": "Jos\xe9", "phone": "13800138000"}', "phone") == b"****"
    assert masked(b'{"id": 1, "Jos\xe9": 2}', "phone") == b"****"
    assert masked(None, "phone") is None


def test_what_a_rule_does_not_name_keeps_its_bytes() -> None:
    value = b'{ "b":1,  "a": 2 }'
    assert masked(value, "phone") is value


def test_keys_and_headers_are_hidden_where_a_rule_says_so() -> None:
    record = RawRecord(0, 0, 0, b"alice@example", b"{}", [("secret", b"abcdefgh"), ("open", b"x")])
    shown = Mask([MaskRule(headers=("sec*",), key=True)]).apply(record)
    assert shown.key == b"al****le"
    assert shown.headers == [("secret", b"ab****gh"), ("open", b"x")]
    assert shown.masked == {"key", "header secret"}


def test_fields_far_below_long_names_are_hidden_unseen() -> None:
    value = json.dumps({"n" * 1001: {"a": 1}, "m" * 990: {"b": 2, "c" * 20: 3}, "d": 4}).encode()
    shown = Mask([MaskRule(fields=("*phone*",))]).apply(RawRecord(0, 0, 0, None, value, []))
    assert json.loads(shown.value or b"") == {
        "n" * 1001: "****",
        "m" * 990: {"b": 2, "c" * 20: "****"},
        "d": 4,
    }
    assert shown.masked == {"value"}


def test_short_texts_keep_nothing() -> None:
    assert hide("1234567") == "****"
    assert hide("12345678") == "12****78"


def decoded(json_: bytes | None, *, is_certain: bool = True) -> RawRecord:
    field = DecodedField("avro", json_, is_certain=is_certain)
    return RawRecord(0, 0, 0, b"key", b"\x00 13800138000", [], decoded_value=field)


def test_what_was_decoded_is_masked_and_its_bytes_do_not_go_on() -> None:
    mask = Mask([MaskRule(fields=("phone",))])
    shown = mask.apply(decoded(b'{"phone":"13800138000","id":1}'))
    assert shown.readable_value == shown.value == b'{"phone":"13****00","id":1}'
    assert shown.masked == {"value"}
    without = mask.apply(decoded(b'{"id":1}'))
    assert without.value == b'{"id":1}'
    assert without.masked == frozenset()


def test_what_is_not_known_to_be_what_it_says_is_hidden_as_a_whole() -> None:
    mask = Mask([MaskRule(fields=("phone",))])
    for record in (decoded(b'{"p":"1"}', is_certain=False), decoded(None), decoded(b'"13800138000"')):
        shown = mask.apply(record)
        assert shown.readable_value == shown.value == b"****"
        assert shown.masked == {"value"}


def test_a_key_that_is_hidden_is_not_there_decoded() -> None:
    record = decoded(b"{}")._replace(decoded_key=DecodedField("avro", b'"alice@example"'))
    shown = Mask([MaskRule(key=True)]).apply(record)
    assert shown.decoded_key is None
    assert shown.readable_key == b"****"
