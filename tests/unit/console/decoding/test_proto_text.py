"""The text of .proto files makes the descriptors that protoc made of them: Google's files are the witness."""

from __future__ import annotations

import base64
import importlib
from pathlib import Path
from typing import Any

import google.api
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tidelog.console.records.decoding.frames import NamedText
from tidelog.console.records.decoding.problem import DecodeProblem
from tidelog.console.records.decoding.proto_text import file_of_text
from tidelog.console.records.decoding.protobuf import ProtobufSchema

GOOGLE = Path(next(iter(google.api.__path__))).parent
NAMES = sorted(
    path.relative_to(GOOGLE.parent).as_posix()
    for part in ("type", "rpc", "logging", "longrunning", "api")
    for path in (GOOGLE / part).rglob("*.proto")
    if not path.stem.endswith("_proto")  # kept for old imports: a file of another name
)


def foreign_file(name: str) -> Any:
    return importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR


def message(kind: Descriptor) -> dict[str, Any]:
    return {
        "fields": {each.name: field(each) for each in kind.fields},
        "oneofs": [each.name for each in kind.oneofs],
        "enums": {each.name: enum(each) for each in kind.enum_types},
        "messages": {each.name: message(each) for each in kind.nested_types},
    }


def field(each: FieldDescriptor) -> tuple[Any, ...]:
    named = each.message_type or each.enum_type
    oneof = each.containing_oneof
    return (
        each.number,
        each.type,
        each.is_repeated,
        each.has_presence,
        named.full_name if named else "",
        oneof.name if oneof else "",
    )


def enum(kind: EnumDescriptor) -> dict[str, int]:
    return {each.name: each.number for each in kind.values}


def file(name: str, pool: descriptor_pool.DescriptorPool) -> dict[str, Any]:
    found = pool.FindFileByName(name)
    return {
        "package": found.package,
        "messages": {each.name: message(each) for each in found.message_types_by_name.values()},
        "enums": {each.name: enum(each) for each in found.enum_types_by_name.values()},
    }


def add_foreign(pool: descriptor_pool.DescriptorPool, descriptor: Any, done: set[str]) -> None:
    for each in descriptor.dependencies:
        add_foreign(pool, each, done)
    if descriptor.name not in done:
        done.add(descriptor.name)
        pool.AddSerializedFile(descriptor.serialized_pb)


def test_there_are_files_to_compare() -> None:
    assert len(NAMES) > 40


@pytest.mark.parametrize("name", NAMES)
def test_a_text_makes_the_descriptor_that_protoc_made(name: str) -> None:
    foreign = foreign_file(name)
    ours, theirs = descriptor_pool.DescriptorPool(), descriptor_pool.DescriptorPool()
    done: set[str] = set()
    for each in foreign.dependencies:
        add_foreign(ours, each, done)
    add_foreign(theirs, foreign, set())
    made = file_of_text(name, (GOOGLE.parent / name).read_text())
    ours.AddSerializedFile(made.SerializeToString())
    assert file(name, ours) == file(name, theirs)


def test_proto2_and_editions_are_read() -> None:
    old = file_of_text(
        "old.proto",
        """
        package old;
        message Outer {
          required int32 a = 1;
          optional string b = 2 [default = "x;y"];
          repeated group Part = 3 { optional int32 c = 1; }
          extensions 100 to 199, 500 to max;
          enum Kind { option allow_alias = true; A = 0; B = 0; }
        }
        extend Outer { optional int32 more = 100; }
        """,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(old.SerializeToString())
    found = pool.FindMessageTypeByName("old.Outer")
    group: Any = found.fields_by_name["part"].message_type
    assert group.full_name == "old.Outer.Part"
    assert found.fields_by_name["a"].is_required
    new = file_of_text("new.proto", 'edition = "2023"; message M { int32 a = 1; }')
    pool.AddSerializedFile(new.SerializeToString())
    assert pool.FindMessageTypeByName("M").fields_by_name["a"].has_presence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "message M { int32 a = }",
        "message M {",
        "{}",
        "\x00\x01",
        'edition = "9999"; message M {}',
        "message M { int99 a = 1; }",
        "message M { int32 a = 1; int32 a = 1; }",
        'syntax = "proto3"; import "elsewhere.proto"; message M { elsewhere.Type a = 1; }',
        "message M { int32 a = 99999999999999999999; }",
    ],
)
def test_what_is_no_schema_is_a_problem_with_a_sentence(text: str) -> None:
    with pytest.raises(DecodeProblem):
        ProtobufSchema(text, []).decode(b"\x00", None)


def test_imports_that_hold_options_only_are_not_missed() -> None:
    text = """
        syntax = "proto3";
        import "validate/validate.proto";
        import "confluent/type/decimal.proto";
        import "google/protobuf/timestamp.proto";
        message M {
          string name = 1 [(validate.rules).string.min_len = 1, deprecated = true];
          confluent.type.Decimal price = 2;
          google.protobuf.Timestamp at = 3;
        }
    """
    data = b"\x00" + b"\x0a\x01x" + b"\x12\x04\x0a\x02\x01\x00" + b"\x1a\x02\x08\x01"
    shown = {
        "name": "x",
        "price": {"value": b"\x01\x00", "precision": 0, "scale": 0},
        "at": "1970-01-01T00:00:01Z",
    }
    assert ProtobufSchema(text, []).decode(data, None) == ("M", shown)


def test_references_are_found_by_their_names() -> None:
    inner = NamedText("inner/a.proto", 'syntax = "proto3"; package inner; message A { int64 n = 1; }')
    text = (
        'syntax = "proto3"; import "inner/a.proto"; message M { inner.A a = 1; map<string, inner.A> m = 2; }'
    )
    schema = ProtobufSchema(text, [inner])
    data = b"\x0a\x02\x08\x05" + b"\x12\x07\x0a\x01k\x12\x02\x08\x06"
    assert schema.decode(data, b"\x00") == ("M", {"a": {"n": 5}, "m": {"k": {"n": 6}}})


def test_the_descriptor_itself_may_be_registered() -> None:
    made = file_of_text("m.proto", 'syntax = "proto3"; message M { bool yes = 1; }')
    assert isinstance(made, FileDescriptorProto)
    text = base64.b64encode(made.SerializeToString()).decode()
    assert ProtobufSchema(text, []).decode(b"\x08\x01", b"\x02\x00") == ("M", {"yes": True})
