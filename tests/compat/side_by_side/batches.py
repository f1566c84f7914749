"""Record batches by hand: right ones, and wrong ones in every field.

A batch is built from its header's fields, each of which can be given a wrong value; size and CRC are those of
the result unless they are given too. What is stored is described field by field, so that two brokers'
files can be compared although no two compressors write the same bytes.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from zlib import crc32

from crc32c import crc32c

from tidelog.errors import CorruptRecordError
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.varint import decode_varint, decode_varlong, encode_varint

NOW = 1_700_000_000_000
"""Records' timestamps unless said otherwise: a day in November 2023."""

APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
HORIZON = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")


def record(
    value: bytes | None = b"value",
    key: bytes | None = b"key",
    *,
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    attributes: int = 0,
) -> bytes:
    """One record as it stands in a batch's body."""
    body = bytes([attributes]) + encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += _sized(key) + _sized(value) + encode_varint(len(headers))
    body += b"".join(_sized(name.encode()) + _sized(content) for name, content in headers)
    return encode_varint(len(body)) + body


def records(count: int, value: bytes = b"value", key: bytes | None = b"key") -> list[bytes]:
    """``count`` records in a row, a millisecond apart."""
    return [record(value, key, offset_delta=each, timestamp_delta=each) for each in range(count)]


def _sized(content: bytes | None) -> bytes:
    return encode_varint(-1) if content is None else encode_varint(len(content)) + content


@dataclass(frozen=True)
class Batch:
    """A batch of format 2 to be; ``None`` stands for the value that would be right."""

    body: tuple[bytes, ...] = ()
    codec: int = 0
    attributes: int = 0
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    last_offset_delta: int | None = None
    base_timestamp: int = NOW
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    length: int | None = None
    payload: bytes | None = None

    def with_(self, **changes: object) -> Batch:
        return replace(self, **changes)  # type: ignore[arg-type]

    def bytes(self) -> bytes:
        """The batch as it travels."""
        count = len(self.body)
        raw = b"".join(self.body)
        payload = self.payload
        if payload is None:
            payload = compress(Codec(self.codec), raw) if self.codec else raw
        last = count - 1 if self.last_offset_delta is None else self.last_offset_delta
        highest = self._highest() if self.max_timestamp is None else self.max_timestamp
        fields = (
            *(self.base_offset, 49 + len(payload) if self.length is None else self.length),
            *(self.leader_epoch, self.magic, 0, self.attributes | self.codec, last),
            *(self.base_timestamp, highest, self.producer_id, self.producer_epoch, self.base_sequence),
            count if self.count is None else self.count,
        )
        data = bytearray(_HEADER.pack(*fields) + payload)
        struct.pack_into(">I", data, 17, crc32c(data[21:]) if self.crc is None else self.crc)
        return bytes(data)

    def _highest(self) -> int:
        """The highest timestamp of the records, as far as they can be read."""
        deltas = []
        for each in self.body:
            with suppress(CorruptRecordError):
                deltas.append(decode_varlong(each, decode_varint(each, 0)[1] + 1)[0])
        return self.base_timestamp + max(deltas, default=0)


def batch(size: int = 1, /, **fields: object) -> bytes:
    """A batch of ``size`` plain records with the given fields."""
    return Batch(tuple(records(size))).with_(**fields).bytes()


def legacy_message(
    magic: int, *, value: bytes = b"value", key: bytes | None = b"key", offset: int = 0
) -> bytes:
    """A message of format 0 or 1 with its offset and size before it."""
    body = bytes([magic, 0]) + (struct.pack(">q", NOW) if magic else b"")
    body += struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
    body += struct.pack(">i", len(value)) + value
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


# What is stored


def described(data: bytes) -> list[dict[str, object]]:
    """The batches in ``data``, the last perhaps cut, in terms that do not depend on the compressor."""
    found: list[dict[str, object]] = []
    pos = 0
    while pos < len(data):
        if len(data) - pos < 17:
            found.append({"cut": True})
            break
        size = struct.unpack_from(">i", data, pos + 8)[0] + 12
        if size > len(data) - pos:
            found.append({"cut": True, "base_offset": struct.unpack_from(">q", data, pos)[0]})
            break
        found.append(_describe(data[pos : pos + size]))
        pos += size
    return found


def _describe(data: bytes) -> dict[str, object]:
    names = (
        *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta"),
        *("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
    )
    header: dict[str, object] = dict(zip(names, _HEADER.unpack_from(data), strict=True))
    header["crc"] = "right" if crc32c(data[21:]) == header["crc"] else "wrong"
    codec = Codec(int(str(header["attributes"])) & 7)
    body = data[61:]
    if codec:
        header["length"] = "depends on the compressor"
    try:
        raw = decompress(codec, body) if codec else body
        split = _split(raw, int(str(header["count"])))
        if int(str(header["attributes"])) & HORIZON:
            # A cleaner's horizon is the time of its cleaning; the records' own times are told whole.
            base, header["base_timestamp"] = int(str(header["base_timestamp"])), "a horizon"
            header["records"] = [_describe_record(each, base) for each in split]
        else:
            header["records"] = [_describe_record(each) for each in split]
    except CorruptRecordError:
        header["records"] = "malformed"
    return header


def _split(body: bytes, count: int) -> list[bytes]:
    found = []
    pos = 0
    for _ in range(count):
        length, start = decode_varint(body, pos)
        found.append(body[start : start + length])
        pos = start + length
    if pos != len(body):
        raise CorruptRecordError("bytes behind the last record")
    return found


def _describe_record(data: bytes, base_timestamp: int = 0) -> str:
    timestamp_delta, pos = decode_varlong(data, 1)
    timestamp_delta += base_timestamp
    offset_delta, pos = decode_varint(data, pos)
    rest = data[pos:]
    return f"+{offset_delta} @{timestamp_delta} {rest[:40].hex()}" + (
        f"…{len(rest)}" if len(rest) > 40 else ""
    )
