"""The hand-written fetch path says byte for byte what the generic codec says."""

from __future__ import annotations

import os
import random
import typing
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.errors import WireError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire import fetch_request
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode, encode
from tidelog.wire.fetch import (
    FetchedPartition,
    FetchResult,
    FileRange,
    Part,
    TopicAnswer,
    decode_fetch_response,
    encode_fetch_response,
    parse_fetch_request,
    parse_in_slices,
)
from tidelog.wire.fetch import FetchRequest as ParsedFetch
from tidelog.wire.follower_fetch import encode_follower_fetch
from tidelog.wire.headers import encode_response
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
    SnapshotId,
)
from tidelog.wire.schema import Payload

SOME = settings(
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
VERSIONS = range(4, 19)
TOPIC_ID = Uuid(bytes(range(16)))
BYTES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)
Strategies = Callable[[type[Payload], int], st.SearchStrategy[typing.Any]]


def as_request(parsed: ParsedFetch, version: int) -> FetchRequest:
    request = FetchRequest(
        cluster_id=parsed.cluster_id,
        max_wait_ms=parsed.max_wait_ms,
        min_bytes=parsed.min_bytes,
        max_bytes=parsed.max_bytes,
        isolation_level=parsed.isolation_level,
        session_id=parsed.session_id,
        session_epoch=parsed.session_epoch,
        topics=[
            FetchTopic(
                topic=name or "",
                topic_id=topic_id or ZERO_UUID,
                partitions=[
                    FetchPartition(
                        partition=each.partition,
                        current_leader_epoch=each.current_leader_epoch,
                        fetch_offset=each.fetch_offset,
                        last_fetched_epoch=each.last_fetched_epoch,
                        log_start_offset=each.log_start_offset,
                        partition_max_bytes=each.max_bytes,
                        replica_directory_id=each.replica_directory_id,
                        high_watermark=each.high_watermark,
                    )
                    for each in partitions
                ],
            )
            for name, topic_id, partitions in parsed.topics
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=name or "", topic_id=topic_id or ZERO_UUID, partitions=partitions)
            for name, topic_id, partitions in parsed.forgotten_topics
        ],
        rack_id=parsed.rack_id,
    )
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=parsed.replica_id, replica_epoch=parsed.replica_epoch)
    else:
        request.replica_id = parsed.replica_id
    return request


def pair(value: tuple[int, int] | None) -> tuple[int, int]:
    return (-1, -1) if value is None else value


def as_response(result: FetchResult) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=result.throttle_time_ms,
        error_code=result.error_code,
        session_id=result.session_id,
        responses=[
            FetchableTopicResponse(
                topic=name or "",
                topic_id=topic_id or ZERO_UUID,
                partitions=[as_partition(each) for each in partitions],
            )
            for name, topic_id, partitions in result.topics
        ],
        node_endpoints=[
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in result.node_endpoints
        ],
    )


def as_partition(each: FetchedPartition) -> PartitionData:
    epoch, end_offset = pair(each.diverging_epoch)
    leader_id, leader_epoch = pair(each.current_leader)
    snapshot_end, snapshot_epoch = pair(each.snapshot_id)
    aborted = each.aborted_transactions
    assert not isinstance(each.records, FileRange)
    return PartitionData(
        partition_index=each.partition,
        error_code=each.error_code,
        high_watermark=each.high_watermark,
        last_stable_offset=each.last_stable_offset,
        log_start_offset=each.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
        snapshot_id=SnapshotId(end_offset=snapshot_end, epoch=snapshot_epoch),
        aborted_transactions=None
        if aborted is None
        else [AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted],
        preferred_read_replica=each.preferred_read_replica,
        records=None if each.records is None else bytes(each.records),
    )


def as_answers(response: FetchResponse, place: Callable[[bytes], FileRange]) -> list[TopicAnswer]:
    return [
        (
            topic.topic,
            topic.topic_id,
            [
                FetchedPartition(
                    each.partition_index,
                    each.error_code,
                    each.high_watermark,
                    each.last_stable_offset,
                    each.log_start_offset,
                    None
                    if each.aborted_transactions is None
                    else [(one.producer_id, one.first_offset) for one in each.aborted_transactions],
                    each.preferred_read_replica,
                    None if each.records is None else place(each.records),
                    (each.diverging_epoch.epoch, each.diverging_epoch.end_offset),
                    (each.current_leader.leader_id, each.current_leader.leader_epoch),
                    (each.snapshot_id.end_offset, each.snapshot_id.epoch),
                )
                for each in topic.partitions
            ],
        )
        for topic in response.responses
    ]


