"""OffsetCommit and OffsetFetch in all their versions, by consumers that are no members of their group."""

from __future__ import annotations

import pytest
from tests.rigs.memory_log import MemoryLog
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.coordinator.group.group import GroupType
from tidelog.coordinator.group.offsets.committed_offset import NO_EXPIRY
from tidelog.coordinator.stored_record import RecordSchemas
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, ZERO_UUID
from tidelog.metadata.image import TopicImage
from tidelog.records.record import decode_batch
from tidelog.scheduling.promise import Promise
from tidelog.wire.internal_topics.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.messages.offset_commit import OffsetCommitResponse
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

SCHEMAS = RecordSchemas([(OffsetCommitKey, OffsetCommitValue)])
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)


def stored(log: MemoryLog) -> list[tuple[int, OffsetCommitKey, OffsetCommitValue | None]]:
    """Version of the value, key and value of every record."""
    found = []
    for batch in log.batches:
        for record in decode_batch(batch):
            assert record.key is not None
            key = SCHEMAS.decode_key(record.key)
            value = SCHEMAS.decode_value(key, record.value)
            assert isinstance(key, OffsetCommitKey)
            assert value is None or isinstance(value, OffsetCommitValue)
            found.append((int.from_bytes((record.value or b"\xff\xff")[:2]), key, value))
    return found


@pytest.mark.parametrize("commit_version", COMMIT_VERSIONS)
@pytest.mark.parametrize("fetch_version", FETCH_VERSIONS)
def test_what_one_version_commits_every_version_fetches(
    coordinator: Coordinator, commit_version: int, fetch_version: int
) -> None:
    offsets = {("orders", 0): 5, ("orders", 2): 0, ("payments", 0): 1 << 60}
    errors = coordinator.commit(offsets, version=commit_version, metadata="läuft", leader_epoch=-1)
    assert errors == dict.fromkeys(offsets, 0)
    fetched = coordinator.fetch({"orders": [0, 1, 2], "payments": [0]}, version=fetch_version)
    assert fetched == {
        ("orders", 0): (5, -1, "läuft", 0),
        ("orders", 1): (-1, -1, "", 0),
        ("orders", 2): (0, -1, "läuft", 0),
        ("payments", 0): (1 << 60, -1, "läuft", 0),
    }


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_the_leader_epoch_is_kept_where_the_version_has_it(coordinator: Coordinator, version: int) -> None:
    coordinator.commit({("orders", 0): 5}, version=version, leader_epoch=-1 if version < 6 else 4)
    expected = -1 if version < 6 else 4
    for fetch_version in FETCH_VERSIONS:
        ((_, epoch, _, _),) = coordinator.fetch({"orders": [0]}, version=fetch_version).values()
        assert epoch == (expected if fetch_version >= 5 else -1)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_records_are_written_in_the_version_that_kafka_writes(coordinator: Coordinator, version: int) -> None:
    epoch = 3 if version >= 6 else -1
    coordinator.commit({("orders", 1): 9}, version=version, metadata="m", leader_epoch=epoch)
    ((value_version, key, value),) = stored(coordinator.log_of("g"))
    assert value_version == 4
    assert key == OffsetCommitKey(group="g", topic="orders", partition=1)
    assert value == OffsetCommitValue(
        offset=9,
        leader_epoch=epoch,
        metadata="m",
        commit_timestamp=coordinator.clock.time_ms(),
        topic_id=coordinator.topic_id("orders"),
    )


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_of_the_clients_own_is_stored_in_version_1(
    coordinator: Coordinator, version: int
) -> None:
    coordinator.commit({("orders", 0): 5}, version=version, retention_ms=1000)
    ((value_version, _, value),) = stored(coordinator.log_of("g"))
    assert value_version == 1
    assert value is not None
    assert value.expire_timestamp == coordinator.clock.time_ms() + 1000
    before = coordinator.committed("g", "orders")
    coordinator.restart()
    assert coordinator.committed("g", "orders") == before
    assert before is not None
    assert before.topic_id == ZERO_UUID


def test_a_retention_beyond_all_time_is_as_long_as_can_be_written(coordinator: Coordinator) -> None:
    assert coordinator.commit({("orders", 0): 5}, version=2, retention_ms=(1 << 63) - 1) == {("orders", 0): 0}
    found = coordinator.committed("g", "orders")
    assert found is not None
    assert found.expires_at_ms == (1 << 63) - 1


