"""TxnOffsetCommit: offsets that count when their transaction is committed, whatever happens meanwhile."""

from __future__ import annotations

import itertools

import pytest
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.errors import ErrorCode, KafkaError

ORDERS = {"orders": [0]}
UNSTABLE = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_seen_when_the_transaction_is_committed(coordinator: Coordinator, version: int) -> None:
    epoch = 3 if version >= 2 else -1
    errors = coordinator.commit_in_transaction(
        {("orders", 0): 5, ("payments", 0): 6}, version=version, metadata="m", leader_epoch=epoch
    )
    assert errors == {("orders", 0): 0, ("payments", 0): 0}
    assert coordinator.fetch(None) == {}
    coordinator.end(committed=True)
    assert coordinator.fetch(None) == {
        ("orders", 0): (5, epoch, "m", 0),
        ("payments", 0): (6, epoch, "m", 0),
    }


def test_offsets_of_an_aborted_transaction_never_were(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.commit_in_transaction({("orders", 0): 5, ("orders", 1): 6})
    coordinator.end(committed=False)
    assert coordinator.offsets_of() == {("orders", 0): 1}
    assert not coordinator.shard().offsets.pending


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_stable_offsets_are_asked_for_again_while_a_transaction_is_open(
    coordinator: Coordinator, version: int
) -> None:
    coordinator.commit({("orders", 0): 1, ("orders", 1): 2})
    coordinator.commit_in_transaction({("orders", 0): 5})
    stable = coordinator.fetch({"orders": [0, 1]}, version=version, require_stable=True)
    assert stable == {("orders", 0): UNSTABLE, ("orders", 1): (2, -1, "", 0)}
    assert coordinator.fetch(None, version=version, require_stable=True) == stable
    assert coordinator.fetch(ORDERS, version=version) == {("orders", 0): (1, -1, "", 0)}
    coordinator.end(committed=True)
    after = coordinator.fetch(ORDERS, version=version, require_stable=True)
    assert after == {("orders", 0): (5, -1, "", 0)}


def test_a_first_offset_that_is_open_is_unstable_too(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5})
    assert coordinator.fetch(ORDERS, require_stable=True) == {("orders", 0): UNSTABLE}
    assert coordinator.fetch(ORDERS, "other", require_stable=True) == {("orders", 0): (-1, -1, "", 0)}
    coordinator.end(committed=False)
    assert coordinator.fetch(ORDERS, require_stable=True) == {("orders", 0): (-1, -1, "", 0)}


def test_the_last_commit_of_a_transaction_counts(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.commit_in_transaction({("orders", 0): 9})
    coordinator.end(committed=True)
    assert coordinator.offsets_of() == {("orders", 0): 9}


@pytest.mark.parametrize("plan", list(itertools.product([True, False], [True, False], [False, True])))
def test_two_producers_end_their_transactions_independently(
    coordinator: Coordinator, plan: tuple[bool, bool, bool]
) -> None:
    first_committed, second_committed, second_ends_first = plan
    coordinator.commit_in_transaction({("orders", 0): 5, ("orders", 1): 5}, producer_id=1)
    coordinator.commit_in_transaction({("orders", 0): 6, ("orders", 2): 6}, producer_id=2)
    ends = [(1, first_committed), (2, second_committed)]
    for producer_id, committed in reversed(ends) if second_ends_first else ends:
        assert coordinator.fetch(ORDERS, require_stable=True) == {("orders", 0): UNSTABLE}
        coordinator.restart()
        coordinator.end(producer_id=producer_id, committed=committed)
    expected: dict[tuple[str, int], int] = {}
    if first_committed:
        expected |= {("orders", 0): 5, ("orders", 1): 5}
    if second_committed:
        # It stands later in the log, so it counts however the transactions ended.
        expected |= {("orders", 0): 6, ("orders", 2): 6}
    assert coordinator.offsets_of() == expected
    coordinator.restart()
    assert coordinator.offsets_of() == expected
    assert coordinator.fetch({"orders": [0, 1, 2]}, require_stable=True).keys() == {
        ("orders", n) for n in range(3)
    }


def test_a_plain_commit_after_an_open_one_wins(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.commit({("orders", 0): 9})
    coordinator.end(committed=True)
    assert coordinator.offsets_of() == {("orders", 0): 9}
    coordinator.restart()
    assert coordinator.offsets_of() == {("orders", 0): 9}


def test_an_open_commit_after_a_plain_one_wins_when_it_is_committed(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 9})
    coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.end(committed=True)
    assert coordinator.offsets_of() == {("orders", 0): 5}


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("restarts", [(), (0,), (1,), (0, 1)])
def test_open_transactions_survive_a_restart(
    coordinator: Coordinator, committed: bool, restarts: tuple[int, ...]
) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.commit_in_transaction({("orders", 0): 5})
    if 0 in restarts:
        coordinator.restart()
    assert coordinator.fetch(ORDERS, require_stable=True) == {("orders", 0): UNSTABLE}
    coordinator.end(committed=committed)
    if 1 in restarts:
        coordinator.restart()
    assert coordinator.fetch(ORDERS, require_stable=True) == {
        ("orders", 0): (5 if committed else 1, -1, "", 0)
    }


def test_a_transaction_that_was_not_replicated_is_gone_with_the_leader() -> None:
    coordinator = Coordinator(autocommit=False)
    coordinator.log_of("g").autocommit = True
    coordinator.commit({("orders", 0): 1})
    coordinator.log_of("g").autocommit = False
    with pytest.raises(AssertionError, match="still to come"):
        coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.restart()
    coordinator.log_of("g").commit()
    assert not coordinator.shard().offsets.pending
    assert coordinator.offsets_of() == {("orders", 0): 1}


def test_the_next_transaction_of_a_producer_starts_anew(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5}, epoch=0)
    coordinator.end(epoch=0, committed=False)
    coordinator.commit_in_transaction({("orders", 1): 6}, epoch=1)
    coordinator.end(epoch=1, committed=True)
    assert coordinator.offsets_of() == {("orders", 1): 6}


