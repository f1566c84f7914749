"""What a dead letter carries, and how it is read again, whoever has written it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.consumer.failure_policy import dead_letter_headers
from tidelog.records.record_codec import ConsumerRecord
from tidelog.records.record_writer import BatchBuilder
from tidelog.spark.dead_letters import dead_letter
from tidelog.spark.dead_letters.dead_letter import letter_batch
from tidelog.spark.dead_letters.letter import (
    CARRIED_BYTES,
    HEADERS,
    Letter,
    Place,
    carried_bytes,
    opened,
    read_letter,
)
from tidelog.spark.dead_letters.redrive import Sending
from tidelog_rewards import events
from tidelog_rewards.phones.phone_keys import PhoneKey, PhoneKeys, PhoneKeysError
from tidelog_rewards.phones.phone_tokens import CLEAR, PhonesWritten, PhoneTokens

Headers = Sequence[tuple[str, bytes | None]]

RECORDS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.binary()),
    ]
)
OWN: Headers = [("trace", b"\xff\x00"), ("trace", None), ("pipeline", b"not ours"), ("key", b""), ("", b"x")]
TIME_US = 1_700_000_000_123_000


TOKENS = PhoneTokens(PhoneKeys([PhoneKey("k1", datetime(1970, 1, 1, tzinfo=UTC), b"1" * 32)]), "CN")


def letters(
    *rows: tuple[object, ...], why: Sequence[str | None], phones: PhonesWritten = CLEAR
) -> list[Letter | None]:
    """The letters of some records, as who reads the topic sees them."""
    packed = [(*row[:-1], None if row[-1] is None else msgspec.msgpack.encode(row[-1])) for row in rows]
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(RECORDS.names, row, strict=True)) for row in packed], schema=RECORDS
    )
    codes = pa.array(why, pa.string())
    made = letter_batch(
        batch, codes, pa.array([each and f"it is {each}" for each in why]), "earnings", phones
    )
    return [
        read_letter(
            consumed(row["key"], row["value"], [(each["key"], each["value"]) for each in row["headers"]])
        )
        for row in made.to_pylist()
    ]


def consumed(key: bytes | None, value: bytes | None, headers: Headers) -> ConsumerRecord:
    return ConsumerRecord(events.DEAD_LETTERS, 1, 5, 1_800_000_000_000, 0, key, value, tuple(headers))


def test_a_letter_has_the_whole_record_and_says_where_and_why() -> None:
    headers = OWN
    full, empty = letters(
        ("ml_task_log", 2, 7, TIME_US, b"\xfek", b"\xff", headers),
        ("ml_task_log", 2, 8, TIME_US, b"k", b"{}", None),
        ("ml_task_log", 0, 1, TIME_US, None, None, None),
        why=["not-utf-8", None, "tombstone"],
    )
    assert full == Letter(
        1,
        5,
        1_800_000_000_000,
        "earnings",
        Place("ml_task_log", 2, 7),
        1_700_000_000_123,
        "not-utf-8",
        "it is not-utf-8",
        b"\xfek",
        b"\xff",
        tuple(OWN),
    )
    assert empty is not None
    assert (empty.key, empty.value, empty.headers, empty.code) == (None, None, (), "tombstone")


def test_a_record_that_is_too_large_is_left_out_so_that_its_letter_can_be_written() -> None:
    headers = [("trace", bytes(CARRIED_BYTES // 2))]
    room = CARRIED_BYTES - carried_bytes(b"k", None, headers)
    fits, large = letters(
        ("t", 2, 7, TIME_US, b"k", bytes(room), headers),
        ("t", 2, 8, TIME_US, b"k", bytes(room + 1), headers),
        why=["not-json", "not-json"],
    )
    assert fits is not None
    assert large is not None
    assert (fits.left_out, len(fits.value or b""), len(fits.headers)) == (False, room, 1)
    assert (large.left_out, large.key, large.value, large.headers) == (True, None, None, ())
    assert (large.place, large.code) == (Place("t", 2, 8), "not-json")


@pytest.mark.parametrize(
    "headers",
    [
        [("\N{GRINNING FACE}" * 250_000, b"")],
        [("\N{REPLACEMENT CHARACTER}" * 400_000, None)],
        [("", None)] * 100_000,
    ],
    ids=["long in UTF-8", "not UTF-8", "very many"],
)
def test_what_headers_take_of_a_letter_is_counted_in_bytes(headers: Headers) -> None:
    [letter] = letters(("t", 2, 8, TIME_US, b"k", b"{", headers), why=["not-json"])
    assert letter is not None
    assert letter.left_out


EVERY_RECORD_BYTES = 20


def written_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record takes of a batch."""
    builder = BatchBuilder(1 << 30)
    builder.append(0, key, value, headers)
    return builder.record_bytes


