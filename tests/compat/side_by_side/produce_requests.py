"""Produce as a request: versions, acks, partitions that are not there, records missing or too many."""

from __future__ import annotations

from tests.compat.side_by_side.batches import NOW, Batch, batch, legacy_message, record, records
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import (
    PRODUCE_VERSIONS,
    produce,
    produce_and_show,
    produce_request,
    stored,
)
from tests.compat.side_by_side.side import UNKNOWN_ID, Side

from tidelog.ids import ZERO_UUID
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@case(versions=PRODUCE_VERSIONS)
def one_batch(side: Side, version: int) -> object:
    topic = side.topic()
    return [produce_and_show(side, topic, batch(3), version=version) for _ in range(2)]


@case((1, -1, 2, -2, 32767), versions=(3, 13))
def acks(side: Side, acks: int, version: int) -> object:
    return produce_and_show(side, side.topic(), batch(), version=version, acks=acks)


@case((1, -1, 5))
def acks_and_unknown_partition(side: Side, acks: int) -> object:
    return produce(side, side.topic(), batch(), version=9, acks=acks, partition=4)


@case(versions=(3, 9, 13))
def acks_0(side: Side, version: int) -> object:
    """No answer, and the connection serves the next request."""
    topic = side.topic()
    request = produce_request(side, topic, batch(), version=version, acks=0)
    return [side.send(version, request), side.ask(0, ApiVersionsRequest()) != "", stored(side, topic)]


@case(
    {
        "unknown-partition": {"partition": 7},
        "corrupt": {"data": batch(crc=1)},
        "null": {"data": None},
        "no-batch": {"data": b""},
        "too-large": {"data": Batch((record(bytes(1 << 20)),)).bytes()},
        "control": {"data": batch(attributes=0x20)},
        "transactional": {"data": batch(attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0)},
    }
)
def acks_0_refused(side: Side, fields: dict[str, object]) -> object:
    topic = side.topic()
    wanted = {"data": batch(), **fields}
    request = produce_request(side, topic, **wanted, version=9, acks=0)  # type: ignore[arg-type]
    side.send(9, request)
    frame = side.receive_frame(1.0)
    side.reconnect()
    return [frame, stored(side, topic)]


@case(versions=PRODUCE_VERSIONS)
def unknown_partition(side: Side, version: int) -> object:
    return produce(side, side.topic(), batch(), version=version, partition=9)


@case((-1, -2147483648, 2147483647))
def odd_partition(side: Side, partition: int) -> object:
    return produce(side, side.topic(), batch(), version=9, partition=partition)


@case(versions=PRODUCE_VERSIONS)
def unknown_topic(side: Side, version: int) -> object:
    return produce(side, side.name_of("none"), batch(), version=version, topic_id=UNKNOWN_ID)


@case(versions=(13,))
def zero_topic_id(side: Side, version: int) -> object:
    return produce(side, side.topic(), batch(), version=version, topic_id=ZERO_UUID)


@case(("", ".", "a b", "x" * 250))
def impossible_topic(side: Side, name: str) -> object:
    return produce(side, name, batch(), version=9)


@case(versions=(3, 13))
def null_records(side: Side, version: int) -> object:
    topic = side.topic()
    side.send(version, produce_request(side, topic, None, version=version))
    frame = side.receive_frame(1.0)
    side.reconnect()
    return [frame if isinstance(frame, str) else "an answer", stored(side, topic)]


@case(versions=PRODUCE_VERSIONS)
def empty_records(side: Side, version: int) -> object:
    return produce_and_show(side, side.topic(), b"", version=version)


@case(versions=(3, 9))
def null_records_unknown_partition(side: Side, version: int) -> object:
    return produce(side, side.topic(), None, version=version, partition=9)


@case((1, 2, 5, 11, 12, 16, 17, 30, 60, 61, 70))
def cut_batch(side: Side, size: int) -> object:
    return produce_and_show(side, side.topic(), batch()[:size])


@case((0, 1), versions=(3, 9, 13))
def old_format(side: Side, magic: int, version: int) -> object:
    return produce_and_show(side, side.topic(), legacy_message(magic), version=version)


@case((3, 4, 100, 127, 128, 255))
def future_format(side: Side, magic: int) -> object:
    data = bytearray(batch())
    data[16] = magic
    return produce_and_show(side, side.topic(), bytes(data))


@case(versions=(3, 13))
def two_batches(side: Side, version: int) -> object:
    return produce_and_show(side, side.topic(), batch() + batch(), version=version)


@case()
def two_batches_second_cut(side: Side) -> object:
    return produce_and_show(side, side.topic(), batch() + batch()[:-1])


@case((1, 11, 12, 16, 17, 60))
def bytes_behind_batch(side: Side, size: int) -> object:
    return produce_and_show(side, side.topic(), batch() + bytes(size))


@case()
def two_batches_second_old_format(side: Side) -> object:
    return produce_and_show(side, side.topic(), batch() + legacy_message(1))


@case()
def two_old_messages(side: Side) -> object:
    return produce_and_show(side, side.topic(), legacy_message(1) + legacy_message(1, offset=1))


@case(("size", "magic"))
def batch_that_cannot_be_read_beside_a_good_one(side: Side, wrong: str) -> object:
    topic = side.topic("t", 2)
    data = bytearray(batch())
    if wrong == "size":
        data[11] = 3
    else:
        data[16] = 9
    request = produce_request(side, topic, bytes(data))
    request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch()))
    answer = side.ask(13, request)
    assert isinstance(answer, dict)
    answer["responses"][0]["partition_responses"].sort(key=lambda partition: partition["index"])
    return answer


