"""DescribeTransactions, ListTransactions and DescribeProducers."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_requests import group_of
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import (
    Producer,
    producers_of,
    transactional_id,
    transactions,
)

from tidelog.wire.messages.list_transactions import ListTransactionsRequest


def crowd(side: Side) -> dict[str, Producer]:
    """One producer in each state that lasts."""
    topic = side.topic("t", 3)
    made = {
        stem: Producer(side, stem).begun() for stem in ("empty", "ongoing", "offsets", "committed", "aborted")
    }
    made["ongoing"].write(topic)
    made["ongoing"].sequence = 0
    made["ongoing"].write(topic, partition=2)
    made["offsets"].add_offsets(group_of(side))
    for stem in ("committed", "aborted"):
        made[stem].write(topic, partition=1)
        made[stem].end(stem == "committed")
        made[stem].settled()
    return made


@case()
def describe_all(side: Side) -> object:
    names = [producer.name for producer in crowd(side).values()]
    return [transactions(side, *names), transactions(side, *names[:2], transactional_id(side, "none"))]


@case({"unknown": ["none"], "nothing": [], "twice": ["empty", "empty"], "mixed": ["none", "empty"]})
def describe(side: Side, stems: list[str]) -> object:
    Producer(side, "empty").begun()
    return transactions(side, *(transactional_id(side, each) for each in stems))


@case()
def describe_without_a_name(side: Side) -> object:
    return [transactions(side, ""), transactions(side, "", transactional_id(side, "none"))]


def listed(side: Side, version: int = 2, **filters: object) -> object:
    """The transactions of this case as ListTransactions shows them."""
    answer = side.ask(version, ListTransactionsRequest(**filters))  # type: ignore[arg-type]
    if isinstance(answer, dict):
        mine = [
            each
            for each in answer["transaction_states"]
            if each["transactional_id"].startswith(f"{side.prefix}-")
        ]
        answer["transaction_states"] = sorted(mine, key=lambda each: str(each["transactional_id"]))
        answer["unknown_state_filters"].sort()
    return answer


@case(versions=(0, 1, 2))
def list_all(side: Side, version: int) -> object:
    crowd(side)
    return listed(side, version)


FILTERS: dict[str, list[str]] = {
    "ongoing": ["Ongoing"],
    "empty": ["Empty"],
    "complete": ["CompleteCommit", "CompleteAbort"],
    "other-case": ["ongoing", "EMPTY"],
    "unknown": ["nonsense"],
    "known-and-unknown": ["Ongoing", "nonsense", ""],
    "prepared": ["PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"],
}


@case(FILTERS, versions=(0, 2))
def list_by_state(side: Side, states: list[str], version: int) -> object:
    crowd(side)
    return listed(side, version, state_filters=states)


@case()
def list_by_producer(side: Side) -> object:
    made = crowd(side)
    one, two = made["empty"].producer_id, made["ongoing"].producer_id
    return [listed(side, producer_id_filters=ids) for ids in ([one], [one, two], [-1], [987_654_321], [])]


@case((-1, 0, 1, 3_600_000, -2, 2**63 - 1), versions=(1, 2))
def list_by_duration(side: Side, duration_ms: int, version: int) -> object:
    crowd(side)
    shown = listed(side, version, duration_filter=duration_ms)
    return shown if duration_ms != 1 else None


PATTERNS = (None, "", ".*", ".*-empty", "empty", "(", ".*(ongoing|empty)", "[a-z]+", "\\p{Latin}.*-empty")


@case({str(each): each for each in PATTERNS})
def list_by_pattern(side: Side, pattern: str | None) -> object:
    crowd(side)
    return listed(side, transactional_id_pattern=pattern)


@case()
def producers_of_the_crowd(side: Side) -> object:
    crowd(side)
    return producers_of(side, side.name_of("t"), 0, 1, 2)
