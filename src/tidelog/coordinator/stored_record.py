"""Records of internal topics: typed keys and values, and their bytes.

A key is an int16 with the record's type and the key's fields; a value is an int16 with its version and the
fields in that version. No value is a tombstone. The classes come from ``wire/internal_topics``, where
``decode`` reads what is written here.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.wire.codec import encode_into
from tidelog.wire.internal_topics.decode import RecordSchemas, UnknownRecordType
from tidelog.wire.schema import Payload

__all__ = ["RecordSchemas", "StoredRecord", "UnknownRecordType", "encode_key", "encode_value"]

_INT16 = struct.Struct(">h")


class StoredRecord(NamedTuple):
    """One record to write: ``value`` is None where the key's earlier record is to be forgotten."""

    key: Payload
    value: Payload | None
    value_version: int = 0


def encode_key(key: Payload) -> bytes:
    """The bytes of a key."""
    out = bytearray(_INT16.pack(key.API_KEY))
    encode_into(key, key.VERSIONS[1], out)
    return bytes(out)


def encode_value(value: Payload, version: int) -> bytes:
    """The bytes of a value in one of its versions."""
    out = bytearray(_INT16.pack(version))
    encode_into(value, version, out)
    return bytes(out)
