"""The bytes that the load generators send, prebuilt: Produce v13, Fetch v18 and InitProducerId v4 requests,
and Produce v11, which Kafka 3.9 knows.

Hand-written and free of Tidelog's own wire code, so that a mistake there cannot hide here.
"""

from __future__ import annotations

import base64
import socket
import struct
import time

import crc32c

PRODUCE, FETCH, INIT_PRODUCER_ID = 0, 1, 22
PRODUCE_VERSION, FETCH_VERSION, INIT_PRODUCER_ID_VERSION = 13, 18, 4
PRODUCE_BY_NAME_VERSION = 11  # the topic's id has been in the name's place since 13

# Where the error code lies in an answer about one partition, from the start of the frame's body.
PRODUCE_ERROR_AT = 27
FETCH_ERROR_AT = 37

HEADER_SIZE = 61
_CRC_AT, _CRC_FROM = 17, 21
_PRODUCER_AT, _SEQUENCE_AT = 43, 53


def frame(api_key: int, version: int, body: bytes, client_id: str = "bench") -> bytes:
    name = client_id.encode()
    header = struct.pack(">hhih", api_key, version, 1, len(name)) + name + b"\x00"
    return struct.pack(">i", len(header) + len(body)) + header + body


def topic_id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return unsigned_varint((value << 1) ^ (value >> 63))


def batch(records: int, record_bytes: int, *, producer_id: int = -1, base_offset: int = 0) -> bytearray:
    """An uncompressed v2 batch of equal records without keys, stamped now."""
    body = bytearray()
    value = bytes(record_bytes)
    for index in range(records):
        fields = b"\x00" + varint(0) + varint(index) + varint(-1) + varint(record_bytes) + value + varint(0)
        body += varint(len(fields)) + fields
    now = int(time.time() * 1000)
    epoch, sequence = (-1, -1) if producer_id < 0 else (0, 0)
    out = bytearray(
        struct.pack(">qiibIhiqqqhii", base_offset, HEADER_SIZE - 12 + len(body), 0, 2, 0, 0, records - 1,
                    now, now, producer_id, epoch, sequence, records)
    )  # fmt: skip
    out += body
    seal(out)
    return out


def seal(out: bytearray) -> None:
    """Write the checksum that belongs to the batch's present content."""
    struct.pack_into(">I", out, _CRC_AT, crc32c.crc32c(memoryview(out)[_CRC_FROM:]))


def produce_request(
    topic_id: bytes, partition: int, records: bytes, acks: int = 1, client_id: str = "bench"
) -> bytes:
    body = (
        struct.pack(">bhi", 0, acks, 30_000)
        + b"\x02" + topic_id
        + b"\x02" + struct.pack(">i", partition) + unsigned_varint(len(records) + 1) + records + b"\x00"
        + b"\x00\x00"
    )  # fmt: skip
    return frame(PRODUCE, PRODUCE_VERSION, body, client_id)


def produce_request_by_name(topic: str, partition: int, records: bytes, acks: int = -1) -> bytes:
    body = (
        struct.pack(">bhi", 0, acks, 30_000)
        + b"\x02" + unsigned_varint(len(topic) + 1) + topic.encode()
        + b"\x02" + struct.pack(">i", partition) + unsigned_varint(len(records) + 1) + records + b"\x00"
        + b"\x00\x00"
    )  # fmt: skip
    return frame(PRODUCE, PRODUCE_BY_NAME_VERSION, body)


def error_by_name(topic: str, answer: bytes) -> int:
    """The error of the one partition that such a request was about; its topic's name is a short one."""
    (error,) = struct.unpack_from(">h", answer, 4 + 1 + 1 + 1 + len(topic) + 1 + 4)
    return int(error)


def produce_requests(
    topic_id: bytes, partition: int, template: bytearray, count: int, acks: int = 1
) -> list[bytes]:
    """What an idempotent producer would send: the same batch with rising sequence numbers."""
    (records,) = struct.unpack_from(">i", template, 57)
    requests = []
    for index in range(count):
        struct.pack_into(">i", template, _SEQUENCE_AT, index * records)
        seal(template)
        requests.append(produce_request(topic_id, partition, bytes(template), acks))
    return requests


def fetch_request(
    topic_id: bytes,
    partition: int,
    offset: int,
    max_bytes: int,
    max_wait_ms: int = 0,
    client_id: str = "bench",
) -> bytes:
    body = (
        struct.pack(">iiibii", max_wait_ms, 1, 0x7FFFFFFF, 0, 0, -1)
        + b"\x02" + topic_id
        + b"\x02" + struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + b"\x00"
        + b"\x00"
        + b"\x01\x01\x00"
    )  # fmt: skip
    return frame(FETCH, FETCH_VERSION, body, client_id)


def connect(port: int, timeout_s: float | None = None, source: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout_s, (source, 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send one request and wait for the body of its answer."""
    connection.sendall(request)
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    return read_exactly(connection, size)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        received = connection.recv_into(view)
        if not received:
            raise ConnectionError("the broker closed the connection")
        view = view[received:]
    return bytes(buffer)


def new_producer_id(port: int) -> int:
    body = b"\x00" + struct.pack(">iqh", 60_000, -1, -1) + b"\x00"
    deadline = time.monotonic() + 30
    while True:
        with connect(port) as connection:
            answer = ask(connection, frame(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body))
        error, producer_id = struct.unpack_from(">hq", answer, 9)
        if error == 0:
            return int(producer_id)
        if time.monotonic() > deadline:
            raise RuntimeError(f"InitProducerId answers error {error}")
        time.sleep(0.1)
