"""The foreign oracle (kio) and random messages, derived from our own schema, for the tests of the wire.

kio keeps one frozen class per message and version, names durations without ``_ms``, and turns error codes,
durations, instants and ids into types of their own. What is here translates that back into our plain values.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from tidelog.ids import ZERO_UUID
from tidelog.wire.api import API_TABLE
from tidelog.wire.schema import Field, Message, Payload

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
LAST_SECOND = 253_402_300_799

INTEGERS = {"int8": (-(2**7), 2**7), "int16": (-(2**15), 2**15), "uint16": (0, 2**16)}
INTEGERS |= {"int32": (-(2**31), 2**31), "uint32": (0, 2**32), "int64": (-(2**63), 2**63)}
NARROWED = {
    "error_code": st.sampled_from([code.value for code in KioErrorCode]),
    # Whole seconds: kio goes through floating point, which loses milliseconds of large values.
    "timedelta_i64": st.integers(-(2**32), 2**32).map(lambda seconds: seconds * 1000),
    "datetime_i64": st.integers(0, LAST_SECOND).map(lambda seconds: seconds * 1000),
}


def payloads() -> Iterator[tuple[type[Payload], int]]:
    """Every request and response that the oracle knows, with every version."""
    for api in API_TABLE.values():
        for payload in (api.request, api.response) if api.key in api_key_map else ():
            for version in range(payload.VERSIONS[0], payload.VERSIONS[1] + 1):
                yield payload, version


def kio_class(payload: type[Payload], version: int) -> type:
    load = load_request_schema if payload.__name__.endswith("Request") else load_response_schema
    return load(payload.API_KEY, version)


def without_none(annotation: object) -> object:
    """The annotation of an optional value without its ``None``."""
    if isinstance(annotation, types.UnionType):
        (annotation,) = (each for each in typing.get_args(annotation) if each is not type(None))
    return annotation


def nested_kio_class(field: dataclasses.Field[object]) -> type:
    inner = without_none(field.type)
    if typing.get_origin(inner) is tuple:
        inner = typing.get_args(inner)[0]
    assert isinstance(inner, type)
    return inner


def paired_fields(
    ours: type[Message], theirs: type, version: int
) -> Iterator[tuple[Field, dataclasses.Field[object]]]:
    """Our fields of this version beside kio's: both are in Kafka's order."""
    mine = [field for field in ours.FIELDS if field.present_in(version)]
    yield from zip(mine, dataclasses.fields(theirs), strict=True)


def plain(value: object) -> object:
    """One of kio's values as we would have it; structures become dictionaries of kio's names."""
    match value:
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case KioErrorCode():
            return value.value
        case uuid.UUID():
            return value.bytes
        case tuple():
            return [plain(item) for item in value]
    return value


def plain_message(entity: object, ours: type[Message], version: int) -> dict[str, object]:
    """A kio entity as a dictionary under our names."""
    result: dict[str, object] = {}
    for field, theirs in paired_fields(ours, type(entity), version):
        value = getattr(entity, theirs.name)
        if isinstance(field.type, str):
            value = plain(value)
            if value is None and theirs.metadata["kafka_type"] == "uuid":
                value = ZERO_UUID
            if value is None and theirs.metadata["kafka_type"] == "datetime_i64":
                value = -1
            if isinstance(value, list) and field.type == "uuid":
                value = [ZERO_UUID if item is None else item for item in value]
            result[field.name] = value
        elif field.array and value is not None:
            result[field.name] = [plain_message(item, field.type, version) for item in value]
        else:
            result[field.name] = None if value is None else plain_message(value, field.type, version)
    return result


def as_dict(message: Message, version: int) -> dict[str, object]:
    """One of our messages as a dictionary of the fields that the version has."""
    result: dict[str, object] = {}
    for field in message.FIELDS:
        if field.present_in(version):
            value = getattr(message, field.name)
            if isinstance(value, Message):
                value = as_dict(value, version)
            elif isinstance(value, list):
                value = [as_dict(item, version) if isinstance(item, Message) else item for item in value]
            result[field.name] = value
    return result


def kio_decode(payload: type[Payload], version: int, data: bytes) -> object:
    read: typing.Any = entity_reader(kio_class(payload, version))
    entity, size = read(data, 0)
    assert size == len(data)
    return entity


def kio_encode(entity: object) -> bytes:
    buffer = io.BytesIO()
    kind: typing.Any = type(entity)
    entity_writer(kind)(buffer, entity)
    return buffer.getvalue()


def scalars(field: Field, theirs: dataclasses.Field[object]) -> st.SearchStrategy[object]:
    narrowed = NARROWED.get(theirs.metadata["kafka_type"])
    if narrowed is not None:
        return narrowed
    match field.type:
        case "bool":
            return st.booleans()
        case "float64":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "string":
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "bytes" | "records":
            return st.binary(max_size=8)
    low, beyond = INTEGERS[str(field.type)]
    return st.integers(low, beyond - 1)


def build_strategy(ours: type[Message], theirs: type, version: int) -> st.SearchStrategy[Message]:
    given: dict[str, st.SearchStrategy[object]] = {}
    for field, their_field in paired_fields(ours, theirs, version):
        if isinstance(field.type, str):
            strategy = scalars(field, their_field)
        else:
            strategy = build_strategy(field.type, nested_kio_class(their_field), version)
        if field.array:
            strategy = st.lists(strategy, max_size=2)
        # kio cannot write a null in a tagged field; Kafka never does, as null is those fields' default.
        if field.nullable_in(version) and not field.tagged_in(version):
            strategy = st.none() | strategy
        given[field.name] = strategy
    return st.builds(ours, **given)


_strategies: dict[tuple[type[Payload], int], st.SearchStrategy[Payload]] = {}


def messages_of(payload: type[Payload], version: int) -> st.SearchStrategy[Payload]:
    """Random messages that say nothing which the version has no place for."""
    key = (payload, version)
    if key not in _strategies:
        strategy = build_strategy(payload, kio_class(payload, version), version)
        _strategies[key] = typing.cast("st.SearchStrategy[Payload]", strategy)
    return _strategies[key]


class Oracle:
    """What tests ask of kio."""

    kio_class = staticmethod(kio_class)
    nested_kio_class = staticmethod(nested_kio_class)
    paired_fields = staticmethod(paired_fields)
    plain = staticmethod(plain)
    plain_message = staticmethod(plain_message)
    as_dict = staticmethod(as_dict)
    decode = staticmethod(kio_decode)
    encode = staticmethod(kio_encode)


@pytest.fixture(scope="session")
def oracle() -> type[Oracle]:
    return Oracle


@pytest.fixture(scope="session")
def random_messages() -> Callable[[type[Payload], int], st.SearchStrategy[Payload]]:
    return messages_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``payload`` and ``version`` for all of them."""
    if {"payload", "version"} <= set(metafunc.fixturenames):
        every = list(payloads())
        names = [f"{payload.__name__}-v{version}" for payload, version in every]
        metafunc.parametrize(("payload", "version"), every, ids=names)
