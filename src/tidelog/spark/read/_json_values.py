"""JSON values into columns: ``valueFormat=json``.

A value is taken whole or not at all: one that is no JSON object with fields of the types in ``valueSchema``
becomes null, and its bytes go to the column ``corruptValue``. Fields that the schema does not name are passed
over; fields that a value lacks are null. Times are ISO 8601 (without an offset: UTC), binary fields base64,
decimals numbers or text. Used by ``spark.read._arrow_rows``.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql import types

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ConfigError

_typed_dict: Any = TypedDict
"""Called at run time, with fields that no type checker can know."""

_WHOLE_NUMBERS: dict[type[types.DataType], int] = {
    types.ByteType: 7,
    types.ShortType: 15,
    types.IntegerType: 31,
    types.LongType: 63,
}
_PLAIN: dict[type[types.DataType], Any] = {
    types.StringType: str,
    types.BooleanType: bool,
    types.FloatType: float,
    types.DoubleType: float,
    types.BinaryType: bytes,
    types.DateType: datetime.date,
    types.TimestampType: datetime.datetime,
    types.TimestampNTZType: datetime.datetime,
    types.DecimalType: decimal.Decimal,
}


class JsonValues:
    """Reads values of one type."""

    def __init__(self, kind: types.DataType, arrow_type: Any) -> None:
        self._decode = msgspec.json.Decoder(_annotation(kind)).decode
        self._arrow_type = arrow_type
        self._narrow = _is_narrow(kind)

    def parse(self, values: Any) -> tuple[Any, Any]:
        """The column of values, and the column of those that could not be read."""
        decode = self._decode
        parsed: list[Any] = []
        corrupt: list[bytes | None] = []
        raw: list[bytes | None] = values.to_pylist()
        for value in raw:
            found = bad = None
            if value is not None:
                try:
                    found = decode(value)
                except DECODE_ERRORS:
                    bad = value
            parsed.append(found)
            corrupt.append(bad)
        if not self._fits(parsed):
            for index, value in enumerate(parsed):
                if value is not None and not self._fits([value]):
                    parsed[index], corrupt[index] = None, raw[index]
        return pa.array(parsed, type=self._arrow_type), pa.array(corrupt, type=pa.binary())

    def _fits(self, parsed: list[Any]) -> bool:
        """Whether the column can hold these: a decimal may have too many digits."""
        if not self._narrow:
            return True
        try:
            pa.array(parsed, type=self._arrow_type)
        except (pa.ArrowException, OverflowError):
            return False
        return True


def _is_narrow(kind: types.DataType) -> bool:
    """Whether a column of this type holds less than the Python type that values are read as."""
    if isinstance(kind, types.StructType):
        return any(_is_narrow(field.dataType) for field in kind.fields)
    if isinstance(kind, types.ArrayType):
        return _is_narrow(kind.elementType)
    if isinstance(kind, types.MapType):
        return _is_narrow(kind.valueType)
    return isinstance(kind, types.DecimalType)


def _annotation(kind: types.DataType) -> Any:
    """The Python type that msgspec reads a Spark type as."""
    if isinstance(kind, types.StructType):
        fields = {field.name: _annotation(field.dataType) | None for field in kind.fields}
        return _typed_dict("Value", fields, total=False)
    if isinstance(kind, types.ArrayType):
        return list[_annotation(kind.elementType) | None]  # type: ignore[misc]
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        return dict[str, _annotation(kind.valueType) | None]  # type: ignore[misc]
    if (bits := _WHOLE_NUMBERS.get(type(kind))) is not None:
        return Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    raise ConfigError(
        f"option valueSchema has a field of type {kind.simpleString()}, which no JSON value becomes"
    )