def test_a_marker_of_nobody_changes_nothing(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.end(producer_id=99, committed=True)
    assert coordinator.offsets_of() == {("orders", 0): 1}


def test_a_transaction_makes_the_group_if_there_is_none(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5})
    assert coordinator.shard().groups.require("g").state_name == "Empty"


def test_topic_ids_are_left_to_plain_commits(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.end(committed=True)
    found = coordinator.committed("g", "orders")
    assert found is not None
    assert found.topic_id == bytes(16)
    assert coordinator.fetch(ORDERS, version=10) == {("orders", 0): (5, -1, "", 0)}


# Refusals


@pytest.mark.parametrize("version", range(6))
def test_unknown_topics_and_partitions_are_refused_alone(coordinator: Coordinator, version: int) -> None:
    offsets = {("orders", 0): 5, ("orders", 8): 5, ("nowhere", 0): 5}
    assert coordinator.commit_in_transaction(offsets, version=version) == {
        ("orders", 0): 0,
        ("orders", 8): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    coordinator.end(committed=True)
    assert coordinator.offsets_of() == {("orders", 0): 5}


def test_the_empty_group_id_is_refused(coordinator: Coordinator) -> None:
    assert coordinator.commit_in_transaction({("orders", 0): 5}, "") == {
        ("orders", 0): ErrorCode.INVALID_GROUP_ID
    }


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_generation_of_no_group_is_refused(coordinator: Coordinator, version: int) -> None:
    errors = coordinator.commit_in_transaction(
        {("orders", 0): 5}, version=version, member_id="m", generation=1
    )
    assert errors == {("orders", 0): ErrorCode.ILLEGAL_GENERATION}
    assert "g" not in coordinator.shard().groups


def test_oversize_metadata_is_refused() -> None:
    coordinator = Coordinator({"offset.metadata.max.bytes": "2"})
    assert coordinator.commit_in_transaction({("orders", 0): 5}, metadata="123") == {
        ("orders", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE
    }
    assert not coordinator.shard().offsets.pending


@pytest.mark.parametrize(
    ("refused", "version", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, 4, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_what_the_log_or_the_transaction_refuses_is_told_in_the_clients_words(
    coordinator: Coordinator, refused: ErrorCode, version: int, told: ErrorCode
) -> None:
    coordinator.log_of("g").fail_next = KafkaError(refused)
    errors = coordinator.commit_in_transaction({("orders", 0): 5}, version=version)
    assert errors == {("orders", 0): told}
    assert not coordinator.shard().offsets.pending
