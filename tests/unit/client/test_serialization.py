from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pytest

from tidelog.client.serialization import (
    BytesDeserializer,
    BytesSerializer,
    JsonDeserializer,
    MsgspecDeserializer,
    MsgspecSerializer,
    SerializationError,
    StringDeserializer,
    StringSerializer,
    deserializer_for,
    serializer_for,
)
from tidelog.errors import ConfigError


@dataclass
class Order:
    number: int
    at: datetime.date


@pytest.mark.parametrize(
    ("name", "value", "encoded"),
    [
        ("str", "grün", "grün".encode()),
        ("json", {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode()),
        ("msgpack", {"a": 1}, b"\x81\xa1a\x01"),
        ("org.apache.kafka.common.serialization.StringSerializer", "x", b"x"),
    ],
)
def test_values_come_back_as_they_went(name: str, value: Any, encoded: bytes) -> None:
    serialize = serializer_for(name)
    deserialize = deserializer_for(name.replace("Serializer", "Deserializer"))
    assert serialize is not None
    assert deserialize is not None
    assert serialize("t", value) == encoded
    assert deserialize("t", encoded) == value


@pytest.mark.parametrize("name", ["str", "json", "msgpack"])
def test_null_stays_null(name: str) -> None:
    serialize, deserialize = serializer_for(name), deserializer_for(name)
    assert serialize is not None
    assert deserialize is not None
    assert serialize("t", None) is None
    assert deserialize("t", None) is None


def test_plain_bytes_need_no_function_at_all() -> None:
    for spec in (None, "bytes", BytesSerializer, BytesSerializer()):
        assert serializer_for(spec) is None
    for wanted in (None, "bytes", BytesDeserializer):
        assert deserializer_for(wanted) is None


def test_bytes_refuse_text_with_the_mend() -> None:
    plain = BytesSerializer()
    assert plain.serialize("t", bytearray(b"x")) == b"x"
    assert plain.serialize("t", memoryview(b"x")) == b"x"
    with pytest.raises(SerializationError, match="value_serializer"):
        plain.serialize("t", "text")


def test_functions_of_one_value_do_as_well() -> None:
    serialize = serializer_for(lambda value: str(value).encode())
    deserialize = deserializer_for(int)
    assert serialize is not None
    assert serialize("t", 5) == b"5"
    assert serialize("t", None) is None
    assert deserialize is not None
    assert deserialize("t", b"5") == 5


def test_msgspec_reads_into_types_and_says_what_is_wrong() -> None:
    order = Order(7, datetime.date(2026, 11, 15))
    data = MsgspecSerializer().serialize("t", order)
    assert data == b'{"number":7,"at":"2026-11-15"}'
    assert MsgspecDeserializer(Order).deserialize("t", data) == order
    with pytest.raises(SerializationError, match="does not hold what was expected"):
        MsgspecDeserializer(Order).deserialize("t", b'{"number":"x"}')
    with pytest.raises(SerializationError):
        MsgspecSerializer().serialize("t", object())


def test_what_cannot_be_read_names_the_topic() -> None:
    with pytest.raises(SerializationError, match="topic 'orders'"):
        StringDeserializer().deserialize("orders", b"\xff")
    with pytest.raises(SerializationError, match="topic 'orders'"):
        StringSerializer().serialize("orders", 5)
    deserialize = deserializer_for("json")
    assert deserialize is not None
    with pytest.raises(SerializationError, match="topic 'orders'"):
        deserialize("orders", b"{")
    for hostile in (b'"\xff"', b"[" * 100_000):
        for reader in (JsonDeserializer(), MsgspecDeserializer()):
            with pytest.raises(SerializationError, match="topic 'orders'"):
                reader.deserialize("orders", hostile)


def test_names_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="bytes, str, json, msgpack"):
        serializer_for("avro")
    with pytest.raises(ConfigError, match=r"key\.deserializer"):
        deserializer_for("avro", "key.deserializer")
    with pytest.raises(ConfigError):
        serializer_for(5)


def test_the_types_str_and_bytes_stand_for_their_names() -> None:
    to_text, from_text = deserializer_for(str), serializer_for(str)
    assert to_text is not None
    assert from_text is not None
    assert to_text("t", "caf\u00e9".encode()) == "caf\u00e9"
    assert from_text("t", "caf\u00e9") == "caf\u00e9".encode()
    assert deserializer_for(bytes) is None
    assert serializer_for(bytes) is None
