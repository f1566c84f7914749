"""Reads the records of internal topics: typed keys and values from their bytes.

A key is an int16 with the record's type and the key's fields; a value is an int16 with its version and the
fields in that version. No value is a tombstone. Used by the coordinators, which write such records
(``coordinator/stored_record``), and by ``tidelog log dump``, which shows them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from tidelog.errors import CorruptRecordError, KafkaError, WireError
from tidelog.wire.codec import decode
from tidelog.wire.schema import Payload

_INT16 = struct.Struct(">h")


class UnknownRecordType(CorruptRecordError):
    """A key of a type that this release does not know: written by a later one, to be passed over."""


class RecordSchemas:
    """The types of records in one internal topic: key class and value class of each."""

    def __init__(self, pairs: Iterable[tuple[type[Payload], type[Payload]]]) -> None:
        self.types: Mapping[int, tuple[type[Payload], type[Payload]]] = {
            key.API_KEY: (key, value) for key, value in pairs
        }

    def decode_key(self, data: bytes) -> Payload:
        """The key in ``data``; raises ``UnknownRecordType`` or ``CorruptRecordError``."""
        number = _leading(data, "key")
        found = self.types.get(number)
        if found is None:
            raise UnknownRecordType(f"a record has the unknown type {number}")
        return _decode(found[0], found[0].VERSIONS[1], data)

    def decode_value(self, key: Payload, data: bytes | None) -> Payload | None:
        """The value that belongs to ``key``."""
        if data is None:
            return None
        return _decode(self.types[key.API_KEY][1], _leading(data, "value"), data)


def _leading(data: bytes, what: str) -> int:
    if len(data) < _INT16.size:
        raise CorruptRecordError(f"a record's {what} has {len(data)} bytes, less than its version")
    number: int = _INT16.unpack_from(data)[0]
    return number


def _decode(payload: type[Payload], version: int, data: bytes) -> Payload:
    try:
        return decode(payload, version, data, _INT16.size)[0]
    except (WireError, KafkaError) as error:
        raise CorruptRecordError(f"a record cannot be read: {error}") from error