@case()
def several_partitions(side: Side) -> object:
    """Good and bad ones in one request: each has its own answer."""
    topic, other = side.topic("a", 3), side.topic("b")
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=2, records=batch(2)),
                    PartitionProduceData(index=0, records=batch(crc=5)),
                    PartitionProduceData(index=5, records=batch()),
                    PartitionProduceData(index=1, records=b""),
                ],
            ),
            TopicProduceData(
                name=side.name_of("none"), partition_data=[PartitionProduceData(records=batch())]
            ),
            TopicProduceData(name=other, partition_data=[PartitionProduceData(records=batch(4))]),
        ],
    )
    answer = side.ask(9, request)
    assert isinstance(answer, dict)
    for each in answer["responses"]:
        each["partition_responses"].sort(key=lambda partition: partition["index"])
    answer["responses"].sort(key=lambda each: each["name"])
    return answer


@case(versions=(3, 9, 13))
def same_partition_twice(side: Side, version: int) -> object:
    topic = side.topic()
    request = produce_request(side, topic, batch(2), version=version)
    request.topic_data[0].partition_data.append(PartitionProduceData(records=batch(3)))
    return [side.ask(version, request), stored(side, topic)]


@case(versions=(3, 9))
def same_topic_twice(side: Side, version: int) -> object:
    topic = side.topic("t", 2)
    request = produce_request(side, topic, batch(2), version=version)
    request.topic_data.append(
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=1, records=batch())])
    )
    answer = side.ask(version, request)
    assert isinstance(answer, dict)
    for each in answer["responses"]:
        each["partition_responses"].sort(key=lambda partition: partition["index"])
    return [answer, stored(side, topic), stored(side, topic, 1)]


@case((-1, 0, 1, 2, 5), versions=(3, 13))
def nothing_at_all(side: Side, acks: int, version: int) -> object:
    side.send(version, ProduceRequest(acks=acks, timeout_ms=1000))
    if acks == 0:
        return side.receive_frame(0.5)
    side.reconnect()
    return side.ask(version, ProduceRequest(acks=acks, timeout_ms=1))


@case(versions=(3, 13))
def topic_without_partitions(side: Side, version: int) -> object:
    request = produce_request(side, side.topic(), batch(), version=version)
    request.topic_data[0].partition_data.clear()
    return side.ask(version, request)


@case((0, -1, -5))
def timeout(side: Side, timeout_ms: int) -> object:
    return produce_and_show(side, side.topic(), batch(), timeout_ms=timeout_ms)


@case(("__consumer_offsets", "__transaction_state"), versions=(3, 9, 13))
def internal_topic(side: Side, name: str, version: int) -> object:
    """Nobody but the admin client writes there."""
    side.ensure_topic(name)
    return produce(side, name, batch(), version=version)


@case((None, "", "__admin_client", "ü", "x" * 300))
def client_ids(side: Side, client_id: str | None) -> object:
    side.client_id = client_id
    return produce_and_show(side, side.topic(), batch())


@case(("txn", ""), versions=(3, 9, 13))
def transactional_id_without_transactional_records(side: Side, transactional_id: str, version: int) -> object:
    return produce_and_show(side, side.topic(), batch(), version=version, transactional_id=transactional_id)


@case(versions=(3, 6, 7, 9, 13))
def zstd_in_old_versions(side: Side, version: int) -> object:
    return produce_and_show(side, side.topic(), batch(3, codec=4), version=version)


@case((1, 2, 3, 4), versions=(3, 7, 13))
def codecs(side: Side, codec: int, version: int) -> object:
    return produce_and_show(side, side.topic(), batch(5, codec=codec), version=version)


@case((-1, 1))
def largest_batch(side: Side, more: int) -> object:
    """A batch of exactly ``max.message.bytes`` is taken, one byte more is not."""
    topic = side.topic(max_message_bytes="1000")
    size = 1000 - len(Batch((record(bytes(100)),)).bytes()) + 100
    small = Batch((record(bytes(size - 1)),)).bytes()
    size += 1000 - len(small) - 1
    data = Batch((record(bytes(size + (1 if more > 0 else 0))),)).bytes()
    assert len(data) == (1000 if more < 0 else 1001), len(data)
    return produce_and_show(side, topic, data)


@case()
def too_large_for_segment(side: Side) -> object:
    topic = side.topic(segment_bytes="1048576", max_message_bytes="5000000")
    return produce(side, topic, Batch((record(bytes(1_100_000)),)).bytes())


@case()
def too_large_when_compressed_otherwise(side: Side) -> object:
    """A batch that fits only as the producer compressed it."""
    topic = side.topic(max_message_bytes="1000", compression_type="uncompressed")
    data = Batch((record(bytes(5000)),), codec=1).bytes()
    assert len(data) < 1000
    return produce_and_show(side, topic, data)


@case()
def records_in_order(side: Side) -> object:
    """Requests that follow each other without waiting for answers."""
    topic = side.topic()
    for count in (1, 2, 3):
        side.send(9, produce_request(side, topic, Batch(tuple(records(count))).bytes(), version=9))
        side.receive_frame()
    return stored(side, topic)


@case()
def base_timestamp_beyond_records(side: Side) -> object:
    body = (record(timestamp_delta=-5), record(offset_delta=1, timestamp_delta=-9))
    return produce_and_show(side, side.topic(), Batch(body, max_timestamp=NOW - 5).bytes())