SMALL_CARRIED_BYTES = 9_000
SIZES = st.sampled_from([0, 1, 100, 2_200, 2_990, 3_000, 4_500, 8_990])
NAMES = st.builds(operator.mul, st.sampled_from(["", "a", "1", "é", "\ufffd", "\U0001f600"]), SIZES)
SOME_HEADERS = st.lists(st.tuples(NAMES, st.none() | st.builds(bytes, SIZES)), max_size=3) | st.builds(
    lambda many: [("", None)] * many, st.sampled_from([800, 899, 901, 5_000])
)


@given(
    key=st.none() | st.builds(bytes, SIZES),
    value=st.none() | st.builds(operator.mul, st.sampled_from([b"x", b"\xff"]), SIZES),
    headers=SOME_HEADERS,
    phones=st.sampled_from([CLEAR, TOKENS]),
)
@settings(max_examples=100, deadline=None)
def test_whatever_a_record_is_its_letter_takes_no_more_than_is_carried_and_what_it_says_itself(
    key: bytes | None, value: bytes | None, headers: Headers, phones: PhonesWritten
) -> None:
    def letter_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
        fields = ("t" * 249, 2**31 - 1, 2**63 - 1, TIME_US, key, value, msgspec.msgpack.encode(headers))
        batch = pa.RecordBatch.from_pylist([dict(zip(RECORDS.names, fields, strict=True))], schema=RECORDS)
        [row] = letter_batch(batch, pa.array(["not-json"]), pa.array(["why"]), "earnings", phones).to_pylist()
        told = [(each["key"], each["value"]) for each in row["headers"]]
        return written_bytes(row["key"], row["value"], told)

    with patch.object(dead_letter, "CARRIED_BYTES", SMALL_CARRIED_BYTES):
        said = letter_bytes(None, None, [])
        assert letter_bytes(key, value, headers) <= SMALL_CARRIED_BYTES + said + EVERY_RECORD_BYTES


def test_the_key_is_the_same_for_the_same_pipeline_record_and_reason_alone() -> None:
    row = {"topic": "t", "partition": 2, "offset": 7, "timestamp": TIME_US, "key": b"k", "value": b"x"}
    batch = pa.RecordBatch.from_pylist([row], schema=RECORDS)

    def key(code: str, pipeline: str) -> bytes:
        made = letter_batch(batch, pa.array([code]), pa.array(["because"]), pipeline, CLEAR)
        return bytes(made.column("key")[0].as_py())

    assert key("not-json", "collect") == key("not-json", "collect") == b"collect/t/2/7/not-json"
    assert len({key("not-json", "collect"), key("missing:ip", "collect"), key("not-json", "earnings")}) == 3


def test_letters_of_streams_are_read_too() -> None:
    refused = ConsumerRecord("orders", 3, 9, 1_234, 0, b"k", b"v", (("trace", b"1"), ("trace", b"2")))
    stream = read_letter(consumed(b"k", b"v", dead_letter_headers(refused, ValueError("no"), 1)))
    assert stream is not None
    assert (stream.pipeline, stream.place, stream.timestamp_ms) == (None, Place("orders", 3, 9), 1_234)
    assert (stream.code, stream.reason) == ("builtins.ValueError", "no")
    assert stream.headers == refused.headers


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("pipeline", b"earnings")],
        [(name, b"1") for name in ("pipeline", "topic", "partition", "offset", "reason")],
        [(name, None) for name in HEADERS],
        [(name, b"1") for name in reversed(HEADERS)],
        [(name, b"-5") for name in HEADERS],
        [(name, b"9" * 40) for name in HEADERS],
        [(name, b"9" * 5000) for name in HEADERS],
        [(name, b"%d" % 2**63) for name in HEADERS],
        [(name, "٣".encode()) for name in HEADERS],
    ],
)
def test_what_anybody_may_have_written_there_is_no_letter(headers: Headers) -> None:
    assert read_letter(consumed(None, b"x", headers)) is None


def test_a_time_that_no_record_can_have_is_none() -> None:
    values = (b"collect", b"t", b"3", b"9", b"%d" % 2**63, b"not-json", b"why", b"whole", b"k")
    letter = read_letter(consumed(b"k", b"v", list(zip(HEADERS, values, strict=True))))
    assert letter is not None
    assert (letter.place, letter.timestamp_ms) == (Place("t", 3, 9), -1)


def test_codes_are_found_whole_in_parts_and_without_their_fields() -> None:
    letter = Letter(0, 0, 0, "p", Place("t", 0, 0), 0, "missing:ip,type:step", "", None, None)
    assert letter.codes == {"missing:ip", "type:step", "missing", "type"}


