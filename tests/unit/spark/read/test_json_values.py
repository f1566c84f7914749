from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from tidelog.errors import ConfigError
from tidelog.spark.read._json_values import JsonValues


def parse(kind: types.DataType, *values: bytes | None) -> tuple[list[object], list[bytes | None]]:
    schema = types.StructType([types.StructField("x", kind)])
    parsed, corrupt = JsonValues(schema, to_arrow_type(schema, timezone="UTC")).parse(
        pa.array(values, pa.binary())
    )
    return [value and value["x"] for value in parsed.to_pylist()], corrupt.to_pylist()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (types.StringType(), '"ä"', "ä"),
        (types.BooleanType(), "true", True),
        (types.ByteType(), "-128", -128),
        (types.LongType(), "9223372036854775807", 2**63 - 1),
        (types.DoubleType(), "3", 3.0),
        (types.DecimalType(10, 2), "1.25", decimal.Decimal("1.25")),
        (types.DecimalType(10, 2), '"1.25"', decimal.Decimal("1.25")),
        (types.BinaryType(), '"AQI="', b"\x01\x02"),
        (types.DateType(), '"2024-02-29"', datetime.date(2024, 2, 29)),
        (
            types.TimestampType(),
            '"2024-02-29T01:00:00+02:00"',
            datetime.datetime(2024, 2, 28, 23, tzinfo=datetime.UTC),
        ),
        (
            types.TimestampType(),
            '"2024-02-29T01:00:00"',
            datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.UTC),
        ),
        (types.ArrayType(types.IntegerType()), "[1, null]", [1, None]),
        (types.MapType(types.StringType(), types.IntegerType()), '{"a": 1}', [("a", 1)]),
        (types.StringType(), "null", None),
    ],
)
def test_every_type_is_read(kind: types.DataType, text: str, value: object) -> None:
    assert parse(kind, f'{{"x": {text}}}'.encode()) == ([value], [None])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (types.ByteType(), "128"),
        (types.IntegerType(), "1.5"),
        (types.IntegerType(), '"1"'),
        (types.StringType(), "1"),
        (types.BooleanType(), '"true"'),
        (types.DateType(), '"yesterday"'),
        (types.DecimalType(4, 2), "123.45"),
        (types.DecimalType(4, 2), "1.234"),
    ],
)
def test_a_value_of_another_type_is_corrupt_and_keeps_its_bytes(kind: types.DataType, text: str) -> None:
    value = f'{{"x": {text}}}'.encode()
    assert parse(kind, value, b'{"x": null}') == ([None, None], [value, None])


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"7", b"{", b'{"x": 1} {"x": 2}', b"\xff\xfe", b'{"x": "\xff"}', b'{"y": ' + b"[" * 100_000],
)
def test_what_is_no_json_object_is_corrupt(value: bytes) -> None:
    assert parse(types.IntegerType(), value) == ([None], [value])


def test_a_null_value_is_null_and_not_corrupt() -> None:
    assert parse(types.IntegerType(), None) == ([None], [None])


def test_a_type_that_json_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="valueSchema has a field of type map<int,int>"):
        parse(types.MapType(types.IntegerType(), types.IntegerType()), b"{}")
