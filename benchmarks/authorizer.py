"""What access rules cost: broker CPU per produce and fetch request, with an authorizer and without.

The requests of *cost*, one in flight and sixteen, at a broker without an authorizer and at another with
`StandardAuthorizer`, where the client is nobody's super user and a rule among a thousand others, literal and
prefixed, allows what it does. Both run beside each other and take turns, so that both see the same machine;
the median of the turns counts. The goal is 3 %.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from foreign.broker_process import BrokerProcess

from benchmarks import pipeline, wire
from benchmarks.contestants import make, scratch
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

NAME = "authorizer"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENT = "User:ANONYMOUS"
DEPTHS = (1, 16)
OTHER_RULES = 1000
_TIMEOUT_S = 60

Lanes = list[list[bytes]]


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    turns = 3 if quick else 9
    count = 1500 if quick else 10_000
    with ExitStack() as stack:
        without = stack.enter_context(_started(contestant, root, guarded=False))
        guarded = stack.enter_context(_started(contestant, root, guarded=True))
        for depth in DEPTHS:
            for name, lanes_of, error_at in _loads(count):
                used = _in_turns((without, guarded), name, lanes_of, error_at, depth, turns)
                label = f"{name}, {depth} in flight"
                for which, costs in zip(("without", "with rules"), used, strict=True):
                    cost = statistics.median(costs)
                    figures.add(NAME, contestant, f"CPU per {label}, {which}", cost * 1e6, "µs", "lower")
                more = statistics.median(
                    100 * (with_rules / plain - 1) for plain, with_rules in zip(*used, strict=True)
                )
                figures.add(NAME, contestant, f"more CPU per {label}", more, "%", "lower")


@contextmanager
def _started(name: str, root: Path, *, guarded: bool) -> Iterator[BrokerProcess]:
    with scratch(root) as directory:
        broker = make(name, directory)
        try:
            if guarded:
                # Rules are made by who needs none, who is then a client like any other.
                broker.options |= {"authorizer.class.name": AUTHORIZER, "super.users": CLIENT}
                broker.start()
                _make_rules(broker)
                broker.stop()
                broker.options["super.users"] = "User:admin"
            broker.start()
            yield broker
        finally:
            broker.kill()


def _make_rules(broker: BrokerProcess) -> None:
    allow, everything = AclPermissionType.ALLOW, AclOperation.ALL
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    rules = [
        AclBinding(ResourceType.TOPIC, "bench-", prefixed, CLIENT, "*", everything, allow),
        AclBinding(ResourceType.BROKER, "kafka-cluster", literal, CLIENT, "*", everything, allow),
    ]
    for number in range(OTHER_RULES // 2):
        who = f"User:other-{number}"
        for name, pattern in ((f"topic-{number}", literal), (f"bench-{number}-", prefixed)):
            rules.append(AclBinding(ResourceType.TOPIC, name, pattern, who, "*", AclOperation.READ, allow))
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_acls(rules).values():
        future.result(_TIMEOUT_S)


def _loads(count: int) -> list[tuple[str, Callable[[BrokerProcess, str], Lanes], int]]:
    def small(broker: BrokerProcess, topic: str) -> Lanes:
        return produce_lanes(broker, topic, (1, 100), count)

    def large(broker: BrokerProcess, topic: str) -> Lanes:
        return produce_lanes(broker, topic, (RECORDS, RECORD_BYTES), count // 5)

    def fetches(broker: BrokerProcess, topic: str) -> Lanes:
        topic_id, batches = fill(broker, topic, LOG_BYTES)
        return fetch_lanes(topic_id, batches, BATCH_BYTES, count // 2)

    return [
        ("1x100 B produce", small, wire.PRODUCE_ERROR_AT),
        ("16 KB produce", large, wire.PRODUCE_ERROR_AT),
        ("16 KB fetch", fetches, wire.FETCH_ERROR_AT),
    ]


def _in_turns(
    brokers: tuple[BrokerProcess, BrokerProcess],
    name: str,
    lanes_of: Callable[[BrokerProcess, str], Lanes],
    error_at: int,
    depth: int,
    turns: int,
) -> tuple[list[float], list[float]]:
    """CPU seconds per request of either broker, turn by turn; the first turn warms up and does not count."""
    topic = f"bench-{name.replace(' ', '-')}-{depth}"
    # Sequence numbers go on: each turn sends the next part of what is prepared.
    lanes = [lanes_of(broker, topic) for broker in brokers]
    part = len(lanes[0][0]) // (turns + 1)
    used: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 1):
        for broker, prepared, costs in zip(brokers, lanes, used, strict=True):
            mine = [lane[turn * part : (turn + 1) * part] for lane in prepared]
            before = broker.cpu_seconds()
            load = pipeline.run(broker.port, mine, depth, error_at)
            if turn:
                costs.append((broker.cpu_seconds() - before) / load.requests)
    return used
