"""What a topic request would do, worked out before anything is written.

Each ``plan_*`` function takes a request and the facts it depends on and returns the change, or raises the
refusal in Kafka's words. Nothing here reads or writes the store: ``controller.py`` does, with these plans.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from tidelog.controller.assignment import (
    Assignment,
    BrokerRack,
    assign_replicas,
    validate_manual_assignment,
)
from tidelog.errors import ErrorCode, KafkaError

USE_DEFAULT = -1
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_CHANGES_PER_REQUEST = 10_000
"""Kafka counts topics, configs and partitions: what one change of its metadata log may hold."""


class NewTopic(Struct, frozen=True):
    """A topic that somebody asks for; -1 means the broker's default."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicDefaults(NamedTuple):
    """``num.partitions`` and ``default.replication.factor``."""

    partitions: int
    replication_factor: int


class ElectionType(enum.IntEnum):
    """Which leaders an election may choose."""

    PREFERRED = 0
    UNCLEAN = 1


class Leadership(NamedTuple):
    """Who leads a partition, as far as an election cares; ``leader`` -1 means nobody."""

    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]


def check_total_partitions(topics: Sequence[NewTopic], defaults: TopicDefaults) -> None:
    """Refuse a request that would create an absurd number of partitions at once (POLICY_VIOLATION)."""
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.partitions == USE_DEFAULT:
            total += defaults.partitions
        else:
            total += max(topic.partitions, 0)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def check_total_changes(changes: int) -> None:
    """Refuse a request that would change too much at once (POLICY_VIOLATION)."""
    if changes > MAX_CHANGES_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def creation_configs(topic: NewTopic) -> dict[str, str]:
    """The configs to create a topic with; Kafka has no null here (INVALID_CONFIG)."""
    nulls = [name for name, value in topic.configs.items() if value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}"
        )
    return {name: value for name, value in topic.configs.items() if value is not None}


def plan_assignment(
    topic: NewTopic, brokers: Sequence[BrokerRack], defaults: TopicDefaults, rng: random.Random
) -> Assignment:
    """The partitions and replicas of a new topic."""
    if topic.assignments:
        return _manual_assignment(topic, brokers)
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partitions < USE_DEFAULT or topic.partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    partitions = defaults.partitions if topic.partitions == USE_DEFAULT else topic.partitions
    factor = topic.replication_factor
    if factor == USE_DEFAULT:
        factor = defaults.replication_factor
    return assign_replicas(brokers, partitions, factor, rng=rng)


def _manual_assignment(topic: NewTopic, brokers: Sequence[BrokerRack]) -> Assignment:
    for value, what in (
        (topic.replication_factor, "replication factor"),
        (topic.partitions, "numPartitions"),
    ):
        if value != USE_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    registered = {broker.id for broker in brokers}
    assignment: Assignment = {}
    factor = None
    for partition, replicas in topic.assignments:
        if partition in assignment:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        assignment[partition] = validate_manual_assignment(replicas, registered, factor)
        factor = len(replicas)
    if set(assignment) != set(range(len(assignment))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return dict(sorted(assignment.items()))


def plan_more_partitions(
    topic: str,
    current: Mapping[int, Sequence[int]],
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Sequence[BrokerRack],
    rng: random.Random,
) -> Assignment:
    """The partitions to add so that a topic has ``count``; ``current`` maps partitions to their replicas."""
    have = len(current)
    if count == have:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if count < have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic} currently has {have} partition(s); {count} would not be an increase.",
        )
    more = count - have
    factor = len(current[0])
    if assignments is None:
        check_total_changes(more)
        ids = sorted(broker.id for broker in brokers)
        start = ids.index(current[0][0]) if current[0][0] in ids else 0
        return assign_replicas(brokers, more, factor, rng=rng, first_partition=have, fixed_start=start)
    if len(assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) "
            "were specified.",
        )
    registered = {broker.id for broker in brokers}
    return {
        have + n: validate_manual_assignment(replicas, registered, factor)
        for n, replicas in enumerate(assignments)
    }


def plan_election(partition: Leadership, election: ElectionType, alive: Sequence[int]) -> int:
    """The broker that should lead now; raises ELECTION_NOT_NEEDED, or …_NOT_AVAILABLE when none can."""
    preferred = partition.replicas[0]
    if election is ElectionType.PREFERRED:
        if partition.leader == preferred:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        if preferred in alive and preferred in partition.isr:
            return preferred
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    if partition.leader != -1:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    in_sync = [replica for replica in partition.replicas if replica in alive and replica in partition.isr]
    candidates = in_sync or [replica for replica in partition.replicas if replica in alive]
    if not candidates:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        )
    return candidates[0]
