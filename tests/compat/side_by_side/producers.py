"""Idempotent producers: sequences, epochs, what is remembered of them, and what DescribeProducers tells."""

from __future__ import annotations

from tests.compat.side_by_side.batches import TRANSACTIONAL, Batch, batch, records
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import PRODUCE_VERSIONS, append, produce, stored
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

MAX = 2**31 - 1
PRODUCER = 771_000


def sequenced(
    sequence: int, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER, **more: object
) -> bytes:
    return (
        Batch(tuple(records(count)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        .with_(**more)
        .bytes()
    )


def producers_of(side: Side, topic: str, *partitions: int) -> object:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=list(partitions or (0,)))]
    )
    return side.ask(0, request)


# Each: the batches (sequence, count, epoch) that are sent one after another to an empty partition.
SEQUENCES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "in-order": ((0, 1, 0), (1, 2, 0), (3, 5, 0)),
    "duplicate": ((0, 3, 0), (0, 3, 0), (0, 3, 0)),
    "duplicate-of-older": ((0, 1, 0), (1, 1, 0), (2, 1, 0), (0, 1, 0), (1, 1, 0)),
    "duplicate-of-sixth": (
        (0, 1, 0),
        (1, 1, 0),
        (2, 1, 0),
        (3, 1, 0),
        (4, 1, 0),
        (5, 1, 0),
        (0, 1, 0),
        (1, 1, 0),
    ),
    "gap": ((0, 1, 0), (2, 1, 0)),
    "gap-then-right": ((0, 1, 0), (5, 1, 0), (1, 1, 0)),
    "overlap": ((0, 3, 0), (1, 3, 0)),
    "same-start-shorter": ((0, 3, 0), (0, 2, 0)),
    "same-start-longer": ((0, 3, 0), (0, 4, 0)),
    "same-end": ((0, 3, 0), (1, 2, 0)),
    "unknown-producer-later-sequence": ((17, 2, 0), (19, 1, 0)),
    "unknown-producer-later-epoch": ((0, 1, 5), (1, 1, 5)),
    "unknown-producer-later-both": ((3, 1, 5),),
    "new-epoch": ((0, 2, 0), (0, 2, 1), (2, 1, 1)),
    "new-epoch-later-sequence": ((0, 2, 0), (2, 1, 1)),
    "new-epoch-skips": ((0, 2, 0), (0, 2, 7)),
    "old-epoch": ((0, 2, 4), (2, 1, 3)),
    "old-epoch-duplicate": ((0, 2, 4), (0, 2, 3)),
    "duplicate-in-new-epoch": ((0, 2, 0), (0, 2, 1), (0, 2, 1), (0, 2, 0)),
    "wrap": ((MAX - 1, 2, 0), (0, 1, 0), (1, 1, 0)),
    "wrap-inside-batch": ((MAX - 1, 4, 0), (2, 1, 0), (MAX - 1, 4, 0)),
    "wrap-wrong": ((MAX - 1, 2, 0), (1, 1, 0)),
    "zero-again": ((0, 1, 0), (1, 1, 0), (0, 2, 0)),
    "highest-epoch": ((0, 1, 32767), (1, 1, 32767)),
    "negative-epoch": ((0, 1, -1), (1, 1, -1)),
    "lower-negative-epoch": ((0, 1, -5),),
    "negative-sequence": ((-1, 1, 0),),
    "lowest-sequence": ((-(2**31), 1, 0),),
}


@case(SEQUENCES)
def sequences(side: Side, batches: tuple[tuple[int, int, int], ...]) -> object:
    topic = side.topic()
    answers = [produce(side, topic, sequenced(*each)) for each in batches]
    return {"answers": answers, "stored": stored(side, topic), "producers": producers_of(side, topic)}


@case(("gap", "duplicate", "old-epoch", "negative-sequence"), versions=PRODUCE_VERSIONS)
def sequences_by_version(side: Side, name: str, version: int) -> object:
    topic = side.topic()
    return [produce(side, topic, sequenced(*each), version=version) for each in SEQUENCES[name]]


@case(("in-order", "duplicate", "gap", "wrap-inside-batch"))
def sequences_with_append_time(side: Side, name: str) -> object:
    topic = side.topic(message_timestamp_type="LogAppendTime")
    answers = [produce(side, topic, sequenced(*each)) for each in SEQUENCES[name]]
    return {"answers": answers, "producers": producers_of(side, topic)}


