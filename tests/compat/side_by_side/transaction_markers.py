"""WriteTxnMarkers as a coordinator, or an administrator who aborts, would send them."""

from __future__ import annotations

from tests.compat.side_by_side.batches import batch
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_offset_requests import offsets
from tests.compat.side_by_side.group_requests import group_of
from tests.compat.side_by_side.records_requests import append
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import Producer, log_of

from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

VERSIONS = (1, 2)


def marker(producer: Producer, topic: str, *partitions: int, **more: object) -> WritableTxnMarker:
    """An abort marker for a producer, unless said otherwise."""
    fields: dict[str, object] = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "coordinator_epoch": 0,
    }
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions or (0,)))]
    return WritableTxnMarker(topics=topics, **{**fields, **more})  # type: ignore[arg-type]


def write(side: Side, version: int, *markers: WritableTxnMarker) -> object:
    answer = side.ask(version, WriteTxnMarkersRequest(markers=list(markers)))
    if isinstance(answer, dict):
        for each in answer["markers"]:
            each["topics"].sort(key=lambda topic: str(topic["name"]))
            for topic in each["topics"]:
                topic["partitions"].sort(key=lambda part: int(part["partition_index"]))
    return answer


MARKERS: dict[str, dict[str, object]] = {
    "abort": {},
    "commit": {"transaction_result": True},
    "later-epoch": {"later": 1},
    "older-epoch": {"later": -1},
    "coordinator-epoch-later": {"coordinator_epoch": 5},
    "coordinator-epoch-negative": {"coordinator_epoch": -1},
    "negative-epoch": {"producer_epoch": -1},
    "negative-id": {"producer_id": -1, "producer_epoch": 0},
    "unknown-producer": {"producer_id": 987_654_321},
    "tv1": {"transaction_version": 1},
    "tv2": {"transaction_version": 2},
    "tv2-later-epoch": {"transaction_version": 2, "later": 1},
    "tv9": {"transaction_version": 9},
}


def _fields(producer: Producer, given: dict[str, object]) -> dict[str, object]:
    fields = dict(given)
    later = fields.pop("later", 0)
    if later:
        fields["producer_epoch"] = producer.epoch + int(str(later))
    return fields


@case(MARKERS, versions=VERSIONS)
def marker_for_an_open_transaction(side: Side, given: dict[str, object], version: int) -> object:
    topic = side.topic()
    producer = Producer(side).begun()
    producer.begun()
    producer.write(topic)
    answer = write(side, version, marker(producer, topic, **_fields(producer, given)))
    return [answer, log_of(side, topic), producer.described()]


@case(MARKERS, versions=VERSIONS)
def marker_for_an_empty_partition(side: Side, given: dict[str, object], version: int) -> object:
    topic = side.topic()
    producer = Producer(side).begun()
    answer = write(side, version, marker(producer, topic, **_fields(producer, given)))
    return [answer, log_of(side, topic)]


@case(MARKERS, versions=(1,))
def marker_twice(side: Side, given: dict[str, object], version: int) -> object:
    topic = side.topic()
    producer = Producer(side).begun()
    producer.write(topic)
    seen = [write(side, version, marker(producer, topic))]
    seen.append(write(side, version, marker(producer, topic, **_fields(producer, given))))
    return [*seen, log_of(side, topic)]


@case((1, 3, 2))
def coordinator_epochs_go_up(side: Side, second: int) -> object:
    topic = side.topic()
    producer = Producer(side).begun()
    append(side, topic, batch())
    seen = [write(side, 1, marker(producer, topic, coordinator_epoch=2))]
    return [*seen, write(side, 1, marker(producer, topic, coordinator_epoch=second)), log_of(side, topic)]


@case({"unknown-partition": ("t", 7), "unknown-topic": ("none", 0), "negative": ("t", -1)}, versions=VERSIONS)
def odd_partitions(side: Side, given: tuple[str, int], version: int) -> object:
    stem, partition = given
    topic = side.topic()
    producer = Producer(side).begun()
    both = marker(producer, side.name_of(stem), partition)
    both.topics.append(WritableTxnMarkerTopic(name=side.topic("good"), partition_indexes=[0]))
    return [write(side, version, both), log_of(side, topic)]


@case(VERSIONS)
def several_markers(side: Side, version: int) -> object:
    topic = side.topic("t", 2)
    one, two = Producer(side, "one").begun(), Producer(side, "two").begun()
    one.write(topic)
    two.write(topic, partition=1)
    answer = write(side, version, marker(one, topic, 0, 1), marker(two, topic, 1, transaction_result=True))
    if isinstance(answer, dict):
        answer["markers"].sort(key=lambda each: str(each["producer_id"]))
    return [answer, log_of(side, topic), log_of(side, topic, 1)]


@case(VERSIONS)
def no_topics(side: Side, version: int) -> object:
    producer = Producer(side).begun()
    empty = marker(producer, "t")
    empty.topics = []
    return write(side, version, empty)


@case((True, False))
def marker_for_offsets(side: Side, result: bool) -> object:
    """The group coordinator's own partition: pending offsets appear or go."""
    topic, group_id = side.topic(), group_of(side)
    producer = Producer(side).begun()
    producer.commit_offsets(group_id, topic)
    sign = marker(producer, "__consumer_offsets", transaction_result=result)
    seen = [write(side, 1, sign), offsets(side, group_id, {topic: [0]}, require_stable=True)]
    return [*seen, producer.end(False), producer.settled(), offsets(side, group_id, {topic: [0]})]
