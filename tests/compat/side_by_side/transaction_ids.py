"""InitProducerId with a transactional id: timeouts, epochs, who is fenced and who comes back."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import (
    Producer,
    log_of,
    transactional_id,
    transactions,
    with_retry,
)

INIT_VERSIONS = range(7)


@case(versions=INIT_VERSIONS)
def first_life(side: Side, version: int) -> object:
    producer = Producer(side)
    return [producer.init(version), producer.described()]


@case(versions=INIT_VERSIONS)
def next_lives(side: Side, version: int) -> object:
    """Each life has the next epoch."""
    return [Producer(side).init(version) for _ in range(4)] + [Producer(side).described()]


@case((0, 1, -1, 899_999, 900_000, 900_001, 2**31 - 1, -(2**31)), versions=(0, 4, 5))
def timeouts(side: Side, timeout_ms: int, version: int) -> object:
    producer = Producer(side)
    return [producer.init(version, transaction_timeout_ms=timeout_ms), producer.described()]


@case((0, 900_001))
def refused_timeout_leaves_the_old_life(side: Side, timeout_ms: int) -> object:
    producer = Producer(side).begun()
    return [Producer(side).init(transaction_timeout_ms=timeout_ms), producer.described()]


@case()
def timeout_of_the_next_life(side: Side) -> object:
    Producer(side).begun(transaction_timeout_ms=10_000)
    return [Producer(side).init(transaction_timeout_ms=20_000), Producer(side).described()]


@case(("", " ", "x" * 3000, "\u00e9 /"), versions=(0, 2, 5))
def odd_names(side: Side, name: str, version: int) -> object:
    given = side.prefix + name if name else ""
    return [Producer(side).init(version, transactional_id=given), transactions(side, given)]


OLD: dict[str, tuple[int | None, int | None]] = {
    "right": (0, 0),
    "right-id-older-epoch": (0, -1),
    "right-id-later-epoch": (0, 1),
    "other-id": (1000, 0),
    "other-id-later-epoch": (1000, 5),
    "id-without-epoch": (0, None),
    "epoch-without-id": (None, 0),
    "lower-than-none": (-1_000_000, None),
}


def _old(producer: Producer, given: tuple[int | None, int | None]) -> dict[str, object]:
    by_id, by_epoch = given
    return {
        "producer_id": -1 if by_id is None else producer.producer_id + by_id,
        "producer_epoch": -1 if by_epoch is None else producer.epoch + by_epoch,
    }


@case(OLD, versions=(3, 4, 5, 6))
def coming_back_with_an_id(side: Side, given: tuple[int | None, int | None], version: int) -> object:
    """KIP-360: a producer that met an error asks for the next epoch under its own id."""
    producer = Producer(side).begun()
    Producer(side).begun()
    producer.begun()
    again = Producer(side)
    return [again.init(version, **_old(producer, given)), producer.described()]


@case(OLD, versions=(3, 5))
def coming_back_with_an_id_in_the_middle(
    side: Side, given: tuple[int | None, int | None], version: int
) -> object:
    topic = side.topic()
    producer = Producer(side).begun()
    producer.write(topic)
    again = Producer(side)
    first = again.init(version, **_old(producer, given))
    seen = [first, producer.settled()]
    if "CONCURRENT" in str(first):
        seen += [again.init(version, **_old(producer, given)), producer.described()]
    return [*seen, log_of(side, topic)]


@case(OLD, versions=(3, 5))
def unknown_name_with_an_id(side: Side, given: tuple[int | None, int | None], version: int) -> object:
    """Nobody knows the name; the id is another's."""
    other = Producer(side, "other").begun()
    again = Producer(side)
    return [again.init(version, **_old(other, given)), again.described()]


@case(("tv1", "tv2"))
def second_life_ends_the_firsts_transaction(side: Side, tv: str) -> object:
    """The open transaction is aborted, its producer fenced everywhere."""
    topic = side.topic()
    zombie = Producer(side, tv=tv).begun()
    zombie.write(topic)
    heir = Producer(side, tv=tv)
    seen = [heir.init(), heir.settled()]
    seen.append(with_retry(heir.init, "CONCURRENT_TRANSACTIONS"))
    seen += [zombie.produce(topic), zombie.end(), zombie.end(False), zombie.add(topic), zombie.add(topic, 1)]
    seen += [zombie.add_offsets(side.prefix), zombie.commit_offsets(side.prefix, topic)]
    heir.write(topic)
    return [*seen, heir.end(), heir.settled(), log_of(side, topic)]


@case(("tv1", "tv2"))
def epochs_of_many_lives(side: Side, tv: str) -> object:
    topic = side.topic()
    seen = []
    for number in range(4):
        producer = Producer(side, tv=tv).begun()
        producer.write(topic)
        if number % 2:
            seen += [producer.end(number == 1), producer.settled()]
    last = Producer(side, tv=tv)
    seen += [with_retry(last.init, "CONCURRENT_TRANSACTIONS"), last.described(), log_of(side, topic)]
    return seen


@case({"neither": (False, False), "two": (True, False), "keep": (False, True), "both": (True, True)})
def two_phase_commit(side: Side, given: tuple[bool, bool]) -> object:
    """Version 6 (KIP-939) on a broker that does not allow it."""
    enable, keep = given
    producer = Producer(side)
    return [producer.init(6, enable2_pc=enable, keep_prepared_txn=keep), producer.described()]


@case({"neither": (False, False), "two": (True, False), "keep": (False, True), "both": (True, True)})
def two_phase_commit_without_a_name(side: Side, given: tuple[bool, bool]) -> object:
    enable, keep = given
    return Producer(side).init(6, transactional_id=None, enable2_pc=enable, keep_prepared_txn=keep)


@case((-1, 0, 60_000), versions=(4, 6))
def name_that_nobody_had(side: Side, timeout_ms: int, version: int) -> object:
    name = transactional_id(side, "fresh")
    return [
        Producer(side, "fresh").init(version, transaction_timeout_ms=timeout_ms),
        transactions(side, name),
    ]
