"""Headers are what an independent implementation writes and reads."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeaderV1
from kio.serial import entity_writer
from kio.static.protocol import Entity

from tidelog.errors import KafkaError, WireError
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import (
    RequestHeader,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
    sized_request_header,
)
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

CLIENT_IDS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def written(entity: Entity) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize(("version", "theirs"), [(8, RequestHeaderV1), (9, RequestHeaderV2)])
def test_request_headers_agree_with_the_oracle(version: int, theirs: type) -> None:
    @given(st.integers(-(2**31), 2**31 - 1), CLIENT_IDS)
    @settings(max_examples=50, database=None, derandomize=True)
    def check(correlation_id: int, client_id: str | None) -> None:
        header = RequestHeader(ApiKey.METADATA, version, correlation_id, client_id)
        raw = written(
            theirs(
                request_api_key=3,
                request_api_version=version,
                correlation_id=correlation_id,
                client_id=client_id,
            )
        )
        assert parse_request_header(raw) == (header, len(raw))
        assert parse_request_header(memoryview(raw + b"body")) == (header, len(raw))
        assert bytes(sized_request_header(header, 4)) == struct.pack(">i", len(raw) + 4) + raw

    check()


def test_a_request_frame_holds_its_size_header_and_body() -> None:
    header = RequestHeader(ApiKey.METADATA, 12, 42, "me")
    request = MetadataRequest(topics=None)
    frame = encode_request(header, request)
    assert struct.unpack(">i", frame[:4]) == (len(frame) - 4,)
    assert parse_request_header(frame[4:])[0] == header
    pos = parse_request_header(frame[4:])[1]
    assert decode(MetadataRequest, 12, frame[4:], pos) == (request, len(frame) - 4)


@pytest.mark.parametrize(("version", "theirs"), [(8, ResponseHeaderV0), (9, ResponseHeaderV1)])
def test_a_response_frame_begins_as_the_oracle_begins_it(version: int, theirs: type) -> None:
    frame = encode_response(ApiKey.METADATA, version, -7, MetadataResponse())
    raw = written(theirs(correlation_id=-7))
    assert frame[:4] == struct.pack(">i", len(frame) - 4)
    assert frame[4:].startswith(raw)
    assert parse_response_header(ApiKey.METADATA, version, frame[4:]) == (-7, len(raw))


@pytest.mark.parametrize("version", range(5))
def test_api_versions_bodies_begin_right_behind_the_correlation_id(version: int) -> None:
    frame = encode_response(ApiKey.API_VERSIONS, version, 5, ApiVersionsResponse(error_code=35))
    assert frame[8:10] == b"\x00\x23"
    assert parse_response_header(ApiKey.API_VERSIONS, version, frame[4:]) == (5, 4)


def test_a_header_with_tagged_fields_is_stepped_over() -> None:
    raw = struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x07\x02ab"
    assert parse_request_header(raw + b"body")[1] == len(raw)
    assert parse_response_header(3, 12, b"\x00\x00\x00\x01" + b"\x01\x07\x02ab" + b"body") == (1, 9)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00\x03\x00",
        struct.pack(">hhih", 3, 1, 1, 5) + b"four",
        struct.pack(">hhih", 3, 12, 1, -1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x00\x05abc",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
        struct.pack(">hhih", 999, 1, 1, -1),
    ],
)
def test_broken_request_headers_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        parse_request_header(memoryview(raw))


@pytest.mark.parametrize("raw", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x01\x00\x09"])
def test_broken_response_headers_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        parse_response_header(ApiKey.METADATA, 12, raw)


def test_a_client_id_beyond_the_limit_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"client\.id"):
        sized_request_header(RequestHeader(3, 1, 1, "x" * 32768))


def test_a_client_id_in_another_encoding_turns_nobody_away() -> None:
    header, pos = parse_request_header(struct.pack(">hhih", 3, 1, 1, 2) + b"\xfcx")
    assert (header.client_id, pos) == ("\ufffdx", 12)
