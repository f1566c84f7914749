"""What something costs a broker per request: brokers that differ in it take turns with the same requests.

For benchmarks that look for a few hundredths (`authorizer`, `observing`). The brokers run beside each other,
so that all of them see the same machine, and each turn is compared with the turns of the same moment: what
the machine does in between falls on all alike. The median of the turns counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from foreign.broker_process import BrokerProcess

from benchmarks import pipeline, wire
from benchmarks.figures import Figures
from benchmarks.request_cost import (
    BATCH_BYTES,
    LOG_BYTES,
    RECORD_BYTES,
    RECORDS,
    fetch_lanes,
    fill,
    produce_lanes,
)

DEPTHS = (1, 16)

Lanes = list[list[bytes]]
Load = tuple[str, Callable[[BrokerProcess, str], Lanes], int]


def compare(
    benchmark: str,
    contestant: str,
    brokers: Mapping[str, BrokerProcess],
    figures: Figures,
    *,
    turns: int,
    requests: int,
) -> None:
    """Measure what the first of ``brokers`` needs for a request, and how much more each of the others.

    ``requests``: how many small ones each connection sends in all turns together.
    """
    plain, *others = brokers
    for depth in DEPTHS:
        for load in loads(requests):
            used = _in_turns(list(brokers.values()), load, depth, turns)
            costs = dict(zip(brokers, used, strict=True))
            label = f"{load[0]}, {depth} in flight"
            for which in brokers:
                cost = statistics.median(costs[which]) * 1e6
                figures.add(benchmark, contestant, f"CPU per {label}, {which}", cost, "µs", "lower")
            for which in others:
                pairs = zip(costs[plain], costs[which], strict=True)
                more = statistics.median(100 * (mine / plains - 1) for plains, mine in pairs)
                figures.add(benchmark, contestant, f"more CPU per {label}, {which}", more, "%", "lower")


def loads(requests: int) -> list[Load]:
    """The requests that are compared; ``requests``: how many small ones each connection sends."""

    def small(broker: BrokerProcess, topic: str) -> Lanes:
        return produce_lanes(broker, topic, (1, 100), requests)

    def large(broker: BrokerProcess, topic: str) -> Lanes:
        return produce_lanes(broker, topic, (RECORDS, RECORD_BYTES), requests // 5)

    def fetches(broker: BrokerProcess, topic: str) -> Lanes:
        topic_id, batches = fill(broker, topic, LOG_BYTES)
        return fetch_lanes(topic_id, batches, BATCH_BYTES, requests // 2)

    return [
        ("1x100 B produce", small, wire.PRODUCE_ERROR_AT),
        ("16 KB produce", large, wire.PRODUCE_ERROR_AT),
        ("16 KB fetch", fetches, wire.FETCH_ERROR_AT),
    ]


def _in_turns(brokers: Sequence[BrokerProcess], load: Load, depth: int, turns: int) -> list[list[float]]:
    """CPU seconds per request of each broker, turn by turn; the first turn warms up and does not count."""
    name, lanes_of, error_at = load
    topic = f"bench-{name.replace(' ', '-')}-{depth}"
    # Sequence numbers go on: each turn sends the next part of what is prepared.
    prepared = [lanes_of(broker, topic) for broker in brokers]
    part = len(prepared[0][0]) // (turns + 1)
    used: list[list[float]] = [[] for _ in brokers]
    for turn in range(turns + 1):
        # Whoever comes first finds other caches than the next: they take turns in that, too.
        order = range(len(brokers)) if turn % 2 else reversed(range(len(brokers)))
        for number in order:
            broker = brokers[number]
            mine = [lane[turn * part : (turn + 1) * part] for lane in prepared[number]]
            before = broker.cpu_seconds()
            done = pipeline.run(broker.port, mine, depth, error_at)
            if turn:
                used[number].append((broker.cpu_seconds() - before) / done.requests)
    return used