def test_null_metadata_is_empty_metadata(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5}, metadata=None)
    assert coordinator.fetch({"orders": [0]}) == {("orders", 0): (5, -1, "", 0)}


def test_a_later_commit_replaces_an_earlier_one_even_with_a_smaller_offset(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 50}, metadata="first")
    coordinator.commit({("orders", 0): 5})
    assert coordinator.fetch({"orders": [0]}) == {("orders", 0): (5, -1, "", 0)}


def test_a_commit_without_a_member_makes_an_empty_classic_group(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    group = coordinator.shard().groups.require("g")
    assert (group.type, group.state_name, group.protocol_type) == (GroupType.CLASSIC, "Empty", "")
    coordinator.restart()
    assert coordinator.shard().groups.require("g").state_name == "Empty"


def test_the_empty_group_id_may_commit_and_fetch(coordinator: Coordinator) -> None:
    assert coordinator.commit({("orders", 0): 5}, "") == {("orders", 0): 0}
    assert coordinator.fetch({"orders": [0]}, "") == {("orders", 0): (5, -1, "", 0)}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_generation_of_a_group_that_does_not_exist_is_refused(
    coordinator: Coordinator, version: int
) -> None:
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    errors = coordinator.commit({("orders", 0): 5}, version=version, generation=1, member_id="m")
    assert errors == {("orders", 0): code}
    assert "g" not in coordinator.shard().groups
    assert not coordinator.log_of("g").batches


# Topics and partitions that are not there


@pytest.mark.parametrize("version", range(2, 10))
def test_unknown_topics_and_partitions_are_refused_and_the_rest_is_committed(
    coordinator: Coordinator, version: int
) -> None:
    offsets = {("orders", 0): 1, ("orders", 3): 2, ("nowhere", 0): 3, ("payments", 0): 4}
    assert coordinator.commit(offsets, version=version) == {
        ("orders", 0): 0,
        ("orders", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("payments", 0): 0,
    }
    assert coordinator.offsets_of() == {("orders", 0): 1, ("payments", 0): 4}


def test_a_topic_with_known_and_unknown_partitions_is_answered_once(coordinator: Coordinator) -> None:
    request = coordinator.commit_request({("orders", 0): 1, ("orders", 9): 1})
    response = coordinator.ask(9, request, OffsetCommitResponse)
    assert [topic.name for topic in response.topics] == ["orders"]
    assert len(response.topics[0].partitions) == 2


def test_version_10_refuses_an_unknown_topic_id(coordinator: Coordinator) -> None:
    assert coordinator.commit({("nowhere", 0): 1, ("orders", 0): 2, ("orders", 7): 3}) == {
        ("?", 0): ErrorCode.UNKNOWN_TOPIC_ID,
        ("orders", 0): 0,
        ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert coordinator.offsets_of() == {("orders", 0): 2}


def test_nothing_but_unknown_topics_reaches_no_coordinator(coordinator: Coordinator) -> None:
    coordinator.groups.runtime.unload_all()
    assert coordinator.commit({("nowhere", 0): 1}, version=9) == {
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def test_a_refusal_of_the_coordinator_leaves_unknown_partitions_their_own_error(
    coordinator: Coordinator,
) -> None:
    errors = coordinator.commit({("orders", 0): 1, ("orders", 9): 1}, generation=4, member_id="m")
    assert errors == {
        ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("orders", 0): ErrorCode.GROUP_ID_NOT_FOUND,
    }


# Metadata


def test_oversize_metadata_is_refused_for_its_partition_alone() -> None:
    coordinator = Coordinator({"offset.metadata.max.bytes": "4"})
    request = coordinator.commit_request({("orders", 0): 1, ("orders", 1): 2}, metadata="1234")
    request.topics[0].partitions[1].committed_metadata = "12345"
    errors = coordinator.commit_errors(coordinator.ask(9, request, OffsetCommitResponse))
    assert errors == {("orders", 0): 0, ("orders", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert coordinator.offsets_of() == {("orders", 0): 1}


@pytest.mark.parametrize(
    ("metadata", "fits"), [("äöüß", True), ("äöüßé", False), ("😀😀", True), ("😀😀x", False)]
)
def test_metadata_is_measured_in_the_units_of_java(metadata: str, fits: bool) -> None:
    coordinator = Coordinator({"offset.metadata.max.bytes": "4"})
    code = 0 if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert coordinator.commit({("orders", 0): 1}, metadata=metadata) == {("orders", 0): code}
    assert coordinator.commit_in_transaction({("orders", 0): 1}, metadata=metadata) == {("orders", 0): code}


def test_a_commit_whose_metadata_is_all_too_large_leaves_no_group_behind() -> None:
    coordinator = Coordinator({"offset.metadata.max.bytes": "1"})
    coordinator.commit({("orders", 0): 1}, metadata="12")
    assert "g" not in coordinator.shard().groups


# Fetching


@pytest.mark.parametrize("version", range(2, 11))
def test_no_topics_means_all_topics(coordinator: Coordinator, version: int) -> None:
    coordinator.commit({("orders", 0): 5, ("orders", 1): 6, ("payments", 0): 7})
    coordinator.commit({("orders", 2): 1}, "other")
    assert coordinator.fetch(None, version=version) == {
        ("orders", 0): (5, -1, "", 0),
        ("orders", 1): (6, -1, "", 0),
        ("payments", 0): (7, -1, "", 0),
    }
    assert coordinator.fetch(None, "nobody", version=version) == {}


def test_no_partitions_are_no_partitions(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    assert coordinator.fetch({}) == {}
    assert coordinator.fetch({"orders": []}) == {}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_unknown_group_has_no_offsets(coordinator: Coordinator, version: int) -> None:
    assert coordinator.fetch({"orders": [0]}, "nobody", version=version) == {("orders", 0): (-1, -1, "", 0)}


@pytest.mark.parametrize("version", range(1, 10))
def test_offsets_of_unknown_topics_are_just_not_there(coordinator: Coordinator, version: int) -> None:
    assert coordinator.fetch({"nowhere": [0]}, version=version) == {("nowhere", 0): (-1, -1, "", 0)}


def test_version_10_says_which_topic_ids_nobody_has(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    assert coordinator.fetch({"nowhere": [0, 1], "orders": [0]}) == {
        ("orders", 0): (5, -1, "", 0),
        ("?", 0): (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID),
        ("?", 1): (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID),
    }


def test_an_offset_of_an_earlier_topic_of_that_name_is_not_shown_by_id(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5})
    coordinator.create_topic("orders", 3)
    assert coordinator.fetch({"orders": [0]}, version=10) == {("orders", 0): (-1, -1, "", 0)}
    assert coordinator.fetch({"orders": [0]}, version=9) == {("orders", 0): (5, -1, "", 0)}


def test_all_topics_by_id_leave_out_those_that_are_gone(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5, ("payments", 0): 6})
    coordinator.image.drop_topic("payments")
    assert coordinator.fetch(None, version=10) == {("orders", 0): (5, -1, "", 0)}
    assert coordinator.fetch(None, version=9) == {
        ("orders", 0): (5, -1, "", 0),
        ("payments", 0): (6, -1, "", 0),
    }


@pytest.mark.parametrize("version", [8, 9, 10])
def test_several_groups_of_several_shards_are_fetched_at_once(coordinator: Coordinator, version: int) -> None:
    names = [f"group-{n}" for n in range(12)]
    for n, name in enumerate(names):
        coordinator.commit({("orders", 0): n}, name)
    assert len({coordinator.groups.partition_for(name) for name in names}) > 1
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    )
    response = coordinator.ask(version, request, OffsetFetchResponse)
    assert [group.group_id for group in response.groups] == names
    assert [group.topics[0].partitions[0].committed_offset for group in response.groups] == list(range(12))


def test_groups_stay_in_their_shards_where_a_partition_is_not_known(coordinator: Coordinator) -> None:
    names = [f"group-{n}" for n in range(50)]
    coordinator.create_topic(CONSUMER_OFFSETS_TOPIC, 7)
    shards = [coordinator.groups.partition_for(name) for name in names]
    whole = coordinator.image.topics[CONSUMER_OFFSETS_TOPIC]
    known = {index: each for index, each in whole.partitions.items() if index != 2}
    coordinator.image.install(TopicImage(whole.name, whole.id, known))
    assert [coordinator.groups.partition_for(name) for name in names] == shards


def test_a_group_whose_shard_is_elsewhere_does_not_spoil_the_others(coordinator: Coordinator) -> None:
    here, there = "a", "b"
    assert coordinator.groups.partition_for(here) != coordinator.groups.partition_for(there)
    coordinator.commit({("orders", 0): 5}, here)
    coordinator.groups.runtime.unload(coordinator.groups.partition_for(there))
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in (there, here)]
    )
    response = coordinator.ask(9, request, OffsetFetchResponse)
    assert [group.error_code for group in response.groups] == [ErrorCode.NOT_COORDINATOR, 0]
    assert response.groups[1].topics[0].partitions[0].committed_offset == 5


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_errors_of_a_group_stand_where_the_version_has_them(coordinator: Coordinator, version: int) -> None:
    coordinator.groups.runtime.unload_all()
    response = coordinator.fetch_response({"orders": [0, 1]}, version=version)
    if version >= 8:
        assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    elif version >= 2:
        assert response.error_code == ErrorCode.NOT_COORDINATOR
    else:
        assert [
            (each.partition_index, each.committed_offset, each.error_code)
            for each in response.topics[0].partitions
        ] == [(0, -1, ErrorCode.NOT_COORDINATOR), (1, -1, ErrorCode.NOT_COORDINATOR)]


# The log


def test_a_commit_is_answered_when_it_is_replicated_and_seen_only_then() -> None:
    coordinator = Coordinator(autocommit=False)
    reply = coordinator.send(9, coordinator.commit_request({("orders", 0): 5}))
    assert isinstance(reply, Promise)
    fetch = coordinator.send(9, coordinator.fetch_request(9, {"orders": [0]}))
    assert isinstance(fetch, Promise)
    assert (reply.done, fetch.done) == (False, False)
    coordinator.log_of("g").commit()
    response = fetch.result()
    assert isinstance(response, OffsetFetchResponse)
    assert reply.done
    assert response.groups[0].topics[0].partitions[0].committed_offset == 5


def test_a_commit_that_is_not_replicated_in_time_is_refused() -> None:
    coordinator = Coordinator(autocommit=False)
    commit = coordinator.send(9, coordinator.commit_request({("orders", 0): 5}))
    fetch = coordinator.send(9, coordinator.fetch_request(9, {"orders": [0]}))
    assert isinstance(commit, Promise)
    assert isinstance(fetch, Promise)
    coordinator.harness.advance(10_000)
    committed, fetched = commit.result(), fetch.result()
    assert isinstance(committed, OffsetCommitResponse)
    assert isinstance(fetched, OffsetFetchResponse)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_commit_that_the_log_refuses_changes_nothing(
    coordinator: Coordinator, refused: ErrorCode, told: ErrorCode
) -> None:
    coordinator.commit({("orders", 0): 5})
    coordinator.log_of("g").fail_next = KafkaError(refused)
    assert coordinator.commit({("orders", 0): 6, ("orders", 1): 1}) == {
        ("orders", 0): told,
        ("orders", 1): told,
    }
    assert coordinator.offsets_of() == {("orders", 0): 5}


def test_commits_survive_a_restart(coordinator: Coordinator) -> None:
    coordinator.commit({("orders", 0): 5, ("orders", 1): 6}, metadata="m", leader_epoch=2)
    coordinator.commit({("payments", 0): 7}, "other")
    before = [coordinator.committed("g", "orders", n) for n in range(2)]
    coordinator.restart()
    assert [coordinator.committed("g", "orders", n) for n in range(2)] == before
    assert coordinator.offsets_of("other") == {("payments", 0): 7}
    assert before[0] is not None
    assert before[0].expires_at_ms == NO_EXPIRY


def test_what_was_not_replicated_is_gone_with_the_leader() -> None:
    coordinator = Coordinator(autocommit=False)
    coordinator.send(9, coordinator.commit_request({("orders", 0): 5}))
    coordinator.log_of("g").commit()
    coordinator.send(9, coordinator.commit_request({("orders", 0): 6}))
    coordinator.restart()
    assert coordinator.offsets_of() == {("orders", 0): 5}
