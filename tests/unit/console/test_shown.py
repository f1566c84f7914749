"""Fields for people: text, JSON and digits, as the bytes say or as somebody wants them."""

from __future__ import annotations

from tidelog.console.records.decoded import DecodedField, SchemaName
from tidelog.console.records.raw import RawRecord
from tidelog.console.records.shown import FIELD_BYTES, HEADERS, WHOLE_BYTES, shown_field, shown_record


def test_bytes_are_shown_as_what_they_are() -> None:
    assert shown_field(None).kind == "null"
    assert shown_field(b"text").kind == "text"
    assert shown_field(b"1").kind == "text"
    assert shown_field(b'{"a": 1}').kind == "json"
    assert shown_field(b"\xff").text == "ff"


def test_bytes_are_shown_as_somebody_wants_them() -> None:
    assert shown_field(b"text", format_="hex").text == "74657874"
    assert shown_field(b'{"a": 1}', format_="text").kind == "text"
    assert shown_field(b"a\xff", format_="text").text == "a�"
    assert shown_field(b"1", format_="json").kind == "json"
    no_json = shown_field(b"text", format_="json")
    assert (no_json.kind, no_json.problem) == ("hex", "it is not JSON")


def test_what_is_no_utf_8_is_no_json_however_late_it_ends() -> None:
    long = b'{"name": "' + b"x" * FIELD_BYTES + b'\xe9"}'
    assert (shown_field(long).kind, shown_field(long).cut) == ("text", True)
    assert shown_field(long, format_="json").problem == "it is not JSON"


def test_of_very_many_headers_the_first_are_shown() -> None:
    headers: list[tuple[str, bytes | None]] = [("h", b"%d" % number) for number in range(HEADERS + 7)]
    shown = shown_record(RawRecord(0, 0, 0, None, None, headers))
    assert [each.value.text for each in shown.headers] == [str(number) for number in range(HEADERS)]
    assert shown.more_headers == 7
    assert shown_record(RawRecord(0, 0, 0, None, None, headers[:3])).more_headers == 0


def test_names_of_headers_count_in_what_a_record_takes() -> None:
    """They are shown whole, and a megabyte of a record may be the name of one."""
    plain, named = (
        shown_record(RawRecord(0, 0, 0, None, None, [(name, b"")])) for name in ("h", "h" * 900_001)
    )
    assert named.held_bytes - plain.held_bytes == 900_000


def test_a_character_is_not_cut_in_two() -> None:
    shown = shown_field("ü".encode() * FIELD_BYTES, FIELD_BYTES + 1)
    assert shown.text == "ü" * (FIELD_BYTES // 2)
    assert shown.cut


def test_decoded_fields_are_json_with_their_bytes_and_schema() -> None:
    schema = SchemaName("avro", 7)
    shown = shown_field(b"\x00\xff", decoded=DecodedField("avro", b'{"a":1}', schema=schema))
    assert (shown.kind, shown.text, shown.format, shown.hex) == ("json", '{"a":1}', "avro", "00ff")
    assert (shown.size, shown.schema) == (2, schema)
    long = DecodedField("avro", b'"' + b"x" * 10_000 + b'"')
    assert shown_field(b"\x00", decoded=long).cut
    assert len(shown_field(b"\x00" * 9000, WHOLE_BYTES, long).hex) == 18_000


def test_what_could_not_be_decoded_is_digits_with_a_sentence() -> None:
    shown = shown_field(b"abc", decoded=DecodedField(problem="no schema"))
    assert (shown.kind, shown.text, shown.problem) == ("hex", "616263", "no schema")
    hidden = shown_field(b"****", decoded=DecodedField(problem="no schema"), masked=True)
    assert (hidden.kind, hidden.text) == ("text", "****")
