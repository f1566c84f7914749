"""The generated message classes say of every version what an independent implementation says."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest

import tidelog.wire.messages
from tidelog.ids import ZERO_UUID
from tidelog.wire.api import API_TABLE
from tidelog.wire.schema import Field, Message, Payload, defaults_of, flexible_in

MODULES = Path(tidelog.wire.messages.__file__).parent.parent
SAME_ON_THE_WIRE = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}


def kind_of(field: dataclasses.Field[object]) -> str | None:
    kafka_type: str | None = field.metadata.get("kafka_type")
    return None if kafka_type is None else SAME_ON_THE_WIRE.get(kafka_type, kafka_type)


def is_nullable(field: dataclasses.Field[object]) -> bool:
    return isinstance(field.type, types.UnionType) and type(None) in typing.get_args(field.type)


def check_field(field: Field, theirs: dataclasses.Field[object], version: int) -> None:
    assert field.name in (theirs.name, f"{theirs.name}_ms")
    inner = next((a for a in typing.get_args(theirs.type) if typing.get_origin(a) is tuple), theirs.type)
    assert field.array == (typing.get_origin(inner) is tuple)
    if isinstance(field.type, str):
        assert field.type == kind_of(theirs)
    tag = field.tag if field.tagged_in(version) else None
    assert theirs.metadata.get("tag") == tag
    # kio makes zero ids and instants of -1 optional; neither has a null on the wire.
    if field.type not in ("uuid", "int64"):
        assert field.nullable_in(version) == is_nullable(theirs)


def check_default(ours: object, theirs: object, oracle: typing.Any) -> None:
    if theirs is dataclasses.MISSING:
        return
    value = oracle.plain(theirs)
    if isinstance(ours, Message):
        return
    if ours == ZERO_UUID or (ours == -1 and value is None):
        assert value in (None, ZERO_UUID)
    else:
        assert ours == value


def check_struct(ours: type[Message], theirs: type, version: int, oracle: typing.Any) -> None:
    defaults = defaults_of(ours)
    for field, their_field in oracle.paired_fields(ours, theirs, version):
        check_field(field, their_field, version)
        check_default(defaults[field.name], their_field.default, oracle)
        if not isinstance(field.type, str):
            nested = oracle.nested_kio_class(their_field)
            assert field.type.__name__.endswith(nested.__name__)
            check_struct(field.type, nested, version, oracle)


def test_fields_types_nulls_tags_and_defaults_are_those_of_the_oracle(
    payload: type[Payload], version: int, oracle: typing.Any
) -> None:
    theirs = oracle.kio_class(payload, version)
    assert flexible_in(payload, version) == theirs.__flexible__
    check_struct(payload, theirs, version, oracle)


@pytest.mark.parametrize(
    "path",
    [*MODULES.glob("messages/[a-z]*.py"), *MODULES.glob("internal_topics/*_*[a-z].py")],
    ids=lambda path: path.stem,
)
def test_generated_modules_were_not_edited_by_hand(path: Path) -> None:
    body, found, digest = path.read_text().rpartition("\n\n# sha256 of the above: ")
    assert found, f"{path.name} has no checksum: it was not written by scripts/generate_messages.py"
    assert hashlib.sha256(body.encode()).hexdigest() == digest.strip()


def test_schema_lists_the_fields_of_the_struct_in_order() -> None:
    def check(message: type[Message]) -> None:
        assert tuple(field.name for field in message.FIELDS) == message.__struct_fields__
        for field in message.FIELDS:
            if not isinstance(field.type, str):
                check(field.type)

    for api in API_TABLE.values():
        check(api.request)
        check(api.response)


def test_empty_lists_are_not_shared_between_messages() -> None:
    request = API_TABLE[next(iter(API_TABLE))].request
    first, second = request(), request()
    lists = [name for name, value in defaults_of(request).items() if value == []]
    assert lists
    assert all(getattr(first, name) is not getattr(second, name) for name in lists)


def test_importing_the_api_table_imports_no_messages() -> None:
    code = (
        "import sys, tidelog.wire.api, tidelog.wire.headers, tidelog.wire.produce, tidelog.wire.fetch\n"
        "print([m for m in sys.modules if m.startswith('tidelog.wire.messages.')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
