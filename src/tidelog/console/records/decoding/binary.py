"""MsgPack and CBOR: formats without a mark of their own.

By choice anything is decoded that is one value from its first byte to its last. Unasked only what is meant
to be seen as such: a map whose keys are texts, or a list of such maps, in one of the two formats and not in
the other; or CBOR that says so by its tag.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import cbor2
import msgspec

from tidelog.console.records.decoding.problem import DecodeProblem

SELF_DESCRIBED_CBOR = b"\xd9\xd9\xf7"


def decode_msgpack(data: bytes) -> Any:
    """The value; raises ``DecodeProblem``."""
    try:
        return msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise DecodeProblem(f"it is not valid MsgPack ({type(error).__name__})") from None


def decode_cbor(data: bytes) -> Any:
    """The value; raises ``DecodeProblem``."""
    stream = io.BytesIO(data)
    try:
        value: Any = cbor2.CBORDecoder(stream).decode()
    except Exception as error:  # tags make values of many kinds, each with errors of its own
        raise DecodeProblem(f"it is not valid CBOR ({type(error).__name__})") from None
    if stream.tell() != len(data):
        raise DecodeProblem("it is not valid CBOR: bytes are left over")
    return value


def decode_either(data: bytes) -> tuple[str, Any]:
    """The format that ``data`` has beyond doubt and its value; ("", None) where it has none of both."""
    if data.startswith(SELF_DESCRIBED_CBOR):
        return "cbor", decode_cbor(data)
    found = {}
    for name, decode in _DECODERS.items():
        try:
            value = decode(data)
        except DecodeProblem:
            continue
        if _is_meant(value):
            found[name] = value
    if len(found) > 1:
        raise DecodeProblem("it is valid MsgPack and valid CBOR: choose one")
    return next(iter(found.items()), ("", None))


def _is_meant(value: Any) -> bool:
    maps = value if isinstance(value, list) else [value]
    return bool(maps) and all(
        isinstance(each, Mapping) and bool(each) and all(isinstance(key, str) for key in each)
        for each in maps
    )


_DECODERS: Mapping[str, Callable[[bytes], Any]] = {"msgpack": decode_msgpack, "cbor": decode_cbor}
