"""Loading folds and skips, and comes to exactly what replaying one record after the other comes to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.rigs.coordinator import GroupHarness
from tests.unit.coordinator.loading.replay_modules import ReplayModules
from tests.unit.coordinator.loading.test_log_replay import replay_all

from tidelog.coordinator.group.group import Group
from tidelog.coordinator.group.offsets import offsets
from tidelog.coordinator.group.shard import SCHEMAS, GroupShard
from tidelog.coordinator.loading.log_replay import NO_PRODUCER, Producer
from tidelog.coordinator.stored_record import StoredRecord, encode_key, encode_value
from tidelog.errors import TidelogError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.records.batch import iter_batches, parse_header, set_base_offset
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker, parse_control_type
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.wire.internal_topics import consumer_offsets as stored

HARNESS = GroupHarness()
ID = Uuid(bytes(range(16)))

GROUP = st.sampled_from(["a", "b", "größe", ""])
TOPIC = st.sampled_from(["t", "u", "été"])
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
METADATA = st.sampled_from(["", "m", "longer metadata", "é", "x" * 126, "x" * 127, "x" * 1000])
MEMBER = st.sampled_from(["m1", "m2"])


def made(key: msgspec.Struct, value: msgspec.Struct | None, version: int = 0) -> Record:
    data = None if value is None else encode_value(value, version)  # type: ignore[arg-type]
    return Record(timestamp=1, key=encode_key(key), value=data)  # type: ignore[arg-type]


FIRST_VERSION = st.just(0)


def of_type(keys: Any, values: Any, versions: Any = FIRST_VERSION) -> Any:
    return st.builds(made, keys, st.none() | values, versions)


OFFSET_KEYS = st.builds(
    stored.OffsetCommitKey,
    group=GROUP,
    topic=TOPIC,
    partition=st.sampled_from([0, 1, 5000, -1, (1 << 31) - 1]),
)
OFFSET_VALUES = st.builds(
    stored.OffsetCommitValue,
    offset=INT64,
    leader_epoch=INT32,
    metadata=METADATA,
    commit_timestamp=INT64,
    topic_id=st.sampled_from([ZERO_UUID, ID, Uuid(bytes(15) + b"\7")]),
)
COMMITS = of_type(OFFSET_KEYS, OFFSET_VALUES, st.sampled_from([4, 4, 4, 3, 2, 1, 0]))
OTHERS = st.one_of(
    of_type(
        st.builds(stored.LegacyOffsetCommitKey, group=GROUP, topic=TOPIC, partition=st.integers(0, 1)),
        st.builds(stored.LegacyOffsetCommitValue, offset=INT64, metadata=METADATA),
    ),
    of_type(
        st.builds(stored.GroupMetadataKey, group=GROUP),
        st.builds(
            stored.GroupMetadataValue,
            protocol_type=st.sampled_from(["", "consumer", "connect"]),
            generation=INT32,
            protocol=st.sampled_from(["range", None]),
            leader=st.sampled_from(["m1", None]),
            members=st.lists(
                st.builds(
                    stored.MemberMetadata,
                    member_id=MEMBER,
                    group_instance_id=st.sampled_from([None, "i"]),
                    session_timeout=st.integers(1, 1000),
                    subscription=st.sampled_from([b"", b"\0\0\0\0\0\0", b"\0\0\0\0\0\1\0\1t"]),
                ),
                max_size=2,
            ),
        ),
        st.integers(0, 3),
    ),
    of_type(
        st.builds(stored.ConsumerGroupMetadataKey, group_id=GROUP),
        st.builds(stored.ConsumerGroupMetadataValue, epoch=INT32),
    ),
    of_type(
        st.builds(stored.ConsumerGroupPartitionMetadataKey, group_id=GROUP),
        st.builds(stored.ConsumerGroupPartitionMetadataValue),
    ),
    of_type(
        st.builds(stored.ConsumerGroupMemberMetadataKey, group_id=GROUP, member_id=MEMBER),
        st.builds(
            stored.ConsumerGroupMemberMetadataValue,
            instance_id=st.sampled_from([None, "i"]),
            subscribed_topic_names=st.lists(TOPIC, max_size=2),
            subscribed_topic_regex=st.sampled_from([None, "", "t.*"]),
        ),
    ),
    of_type(
        st.builds(stored.ConsumerGroupTargetAssignmentMetadataKey, group_id=GROUP),
        st.builds(stored.ConsumerGroupTargetAssignmentMetadataValue, assignment_epoch=INT32),
    ),
    of_type(
        st.builds(stored.ConsumerGroupTargetAssignmentMemberKey, group_id=GROUP, member_id=MEMBER),
        st.builds(
            stored.ConsumerGroupTargetAssignmentMemberValue,
            topic_partitions=st.just([stored.TopicPartition(topic_id=ID, partitions=[0, 1])]),
        ),
    ),
    of_type(
        st.builds(stored.ConsumerGroupCurrentMemberAssignmentKey, group_id=GROUP, member_id=MEMBER),
        st.builds(
            stored.ConsumerGroupCurrentMemberAssignmentValue,
            member_epoch=st.integers(-2, 9),
            state=st.sampled_from([0, 1, 2, 99]),
            assigned_partitions=st.lists(
                st.builds(stored.TopicPartitions, topic_id=st.just(ID), partitions=st.just([0, 1])),
                max_size=1,
            ),
        ),
    ),
    of_type(
        st.builds(
            stored.ConsumerGroupRegularExpressionKey, group_id=GROUP, regular_expression=st.just("t.*")
        ),
        st.builds(stored.ConsumerGroupRegularExpressionValue, topics=st.lists(TOPIC, max_size=2)),
    ),
)
GARBAGE = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.just(1),
    key=st.none() | st.binary(max_size=12) | st.binary(max_size=12).map(lambda rest: b"\0\1" + rest),
    value=st.none() | st.binary(max_size=40),
    headers=st.just(()),
)


@st.composite
def damaged(draw: st.DrawFn) -> Record:
    """A record of any type in which a byte is wrong, or the end is missing."""
    record = draw(COMMITS | OTHERS)
    key, value = bytearray(record.key or b""), bytearray(record.value or b"")
    part = draw(st.sampled_from([part for part in (key, value) if part]))
    part[draw(st.integers(0, len(part) - 1))] ^= draw(st.integers(1, 255))
    del part[draw(st.integers(0, len(part))) :]
    return Record(timestamp=1, key=bytes(key), value=bytes(value))


RECORDS = st.one_of(COMMITS, COMMITS, COMMITS, OTHERS, GARBAGE, damaged())
BATCHES = st.one_of(
    st.tuples(
        st.lists(RECORDS, min_size=1, max_size=6),
        st.sampled_from([-1, -1, -1, 1, 2]),
        st.sampled_from([Codec.NONE, Codec.NONE, *Codec]),
    ),
    st.tuples(st.sampled_from([ControlType.COMMIT, ControlType.ABORT]), st.integers(1, 2)),
)


def log_of(batches: Iterable[tuple[Any, ...]]) -> bytes:
    log = bytearray()
    offset = 0
    for each in batches:
        if len(each) == 2:
            kind, producer_id = each
            written = bytearray(
                encode_end_txn_marker(
                    EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=1
                )
            )
        else:
            records, producer_id, codec = each
            written = bytearray(
                encode_batch(
                    records,
                    codec=codec,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    transactional=producer_id >= 0,
                )
            )
        set_base_offset(written, 0, offset)
        offset = parse_header(written).next_offset
        log += written
    return bytes(log)


def one_by_one(log: bytes, shard: GroupShard) -> None:
    """The replay that needs no explanation."""
    for pos, header in iter_batches(log):
        producer = (
            Producer(header.producer_id, header.producer_epoch) if header.is_transactional else NO_PRODUCER
        )
        for record in decode_batch(log, pos):
            if header.is_control:
                shard.replay_marker(producer, parse_control_type(record.key) is ControlType.COMMIT)
            elif record.key is not None:
                try:
                    key = SCHEMAS.decode_key(record.key)
                    value = SCHEMAS.decode_value(key, record.value)
                    shard.replay(record.offset, producer, StoredRecord(key, value))
                except TidelogError:
                    continue


def plain(thing: object, depth: int = 0) -> object:
    """What an object is made of, in a form that can be compared whatever class made it."""
    assert depth < 12, "it goes round in circles"
    if isinstance(thing, dict):
        return {str(key): plain(value, depth + 1) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain(each, depth + 1) for each in thing]
    if isinstance(thing, set | frozenset):
        return sorted(map(str, thing))
    fields = getattr(thing, "__struct_fields__", None) or getattr(type(thing), "__slots__", None)
    if type(thing).__name__ == "CommittedOffset":
        return repr(thing)
    if fields:
        return {name: plain(getattr(thing, name, None), depth + 1) for name in fields}
    if hasattr(thing, "__dict__") and type(thing).__module__.startswith("tidelog.coordinator"):
        return {name: plain(value, depth + 1) for name, value in vars(thing).items() if "clock" not in name}
    return repr(thing)


def state(shard: GroupShard) -> dict[str, object]:
    groups: list[Group] = list(shard.groups)
    return {
        "committed": plain(shard.offsets.committed.groups),
        "pending": plain(shard.offsets.pending),
        "groups": {group.group_id: (group.type, plain(group)) for group in groups},
    }


def replay_into(modules: ReplayModules, shard: GroupShard) -> Any:
    with patch.object(offsets, "CommitFold", modules.commit_fold.CommitFold):
        return modules.log_replay.LogReplay("log-0", SCHEMAS, shard)


def fresh() -> GroupShard:
    shard = HARNESS.shard_of("g")
    return GroupShard(shard.context, shard.support)


COMMIT = stored.OffsetCommitKey(group="a", topic="t", partition=0)
GONE = made(COMMIT, None)
FIVE = made(COMMIT, stored.OffsetCommitValue(offset=5), 4)
SIX = made(COMMIT, stored.OffsetCommitValue(offset=6, metadata="six"), 3)
NO_GROUP = made(stored.GroupMetadataKey(group="a"), None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(batches=st.lists(BATCHES, max_size=25), cuts=st.lists(st.booleans(), max_size=25))
@example(batches=[([FIVE, GONE], -1, Codec.NONE)], cuts=[])
@example(batches=[([FIVE], 1, Codec.NONE), ([GONE, SIX], -1, Codec.NONE), (ControlType.COMMIT, 1)], cuts=[])
@example(batches=[([FIVE, NO_GROUP, SIX, GONE], -1, Codec.NONE)], cuts=[])
@example(batches=[([FIVE, NO_GROUP], -1, Codec.NONE)], cuts=[True])
def test_a_folded_load_is_a_replay_one_by_one(
    replay_modules: ReplayModules, batches: list[tuple[Any, ...]], cuts: list[bool]
) -> None:
    log = log_of(batches)
    expected, found = fresh(), fresh()
    one_by_one(log, expected)
    ends = [pos + header.size_bytes for pos, header in iter_batches(log)]
    cut_at = [0, *(end for end, cut in zip(ends, cuts, strict=False) if cut), len(log)]
    chunks = [log[start:end] for start, end in pairwise(cut_at) if end > start]
    replay = replay_into(replay_modules, found)
    if chunks:
        assert replay_all(replay, *chunks) == sum(1 if len(each) == 2 else len(each[0]) for each in batches)
    assert state(found) == state(expected)


@pytest.mark.parametrize("entries", [16, 64])
def test_a_full_table_is_drained_or_grows_and_nothing_is_lost(
    replay_modules: ReplayModules, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more keys than fit, in two rounds, with tombstones and a marker between."""
    monkeypatch.setattr(replay_modules.commit_fold, "FIRST_ENTRIES", 16)
    monkeypatch.setattr(replay_modules.commit_fold, "MAX_ENTRIES", entries)
    monkeypatch.setattr(replay_modules.commit_fold, "_MIN_HEAP_BYTES", 1 << 17, raising=False)
    batches: list[tuple[Any, ...]] = []
    for turn in range(2):
        for number in range(300):
            key = stored.OffsetCommitKey(group=f"g{number % 7}", topic="t", partition=number)
            value = stored.OffsetCommitValue(
                offset=turn * 1000 + number, metadata="m" * (number % 90), topic_id=ID
            )
            records = [made(key, value, 4), made(key, None)] if number % 11 == turn else [made(key, value, 4)]
            batches.append((records, 1 if number % 50 == 9 else -1, Codec.NONE))
        batches.append((ControlType.COMMIT, 1))
    log = log_of(batches)
    expected, found = fresh(), fresh()
    one_by_one(log, expected)
    replay_all(replay_into(replay_modules, found), log)
    assert state(found) == state(expected)


def test_what_many_compressed_batches_unpack_to_is_not_held_at_once(replay_modules: ReplayModules) -> None:
    large = made(stored.GroupMetadataKey(group="a"), stored.GroupMetadataValue(protocol="p" * 30_000))
    batches = [([large] * 20, -1, Codec.ZSTD) for _ in range(12)]
    log = log_of([*batches, ([FIVE], -1, Codec.GZIP)])
    assert len(log) < 20_000
    walker = replay_modules.log_walker.LogWalker(SCHEMAS.types)
    walker.open(log)
    events, calls, done = 0, 0, False
    while not done:
        done = walker.walk()
        calls += 1
        while walker.next_event() is not None:
            events += 1
    assert events == 12 * 20 + 1
    assert calls >= 6
