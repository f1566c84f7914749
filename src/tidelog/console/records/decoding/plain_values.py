"""Values of decoders (Avro, CBOR, MsgPack, Protobuf) as values that JSON has; bounded in depth and number.

Bytes become base64, times their ISO 8601 form, decimals numbers, whole numbers beyond 64 bits texts, and keys
of maps that are no text the JSON of them.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import ipaddress
import math
import re
import uuid
from collections.abc import Mapping, Set
from fractions import Fraction
from typing import Any

import cbor2
import msgspec

from tidelog.console.records.decoding.problem import DecodeProblem

_DEEPEST = 200
_MOST_VALUES = 2_000_000
_LONGEST_NUMBER = 2000
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def to_json(value: Any, most_bytes: int) -> bytes:
    """JSON of ``value``; raises ``DecodeProblem`` where that is too much."""
    found = _ENCODER.encode(_Walk().plain(value, 0))
    if len(found) > most_bytes:
        raise DecodeProblem(
            f"it has {len(found)} bytes as JSON; the limit for a field of its size is {most_bytes}"
        )
    return found


class _Walk:
    """Goes through one value; counts what it saw, as a value may hold another one many times."""

    def __init__(self) -> None:
        self._seen = 0

    def plain(self, value: Any, depth: int) -> Any:
        self._seen += 1
        if self._seen > _MOST_VALUES:
            raise DecodeProblem(f"it has more than {_MOST_VALUES} values")
        if depth > _DEEPEST:
            raise DecodeProblem(f"it is nested more than {_DEEPEST} deep")
        match value:
            case None | bool() | str():
                return value
            case int():
                return value if _SMALLEST <= value <= _LARGEST else _digits(value)
            case float():
                return value if math.isfinite(value) else str(value)
            case Mapping():
                return {self._key(key, depth): self.plain(each, depth + 1) for key, each in value.items()}
            case list() | tuple() | Set():
                return [self.plain(each, depth + 1) for each in value]
            case bytes() | bytearray() | memoryview():
                return base64.b64encode(value).decode()
            case datetime.datetime() | datetime.date() | datetime.time():
                return value.isoformat()
            case datetime.timedelta():
                return value.total_seconds()
            case decimal.Decimal():
                return value if value.is_finite() and abs(value.adjusted()) < 300 else str(value)
            case uuid.UUID() | ipaddress.IPv4Address() | ipaddress.IPv6Address():
                return str(value)
            case ipaddress.IPv4Network() | ipaddress.IPv6Network() | Fraction():
                return str(value)
            case re.Pattern():
                return self.plain(value.pattern, depth)
            case cbor2.CBORTag():
                return {"tag": value.tag, "value": self.plain(value.value, depth + 1)}
            case cbor2.CBORSimpleValue():
                return {"simple": value.value}
            case cbor2.undefined:
                return None
            case msgspec.msgpack.Ext():
                return {"ext": value.code, "data": base64.b64encode(value.data).decode()}
        raise DecodeProblem(f"it has a value of a type that JSON cannot represent ({type(value).__name__})")

    def _key(self, key: Any, depth: int) -> str:
        if isinstance(key, str):
            return key
        return _ENCODER.encode(self.plain(key, depth + 1)).decode()


def _digits(number: int) -> str:
    if number.bit_length() > _LONGEST_NUMBER:
        raise DecodeProblem(f"it has a number of {number.bit_length()} bits")
    return str(number)
