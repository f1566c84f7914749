from __future__ import annotations

import random

import pytest

from tidelog.controller.assignment import BrokerRack
from tidelog.controller.topics import (
    ElectionType,
    Leadership,
    NewTopic,
    TopicDefaults,
    check_total_partitions,
    creation_configs,
    plan_assignment,
    plan_election,
    plan_more_partitions,
)
from tidelog.errors import ErrorCode, KafkaError

BROKERS = [BrokerRack(1), BrokerRack(2), BrokerRack(3)]
DEFAULTS = TopicDefaults(partitions=4, replication_factor=2)


def _plan(topic: NewTopic) -> dict[int, tuple[int, ...]]:
    return plan_assignment(topic, BROKERS, DEFAULTS, random.Random(3))


def test_minus_one_means_the_brokers_defaults() -> None:
    assignment = _plan(NewTopic("t"))
    assert len(assignment) == 4
    assert all(len(replicas) == 2 for replicas in assignment.values())


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    assert _plan(NewTopic("t", assignments=[(1, [3, 1]), (0, [2, 3])])) == {0: (2, 3), 1: (3, 1)}


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            NewTopic("t", partitions=0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("t", replication_factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("t", partitions=0, replication_factor=-2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("t", partitions=1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", replication_factor=1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (2, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
    ],
)
def test_bad_topics_are_refused_with_kafkas_text(topic: NewTopic, code: ErrorCode, message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        _plan(topic)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_a_request_for_an_absurd_number_of_partitions_is_refused() -> None:
    check_total_partitions([NewTopic("a", 9_996), NewTopic("b")], DEFAULTS)
    with pytest.raises(KafkaError) as refused:
        check_total_partitions([NewTopic("a", 9_997), NewTopic("b")], DEFAULTS)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_null_configs_are_refused_at_creation() -> None:
    assert creation_configs(NewTopic("t", configs={"a": "1"})) == {"a": "1"}
    with pytest.raises(KafkaError) as refused:
        creation_configs(NewTopic("t", configs={"a": None, "b": "1", "c": None}))
    assert refused.value.message == "Null value not supported for topic configs: a,c"


def test_more_partitions_are_numbered_after_those_there_are() -> None:
    current = {0: (2, 3), 1: (3, 1)}
    more = plan_more_partitions("t", current, 5, None, BROKERS, random.Random(0))
    assert list(more) == [2, 3, 4]
    assert all(len(set(replicas)) == 2 for replicas in more.values())
    assert [replicas[0] for replicas in more.values()] == [1, 2, 3]


def test_more_partitions_may_be_assigned_by_hand() -> None:
    more = plan_more_partitions("t", {0: (1,)}, 3, [[2], [3]], BROKERS, random.Random(0))
    assert more == {1: (2,), 2: (3,)}


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            [[1, 2]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not "
            "consistent with previous partitions, which have 1 replica(s).",
        ),
        (
            20_000,
            None,
            ErrorCode.POLICY_VIOLATION,
            "Unable to perform excessively large batch operation.",
        ),
    ],
)
def test_bad_partition_counts_are_refused(
    count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        plan_more_partitions("t", {0: (1,), 1: (1,)}, count, assignments, BROKERS, random.Random(0))
    assert (refused.value.code, refused.value.message) == (code, message)


@pytest.mark.parametrize("election", list(ElectionType))
def test_no_election_is_needed_where_the_preferred_leader_leads(election: ElectionType) -> None:
    with pytest.raises(KafkaError) as refused:
        plan_election(Leadership(1, (1, 2), (1, 2)), election, [1, 2])
    assert refused.value.code is ErrorCode.ELECTION_NOT_NEEDED


def test_the_preferred_leader_takes_over_when_it_is_in_sync() -> None:
    assert plan_election(Leadership(2, (1, 2), (2, 1)), ElectionType.PREFERRED, [1, 2]) == 1
    with pytest.raises(KafkaError) as refused:
        plan_election(Leadership(2, (1, 2), (2,)), ElectionType.PREFERRED, [1, 2])
    assert refused.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_prefers_replicas_in_sync_and_takes_any_other() -> None:
    assert plan_election(Leadership(-1, (1, 2, 3), (3,)), ElectionType.UNCLEAN, [2, 3]) == 3
    assert plan_election(Leadership(-1, (1, 2, 3), (1,)), ElectionType.UNCLEAN, [2, 3]) == 2
    with pytest.raises(KafkaError) as refused:
        plan_election(Leadership(-1, (1,), (1,)), ElectionType.UNCLEAN, [2])
    assert refused.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
