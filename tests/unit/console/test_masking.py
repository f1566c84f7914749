"""Masks: what is hidden, and that whoever may not see it finds it nowhere."""

from __future__ import annotations

import json

from tidelog.console.records.masking import Mask, hide
from tidelog.console.records.raw import RawRecord
from tidelog.console.settings import MaskRule


def masked(value: bytes | None, *fields: str) -> bytes | None:
    record = RawRecord(0, 0, 0, b"key", value, [("secret", b"abc")])
    return Mask([MaskRule(fields=fields)]).apply(record).value


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


def test_short_texts_keep_nothing() -> None:
    assert hide("1234567") == "****"
    assert hide("12345678") == "12****78"
