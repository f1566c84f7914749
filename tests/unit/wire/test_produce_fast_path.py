"""The hand-written produce path says byte for byte what the generic codec says."""

from __future__ import annotations

import random
import typing
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.errors import WireError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode, encode
from tidelog.wire.fetch_request import SLICE
from tidelog.wire.headers import RequestHeader, encode_request, encode_response
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.wire.produce import (
    ParsedProduce,
    PartitionResult,
    TopicAnswer,
    encode_produce_in_slices,
    encode_produce_request,
    encode_produce_response,
    parse_produce_in_slices,
    parse_produce_request,
    parse_short_produce,
)
from tidelog.wire.schema import Payload

SOME = settings(
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
VERSIONS = range(3, 14)
TOPIC_ID = Uuid(bytes(range(16)))
Strategies = Callable[[type[Payload], int], st.SearchStrategy[typing.Any]]


def as_message(parsed: ParsedProduce) -> ProduceRequest:
    transactional_id, acks, timeout_ms, topics = parsed
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name="" if name is None else name,
                topic_id=ZERO_UUID if topic_id is None else topic_id,
                partition_data=[
                    PartitionProduceData(index=index, records=None if records is None else bytes(records))
                    for index, records in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )


def as_answers(response: ProduceResponse) -> list[TopicAnswer]:
    return [
        (
            topic.name,
            topic.topic_id,
            [
                PartitionResult(
                    each.index,
                    each.error_code,
                    each.base_offset,
                    each.log_append_time_ms,
                    each.log_start_offset,
                    [(error.batch_index, error.batch_index_error_message) for error in each.record_errors],
                    each.error_message,
                    (each.current_leader.leader_id, each.current_leader.leader_epoch),
                )
                for each in topic.partition_responses
            ],
        )
        for topic in response.responses
    ]


def single_request(version: int, records: bytes | None, name: str = "orders") -> ProduceRequest:
    key = {"topic_id": TOPIC_ID} if version >= 13 else {"name": name}
    partition = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(**key, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


@pytest.mark.parametrize("version", VERSIONS)
def test_any_request_is_parsed_as_the_codec_parses_it(version: int, random_messages: Strategies) -> None:
    @SOME
    @given(random_messages(ProduceRequest, version))
    def check(message: ProduceRequest) -> None:
        body = b"head" + encode(message, version) + b"tail"
        assert as_message(parse_produce_request(memoryview(body), 4, version)) == message

    check()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [None, 0, 1, 126, 127, 128, 16382, 16383, 16384, 2097150, 2097151, 2097152])
def test_one_partition_is_parsed_whatever_the_size_of_its_records(version: int, size: int | None) -> None:
    message = single_request(version, None if size is None else b"r" * size)
    buffer = memoryview(bytearray(encode(message, version)))
    parsed = parse_produce_request(buffer, 0, version)
    assert as_message(parsed) == message
    records = parsed[3][0][2][0][1]
    if records:
        records[0] = ord("X")
        assert b"Xr" in bytes(buffer) or size == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["", "é" * 63, "x" * 126, "x" * 127, "x" * 249, "x" * 32767])
