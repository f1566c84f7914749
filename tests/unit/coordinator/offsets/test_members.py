"""Commits and fetches of members: the group has its say."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import answer
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.coordinator.group.group import CommitCheck, Group, GroupType
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.join_group import JoinGroupResponse


def join(
    coordinator: Coordinator,
    group_id: str = "g",
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
) -> JoinGroupResponse:
    """A member of a group of one that waits for its assignment."""
    version = 3 if instance_id is None else 9
    reply = coordinator.harness.join(
        group_id, instance_id=instance_id, protocol_type=protocol_type, version=version
    )
    coordinator.harness.advance(0)
    first = answer(reply)
    assert first.error_code == 0
    return first


def stable(coordinator: Coordinator, group_id: str = "g", **how: str | None) -> JoinGroupResponse:
    """A member of a group of one that has its assignment."""
    joined = join(coordinator, group_id, **how)  # type: ignore[arg-type]
    synced = coordinator.harness.sync(
        group_id,
        joined.member_id,
        joined.generation_id,
        {joined.member_id: b""},
        protocol_type=how.get("protocol_type", "consumer"),
    )
    assert answer(synced).error_code == 0
    return joined


@pytest.mark.parametrize("version", range(2, 11))
def test_a_member_of_the_generation_commits(coordinator: Coordinator, version: int) -> None:
    member = stable(coordinator)
    errors = coordinator.commit(
        {("orders", 0): 5},
        version=version,
        member_id=member.member_id,
        generation=member.generation_id,
    )
    assert errors == {("orders", 0): 0}
    assert coordinator.offsets_of() == {("orders", 0): 5}


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize("step", [-1, 1])
def test_another_generation_is_refused(coordinator: Coordinator, version: int, step: int) -> None:
    member = stable(coordinator)
    errors = coordinator.commit(
        {("orders", 0): 5},
        version=version,
        member_id=member.member_id,
        generation=member.generation_id + step,
    )
    assert errors == {("orders", 0): ErrorCode.ILLEGAL_GENERATION}
    assert coordinator.offsets_of() == {}


@pytest.mark.parametrize(("member_id", "generation"), [("stranger", 1), ("", 1), ("", -1), ("stranger", -1)])
def test_who_is_no_member_does_not_commit_while_there_are_members(
    coordinator: Coordinator, member_id: str, generation: int
) -> None:
    stable(coordinator)
    errors = coordinator.commit({("orders", 0): 5}, member_id=member_id, generation=generation)
    assert errors == {("orders", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert coordinator.offsets_of() == {}


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_a_replaced_static_member_is_fenced(coordinator: Coordinator, version: int) -> None:
    member = stable(coordinator, instance_id="i")
    fenced = coordinator.commit(
        {("orders", 0): 5},
        version=version,
        member_id="the one before",
        group_instance_id="i",
        generation=member.generation_id,
    )
    assert fenced == {("orders", 0): ErrorCode.FENCED_INSTANCE_ID}
    allowed = coordinator.commit(
        {("orders", 0): 5},
        version=version,
        member_id=member.member_id,
        group_instance_id="i",
        generation=member.generation_id,
    )
    assert allowed == {("orders", 0): 0}


def test_a_member_that_has_no_assignment_yet_has_to_wait(coordinator: Coordinator) -> None:
    member = join(coordinator)
    offsets, who, generation = {("orders", 0): 5}, member.member_id, member.generation_id
    refused = coordinator.commit(offsets, member_id=who, generation=generation)
    assert refused == {("orders", 0): ErrorCode.REBALANCE_IN_PROGRESS}
    # Producers are not held to that: their transaction is what counts.
    taken = coordinator.commit_in_transaction(offsets, member_id=who, generation=generation)
    assert taken == {("orders", 0): 0}


def test_committing_is_as_good_as_a_heartbeat(coordinator: Coordinator) -> None:
    member = stable(coordinator)
    for _ in range(5):
        coordinator.harness.advance(6_000)
        coordinator.commit({("orders", 0): 5}, member_id=member.member_id, generation=member.generation_id)
    assert coordinator.shard().groups.require("g").has_member(member.member_id)
    coordinator.harness.advance(10_001)
    assert not coordinator.shard().groups.require("g").has_member(member.member_id)


def test_a_refused_commit_keeps_no_session_alive(coordinator: Coordinator) -> None:
    member = stable(coordinator)
    coordinator.harness.advance(9_000)
    coordinator.commit({("orders", 0): 5}, member_id=member.member_id, generation=99)
    coordinator.harness.advance(1_001)
    assert not coordinator.shard().groups.require("g").has_member(member.member_id)


def test_offsets_of_a_group_stay_when_its_members_come_and_go(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    member = stable(coordinator)
    assert coordinator.fetch({"orders": [0]}) == {("orders", 0): (5, -1, "", 0)}
    answer(coordinator.harness.leave("g", member.member_id))
    assert coordinator.fetch({"orders": [0]}) == {("orders", 0): (5, -1, "", 0)}
    assert coordinator.commit({("orders", 0): 6}) == {("orders", 0): 0}
    coordinator.restart()
    assert coordinator.fetch({"orders": [0]}) == {("orders", 0): (6, -1, "", 0)}


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(
    ("member_id", "generation", "instance_id", "code"),
    [
        ("", -1, None, ErrorCode.NONE),
        ("stranger", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", 1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("stranger", 1, "j", ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 7, "i", ErrorCode.ILLEGAL_GENERATION),
        (None, 1, "i", ErrorCode.NONE),
    ],
)
def test_transactional_commits_are_fenced_by_the_group(
    coordinator: Coordinator,
    version: int,
    member_id: str | None,
    generation: int,
    instance_id: str | None,
    code: ErrorCode,
) -> None:
    member = stable(coordinator, instance_id="i")
    errors = coordinator.commit_in_transaction(
        {("orders", 0): 5},
        version=version,
        member_id=member.member_id if member_id is None else member_id,
        generation=generation,
        group_instance_id=instance_id,
    )
    assert errors == {("orders", 0): code}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_producers_know_nothing_of_members(coordinator: Coordinator, version: int) -> None:
    stable(coordinator)
    assert coordinator.commit_in_transaction({("orders", 0): 5}, version=version) == {("orders", 0): 0}


class EpochGroup(Group):
    """A group whose one member has epoch 5, and has owned ``orders-0`` since epoch 3, all else since 5."""

    type = GroupType.CONSUMER
    state_name = "Stable"
    is_empty = False
    protocol_type = "consumer"

    def has_member(self, member_id: str) -> bool:
        return member_id == "m"

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        if generation_or_epoch > 5:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
        return None if generation_or_epoch == 5 else OwnedSince(generation_or_epoch)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None:
            return
        if member_id != "m":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_epoch != 5:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def check_offset_delete(self) -> None:
        return

    def check_delete(self) -> None:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic == "orders"

    def tombstones(self) -> list[StoredRecord]:
        return []

    def offsets_expire_from(self, committed_at_ms: int) -> int | None:
        return committed_at_ms


class OwnedSince(CommitCheck):
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def check(self, topic: str, topic_id: bytes, partition: int) -> None:
        if self._epoch < (3 if (topic, partition) == ("orders", 0) else 5):
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)


@pytest.fixture
def with_epochs(coordinator: Coordinator) -> Coordinator:
    coordinator.shard().groups.put(EpochGroup("g"))
    return coordinator


@pytest.mark.parametrize(
    ("epoch", "partition", "allowed"),
    [(5, 1, True), (6, 0, False), (4, 0, True), (3, 0, True), (2, 0, False), (4, 1, False)],
)
def test_an_older_epoch_commits_what_its_member_has_owned_since(
    with_epochs: Coordinator, epoch: int, partition: int, allowed: bool
) -> None:
    offsets = {("orders", partition): 7}
    expected = {("orders", partition): 0 if allowed else ErrorCode.STALE_MEMBER_EPOCH}
    assert with_epochs.commit(offsets, member_id="m", generation=epoch) == expected
    told = {("orders", partition): 0 if allowed else ErrorCode.ILLEGAL_GENERATION}
    assert with_epochs.commit_in_transaction(offsets, member_id="m", generation=epoch) == told


def test_one_partition_that_is_owned_by_another_spoils_the_commit(with_epochs: Coordinator) -> None:
    offsets = {("orders", 0): 7, ("orders", 1): 7}
    refused = dict.fromkeys(offsets, ErrorCode.STALE_MEMBER_EPOCH)
    assert with_epochs.commit(offsets, member_id="m", generation=4) == refused
    assert with_epochs.offsets_of() == {}


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, 0),
        ("m", 5, 0),
        ("m", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 5, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("all_topics", [True, False])
def test_who_fetches_as_a_member_has_to_be_one(
    with_epochs: Coordinator, version: int, member_id: str | None, epoch: int, code: int, all_topics: bool
) -> None:
    response = with_epochs.fetch_response(
        None if all_topics else {"orders": [0]}, version=version, member_id=member_id, member_epoch=epoch
    )
    assert response.groups[0].error_code == code
    assert bool(response.groups[0].topics) == (not code and not all_topics)
