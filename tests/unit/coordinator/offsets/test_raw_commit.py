"""Offset records read by hand: the same as by the general path, or left to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.coordinator.group.groups import Groups
from tidelog.coordinator.group.offsets.committed_offset import CommittedOffset, from_value
from tidelog.coordinator.group.offsets.offsets import Offsets
from tidelog.coordinator.group.offsets.raw_commit import RawCommits
from tidelog.coordinator.group.shard import SCHEMAS
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.stored_record import StoredRecord, encode_key, encode_value
from tidelog.errors import CorruptRecordError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire.internal_topics.consumer_offsets import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)

KEYS = st.builds(OffsetCommitKey, group=TEXT, topic=TEXT, partition=INT32)
VALUES = st.builds(
    OffsetCommitValue,
    offset=INT64,
    leader_epoch=INT32,
    metadata=TEXT | st.text("x", min_size=120, max_size=140),
    commit_timestamp=INT64,
    expire_timestamp=INT64,
    topic_id=st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16).map(Uuid),
)


def generally(record_offset: int, data: bytes) -> CommittedOffset:
    value = SCHEMAS.decode_value(OffsetCommitKey(), data)
    assert isinstance(value, OffsetCommitValue)
    return from_value(record_offset, value)


@given(KEYS)
def test_keys_are_read_as_they_were_written(key: OffsetCommitKey) -> None:
    assert RawCommits().key(encode_key(key)) == (key.group, key.topic, key.partition)


@given(VALUES, st.sampled_from([3, 4]))
def test_values_of_versions_3_and_4_are_read_as_the_general_path_reads_them(
    value: OffsetCommitValue, version: int
) -> None:
    data = encode_value(value, version)
    found = RawCommits().value(17, data)
    if found is None:
        assert version == 4
        assert len(value.metadata.encode()) >= 127
    else:
        assert found == generally(17, data)


@given(VALUES, st.sampled_from([0, 1, 2]))
def test_older_values_are_left_to_the_general_path(value: OffsetCommitValue, version: int) -> None:
    assert RawCommits().value(17, encode_value(value, version)) is None


@given(st.binary(max_size=80))
def test_other_keys_are_left_to_the_general_path(data: bytes) -> None:
    found = RawCommits().key(data)
    if found is not None:
        key = SCHEMAS.decode_key(data)
        assert isinstance(key, OffsetCommitKey)
        assert found == (key.group, key.topic, key.partition)


@given(VALUES, st.sampled_from([3, 4]), st.data())
def test_damaged_values_are_left_to_the_general_path_or_mean_the_same(
    value: OffsetCommitValue, version: int, data: st.DataObject
) -> None:
    raw = bytearray(encode_value(value, version))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    damaged = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    found = RawCommits().value(17, damaged)
    if found is not None:
        assert found == generally(17, damaged)


def test_tombstones_and_other_types_have_no_short_way_around_the_shard() -> None:
    assert RawCommits().key(encode_key(GroupMetadataKey(group="g"))) is None
    assert RawCommits().key(encode_key(LegacyOffsetCommitKey(group="g", topic="t"))) is None


RECORDS = st.tuples(
    st.integers(-1, 2),
    st.builds(
        OffsetCommitKey,
        group=st.sampled_from(["a", "b"]),
        topic=st.sampled_from(["t", "u"]),
        partition=st.integers(0, 1),
    )
    | st.builds(LegacyOffsetCommitKey, group=st.just("a"), topic=st.just("t"), partition=st.integers(0, 1)),
    VALUES | st.none(),
    st.sampled_from([0, 1, 2, 3, 4]),
)
COORDINATOR = Coordinator()
MARKERS = st.tuples(st.integers(0, 2), st.booleans())


@given(st.lists(RECORDS | MARKERS, max_size=40))
def test_both_paths_come_to_the_same_state(events: list[tuple[object, ...]]) -> None:
    shard = COORDINATOR.shard()
    raw, general = (Offsets(shard.context, shard.support, Groups()) for _ in range(2))
    for offset, event in enumerate(events):
        if len(event) == 2:
            producer_id, committed = event
            for offsets in (raw, general):
                offsets.replay_marker(Producer(producer_id, 0), committed)  # type: ignore[arg-type]
            continue
        producer_id, key, value, version = event
        producer = Producer(producer_id, 0)  # type: ignore[arg-type]
        if isinstance(key, LegacyOffsetCommitKey) and isinstance(value, OffsetCommitValue):
            value, version = LegacyOffsetCommitValue(offset=value.offset, metadata=value.metadata), 0
        key_bytes = encode_key(key)  # type: ignore[arg-type]
        value_bytes = None if value is None else encode_value(value, version)  # type: ignore[arg-type]
        decoded_key = SCHEMAS.decode_key(key_bytes)
        record = StoredRecord(decoded_key, SCHEMAS.decode_value(decoded_key, value_bytes))
        assert isinstance(decoded_key, OffsetCommitKey | LegacyOffsetCommitKey)
        general.replay(offset, producer, decoded_key, record.value)
        if not raw.replay_raw(offset, producer, key_bytes, value_bytes):
            raw.replay(offset, producer, decoded_key, record.value)
    assert raw.committed.groups == general.committed.groups
    assert [table.groups for table in raw.pending.tables] == [
        table.groups for table in general.pending.tables
    ]
    assert raw.pending.partitions_of("a") == general.pending.partitions_of("a")
    assert {group.group_id for group in raw.groups} == {group.group_id for group in general.groups}


def test_a_record_that_nobody_can_read_is_told_of() -> None:
    data = encode_value(OffsetCommitValue(), 4)[:-1]
    assert RawCommits().value(0, data) is None
    with pytest.raises(CorruptRecordError):
        generally(0, data)