def test_how_often_a_record_was_sent_again_is_what_our_header_says() -> None:
    headers = [("tidelog-redriven", b"2"), ("tidelog-redriven", b"many"), ("tidelog-redriven", None)]
    letter = Letter(0, 0, 0, "p", Place("t", 0, 0), 0, "", "", None, None, headers)
    assert letter.redrives == 2
    assert Letter(0, 0, 0, "p", Place("t", 0, 0), 0, "", "", None, None).redrives == 0


def test_headers_count_for_the_size_of_a_redrives_transaction() -> None:
    letter = Letter(0, 0, 0, "p", Place("t", 0, 0), 0, "", "", b"k", b"v", [("é" * 100, bytes(1000))])
    sending = Sending(letter, "t", 1)
    assert sending.size + EVERY_RECORD_BYTES >= written_bytes(b"k", b"v", sending.headers) > 1200


def test_a_record_that_may_hold_phone_numbers_is_sealed_and_only_the_keys_open_it() -> None:
    row = ("ml_user_login_log", 0, 3, TIME_US, b"13812345678", b'{"phone": "138 1234 5678"', None)
    headers = [("from", b"+8613812345678"), ("trace", None)]
    [sealed] = letters((*row[:-1], headers), why=["not-json"], phones=TOKENS)
    assert sealed is not None
    token = TOKENS.of("13812345678", TIME_US).encode()
    assert (sealed.key, sealed.value) == (token, b'{"phone": "%s"' % token)
    assert [*sealed.headers] == [("from", token), ("trace", None)]
    assert sealed.seal is not None
    assert b"138" not in sealed.seal
    # A batch that comes again writes the same bytes.
    assert [sealed] == letters((*row[:-1], headers), why=["not-json"], phones=TOKENS)
    [clear] = letters((*row[:-1], headers), why=["not-json"])
    assert clear is not None
    assert replace(opened(sealed, TOKENS), headers=tuple(opened(sealed, TOKENS).headers)) == clear
    other = PhoneTokens(PhoneKeys([PhoneKey("k2", datetime(1970, 1, 1, tzinfo=UTC), b"2" * 32)]), "CN")
    with pytest.raises(PhoneKeysError, match="'k1', which is not among the keys"):
        opened(sealed, other)


@pytest.mark.parametrize(
    "place", [Place("open_to_all", 0, 3), Place("ml_user_login_log", 1, 3), Place("ml_user_login_log", 0, 33)]
)
def test_a_seal_in_a_letter_about_another_record_is_not_opened(place: Place) -> None:
    """Whoever may write letters may copy one, and have it name a topic of their own."""
    row = ("ml_user_login_log", 0, 3, TIME_US, b"k", b'{"phone": "138 1234 5678"', None)
    [sealed] = letters(row, why=["not-json"], phones=TOKENS)
    assert sealed is not None
    assert opened(sealed, TOKENS).value == row[5]
    with pytest.raises(PhoneKeysError, match="has the seal of another record"):
        opened(replace(sealed, place=place), TOKENS)


def test_a_letter_without_its_record_holds_nothing_large() -> None:
    row = ("t", 0, 3, TIME_US, b"k", b"138 1234 5678", [("trace", b"1")])
    [sealed] = letters(row, why=["not-json"], phones=TOKENS)
    assert sealed is not None
    bare = sealed.without_record
    assert (bare.key, bare.value, bare.headers, bare.seal) == (None, None, (), None)
    assert (bare.name, bare.place, bare.code) == (sealed.name, sealed.place, sealed.code)


def test_the_name_of_a_header_tells_no_number_either() -> None:
    headers: Headers = [("call 138-1234-5678", b"x"), ("trace", b"1")]
    [sealed] = letters(("t", 0, 3, TIME_US, b"k", b"{", headers), why=["not-json"], phones=TOKENS)
    assert sealed is not None
    assert [*sealed.headers] == [(f"call {TOKENS.of('13812345678', TIME_US)}", b"x"), ("trace", b"1")]
    assert [*opened(sealed, TOKENS).headers] == headers


def test_a_record_without_such_numbers_is_whole_and_a_reason_tells_none() -> None:
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(RECORDS.names, ("t", 0, 1, TIME_US, b"u1", b"{", None), strict=True))], schema=RECORDS
    )
    reasons = pa.array(["field phone: 13812345678 is not a text"])
    [row] = letter_batch(batch, pa.array(["type:phone"]), reasons, "earnings", TOKENS).to_pylist()
    told = {each["key"]: each["value"] for each in row["headers"]}
    assert told["record"] == b"whole"
    assert told["reason"] == b"field phone: %s is not a text" % TOKENS.of("13812345678", TIME_US).encode()


def test_a_record_whose_seal_would_make_the_letter_too_large_is_left_out() -> None:
    value = b"13812345678" + b"x" * (CARRIED_BYTES * 2 // 3)
    [letter] = letters(("t", 0, 1, TIME_US, b"k", value, None), why=["not-json"], phones=TOKENS)
    assert letter is not None
    assert letter.left_out
    assert letter.value is None
