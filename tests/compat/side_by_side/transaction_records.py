"""Transactional records: what is taken, where the markers stand, and what readers of committed ones see."""

from __future__ import annotations

from tests.compat.side_by_side.batches import CONTROL, TRANSACTIONAL, Batch, batch, records
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import append, offsets_request, produce
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import (
    Producer,
    committed,
    log_of,
    producers_of,
    with_retry,
)

from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

TVS = ("tv1", "tv2")
PRODUCE_VERSIONS = (3, 7, 9, 10, 11, 12, 13)


@case({f"{end}-{tv}": (end, tv) for end in ("commit", "abort") for tv in TVS})
def one_transaction(side: Side, given: tuple[str, str]) -> object:
    end, tv = given
    topic = side.topic()
    producer = Producer(side, tv=tv).begun()
    producer.write(topic, 3)
    seen = [log_of(side, topic), producer.described()]
    return [*seen, producer.end(end == "commit"), producer.settled(), log_of(side, topic)]


@case(TVS)
def one_after_another(side: Side, tv: str) -> object:
    topic = side.topic("t", 2)
    producer = Producer(side, tv=tv).begun()
    seen = []
    for number in range(5):
        producer.write(topic, number + 1)
        if number == 3:
            producer.sequence = 0 if tv == "tv2" else producer.sequence
        seen += [producer.end(number % 2 == 0), producer.settled()]
    return [*seen, log_of(side, topic), log_of(side, topic, 1)]


@case(TVS)
def several_partitions(side: Side, tv: str) -> object:
    topic = side.topic("t", 3)
    producers = [Producer(side, tv=tv, stem=str(each)).begun() for each in range(3)]
    for partition, producer in enumerate(producers):
        producer.write(topic, partition=partition)
    seen = [producers[0].end(), producers[0].settled(), producers[1].end(False), producers[1].settled()]
    return [*seen, *(log_of(side, topic, each) for each in range(3))]


@case(TVS)
def one_transaction_over_partitions(side: Side, tv: str) -> object:
    topic = side.topic("t", 3)
    producer = Producer(side, tv=tv).begun()
    for partition in range(3):
        producer.sequence = 0
        producer.write(topic, partition=partition)
    seen = [producer.described(), producer.end(), producer.settled()]
    return [*seen, *(log_of(side, topic, each) for each in range(3))]


@case(TVS)
def open_one_holds_back_the_others(side: Side, tv: str) -> object:
    """The stable end is the first open transaction's start, whatever was committed behind it."""
    topic = side.topic()
    append(side, topic, batch(2))
    slow, quick = Producer(side, "slow", tv).begun(), Producer(side, "quick", tv).begun()
    slow.write(topic)
    quick.write(topic)
    append(side, topic, batch(2))
    seen = [quick.end(), quick.settled(), log_of(side, topic)]
    return [*seen, slow.end(False), slow.settled(), log_of(side, topic)]


@case(range(4, 19))
def aborted_ones_by_version(side: Side, version: int) -> object:
    """Old and new fetches tell which producers' records to skip, from the offset that is read on."""
    topic = side.topic()
    one, two = Producer(side, "one").begun(), Producer(side, "two").begun()
    one.write(topic)
    two.write(topic)
    one.end(False)
    one.settled()
    append(side, topic, batch())
    two.end()
    two.settled()
    two.write(topic)
    two.end(False)
    two.settled()
    return [committed(side, topic, offset, version=version) for offset in range(8)]


@case(range(0, 12, 2))
def aborted_ones_of_several_segments(side: Side, offset: int) -> object:
    topic = side.topic(segment_bytes="1048576")
    producer, other = Producer(side).begun(), Producer(side, "other").begun()
    for number in range(3):
        other.write(topic)
        for _ in range(2):
            append(side, topic, Batch(tuple(records(1, bytes(400_000)))).bytes())
        producer.write(topic)
        other.end(number == 1)
        other.settled()
        producer.end(number == 1)
        producer.settled()
    return committed(side, topic, offset)


