"""How offsets end: deleted one by one, with their group, with their topic, or of old age."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import answer
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.codec import encode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription

DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS
CHECK_MS = 600_000


def subscribed(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def stable_member(coordinator: Coordinator, *topics: str, protocol_type: str = "consumer") -> str:
    """The one member of group ``g``, which reads ``topics``."""
    protocols = [("range", subscribed(*topics))]
    harness = coordinator.harness
    reply = harness.join("g", protocols=protocols, protocol_type=protocol_type, version=3)
    harness.advance(0)
    joined = answer(reply)
    synced = harness.sync(
        "g",
        joined.member_id,
        joined.generation_id,
        {joined.member_id: b""},
        protocol_type=protocol_type,
    )
    assert answer(synced).error_code == 0
    return joined.member_id


# OffsetDelete


def test_offsets_are_deleted_one_by_one(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5, ("orders", 1): 6, ("payments", 0): 7})
    errors = coordinator.delete({"orders": [0, 2], "payments": [0]})
    assert errors == {("orders", 0): 0, ("orders", 2): 0, ("payments", 0): 0}
    assert coordinator.offsets_of() == {("orders", 1): 6}
    coordinator.restart()
    assert coordinator.offsets_of() == {("orders", 1): 6}


def test_deleting_what_is_not_there_writes_nothing(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    end = coordinator.log_of("g").end_offset
    assert coordinator.delete({"orders": [1, 1]}) == {("orders", 1): 0}
    assert coordinator.log_of("g").end_offset == end


def test_unknown_topics_and_partitions_cannot_be_deleted(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    assert coordinator.delete({"orders": [0, 9], "nowhere": [0]}) == {
        ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("orders", 0): 0,
    }


@pytest.mark.parametrize(
    ("group_id", "code"), [("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)]
)
def test_a_group_that_is_none_is_refused(coordinator: Coordinator, group_id: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        coordinator.delete({"orders": [0]}, group_id)
    assert refused.value.code is code


def test_a_topic_that_is_being_read_keeps_its_offsets(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5, ("payments", 0): 6})
    stable_member(coordinator, "orders")
    assert coordinator.delete({"orders": [0], "payments": [0]}) == {
        ("orders", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("payments", 0): 0,
    }
    assert coordinator.offsets_of() == {("orders", 0): 5}


def test_members_that_are_no_consumers_keep_everything(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    stable_member(coordinator, protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        coordinator.delete({"orders": [0]})
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    assert coordinator.offsets_of() == {("orders", 0): 5}


@pytest.mark.parametrize("restart", [False, True])
def test_a_deleted_offset_is_not_committed_by_a_transaction_that_was_open(
    coordinator: Coordinator, restart: bool
) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.commit_in_transaction({("orders", 0): 5, ("orders", 1): 6}, producer_id=1)
    coordinator.commit_in_transaction({("orders", 0): 7}, producer_id=2)
    assert coordinator.delete({"orders": [0]}) == {("orders", 0): 0}
    if restart:
        coordinator.restart()
    assert coordinator.fetch({"orders": [0]}, require_stable=True) == {("orders", 0): (-1, -1, "", 0)}
    coordinator.end(producer_id=1, committed=True)
    coordinator.end(producer_id=2, committed=True)
    assert coordinator.offsets_of() == {("orders", 1): 6}


def test_a_commit_after_the_deletion_counts_again(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.delete({"orders": [0]})
    coordinator.commit_in_transaction({("orders", 0): 8})
    coordinator.end(committed=True)
    assert coordinator.offsets_of() == {("orders", 0): 8}


# DeleteGroups


def delete_group(coordinator: Coordinator) -> int:
    (result,) = run_to_end(coordinator.groups.delete_groups(["g"])).result()
    return result.error_code


@pytest.mark.parametrize("restart", [False, True])
def test_a_deleted_group_takes_its_offsets_along(coordinator: Coordinator, restart: bool) -> None:
    coordinator.commit({("orders", 0): 1, ("orders", 1): 2})
    coordinator.commit({("orders", 0): 1}, "other")
    coordinator.commit_in_transaction({("orders", 1): 3, ("payments", 0): 4})
    assert delete_group(coordinator) == 0
    if restart:
        coordinator.restart()
    coordinator.end(committed=True)
    assert coordinator.offsets_of() == {}
    assert "g" not in coordinator.shard().groups
    assert coordinator.offsets_of("other") == {("orders", 0): 1}
    assert not coordinator.shard().offsets.pending


def test_deleting_a_group_writes_one_tombstone_for_each_partition(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.commit_in_transaction({("orders", 0): 3, ("payments", 0): 4})
    records = coordinator.shard().offsets.delete_some("g", 100)[0]
    keys = [(key.topic, key.partition, value) for key, value, _ in records]  # type: ignore[attr-defined]
    assert keys == [("orders", 0, None), ("payments", 0, None)]


# Deleted topics


def test_offsets_go_with_their_topic(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1, ("payments", 0): 2})
    coordinator.commit({("orders", 2): 3}, "other")
    coordinator.commit_in_transaction({("orders", 1): 4}, "third")
    coordinator.delete_topic("orders")
    assert coordinator.offsets_of() == {("payments", 0): 2}
    assert coordinator.offsets_of("other") == {}
    assert not coordinator.shard("third").offsets.pending
    coordinator.restart()
    assert coordinator.offsets_of() == {("payments", 0): 2}
    assert "other" in coordinator.shard("other").groups


def test_a_topic_made_again_at_once_does_not_inherit_offsets(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.create_topic("orders", 3)
    coordinator.commit({("orders", 1): 2})
    coordinator.topics_changed("orders")
    assert coordinator.offsets_of() == {("orders", 1): 2}


def test_other_changes_of_a_topic_leave_its_offsets_alone(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.commit({("orders", 1): 1}, version=2, retention_ms=DAY_MS)
    end = coordinator.log_of("g").end_offset
    coordinator.topics_changed("orders", "nowhere")
    assert coordinator.log_of("g").end_offset == end
    assert coordinator.offsets_of() == {("orders", 0): 1, ("orders", 1): 1}


def test_a_log_that_refuses_the_tombstones_keeps_the_offsets(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinator.delete_topic("orders")
    assert coordinator.offsets_of() == {("orders", 0): 1}
    coordinator.topics_changed("orders")
    assert coordinator.offsets_of() == {}


# Expiry (KIP-211)


def test_offsets_without_members_expire_a_week_after_their_commit(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.harness.advance(DAY_MS)
    coordinator.commit({("orders", 1): 1})
    coordinator.harness.advance(WEEK_MS - DAY_MS - CHECK_MS)
    assert coordinator.offsets_of() == {("orders", 0): 1, ("orders", 1): 1}
    coordinator.harness.advance(2 * CHECK_MS)
    assert coordinator.offsets_of() == {("orders", 1): 1}
    coordinator.harness.advance(DAY_MS)
    assert coordinator.offsets_of() == {}
    assert "g" not in coordinator.shard().groups
    coordinator.restart()
    assert "g" not in coordinator.shard().groups


def test_the_retention_is_an_option() -> None:
    coordinator = Coordinator(
        {"offsets.retention.minutes": "2", "offsets.retention.check.interval.ms": "1000"}
    )
    coordinator.commit({("orders", 0): 1})
    coordinator.harness.advance(119_000)
    assert coordinator.offsets_of() == {("orders", 0): 1}
    coordinator.harness.advance(2_000)
    assert coordinator.offsets_of() == {}


def test_a_retention_of_the_clients_own_goes_before_the_brokers(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1}, version=4, retention_ms=2 * WEEK_MS)
    coordinator.commit({("orders", 1): 1}, version=4, retention_ms=DAY_MS)
    coordinator.commit({("orders", 2): 1}, version=4)
    coordinator.harness.advance(DAY_MS + CHECK_MS)
    assert coordinator.offsets_of() == {("orders", 0): 1, ("orders", 2): 1}
    coordinator.harness.advance(WEEK_MS)
    assert coordinator.offsets_of() == {("orders", 0): 1}
    coordinator.restart()
    coordinator.harness.advance(WEEK_MS)
    assert coordinator.offsets_of() == {}


def test_offsets_of_a_group_with_members_expire_only_for_topics_it_does_not_read() -> None:
    coordinator = Coordinator({"offsets.retention.minutes": "1"})
    coordinator.commit({("orders", 0): 1, ("payments", 0): 2})
    member = stable_member(coordinator, "orders")
    for _ in range(80):
        coordinator.harness.advance(9_000)
        assert coordinator.harness.heartbeat("g", member, 1).error_code == 0
    assert coordinator.offsets_of() == {("orders", 0): 1}


def test_offsets_of_a_group_that_was_left_expire_from_then_on() -> None:
    coordinator = Coordinator(
        {"offsets.retention.minutes": "60", "offsets.retention.check.interval.ms": "60000"}
    )
    member = stable_member(coordinator, "orders")
    coordinator.commit({("orders", 0): 1}, member_id=member, generation=1)
    for _ in range(800):
        coordinator.harness.advance(9_000)
        coordinator.harness.heartbeat("g", member, 1)
    answer(coordinator.harness.leave("g", member))
    coordinator.harness.advance(55 * 60_000)
    assert coordinator.offsets_of() == {("orders", 0): 1}
    coordinator.harness.advance(6 * 60_000)
    assert coordinator.offsets_of() == {}
    assert "g" not in coordinator.shard().groups


def test_an_open_transaction_keeps_an_offset_and_its_group_alive(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1, ("orders", 1): 2})
    coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.harness.advance(WEEK_MS + CHECK_MS)
    assert coordinator.offsets_of() == {("orders", 0): 1}
    coordinator.end(committed=False)
    coordinator.harness.advance(CHECK_MS)
    assert coordinator.offsets_of() == {}
    assert "g" not in coordinator.shard().groups


def test_a_group_with_nothing_but_an_open_transaction_stays(coordinator: Coordinator) -> None:
    coordinator.commit_in_transaction({("orders", 0): 5})
    coordinator.harness.advance(WEEK_MS + CHECK_MS)
    assert "g" in coordinator.shard().groups
    coordinator.end(committed=True)
    assert coordinator.offsets_of() == {("orders", 0): 5}


def test_many_offsets_that_expire_at_once_go_bit_by_bit(coordinator: Coordinator) -> None:
    coordinator.create_topic("wide", 700)
    for group_id in ("a", "d", "g"):
        assert coordinator.groups.partition_for(group_id) == coordinator.groups.partition_for("g")
        coordinator.commit({("wide", n): 1 for n in range(700)}, group_id)
    log = coordinator.log_of("g")
    before = len(log.batches)
    coordinator.harness.advance(WEEK_MS + CHECK_MS)
    assert len(log.batches) - before == 2
    for group_id in ("a", "d", "g"):
        assert group_id not in coordinator.shard(group_id).groups


def test_a_group_with_many_offsets_expires_in_parts_and_goes_with_the_next_clean_up(
    coordinator: Coordinator,
) -> None:
    topics = ("wide", "wider", "widest")
    for topic in topics:
        coordinator.create_topic(topic, 700)
    coordinator.commit({(topic, n): 1 for topic in topics for n in range(700)})
    coordinator.harness.advance(WEEK_MS + CHECK_MS)
    assert coordinator.offsets_of() == {}
    coordinator.harness.advance(CHECK_MS)
    assert "g" not in coordinator.shard("g").groups


def test_a_clean_up_that_the_log_refuses_is_tried_again_at_the_next(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 1})
    coordinator.harness.advance(WEEK_MS - CHECK_MS // 2)
    coordinator.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinator.harness.advance(CHECK_MS)
    assert coordinator.offsets_of() == {("orders", 0): 1}
    coordinator.harness.advance(CHECK_MS)
    assert coordinator.offsets_of() == {}
