"""Schemas and fields that are made to take all memory or time cost themselves only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import cbor2
import msgpack
import pytest

from tidelog.console.records.decoding.decode_process import DecodeProcess
from tidelog.console.records.decoding.frames import Answer, Bounds, Compile, NamedText, Task

BOUNDS = Bounds(memory_bytes=384 * 1024 * 1024, schema_cpu_s=5.0, field_cpu_s=0.5)
GOOD = Compile("good", "avro", '"long"', [])
MOST = 64 * 1024


def answers(tasks: Sequence[Task], *schemas: Compile) -> list[Answer]:
    async def main() -> list[Answer]:
        async with DecodeProcess(BOUNDS) as process:
            for each in (GOOD, *schemas):
                process.add(each)
            return await process.answers(tasks)

    return asyncio.run(main())


def good(number: int) -> Task:
    return Task("avro", bytes([2 * number]), "good", most_bytes=MOST)


def check_between_good_ones(task: Task, *schemas: Compile) -> str:
    """The problem of ``task``; those before and after it are decoded."""
    first, found, last = answers([good(1), task, good(2)], *schemas)
    assert (first.json, last.json) == (b"1", b"2")
    assert found.json is None
    assert found.problem
    return found.problem


def avro(schema: object, data: bytes) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return check_between_good_ones(
        Task("avro", data, "bad", most_bytes=MOST), Compile("bad", "avro", text, [])
    )


def proto(text: str, data: bytes) -> str:
    schema = Compile("bad", "protobuf", text, [])
    return check_between_good_ones(Task("protobuf", data, "bad", most_bytes=MOST), schema)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("bytes that are no JSON", b""),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "Unknown"}]}, b""),
        # A record that holds itself, without an end.
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b""),
        ("[" * 5000 + '"int"' + "]" * 5000, b"\x02"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x64"),
        ({"type": "fixed", "name": "F", "size": 1 << 60}, b"x"),
        ("string", b"\xfe\xff\xff\xff\xff\x01"),
        ('"string"', b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ('"string"', b"\x02"),
        ('"string"', b"\x01"),
        ('"long"', b"\x02\x02"),
        ('"long"', b"\xff" * 1000),
        ('["null", "long"]', b"\x20"),
    ],
)
def test_avro_that_lies_is_a_problem(schema: object, data: bytes) -> None:
    avro(schema, data)


def test_an_array_of_nothing_takes_no_more_than_it_may() -> None:
    # A million million nulls in seven bytes.
    count = b"\x80\xc0\xca\xf3\x84\xa3\x02" + b"\x00"
    avro({"type": "array", "items": "null"}, count)


def test_a_tree_that_says_it_is_deep_is_bounded() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "next", "type": ["null", "R"]}],
    }
    avro(schema, b"\x02" * 1_000_000 + b"\x00")


def test_references_that_are_none_are_a_problem() -> None:
    schema = Compile("bad", "avro", '"A"', [NamedText("A", '{"type": "record", "name": "B", "fields": []}')])
    check_between_good_ones(Task("avro", b"", "bad", most_bytes=MOST), schema)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("message M { int32 a = 1; }", b""),
        ("message M { int32 a = 1; }", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("message M { int32 a = 1; }", b"\x02\x02"),  # there is no second message
        ("message M { int32 a = 1; }", b"\x04\x00\x00"),
        ("message M { int32 a = 1; }", b"\xfe\xff\x03" + b"\x00" * 70_000),
        ("message M { optional string a = 1; }", b"\x00\x0a\xff\xff\xff\xff\x0f"),
        ("message M { optional M a = 1; }", b"\x00" + b"\x0b" * 100_000),
        ("message " * 3000, b"\x00"),
        ("message M {" * 3000 + "}" * 3000, b"\x00"),
    ],
)
def test_protobuf_that_lies_is_a_problem(text: str, data: bytes) -> None:
    proto(text, data)


def test_a_protobuf_message_that_is_deep_is_bounded() -> None:
    data = b""
    for _ in range(5000):
        data = b"\x0a" + _varint(len(data)) + data
    proto("message M { optional M a = 1; }", b"\x00" + data)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    ("format_", "data"),
    [
        ("msgpack", b"\xdf\xff\xff\xff\xff"),
        ("msgpack", b"\x91" * 100_000),
        ("msgpack", b"\xc6\xff\xff\xff\xff"),
        ("msgpack", msgpack.packb({"a": 1}) + b"more"),
        ("cbor", b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("cbor", b"\x81" * 100_000),
        ("cbor", b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff"),
        ("cbor", cbor2.dumps({"a": 1}) + b"\x01"),
        # Two to the power of a number without end.
        ("cbor", b"\xc5\x82\x1b\x00\xff\xff\xff\xff\xff\xff\xff\x01"),
        # A list that holds itself.
        ("cbor", b"\xd8\x1c\x81\xd8\x1d\x00"),
    ],
)
def test_msgpack_and_cbor_that_lie_are_a_problem(format_: str, data: bytes) -> None:
    check_between_good_ones(Task(format_, data, most_bytes=MOST))


def test_a_value_that_holds_another_again_and_again_is_bounded() -> None:
    nested: object = "x"
    for _ in range(40):
        nested = [nested, nested]
    data = cbor2.dumps(nested, value_sharing=True)
    assert len(data) < 1000
    check_between_good_ones(Task("cbor", data, most_bytes=MOST))


def test_json_that_is_much_larger_than_the_field_is_refused() -> None:
    name = "n" * 5000
    schema = {
        "type": "array",
        "items": {"type": "record", "name": "R", "fields": [{"name": name, "type": "null"}]},
    }
    assert "bytes as JSON" in avro(schema, b"\x80\x02\x00")


def test_a_search_gives_up_on_fields_that_end_the_process_again_and_again() -> None:
    schema = Compile("bad", "avro", '{"type": "array", "items": "null"}', [])
    endless = Task("avro", b"\x80\xc0\xca\xf3\x84\xa3\x02\x00", "bad", most_bytes=MOST)
    bounds = Bounds(BOUNDS.memory_bytes * 8, 5.0, 0.3)

    async def main() -> list[Answer]:
        async with DecodeProcess(bounds) as process:
            process.add(schema)
            process.add(GOOD)
            return await process.answers([good(1)] + [endless] * 8 + [good(2)])

    first, *bad, last = asyncio.run(main())
    assert first.json == b"1"
    assert all(each.problem for each in bad)
    assert "decoding stopped" in last.problem


def test_a_schema_that_takes_too_long_is_not_tried_again() -> None:
    bounds = Bounds(BOUNDS.memory_bytes, 1.0, 5.0)
    slow = "message M { " + "".join(f"optional int32 f{n} = {n};" for n in range(1, 10_000)) + "}"

    async def main() -> list[Answer]:
        async with DecodeProcess(bounds) as process:
            process.add(Compile("slow", "protobuf", slow, []))
            process.add(GOOD)
            task = Task("protobuf", b"\x00", "slow", most_bytes=MOST)
            return await process.answers([good(1), *[task] * 20, good(2)])

    first, *others, last = asyncio.run(main())
    assert (first.json, last.json) == (b"1", b"2")
    assert {each.problem for each in others} == {"its schema exceeded the memory or time limit"}