# Produce


@case({f"{state}-v{version}": (state, version) for state in ("new", "open") for version in PRODUCE_VERSIONS})
def produce_by_version(side: Side, given: tuple[str, int]) -> object:
    """Up to version 11 a partition has to be added first; since 12 producing adds it."""
    state, version = given
    topic = side.topic()
    producer = Producer(side, tv="tv1").begun()
    if state == "open":
        producer.add(topic)
    seen = [producer.produce(topic, version=version), producer.described()]
    seen += [producer.produce(topic, version=version), producer.end(True, 4), producer.settled()]
    return [*seen, log_of(side, topic)]


@case({f"{state}-v{version}": (state, version) for state in ("new", "open") for version in (11, 12)})
def produce_without_an_epoch_of_this_life(side: Side, given: tuple[str, int]) -> object:
    state, version = given
    topic = side.topic()
    old = Producer(side, tv="tv1").begun()
    if state == "open":
        old.add(topic)
    heir = Producer(side, tv="tv1").begun()
    return [old.produce(topic, version=version), heir.settled(), log_of(side, topic)]


BATCHES: dict[str, dict[str, int]] = {
    "not-transactional": {"attributes": 0},
    "control": {"attributes": TRANSACTIONAL | CONTROL},
    "no-producer": {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
    "no-epoch": {"producer_epoch": -1},
    "no-sequence": {"base_sequence": -1},
    "gap": {"base_sequence": 5},
    "other-producer": {"producer_id": 987_654_321},
    "later-epoch": {"producer_epoch": 30},
    "leader-epoch": {"leader_epoch": 3},
}


@case({f"{name}-v{version}": (name, version) for name in BATCHES for version in (9, 11, 12, 13)})
def odd_batches(side: Side, given: tuple[str, int]) -> object:
    name, version = given
    topic = side.topic()
    producer = Producer(side, tv="tv1" if version < 12 else "tv2").begun()
    if version < 12:
        producer.add(topic)
    seen = [producer.produce(topic, version=version, **BATCHES[name]), producer.described()]
    return [*seen, log_of(side, topic)]


@case(
    {f"{name}-v{version}": (name, version) for name in ("null", "empty", "other") for version in (9, 11, 12)}
)
def odd_transactional_ids(side: Side, given: tuple[str, int]) -> object:
    name, version = given
    topic = side.topic()
    producer = Producer(side, tv="tv1").begun()
    producer.add(topic)
    spoken = {"null": None, "empty": "", "other": f"{side.prefix}-stranger"}[name]
    answer = produce(side, topic, producer.batch(), version=version, transactional_id=spoken)
    return [answer, producer.described(), log_of(side, topic)]


@case({f"acks-{acks}-v{version}": (acks, version) for acks in (0, 1, -1) for version in (9, 11, 12)})
def acks(side: Side, given: tuple[int, int]) -> object:
    """Only acks=all goes with transactions in clients; a broker takes the others too."""
    acks, version = given
    topic = side.topic()
    producer = Producer(side, tv="tv1").begun()
    producer.add(topic)
    if acks == 0:
        return None
    answer = produce(
        side, topic, producer.batch(), version=version, transactional_id=producer.name, acks=acks
    )
    return [answer, log_of(side, topic)]


@case((11, 12))
def unknown_partition(side: Side, version: int) -> object:
    topic = side.topic()
    producer = Producer(side).begun()
    return [producer.produce(topic, partition=7, version=version), producer.described()]


@case(TVS)
def duplicates_and_gaps_within(side: Side, tv: str) -> object:
    topic = side.topic()
    producer = Producer(side, tv=tv).begun()
    producer.write(topic, 2)
    seen = [producer.produce(topic, 2, base_sequence=0), producer.produce(topic, base_sequence=9)]
    seen += [producer.produce(topic), producer.end(), producer.settled(), log_of(side, topic)]
    return seen


@case(TVS)
def sequences_of_the_next_transaction(side: Side, tv: str) -> object:
    """In the first generation sequences go on; in the second each epoch starts with 0."""
    topic = side.topic()
    producer = Producer(side, tv=tv).begun()
    producer.write(topic, 2)
    producer.end()
    producer.settled()
    if tv == "tv1":
        producer.add(topic)
    ask = [
        lambda: producer.produce(topic, base_sequence=7),
        lambda: producer.produce(topic, base_sequence=0),
        lambda: producer.produce(topic, base_sequence=2),
    ]
    seen = [with_retry(each, "CONCURRENT_TRANSACTIONS") for each in ask]
    return [*seen, producer.end(), producer.settled(), log_of(side, topic)]


@case(TVS)
def late_record_of_an_ended_transaction(side: Side, tv: str) -> object:
    """KIP-890: what comes after the marker, under the epoch of the transaction, must not hang there."""
    topic = side.topic()
    producer = Producer(side, tv=tv).begun()
    producer.write(topic)
    late = Producer(side, tv=tv, producer_id=producer.producer_id, epoch=producer.epoch, sequence=1)
    producer.end()
    producer.settled()
    return [late.produce(topic), producer.described(), log_of(side, topic)]


@case()
def idempotent_then_transactional(side: Side) -> object:
    """The same id and epoch outside and inside of a transaction."""
    topic = side.topic()
    producer = Producer(side, tv="tv1").begun()
    outside = Batch(
        tuple(records(1)), producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0
    )
    seen = [produce(side, topic, outside.bytes())]
    producer.sequence = 1
    seen += [producer.add(topic), producer.produce(topic)]
    seen.append(produce(side, topic, outside.with_(base_sequence=2).bytes()))
    return [*seen, producer.end(), producer.settled(), log_of(side, topic)]


# Markers and the rest of the log


@case(TVS)
def empty_transaction(side: Side, tv: str) -> object:
    """A partition that was added and never written gets its marker all the same."""
    topic = side.topic()
    producer = Producer(side, tv=tv).begun()
    seen = [producer.add(topic), producer.end(), producer.settled(), log_of(side, topic)]
    seen += [producer.end(), producer.settled(), producer.end(False), producer.settled()]
    return [*seen, log_of(side, topic)]


@case({"timestamps": -1, "earliest": -2, "max": -3, "old": 0, "of-records": 1_700_000_000_000})
def offsets_under_both_isolations(side: Side, timestamp: int) -> object:
    topic = side.topic()
    producer, other = Producer(side).begun(), Producer(side, "other").begun()
    producer.write(topic, 2)
    producer.end()
    producer.settled()
    other.write(topic, 2)
    seen = [side.ask(7, offsets_request(topic, timestamp, isolation=each)) for each in (0, 1)]
    other.end(False)
    other.settled()
    return seen + [side.ask(7, offsets_request(topic, timestamp, isolation=each)) for each in (0, 1)]


@case((1, 2, 3, 4, 5))
def start_moves_into_transactions(side: Side, offset: int) -> object:
    topic = side.topic()
    producer, other = Producer(side).begun(), Producer(side, "other").begun()
    producer.write(topic, 2)
    other.write(topic)
    producer.end(False)
    producer.settled()
    cut = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    seen = [side.ask(2, DeleteRecordsRequest(topics=[cut], timeout_ms=3000))]
    seen += [committed(side, topic, each) for each in range(6)]
    return [*seen, producers_of(side, topic), side.ask(5, offsets_request(topic, -1, isolation=1))]


@case(TVS)
def timed_out_transaction_is_aborted(side: Side, tv: str) -> object:
    """Its producer is fenced, another life goes on."""
    topic = side.topic()
    producer = Producer(side, tv=tv).begun(transaction_timeout_ms=300)
    producer.write(topic)
    with_retry(producer.described, "Ongoing", "Prepare")
    seen = [producer.settled(), producer.produce(topic), producer.end(), producer.add(topic)]
    seen += [producer.add_offsets(side.prefix), log_of(side, topic)]
    return [*seen, Producer(side, tv=tv).init(), producer.described()]
