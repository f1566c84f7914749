"""Where replicas go.

``assign_replicas`` spreads partitions over brokers with Kafka's rules: the first replicas walk round the
broker list from a random start, the others follow at a shift that grows every time round, so that the
followers of one broker's leaders are spread too; with racks, no rack holds two replicas while another holds
none. ``validate_manual_assignment`` checks what a client asked for by hand.

Pure functions: randomness is handed in. Called by ``controller/topics.py``.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError

Assignment = dict[int, tuple[int, ...]]


class BrokerRack(NamedTuple):
    """A broker that may be given replicas."""

    id: int
    rack: str | None = None


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    *,
    rng: random.Random,
    first_partition: int = 0,
    fixed_start: int | None = None,
) -> Assignment:
    """Replicas for ``partitions`` partitions numbered from ``first_partition``; the first replica leads.

    ``fixed_start`` replaces both random choices: Kafka adds partitions to a topic in step with those it has.
    """
    _check_replication_factor(replication_factor, len(brokers))
    racks = {broker.id: broker.rack for broker in brokers if broker.rack is not None}
    aware = len(racks) == len(brokers)
    ids = _alternate_racks(racks) if aware else sorted(broker.id for broker in brokers)
    start = rng.randrange(len(ids)) if fixed_start is None else fixed_start
    shift = rng.randrange(len(ids)) if fixed_start is None else fixed_start
    assignment: Assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        first = (partition + start) % len(ids)
        if aware:
            assignment[partition] = _place_on_racks(ids, racks, first, shift, replication_factor)
        else:
            others = (ids[_follower_index(first, shift, n, len(ids))] for n in range(replication_factor - 1))
            assignment[partition] = (ids[first], *others)
    return assignment


def _check_replication_factor(replication_factor: int, brokers: int) -> None:
    reason = None
    if replication_factor <= 0:
        reason = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
    elif brokers == 0:
        reason = "All brokers are currently fenced."
    elif replication_factor > brokers:
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{brokers} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {reason}",
        )


def _follower_index(first: int, shift: int, nth: int, brokers: int) -> int:
    return (first + 1 + (shift + nth) % (brokers - 1)) % brokers


def _place_on_racks(
    ids: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas = [ids[first]]
    used_racks = {racks[ids[first]]}
    nth = 0
    while len(replicas) < replication_factor:
        broker = ids[_follower_index(first, shift * rack_count, nth, len(ids))]
        nth += 1
        rack_is_free = racks[broker] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def _alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Broker ids such that neighbours are on different racks as long as the racks allow it."""
    by_rack = {rack: sorted(b for b in racks if racks[b] == rack) for rack in sorted(set(racks.values()))}
    deepest = max(map(len, by_rack.values()), default=0)
    return [ids[depth] for depth in range(deepest) for ids in by_rack.values() if depth < len(ids)]


def validate_manual_assignment(
    replicas: Sequence[int], registered: Collection[int], replication_factor: int | None
) -> tuple[int, ...]:
    """The replicas of one partition that a client chose by hand; raises INVALID_REPLICA_ASSIGNMENT.

    ``replication_factor`` is that of the topic's other partitions, None for the first one.
    """
    if not replicas:
        raise _invalid_assignment("includes an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in registered:
            raise _invalid_assignment(f"includes broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise _invalid_assignment(f"includes the broker {broker} more than once.")
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _invalid_assignment(
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
    return tuple(replicas)


def _invalid_assignment(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {what}")
