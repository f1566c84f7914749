"""The codec agrees with an independent implementation on every message in every version."""

from __future__ import annotations

import typing
from collections.abc import Callable, Generator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.codec import (
    decode,
    decode_in_slices,
    encode,
    encode_around,
    encode_element,
    encode_in_slices,
    encode_into,
)
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.wire.schema import Payload
from tidelog.wire.varint import read_uvarint, skip_tags, uvarint

T = typing.TypeVar("T")


def at_once(work: Generator[None, None, T]) -> T:
    """The result of work in slices."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return typing.cast(T, end.value)


FEW = settings(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
Strategies = Callable[[type[Payload], int], st.SearchStrategy[Payload]]


def test_both_directions_agree_with_the_oracle(
    payload: type[Payload], version: int, random_messages: Strategies, oracle: typing.Any
) -> None:
    @FEW
    @given(random_messages(payload, version))
    def check(message: Payload) -> None:
        ours = encode(message, version)
        entity = oracle.decode(payload, version, ours)
        assert oracle.plain_message(entity, payload, version) == oracle.as_dict(message, version)
        theirs = oracle.encode(entity)
        assert decode(payload, version, theirs) == (message, len(theirs))
        sliced = bytearray()
        assert at_once(encode_in_slices(message, version, sliced)) is None
        assert sliced == ours
        assert at_once(decode_in_slices(payload, version, theirs)) == (message, len(theirs))

    check()


def test_a_default_message_survives_every_version(payload: type[Payload], version: int) -> None:
    assert decode(payload, version, encode(payload(), version))[0] == payload()


def test_what_is_encoded_already_is_written_around() -> None:
    topics = [MetadataResponseTopic(name=f"t{number}") for number in range(300)]
    response = MetadataResponse(cluster_id="abc", topics=topics)
    for version in range(14):
        out = bytearray()
        elements = b"".join(at_once(encode_element(topic, MetadataResponse, version)) for topic in topics)
        behind = encode_around(response, version, out, "topics", len(topics))
        assert bytes(out) + elements + behind == encode(response, version)


@pytest.mark.parametrize("version", [3, 4])
def test_a_long_message_is_read_and_written_in_slices_and_bounded(version: int) -> None:
    keys = ["k"] * 5000
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)
    message = DescribeConfigsRequest(resources=[resource] * 20)
    out = bytearray()
    assert len(list(encode_in_slices(message, version, out))) > 1000
    assert len(list(decode_in_slices(DescribeConfigsRequest, version, bytes(out)))) > 1000
    with pytest.raises(WireError, match="more things"):
        at_once(decode_in_slices(DescribeConfigsRequest, version, bytes(out), max_elements=100_019))
    assert at_once(decode_in_slices(DescribeConfigsRequest, version, bytes(out), max_elements=100_020))


def test_large_elements_are_written_one_at_a_time_and_may_be_taken_out_in_between() -> None:
    member = JoinGroupResponseMember(member_id="m", metadata=b"x" * 500_000)
    message = JoinGroupResponse(members=[member] * 30)
    out, parts = bytearray(), []
    for _ in encode_in_slices(message, 9, out):
        assert len(out) < 1_100_000
        parts.append(bytes(out))
        out.clear()
    assert b"".join(parts) + out == encode(message, 9)


def test_more_tagged_fields_than_any_message_has_are_refused() -> None:
    with pytest.raises(WireError, match="101 tagged fields"):
        skip_tags(uvarint(101) + b"\x01\x00" * 101, 0)


def test_decode_starts_at_the_position_and_leaves_what_follows() -> None:
    body = encode(MetadataRequest(topics=None), 12)
    message, pos = decode(MetadataRequest, 12, memoryview(b"abc" + body + b"trailing"), 3)
    assert message == MetadataRequest(topics=None)
    assert pos == 3 + len(body)


@pytest.mark.parametrize("version", [1, 12])
@pytest.mark.parametrize("length", [126, 127, 128, 16382, 16383, 16384, 32767])
def test_strings_of_every_length_class_survive(version: int, length: int) -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="x" * length)])
    assert decode(MetadataRequest, version, encode(message, version))[0] == message


@pytest.mark.parametrize("version", [3, 4])
def test_long_arrays_survive(version: int) -> None:
    names = [f"config.{i}" for i in range(300)]
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=names)
    message = DescribeConfigsRequest(resources=[resource])
    assert decode(DescribeConfigsRequest, version, encode(message, version))[0] == message


def test_an_ignorable_value_is_dropped_where_the_version_has_no_place_for_it() -> None:
    message = MetadataResponse(cluster_id="abc", throttle_time_ms=7)
    assert decode(MetadataResponse, 0, encode(message, 0))[0] == MetadataResponse()


def test_a_value_that_must_not_be_lost_is_refused_where_the_version_has_no_place_for_it() -> None:
    message = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with pytest.raises(KafkaError, match="allow_auto_topic_creation") as caught:
        encode(message, 3)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_null_is_refused_in_a_version_that_does_not_allow_it() -> None:
    with pytest.raises(KafkaError, match="topics") as caught:
        encode(MetadataRequest(topics=None), 0)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_versions_that_do_not_exist_are_refused() -> None:
    for version in (-1, 14):
        with pytest.raises(KafkaError) as caught:
            encode(MetadataRequest(), version)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError):
            decode(MetadataRequest, version, b"")


@pytest.mark.parametrize("name", ["x" * 32768, "\ud800"], ids=["too long", "no Unicode"])
def test_strings_that_no_version_can_carry_are_an_invalid_request(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_numbers_out_of_range_are_an_invalid_request() -> None:
    with pytest.raises(KafkaError) as caught:
        encode(FindCoordinatorRequest(key_type=200), 1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_error_codes_may_be_given_by_name() -> None:
    message = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)]
    )
    decoded, _ = decode(CreateTopicsResponse, 5, encode(message, 5))
    assert decoded.topics[0].error_code == 36


def test_unknown_tagged_fields_are_stepped_over() -> None:
    # ApiVersionsRequest v3: two compact strings, then tags 5 (three bytes) and 1000 (none).
    data = b"\x02a\x02b" + b"\x02" + b"\x05\x03xyz" + uvarint(1000) + b"\x00"
    expected = ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert decode(ApiVersionsRequest, 3, data) == (expected, len(data))


def test_unknown_tagged_fields_beside_known_ones_are_stepped_over() -> None:
    message = ApiVersionsResponse(finalized_features_epoch=9, zk_migration_ready=True)
    data = encode(message, 3)
    at = data.rindex(b"\x02\x01\x08")
    widened = data[:at] + b"\x03\x01\x08" + data[at + 3 :] + b"\x63\x02??"
    assert decode(ApiVersionsResponse, 3, widened) == (message, len(widened))


@pytest.mark.parametrize("size", [7, 9])
def test_a_tagged_field_of_another_size_than_it_says_is_refused(size: int) -> None:
    data = encode(ApiVersionsResponse(finalized_features_epoch=9), 3)
    at = data.rindex(b"\x01\x01\x08")
    bent = data[: at + 2] + bytes((size,)) + data[at + 3 :] + b"\x00" * 4
    with pytest.raises(WireError):
        decode(ApiVersionsResponse, 3, bent)


def test_a_nullable_structure_has_a_mark_in_front() -> None:
    empty = encode(DescribeTopicPartitionsRequest(), 0)
    given_one = encode(DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=1)), 0)
    assert empty[-2:] == b"\xff\x00"
    assert given_one[-9:] == b"\x01\x02t\x00\x00\x00\x01\x00\x00"


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b""),
        (0, b"\x00\x00\x00"),
        (0, b"\xff\xff\xff\xff"),
        (0, b"\x7f\xff\xff\xff" + bytes(20)),
        (0, b"\x00\x00\x00\x01\x00\x05abcd"),
        (0, b"\x00\x00\x00\x01\xff\xff"),
        (0, b"\x00\x00\x00\x01\x00\x02\xc3\x28"),
        (12, b"\xff\xff\xff\xff\x0f" + bytes(20)),
        (12, b"\xff\xff\xff\xff\xff\xff\xff\x00"),
        (12, b"\x02" + bytes(16) + b"\x80\x80\x80\x80\x08" + bytes(20)),
        (12, b"\x02" + bytes(16) + b"\x81\x80\x02" + bytes(32768) + bytes(10)),
        (12, b"\x01\x00\x00\xff\xff\xff\xff\x0f"),
        (12, b"\x01\x00\x00\x01\x07\x7f\x00"),
    ],
    ids=[
        "nothing",
        "half a count",
        "null where null is not allowed",
        "huge count",
        "string beyond the end",
        "null string where null is not allowed",
        "not UTF-8",
        "huge compact count",
        "endless varint",
        "huge compact string",
        "string beyond Kafka's limit",
        "huge count of tags",
        "tag beyond the end",
    ],
)
def test_broken_bytes_are_refused(version: int, data: bytes) -> None:
    with pytest.raises(WireError):
        decode(MetadataRequest, version, data)


def test_encode_into_appends() -> None:
    out = bytearray(b"head")
    encode_into(MetadataRequest(topics=None), 1, out)
    assert bytes(out) == b"head" + encode(MetadataRequest(topics=None), 1)


@given(st.integers(0, 2**35 - 1))
@settings(database=None, derandomize=True)
def test_varints_survive(value: int) -> None:
    data = uvarint(value)
    assert read_uvarint(data, 0) == (value, len(data))
    assert skip_tags(b"\x01\x09" + uvarint(3) + b"abc", 0) == 6