def test_topic_names_of_any_length_are_parsed_and_answered(version: int, name: str) -> None:
    if version >= 13:
        name = ""
    message = single_request(version, b"abc", name)
    assert as_message(parse_produce_request(memoryview(encode(message, version)), 0, version)) == message
    result = PartitionProduceResponse(index=3, base_offset=7)
    response = ProduceResponse(responses=[TopicProduceResponse(name=name, partition_responses=[result])])
    frame = encode_produce_response(version, 9, [(name, None, [PartitionResult(3, 0, 7)])])
    assert frame == encode_response(ApiKey.PRODUCE, version, 9, response)


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_requests_are_refused_when_the_codec_refuses_them(
    version: int, random_messages: Strategies
) -> None:
    shapes = random_messages(ProduceRequest, version) | st.builds(
        single_request, st.just(version), st.none() | st.binary(max_size=200)
    )

    @SOME
    @given(shapes, st.integers(0, 2**32))
    def check(message: ProduceRequest, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            body = bytearray(encode(message, version))
            body[rng.randrange(len(body))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            data = bytes(body[: rng.choice((len(body), rng.randrange(len(body) + 1)))])
            try:
                expected, _ = decode(ProduceRequest, version, data)
            except WireError:
                with pytest.raises(WireError):
                    parse_produce_request(memoryview(data), 0, version)
            else:
                assert as_message(parse_produce_request(memoryview(data), 0, version)) == expected

    check()


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("level", [1, 2, 3])
def test_unknown_tagged_fields_are_stepped_over(version: int, level: int) -> None:
    message = single_request(version, b"abc")
    body = encode(message, version)
    assert body.endswith(b"abc\x00\x00\x00")
    at = len(body) - level
    widened = body[:at] + b"\x01\x09\x02??" + body[at + 1 :]
    assert as_message(parse_produce_request(memoryview(widened), 0, version)) == message


@pytest.mark.parametrize("version", VERSIONS)
def test_any_response_is_encoded_as_the_codec_encodes_it(version: int, random_messages: Strategies) -> None:
    @SOME
    @given(random_messages(ProduceResponse, version), st.integers(-(2**31), 2**31 - 1))
    def check(message: ProduceResponse, correlation_id: int) -> None:
        endpoints = [(each.node_id, each.host, each.port, each.rack) for each in message.node_endpoints]
        frame = encode_produce_response(
            version, correlation_id, as_answers(message), message.throttle_time_ms, endpoints
        )
        assert frame == encode_response(ApiKey.PRODUCE, version, correlation_id, message)

    check()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("error_code", [0, 3])
def test_one_partition_is_answered_as_the_codec_answers_it(
    version: int, error_code: int, oracle: typing.Any
) -> None:
    result = PartitionProduceResponse(
        index=3, error_code=error_code, base_offset=2**40, log_append_time_ms=1000, log_start_offset=17
    )
    topic = TopicProduceResponse(partition_responses=[result])
    if version >= 13:
        topic.topic_id = TOPIC_ID
    else:
        topic.name = "orders"
    response = ProduceResponse(responses=[topic], throttle_time_ms=12)
    plain_tuple = (3, error_code, 2**40, 1000, 17, (), None, None)
    frame = encode_produce_response(version, -5, [("orders", TOPIC_ID, [plain_tuple])], 12)
    assert frame == encode_response(ApiKey.PRODUCE, version, -5, response)
    entity = oracle.decode(ProduceResponse, version, frame[9 if version >= 9 else 8 :])
    assert oracle.plain_message(entity, ProduceResponse, version) == oracle.as_dict(response, version)


def test_what_a_version_cannot_say_is_left_out() -> None:
    rich = PartitionResult(0, 6, -1, -1, 0, [(1, "bad")], "not me", (2, 7))
    answers = [("t", None, [rich])]
    endpoints = [(2, "host", 9092, None)]
    body = encode_produce_response(7, 0, answers, 0, endpoints)[8:]
    (partition,) = decode(ProduceResponse, 7, body)[0].responses[0].partition_responses
    assert (partition.error_code, partition.error_message, partition.record_errors) == (6, None, [])
    body = encode_produce_response(9, 0, answers, 0, endpoints)[9:]
    decoded = decode(ProduceResponse, 9, body)[0]
    assert decoded.node_endpoints == []
    assert decoded.responses[0].partition_responses[0].error_message == "not me"


@pytest.mark.parametrize("version", [8, 9, 13])
def test_messages_that_are_too_long_for_an_answer_are_shortened_as_by_the_codec(version: int) -> None:
    long = "ä" * 20_000
    message = ProduceResponse(
        responses=[
            TopicProduceResponse(
                **({"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}),
                partition_responses=[
                    PartitionProduceResponse(
                        index=0,
                        error_code=53,
                        record_errors=[BatchIndexAndErrorMessage(batch_index_error_message=long)],
                        error_message=long,
                    )
                ],
            )
        ]
    )
    frame = encode_produce_response(version, 1, as_answers(message))
    assert frame == encode_response(ApiKey.PRODUCE, version, 1, message)
    assert len(frame) < 10_000


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_send_what_the_codec_would_send_without_copying_records(
    version: int, random_messages: Strategies
) -> None:
    @SOME
    @given(random_messages(ProduceRequest, version))
    def check(message: ProduceRequest) -> None:
        header = RequestHeader(ApiKey.PRODUCE, version, 77, "client")
        topics = [
            (topic.name, topic.topic_id, [(each.index, each.records) for each in topic.partition_data])
            for topic in message.topic_data
        ]
        buffers = encode_produce_request(
            header, message.transactional_id, message.acks, message.timeout_ms, topics
        )
        assert b"".join(buffers) == encode_request(header, message)
        for topic in message.topic_data:
            for each in topic.partition_data:
                assert not each.records or any(buffer is each.records for buffer in buffers)

    check()


def in_slices(work: typing.Generator[None, None, typing.Any]) -> tuple[int, typing.Any]:
    """In how many steps work is done, and what comes of it."""
    steps = 1
    while True:
        try:
            next(work)
        except StopIteration as end:
            return steps, end.value
        steps += 1


def wide_request(topics: int, partitions: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=b"r%d" % index) for index in range(partitions)]
    return ProduceRequest(
        acks=1,
        timeout_ms=5,
        topic_data=[TopicProduceData(name=f"t{topic}", partition_data=data) for topic in range(topics)],
    )


@pytest.mark.parametrize("version", [3, 12])
@pytest.mark.parametrize(("topics", "partitions"), [(1, 5 * SLICE), (5 * SLICE, 0), (5, SLICE - 1)])
def test_a_wide_request_is_read_in_slices(version: int, topics: int, partitions: int) -> None:
    message = wide_request(topics, partitions)
    body = memoryview(encode(message, version))
    steps, parsed = in_slices(parse_produce_in_slices(body, 0, version))
    assert steps == 6
    assert as_message(parsed) == as_message(parse_produce_request(body, 0, version)) == message
    assert parse_short_produce(body, 0, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_not_wide_is_read_at_once(version: int) -> None:
    body = memoryview(encode(wide_request(2, SLICE // 2 - 2), version))
    parsed = parse_short_produce(body, 0, version)
    assert parsed is not None
    assert parsed == parse_produce_request(body, 0, version)


def test_what_is_wrong_with_a_request_is_found_in_slices_too() -> None:
    body = encode(wide_request(1, 2 * SLICE), 9)
    with pytest.raises(WireError, match="more than its request holds"):
        in_slices(parse_produce_in_slices(memoryview(body)[:-4], 0, 9))
    with pytest.raises(WireError, match="more than 20000"):
        in_slices(parse_produce_in_slices(memoryview(encode(wide_request(1, 20_000), 9)), 0, 9))


@pytest.mark.parametrize("version", [3, 12])
def test_a_wide_response_is_written_in_slices(version: int) -> None:
    results = [PartitionResult(index, 0, index) for index in range(SLICE)]
    answers: list[TopicAnswer] = [(f"t{topic}", None, results) for topic in range(4)]
    steps, frame = in_slices(encode_produce_in_slices(version, 7, answers))
    assert steps == 5
    assert frame == encode_produce_response(version, 7, answers)