@case(("duplicate", "gap"))
def sequences_of_compressed_batches(side: Side, name: str) -> object:
    topic = side.topic(compression_type="gzip")
    answers = [produce(side, topic, sequenced(*each, codec=4)) for each in SEQUENCES[name]]
    return {"answers": answers, "stored": stored(side, topic)}


@case()
def several_producers(side: Side) -> object:
    topic = side.topic()
    answers = [
        produce(side, topic, sequenced(sequence, producer_id=PRODUCER + who))
        for who, sequence in ((0, 0), (1, 0), (0, 1), (2, 5), (1, 2), (1, 1))
    ]
    found = producers_of(side, topic)
    assert isinstance(found, dict)
    found["topics"][0]["partitions"][0]["active_producers"].sort(key=lambda each: each["producer_id"])
    return [answers, found]


@case()
def partitions_are_apart(side: Side) -> object:
    topic = side.topic("t", 2)
    answers = [
        produce(side, topic, sequenced(sequence), partition=partition)
        for partition, sequence in ((0, 0), (0, 1), (1, 0), (1, 2), (0, 2))
    ]
    return [answers, producers_of(side, topic, 0, 1)]


@case((1, 0))
def duplicate_with_other_acks(side: Side, acks: int) -> object:
    topic = side.topic()
    append(side, topic, sequenced(0, 2))
    if acks:
        return produce(side, topic, sequenced(0, 2), acks=acks)
    return None


@case({"no-epoch": -1, "epoch-0": 0, "epoch-5": 5})
def transactional_records_without_a_transaction(side: Side, epoch: int) -> object:
    """Nobody has told the coordinator of this transaction."""
    topic = side.topic()
    data = sequenced(0, epoch=epoch, attributes=TRANSACTIONAL)
    return [produce(side, topic, data, transactional_id="nobody"), stored(side, topic)]


@case(versions=(3, 11, 13))
def transactional_records_by_version(side: Side, version: int) -> object:
    topic = side.topic()
    data = sequenced(0, attributes=TRANSACTIONAL)
    return produce(side, topic, data, version=version, transactional_id="nobody")


@case()
def transactional_records_without_transactional_id(side: Side) -> object:
    return produce(side, side.topic(), sequenced(0, attributes=TRANSACTIONAL))


@case()
def not_idempotent_among_idempotent(side: Side) -> object:
    topic = side.topic()
    return [
        produce(side, topic, sequenced(0)),
        produce(side, topic, batch(2)),
        produce(side, topic, sequenced(1)),
        stored(side, topic),
    ]


@case(
    {
        "unknown-partition": ("t", (7,)),
        "negative-partition": ("t", (-1,)),
        "unknown-topic": ("none", (0,)),
        "empty": ("t", (0,)),
        "twice": ("t", (0, 0)),
        "no-partitions": ("t", ()),
    }
)
def describe(side: Side, given: tuple[str, tuple[int, ...]]) -> object:
    stem, partitions = given
    side.topic()
    return side.ask(
        0,
        DescribeProducersRequest(
            topics=[TopicRequest(name=side.name_of(stem), partition_indexes=list(partitions))]
        ),
    )


@case(("", "bad name", "."))
def describe_impossible_topic(side: Side, name: str) -> object:
    return side.ask(0, DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])]))


# InitProducerId


def _issued(answer: object) -> object:
    """Which id it was is the broker's to choose."""
    if isinstance(answer, dict) and answer["producer_id"] >= 0:
        answer["producer_id"] = "an id"
    return answer


@case(versions=range(6))
def new_id(side: Side, version: int) -> object:
    return _issued(
        side.ask(version, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    )


@case()
def ids_are_not_repeated(side: Side) -> object:
    found = set()
    for _ in range(20):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        found.add(side.expect(4, request).producer_id)  # type: ignore[attr-defined]
    return len(found)


@case(
    {
        "known-id": (500, 3),
        "id-without-epoch": (500, -1),
        "epoch-without-id": (-1, 3),
        "id-0": (0, 0),
        "lower-than-none": (-2, -2),
    },
    versions=(3, 4),
)
def new_id_for_old(side: Side, given: tuple[int, int], version: int) -> object:
    producer_id, epoch = given
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    return _issued(side.ask(version, request))


@case((0, -1, 2**31 - 1))
def new_id_timeout_is_ignored(side: Side, timeout_ms: int) -> object:
    return _issued(
        side.ask(4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms))
    )


@case(versions=(0, 3, 4, 5))
def empty_transactional_id(side: Side, version: int) -> object:
    return side.ask(version, InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000))