class RecordFile:
    """A file in which records are placed, and from which the parts of a response are put together."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w+b")
        self.file.write(b"something before")

    def place(self, records: bytes) -> FileRange:
        position = self.file.seek(0, os.SEEK_END)
        self.file.write(records)
        self.file.flush()
        return FileRange(self.file.fileno(), position, len(records))

    def joined(self, parts: list[Part]) -> bytes:
        assert all(type(part) in (bytes, FileRange) and part for part in parts)
        return b"".join(
            os.pread(part.fd, part.length, part.position) if isinstance(part, FileRange) else part
            for part in parts
        )


@pytest.fixture
def record_file(tmp_path: Path) -> RecordFile:
    return RecordFile(tmp_path / "segment")


@pytest.mark.parametrize("version", VERSIONS)
def test_any_request_is_parsed_as_the_codec_parses_it(version: int, random_messages: Strategies) -> None:
    @SOME
    @given(random_messages(FetchRequest, version))
    def check(message: FetchRequest) -> None:
        body = b"head" + encode(message, version) + b"tail"
        assert as_request(parse_fetch_request(memoryview(body), 4, version), version) == message

    check()


def single_request(version: int, rack: str = "", epoch: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=7, fetch_offset=2**40, partition_max_bytes=1 << 20)
    topic = FetchTopic(partitions=[partition])
    if version >= 13:
        topic.topic_id = TOPIC_ID
    else:
        topic.topic = "orders"
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic], isolation_level=1)
    if version >= 7:
        request.session_epoch = epoch
    if version >= 11:
        request.rack_id = rack
    return request


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rack", ["", "zone-a"])
def test_a_request_for_one_partition_is_parsed(version: int, rack: str, oracle: typing.Any) -> None:
    message = single_request(version, rack)
    data = encode(message, version)
    assert as_request(parse_fetch_request(memoryview(data), 0, version), version) == message
    theirs = oracle.encode(oracle.decode(FetchRequest, version, data))
    assert as_request(parse_fetch_request(memoryview(theirs), 0, version), version) == message


def long_request(topics: int = 0, forgotten: int = 0) -> memoryview:
    """A request of version 12 for ``topics`` of 100 partitions each, which forgets so many of one topic."""
    partitions = [FetchPartition(partition=index) for index in range(100)]
    request = FetchRequest(
        topics=[FetchTopic(topic=f"t{topic}", partitions=partitions) for topic in range(topics)]
    )
    if forgotten:
        request.forgotten_topics_data = [ForgottenTopic(topic="gone", partitions=list(range(forgotten)))]
    return memoryview(encode(request, 12))


@pytest.mark.parametrize("named", [{"topics": 50}, {"forgotten": 5000}])
def test_a_long_request_is_parsed_in_slices(named: dict[str, int]) -> None:
    slices = 1 + sum(1 for _ in parse_in_slices(long_request(**named), 0, 12))
    assert slices >= 5000 // 256


def test_a_request_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_request, "MAX_PARTITIONS", 200)
    assert len(parse_fetch_request(long_request(topics=1, forgotten=98), 0, 12).topics) == 1
    for too_many in (
        long_request(topics=2),
        long_request(forgotten=200),
        long_request(topics=1, forgotten=99),
    ):
        with pytest.raises(WireError, match="more than 200 topics and partitions"):
            parse_fetch_request(too_many, 0, 12)


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_requests_are_refused_when_the_codec_refuses_them(
    version: int, random_messages: Strategies
) -> None:
    shapes = random_messages(FetchRequest, version) | st.builds(single_request, st.just(version))

    @SOME
    @given(shapes, st.integers(0, 2**32))
    def check(message: FetchRequest, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            body = bytearray(encode(message, version))
            body[rng.randrange(len(body))] = rng.choice((*BYTES, rng.randrange(256)))
            data = bytes(body[: rng.choice((len(body), rng.randrange(len(body) + 1)))])
            try:
                expected, _ = decode(FetchRequest, version, data)
            except WireError:
                with pytest.raises(WireError):
                    parse_fetch_request(memoryview(data), 0, version)
            else:
                assert as_request(parse_fetch_request(memoryview(data), 0, version), version) == expected

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_any_response_is_encoded_as_the_codec_encodes_it(
    version: int, random_messages: Strategies, record_file: RecordFile
) -> None:
    @SOME
    @given(random_messages(FetchResponse, version), st.integers(-(2**31), 2**31 - 1))
    def check(message: FetchResponse, correlation_id: int) -> None:
        endpoints = [(each.node_id, each.host, each.port, each.rack) for each in message.node_endpoints]
        expected = encode_response(ApiKey.FETCH, version, correlation_id, message)
        for place in (record_file.place, bytes, memoryview):
            parts = encode_fetch_response(
                version,
                correlation_id,
                as_answers(message, place),  # type: ignore[arg-type]
                throttle_time_ms=message.throttle_time_ms,
                error_code=message.error_code,
                session_id=message.session_id,
                node_endpoints=endpoints,
            )
            assert record_file.joined(parts) == expected

    check()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16383, 16384])
@pytest.mark.parametrize("aborted", [None, [], [(5, 6)]])
def test_one_partition_from_a_file_is_sent_as_the_codec_would_send_it(
    version: int, size: int, aborted: list[tuple[int, int]] | None, record_file: RecordFile
) -> None:
    fetched = FetchedPartition(3, 0, 100, 99, 5 if version >= 5 else -1, aborted, -1, b"r" * size)
    topic = FetchableTopicResponse(partitions=[as_partition(fetched)])
    if version >= 13:
        topic.topic_id = TOPIC_ID
    else:
        topic.topic = "orders"
    response = FetchResponse(responses=[topic], throttle_time_ms=3, session_id=9 if version >= 7 else 0)
    answer = fetched._replace(records=record_file.place(b"r" * size))
    parts = encode_fetch_response(
        version, 11, [("orders", TOPIC_ID, [answer])], throttle_time_ms=3, session_id=response.session_id
    )
    assert record_file.joined(parts) == encode_response(ApiKey.FETCH, version, 11, response)
    assert sum(isinstance(part, FileRange) for part in parts) == (1 if size else 0)


def test_what_a_version_cannot_say_is_left_out() -> None:
    rich = FetchedPartition(1, 6, 10, 9, 8, None, 4, b"", (1, 2), (3, 4), (5, 6))
    (frame,) = encode_fetch_response(4, 0, [("t", None, [rich])], error_code=70, session_id=5)
    assert isinstance(frame, bytes)
    decoded, _ = decode(FetchResponse, 4, frame[8:])
    plain = PartitionData(
        partition_index=1,
        error_code=6,
        high_watermark=10,
        last_stable_offset=9,
        aborted_transactions=None,
        records=b"",
    )
    assert decoded == FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[plain])])


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_read_what_the_codec_reads_without_copying_records(
    version: int, random_messages: Strategies
) -> None:
    @SOME
    @given(random_messages(FetchResponse, version))
    def check(message: FetchResponse) -> None:
        body = memoryview(b"head" + encode(message, version))
        result = decode_fetch_response(version, body, 4)
        assert as_response(result) == message
        for _, _, partitions in result.topics:
            for each in partitions:
                assert each.records is None or (
                    isinstance(each.records, memoryview) and each.records.obj is body.obj
                )

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_responses_are_refused_when_the_codec_refuses_them(
    version: int, random_messages: Strategies
) -> None:
    @SOME
    @given(random_messages(FetchResponse, version), st.integers(0, 2**32))
    def check(message: FetchResponse, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            body = bytearray(encode(message, version))
            body[rng.randrange(len(body))] = rng.choice((*BYTES, rng.randrange(256)))
            data = bytes(body[: rng.choice((len(body), rng.randrange(len(body) + 1)))])
            try:
                expected, _ = decode(FetchResponse, version, data)
            except WireError:
                with pytest.raises(WireError):
                    decode_fetch_response(version, memoryview(data))
            else:
                assert as_response(decode_fetch_response(version, memoryview(data))) == expected

    check()


@pytest.mark.parametrize("version", range(15, 18))
@pytest.mark.parametrize("shape", [[1], [2, 1], [1, 200], []], ids=str)
@pytest.mark.parametrize("session", [(0, -1), (2**30, 9)], ids=str)
def test_a_follower_asks_as_the_codec_would_have_it_ask(
    version: int, shape: list[int], session: tuple[int, int]
) -> None:
    topics = [
        FetchTopic(
            topic_id=Uuid(bytes([number]) * 16),
            partitions=[
                FetchPartition(
                    partition=index,
                    current_leader_epoch=7,
                    fetch_offset=2**40 + index,
                    last_fetched_epoch=6,
                    log_start_offset=3,
                    partition_max_bytes=1 << 20,
                )
                for index in range(count)
            ],
        )
        for number, count in enumerate(shape)
    ]
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        replica_state=ReplicaState(replica_id=3, replica_epoch=2**33),
    )
    body = encode_follower_fetch(
        (500, 1, 10 << 20),
        (3, 2**33),
        [
            (topic.topic_id, [(each.partition, 7, each.fetch_offset, 6, 3) for each in topic.partitions])
            for topic in topics
        ],
        1 << 20,
        session,
    )
    assert body == encode(request, version)
    assert as_request(parse_fetch_request(memoryview(body), 0, version), version) == request
