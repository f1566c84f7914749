"""Fields written by foreign serializers: Confluent's for Avro, Protobuf and JSON Schema; msgpack; cbor2."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import json
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import cbor2
import msgpack
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from tests.rigs.schema_registry import SchemaRegistry

from tidelog.console.records.decoded import DecodedField
from tidelog.console.records.decoding import registry as registry_module
from tidelog.console.records.decoding.choice import AUTOMATIC, Choice
from tidelog.console.records.decoding.record_decoder import RecordDecoder
from tidelog.console.records.decoding.registry import Registry
from tidelog.console.records.raw import RawRecord
from tidelog.console.settings import RegistrySettings

TOPIC = "orders"
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
            {"name": "raw", "type": "bytes"},
        ],
    }
)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "REQUEST_S", 60.0)
    monkeypatch.setattr(registry_module, "SCHEMA_S", 120.0)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running


def context(part: Any = MessageField.VALUE, headers: Any = None) -> SerializationContext:
    return SerializationContext(TOPIC, part, headers)


def record(
    value: bytes | None, key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> RawRecord:
    return RawRecord(0, 0, 0, key, value, list(headers))


def decode_all(
    records: Sequence[RawRecord],
    registry: SchemaRegistry | None = None,
    choice: Choice = AUTOMATIC,
    topic: str = TOPIC,
) -> list[RawRecord]:
    async def main() -> list[RawRecord]:
        asked = None if registry is None else Registry(RegistrySettings(registry.url))
        try:
            async with RecordDecoder(topic, asked, choice) as decoder:
                return await decoder.decoded(records)
        finally:
            if asked is not None:
                await asked.close()

    return asyncio.run(main())


def decode_value(
    value: bytes, registry: SchemaRegistry | None = None, choice: Choice = AUTOMATIC, **more: Any
) -> DecodedField | None:
    (found,) = decode_all([record(value, **more)], registry, choice)
    assert found.value == value  # the bytes stay what they are
    return found.decoded_value


def says(field: DecodedField | None) -> Any:
    assert field is not None
    assert field.problem == ""
    assert field.json is not None
    return json.loads(field.json)


def test_avro_of_confluents_serializer(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    order = {
        "id": 1 << 60,
        "price": decimal.Decimal("12.50"),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "note": "schön",
        "state": "PAID",
        "tags": {"a": 1},
        "raw": b"\xff\x00",
    }
    key = AvroSerializer(client, '"string"')("o-1", context(MessageField.KEY))
    value = AvroSerializer(client, ORDER)(order, context())
    (found,) = decode_all([record(value, key)], registry)
    assert found.decoded_value is not None
    assert found.decoded_key is not None
    assert says(found.decoded_key) == "o-1"
    assert says(found.decoded_value) == {
        **order,
        "price": 12.5,
        "at": "2026-01-02T03:04:05+00:00",
        "raw": "/wA=",
    }
    schema = found.decoded_value.schema
    assert schema is not None
    assert (schema.type, schema.id, schema.subject, schema.version) == ("avro", 2, "orders-value", 1)
    assert schema.name == "shop.Order"
    assert found.decoded_value.is_certain


def test_avro_that_refers_to_other_schemas(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    money = '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
    line = (
        '{"type": "record", "name": "shop.Line", "fields": [{"name": "each", "type": "shop.Money"}, '
        '{"name": "n", "type": "int"}]}'
    )
    client.register_schema("money", Schema(money, "AVRO"))
    to_money = SchemaReference("shop.Money", "money", 1)
    client.register_schema("line", Schema(line, "AVRO", [to_money]))
    basket = (
        '{"type": "record", "name": "shop.Basket", "fields": [{"name": "lines", "type": {"type": "array", '
        '"items": "shop.Line"}}, {"name": "sum", "type": "shop.Money"}]}'
    )
    schema = Schema(basket, "AVRO", [SchemaReference("shop.Line", "line", 1), to_money])
    given = {"lines": [{"each": {"cents": 5}, "n": 3}], "sum": {"cents": 15}}
    value = AvroSerializer(client, schema)(given, context())
    assert value is not None
    assert says(decode_value(value, registry)) == given


def test_protobuf_of_confluents_serializer_with_imports_and_nested_messages(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    span = trace_pb2.Span(
        name="read",
        kind=trace_pb2.Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=1 << 62,
        trace_id=b"\xff\x01",
        attributes=[common_pb2.KeyValue(key="k", value=common_pb2.AnyValue(int_value=7))],
    )
    event = trace_pb2.Span.Event(name="nested", time_unix_nano=5)
    values = [
        ProtobufSerializer(type(each), client, {"use.deprecated.format": False})(each, context())
        for each in (span, event)
    ]
    first, second = (each.decoded_value for each in decode_all([record(each) for each in values], registry))
    assert first is not None
    assert first.schema is not None
    assert first.schema.name == "opentelemetry.proto.trace.v1.Span"
    shown = says(first)
    assert shown["name"] == "read"
    assert shown["kind"] == "SPAN_KIND_CLIENT"
    assert shown["start_time_unix_nano"] == 1 << 62
    assert shown["trace_id"] == "/wE="
    assert shown["attributes"] == [{"key": "k", "value": {"int_value": 7}, "key_strindex": 0}]
    assert shown["events"] == []
    assert "status" not in shown
    assert second is not None
    assert second.schema is not None
    assert second.schema.name == "opentelemetry.proto.trace.v1.Span.Event"
    assert says(second)["time_unix_nano"] == 5


def test_json_schema_of_confluents_serializer(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    schema = '{"title": "order", "type": "object", "properties": {"price": {"type": "number"}}}'
    value = JSONSerializer(schema, client)({"price": 7.5, "more": [1]}, context())
    assert value is not None
    found = decode_value(value, registry)
    assert says(found) == {"price": 7.5, "more": [1]}
    assert found is not None
    assert (found.format, found.schema.type if found.schema else "") == ("jsonschema", "jsonschema")


def test_what_is_no_utf_8_is_no_json_of_a_json_schema(registry: SchemaRegistry) -> None:
    number = registry.register("orders-value", '{"type": "object"}', "JSON")
    found = decode_value(struct.pack(">xI", number) + b'{"name": "Jos\xe9"}', registry)
    assert found is not None
    assert (found.json, found.problem) == (None, "it is not JSON, although its schema is a JSON Schema")


def test_a_schema_that_a_header_names_by_its_guid(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    settings = {"schema.id.serializer": header_schema_id_serializer}
    headers: list[tuple[str, bytes]] = []
    value = AvroSerializer(client, '"long"', conf=settings)(150, context(headers=headers))
    assert value is not None
    (name, guid), *_ = headers
    assert (name, guid[0]) == ("__value_schema_id", 1)
    found = decode_value(value, registry, headers=headers)
    assert says(found) == 150
    assert found is not None
    assert found.schema is not None
    assert uuid.UUID(found.schema.guid).bytes == guid[1:17]
    event = trace_pb2.Span.Event(name="in a header")
    serializer = ProtobufSerializer(
        trace_pb2.Span.Event, client, {**settings, "use.deprecated.format": False}
    )
    headers = []
    value = serializer(event, context(headers=headers))
    assert value == event.SerializeToString()
    assert says(decode_value(value, registry, headers=headers))["name"] == "in a header"


def test_schemas_are_asked_for_once(registry: SchemaRegistry) -> None:
    number = registry.register("orders-value", '"long"')
    values = [struct.pack(">xI", number) + bytes([2 * each]) for each in range(50)]
    found = decode_all([record(each, each) for each in values], registry)
    assert [says(each.decoded_value) for each in found] == list(range(50))
    assert registry.asked == [f"/schemas/ids/{number}", f"/schemas/ids/{number}/versions"]


def test_bytes_of_javas_serializer_come_without_a_length(registry: SchemaRegistry) -> None:
    number = registry.register("orders-value", '"bytes"')
    found = decode_value(struct.pack(">xI", number) + b"\xff\xff\xffabc", registry)
    assert says(found) == "////YWJj"


@pytest.mark.parametrize(
    ("value", "format_", "meaning"),
    [
        (msgpack.packb({"price": 7, "raw": b"\xff", "l": [1.5, None, True]}), "msgpack", {"price": 7}),
        (msgpack.packb([{"n": 1}, {"n": 2}]), "msgpack", [{"n": 1}, {"n": 2}]),
        (cbor2.dumps({"price": 7, "raw": b"\xff", "big": 1 << 80}), "cbor", {"price": 7}),
        (cbor2.dumps(cbor2.CBORTag(55799, [1, 2])), "cbor", [1, 2]),
    ],
)
def test_msgpack_and_cbor_are_seen_where_there_is_no_doubt(value: bytes, format_: str, meaning: Any) -> None:
    found = decode_value(value)
    assert found is not None
    assert found.format == format_
    assert found.is_certain
    shown = says(found)
    assert shown == meaning if isinstance(meaning, list) else meaning.items() <= shown.items()


@pytest.mark.parametrize(
    "value",
    [
        b"plain text",
        b'{"json": 1}',
        b"\xff\xd8\xff\xe0 a picture",
        msgpack.packb([1, 2, 3]),
        msgpack.packb(7),
        msgpack.packb({}),
        cbor2.dumps([1, 2]),
        cbor2.dumps({1: 2}),
        msgpack.packb({"cut": "short"})[:-1],
        b"\x81",
        b"",
    ],
)
def test_nothing_else_is_taken_for_msgpack_or_cbor(value: bytes) -> None:
    assert decode_value(value) is None


def test_bytes_that_are_both_are_left_to_who_looks() -> None:
    both = bytes.fromhex("81a16005")
    assert msgpack.unpackb(both) == {"`": 5}
    assert cbor2.loads(both) == [{"": 5}]
    found = decode_value(both)
    assert found is not None
    assert found.json is None
    assert "MsgPack and valid CBOR: choose one" in found.problem
    assert says(decode_value(both, choice=Choice(value="cbor"))) == [{"": 5}]


def test_by_choice_everything_that_is_one_value_is_decoded() -> None:
    numbers = msgpack.packb([1, {2: b"\xff"}, msgpack.Timestamp(5), msgpack.ExtType(9, b"x")])
    found = decode_value(numbers, choice=Choice(value="msgpack"))
    assert says(found) == [1, {"2": "/w=="}, "1970-01-01T00:00:05+00:00", {"ext": 9, "data": "eA=="}]
    assert found is not None
    assert not found.is_certain
    odd = cbor2.dumps(
        [cbor2.undefined, cbor2.CBORTag(4000, "x"), decimal.Decimal("1.5"), {(1, 2): 3}, 2.0**1000]
    )
    shown = says(decode_value(odd, choice=Choice(value="cbor")))
    assert shown == [None, {"tag": 4000, "value": "x"}, 1.5, {"[1,2]": 3}, 2.0**1000]
    assert decode_value(odd, choice=Choice(value="hex")) is None


def test_a_wrong_choice_is_said(registry: SchemaRegistry) -> None:
    number = registry.register("orders-value", '"long"')
    value = struct.pack(">xI", number) + b"\x02"

    def problem(value: bytes, choice: str, where: SchemaRegistry | None = registry) -> str:
        found = decode_value(value, where, Choice(value=choice))  # type: ignore[arg-type]
        assert found is not None
        assert found.json is None
        return found.problem

    assert problem(value, "protobuf") == f"schema {number} is Avro, not Protobuf"
    assert "no schema registry is configured" in problem(value, "avro", None)
    assert "has no schema id" in problem(b"text", "avro")
    assert "not valid MsgPack" in problem(b"text", "msgpack")
    assert "not valid CBOR" in problem(b"text", "cbor")


@pytest.mark.parametrize(
    ("topic", "names", "shown"),
    [
        ("orders", ["payroll-value", "orders-value"], "orders-value"),
        ("orders", ["payroll-value", "orders-key"], "orders-key"),
        ("orders", ["payroll-shop.Paid", "orders-shop.Paid"], "orders-shop.Paid"),
        ("orders", ["payroll-value"], ""),
        ("orders", ["shop.Paid"], ""),
        ("orders", ["orders-refunds-value", "orders-value-of-others", "ordersvalue"], ""),
        ("orders", ["orders-refunds-shop.Paid", "orders-shop.Other"], ""),
        ("orders-refunds", ["orders-refunds-shop.Paid"], "orders-refunds-shop.Paid"),
    ],
)
def test_of_a_schemas_names_only_those_of_the_topic_are_shown(
    registry: SchemaRegistry, topic: str, names: list[str], shown: str
) -> None:
    paid = '{"type": "record", "name": "shop.Paid", "fields": [{"name": "cents", "type": "long"}]}'
    (number,) = {registry.register(each, paid) for each in names}
    (found,) = decode_all([record(struct.pack(">xI", number) + b"\x02")], registry, topic=topic)
    assert says(found.decoded_value) == {"cents": 1}
    assert found.decoded_value is not None
    assert found.decoded_value.schema is not None
    assert found.decoded_value.schema.subject == shown


def test_names_of_other_topics_are_not_shown_where_decoding_fails(registry: SchemaRegistry) -> None:
    number = registry.register("payroll-value", '"string"')
    for choice in (AUTOMATIC, Choice(value="protobuf")):
        found = decode_value(struct.pack(">xI", number) + b"\xff", registry, choice)
        assert found is not None
        assert found.problem
        assert "payroll" not in str(found)


def test_numbers_are_not_taken_for_ids_of_schemas(registry: SchemaRegistry) -> None:
    (found,) = decode_all([record(struct.pack(">q", 42), struct.pack(">i", 42))], registry)
    assert found.decoded_key is found.decoded_value is None
    assert registry.asked == []


def test_without_a_registry_nothing_is_asked_and_nothing_is_said() -> None:
    assert decode_value(b"\x00\x00\x00\x00\x01\x02") is None
