"""Produce, fetch and the like for one partition, as cases of several modules need them."""

from __future__ import annotations

from typing import TypedDict, Unpack

from tests.compat.side_by_side.batches import described
from tests.compat.side_by_side.side import Side

from tidelog.ids import Uuid
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
PRODUCE_IDS_SINCE = 13
FETCH_IDS_SINCE = 13


def produce_request(
    side: Side,
    topic: str,
    data: bytes | None,
    *,
    version: int = 13,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 3000,
    topic_id: Uuid | None = None,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A request for one partition."""
    if version >= PRODUCE_IDS_SINCE and topic_id is None:
        topic_id = side.topic_id(topic)
    target = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=data)]
    )
    if topic_id is not None:
        target.topic_id = topic_id
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[target]
    )


def produce(side: Side, topic: str, data: bytes | None, *, version: int = 13, **more: object) -> object:
    """Send records to one partition."""
    return side.ask(version, produce_request(side, topic, data, version=version, **more))  # type: ignore[arg-type]


def append(side: Side, topic: str, data: bytes, *, partition: int = 0) -> int:
    """Send records that have to be taken; gives their first offset."""
    response = side.expect(9, produce_request(side, topic, data, version=9, partition=partition))
    (answer,) = response.responses[0].partition_responses  # type: ignore[attr-defined]
    assert answer.error_code == 0, f"{side.name}: {answer}"
    return int(answer.base_offset)


def produce_and_show(
    side: Side, topic: str, data: bytes | None, *, version: int = 13, **more: object
) -> object:
    """Send records and show the answer together with what is stored then."""
    return {"answer": produce(side, topic, data, version=version, **more), "stored": stored(side, topic)}


def fetch_topic(side: Side, topic: str, *partitions: FetchPartition, version: int = 18) -> FetchTopic:
    """The partitions of one topic in a fetch request."""
    found = FetchTopic(topic=topic, partitions=list(partitions))
    if version >= FETCH_IDS_SINCE:
        found.topic_id = side.topic_id(topic)
    return found


class Known(TypedDict, total=False):
    """What else a fetch request may say about a partition."""

    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


def wanted(
    offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20, **more: Unpack[Known]
) -> FetchPartition:
    """One partition in a fetch request."""
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


def fetch_request(*topics: FetchTopic, **more: object) -> FetchRequest:
    """A fetch that does not wait, outside of any session unless told so."""
    fields: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1}
    return FetchRequest(topics=list(topics), **{**fields, **more})  # type: ignore[arg-type]


def forgotten(side: Side, topic: str, *partitions: int, version: int = 18) -> ForgottenTopic:
    """Partitions that a session is to drop."""
    found = ForgottenTopic(topic=topic, partitions=list(partitions))
    if version >= FETCH_IDS_SINCE:
        found.topic_id = side.topic_id(topic)
    return found


def fetch(side: Side, version: int, request: FetchRequest) -> object:
    """Send a fetch; records are shown batch by batch."""
    return shown(side.ask(version, request))


def shown(answer: object) -> object:
    """The answer to a fetch with its records described."""
    if isinstance(answer, dict):
        for topic in answer["responses"]:
            for partition in topic["partitions"]:
                data = partition["records"]
                partition["records"] = data if data is None else described(data)
    return answer


def stored(side: Side, topic: str, partition: int = 0) -> list[dict[str, object]]:
    """All batches of a partition, segment by segment."""
    found: list[dict[str, object]] = []
    offset = _earliest(side, topic, partition)
    while True:
        part = wanted(offset, partition, max_bytes=10 << 20)
        request = fetch_request(fetch_topic(side, topic, part, version=12), max_bytes=10 << 20)
        answer = fetch(side, 12, request)
        assert isinstance(answer, dict), f"{side.name}: {answer}"
        (read,) = answer["responses"][0]["partitions"]
        batches = [each for each in read["records"] or () if "cut" not in each]
        if not batches:
            return found
        found += [{name: _time_of_day(side, name, value) for name, value in each.items()} for each in batches]
        offset = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"] + 1


def _earliest(side: Side, topic: str, partition: int) -> int:
    response = side.expect(5, offsets_request(topic, -2, partition=partition))
    return int(response.topics[0].partitions[0].offset)  # type: ignore[attr-defined]


def _time_of_day(side: Side, name: str, value: object) -> object:
    return "now" if name.endswith("timestamp") and side.is_now(value) else value


def offsets_request(
    topic: str, timestamp: int, *, partition: int = 0, isolation: int = 0, epoch: int = -1, replica: int = -1
) -> ListOffsetsRequest:
    """Where a timestamp lies in one partition."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
