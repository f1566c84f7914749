"""Tagged sections have a bound in every parser that is written by hand, as in those that are generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog.errors import WireError
from tidelog.ids import Uuid
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode, encode
from tidelog.wire.fetch import decode_fetch_response, parse_fetch_request
from tidelog.wire.headers import RequestHeader, encode_request, parse_request_header, parse_response_header
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.primitives import read_endpoint_section
from tidelog.wire.produce import parse_produce_request
from tidelog.wire.schema import Payload
from tidelog.wire.varint import skip_tags, uvarint

ALLOWED = 100
TOPIC_ID = Uuid(bytes(range(1, 17)))


def named(version: int, ids_since: int, field: str = "topic") -> dict[str, Any]:
    return {"topic_id": TOPIC_ID} if version >= ids_since else {field: "orders"}


def fetch_request(version: int) -> FetchRequest:
    topic = named(version, 13)
    return FetchRequest(
        topics=[FetchTopic(partitions=[FetchPartition(partition=7)], **topic)],
        forgotten_topics_data=[ForgottenTopic(partitions=[9], **topic)],
    )


def fetch_response(version: int) -> FetchResponse:
    aborted = [AbortedTransaction(producer_id=5, first_offset=6)]
    partition = PartitionData(partition_index=7, aborted_transactions=aborted, records=b"abc")
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition], **named(version, 13))])


def produce_request(version: int) -> ProduceRequest:
    partition = PartitionProduceData(index=7, records=b"abc")
    topic = named(version, 13, "name")
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(partition_data=[partition], **topic)])


PARSED_BY_HAND = [
    *((fetch_request(version), version, parse_fetch_request, 4) for version in range(12, 19)),
    *(
        (fetch_response(version), version, lambda buf, pos, v: decode_fetch_response(v, buf, pos), 4)
        for version in range(12, 19)
    ),
    *((produce_request(version), version, parse_produce_request, 3) for version in range(9, 14)),
]


def section_of(count: int) -> bytes:
    """A tagged section with so many fields of a tag that no message has."""
    return uvarint(count) + b"\x65\x00" * count


def with_sections(message: Payload, version: int, count: int) -> Iterator[bytes]:
    """The message, once for each of its empty tagged sections, with so many unknown fields in that one."""
    body = encode(message, version)
    for at in (at for at, byte in enumerate(body) if byte == 0):
        widened = body[:at] + section_of(1) + body[at + 1 :]
        try:
            is_section = decode(type(message), version, widened) == (message, len(widened))
        except WireError:
            continue
        if is_section:
            yield body[:at] + section_of(count) + body[at + 1 :]


@pytest.mark.parametrize(
    ("message", "version", "parse", "sections"),
    PARSED_BY_HAND,
    ids=[f"{type(message).__name__}-{version}" for message, version, _, _ in PARSED_BY_HAND],
)
def test_a_message_that_is_parsed_by_hand_has_a_bound_of_tagged_fields(
    message: Payload, version: int, parse: Callable[[memoryview, int, int], object], sections: int
) -> None:
    plain = parse(memoryview(encode(message, version)), 0, version)
    longest = list(with_sections(message, version, ALLOWED))
    assert len(longest) == sections
    for body in longest:
        assert parse(memoryview(body), 0, version) == plain
    for body in with_sections(message, version, ALLOWED + 1):
        with pytest.raises(WireError, match="101 tagged fields"):
            decode(type(message), version, body)
        with pytest.raises(WireError, match="101 tagged fields"):
            parse(memoryview(body), 0, version)


def test_headers_and_the_section_of_endpoints_have_the_same_bound() -> None:
    request = encode_request(RequestHeader(ApiKey.METADATA, 12, 1, "c"), MetadataRequest())[4:]
    assert request[11] == 0

    def parse_all(section: bytes) -> Iterator[Callable[[], object]]:
        yield lambda: parse_request_header(request[:11] + section + request[12:])
        yield lambda: parse_response_header(ApiKey.METADATA, 12, bytes(4) + section)
        yield lambda: read_endpoint_section(section, 0)
        yield lambda: skip_tags(section, 0)

    for parse in parse_all(section_of(ALLOWED)):
        parse()
    for parse in parse_all(section_of(ALLOWED + 1)):
        with pytest.raises(WireError, match="101 tagged fields"):
            parse()
