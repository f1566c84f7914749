"""What each request does in each state of a transaction, and what it does to the state.

The table of states and requests is complete; every cell is asked as the right producer, with an older and a
later epoch, and as another producer, in the versions of both generations of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_offset_requests import offsets
from tests.compat.side_by_side.group_requests import group_of
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import Producer, log_of

from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

STATES = ("unknown", "empty", "ongoing", "committed", "aborted")
VOICES = {"right": (0, 0), "older": (0, -1), "later": (0, 1), "other": (1000, 0), "none": (None, None)}


def in_state(side: Side, state: str, tv: str, topic: str) -> Producer:
    """A producer in a state, in its third life, so that there are older epochs."""
    producer = Producer(side, tv=tv)
    if state == "unknown":
        producer.is_called(Producer(side, "other").begun().producer_id, 0)
        return producer
    for _ in range(3):
        producer.begun()
    if state != "empty":
        producer.write(topic)
    if state in ("committed", "aborted"):
        producer.end(state == "committed")
        producer.settled()
    return producer


def speaks_as(producer: Producer, voice: tuple[int | None, int | None]) -> Producer:
    """The same producer under a false id or epoch."""
    by_id, by_epoch = voice
    return Producer(
        producer.side,
        producer.stem,
        producer.tv,
        -1 if by_id is None else producer.producer_id + by_id,
        -1 if by_epoch is None else producer.epoch + by_epoch,
        producer.sequence,
    )


REQUESTS: dict[str, Callable[[Producer, str], object]] = {
    "add-partition": lambda producer, topic: producer.add(topic, 1),
    "add-same-partition": lambda producer, topic: producer.add(topic, 0),
    "add-verified": lambda producer, topic: producer.add(topic, 0, version=4, verify_only=True),
    "add-verified-other": lambda producer, topic: producer.add(topic, 1, version=5, verify_only=True),
    "add-as-broker": lambda producer, topic: producer.add(topic, 1, version=5),
    "add-offsets": lambda producer, topic: producer.add_offsets(group_of(producer.side)),
    "commit-offsets": lambda producer, topic: producer.commit_offsets(group_of(producer.side), topic),
    "produce": lambda producer, topic: producer.produce(topic),
    "produce-elsewhere": lambda producer, topic: producer.produce(topic, partition=1, base_sequence=0),
    "commit": lambda producer, topic: producer.end(True),
    "abort": lambda producer, topic: producer.end(False),
}


@case(
    {
        f"{state}-{request}-{voice}-{tv}": (state, request, voice, tv)
        for state in STATES
        for request in REQUESTS
        for voice in VOICES
        for tv in ("tv1", "tv2")
    }
)
def cell(side: Side, given: tuple[str, str, str, str]) -> object:
    state, request, voice, tv = given
    topic = side.topic("t", 2)
    producer = in_state(side, state, tv, topic)
    answer = REQUESTS[request](speaks_as(producer, VOICES[voice]), topic)
    seen = {"answer": answer, "transaction": producer.settled()}
    if request in ("add-offsets", "commit-offsets"):
        return {**seen, "offsets": offsets(side, group_of(side), {topic: [0]}, version=7)}
    return {**seen, "0": log_of(side, topic), "1": log_of(side, topic, 1)}


@case(
    {
        f"{first}-{then}-{tv}": (first, then, tv)
        for first in ("commit", "abort")
        for then in ("commit", "abort")
        for tv in ("tv1", "tv2")
    }
)
def ending_twice_under_the_same_epoch(side: Side, given: tuple[str, str, str]) -> object:
    """A client that did not hear the answer asks again; one that wants the opposite is refused."""
    first, then, tv = given
    topic = side.topic()
    producer = in_state(side, "ongoing", tv, topic)
    same = speaks_as(producer, (0, 0))
    seen = [producer.end(first == "commit"), producer.settled(), same.end(then == "commit")]
    return [*seen, producer.settled(), log_of(side, topic)]


@case({f"{result}-v{version}": (result, version) for result in (True, False) for version in range(6)})
def ending_by_version(side: Side, given: tuple[bool, int]) -> object:
    result, version = given
    topic = side.topic()
    producer = in_state(side, "ongoing", "tv1" if version < 5 else "tv2", topic)
    return [producer.end(result, version), producer.settled(), log_of(side, topic)]


@case(range(5))
def adding_offsets_by_version(side: Side, version: int) -> object:
    producer = Producer(side, tv="tv1").begun()
    return [producer.add_offsets(group_of(side), version), producer.described(), producer.end(False)]


@case(range(5))
def adding_offsets_without_group_id(side: Side, version: int) -> object:
    producer = Producer(side, tv="tv1").begun()
    return [producer.add_offsets("", version), producer.described()]


@case(range(6))
def adding_partitions_by_version(side: Side, version: int) -> object:
    topic = side.topic("t", 3)
    producer = Producer(side, tv="tv1").begun()
    seen = [producer.add(topic, 0, 2, version=version), producer.described()]
    seen += [producer.add(topic, 1, 2, version=version), producer.described()]
    return [*seen, producer.end(False, 4), producer.settled(), log_of(side, topic)]


@case(
    {
        "unknown-partition": ("t", [7]),
        "negative-partition": ("t", [-1]),
        "unknown-topic": ("none", [0]),
        "twice": ("t", [0, 0]),
        "no-partitions": ("t", []),
        "good-and-bad": ("t", [0, 7]),
    },
    versions=(0, 3, 5),
)
def adding_odd_partitions(side: Side, given: tuple[str, list[int]], version: int) -> object:
    stem, partitions = given
    side.topic()
    producer = Producer(side, tv="tv1").begun()
    topics = [AddPartitionsToTxnTopic(name=side.name_of(stem), partitions=partitions)]
    answer = side.ask(version, producer.add_request(topics, version))
    return [answer, producer.described()]


@case((0, 3, 5))
def adding_nothing(side: Side, version: int) -> object:
    producer = Producer(side, tv="tv1").begun()
    return [side.ask(version, producer.add_request([], version)), producer.described()]


@case((0, 3, 5))
def adding_an_internal_topic(side: Side, version: int) -> object:
    producer = Producer(side, tv="tv1").begun()
    return [producer.add("__consumer_offsets", version=version), producer.described(), producer.end(False, 4)]


@case((4, 5))
def adding_for_several(side: Side, version: int) -> object:
    topic = side.topic()
    one, two = Producer(side, "one").begun(), Producer(side, "two").begun()
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    fenced = speaks_as(two, (0, -1))
    requests = [each.add_request(topics, version) for each in (one, fenced)]
    both = [transaction for each in requests for transaction in each.transactions]
    answer = side.ask(version, AddPartitionsToTxnRequest(transactions=both))
    if isinstance(answer, dict):
        answer["results_by_transaction"].sort(key=lambda each: str(each["transactional_id"]))
    return [answer, one.described(), two.described()]


class Nameless(Producer):
    """A producer that leaves its transactional id empty."""

    @property
    def name(self) -> str:
        return ""


@case((0, 3, 5))
def requests_without_a_name(side: Side, version: int) -> object:
    topic = side.topic()
    producer = Producer(side).begun()
    nameless = Nameless(side, producer_id=producer.producer_id, epoch=producer.epoch)
    return [
        nameless.add(topic, version=version),
        nameless.add_offsets(group_of(side), min(version, 4)),
        nameless.end(True, version),
        nameless.commit_offsets(group_of(side), topic, version=version),
        producer.described(),
    ]
