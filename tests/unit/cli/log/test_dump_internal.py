"""Records of internal topics as `log dump` shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.ids import Uuid
from tidelog.records.record import Record, encode_batch
from tidelog.wire.codec import encode
from tidelog.wire.internal_topics import consumer_offsets as offsets
from tidelog.wire.internal_topics.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from tidelog.wire.schema import Payload

Tidelog = Callable[..., tuple[int, str, str]]
NOW = 1_700_000_000_000


def key_bytes(key: Payload) -> bytes:
    return key.API_KEY.to_bytes(2, "big") + encode(key, 0)


def value_bytes(value: Payload, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def segment(directory: Path, *pairs: tuple[bytes | None, bytes | None]) -> Path:
    records = [Record(timestamp=NOW, key=key, value=value) for key, value in pairs]
    path = directory / "00000000000000000000.log"
    path.write_bytes(encode_batch(records))
    return path


COMMIT = key_bytes(offsets.OffsetCommitKey(group="g", topic="orders", partition=3))
COMMITTED = offsets.OffsetCommitValue(offset=42, leader_epoch=1, metadata="half way", commit_timestamp=NOW)


def test_commits_and_tombstones_are_shown_field_by_field(tmp_path: Path, tidelog: Tidelog) -> None:
    path = segment(tmp_path, (COMMIT, value_bytes(COMMITTED, 3)), (COMMIT, None))
    code, out, _ = tidelog("log", "dump", path, "--offsets-decoder")
    assert code == 0
    time = "2023-11-14T22:13:20.000Z"
    assert out.splitlines()[1:] == [
        f"  0  {time}  OffsetCommit group=g topic=orders partition=3 → "
        f"offset=42 leader_epoch=1 metadata='half way' commit_timestamp={time}",
        f"  1  {time}  OffsetCommit group=g topic=orders partition=3 → deleted",
    ]


def test_json_has_every_field_with_its_type(tmp_path: Path, tidelog: Tidelog) -> None:
    value = offsets.OffsetCommitValue(offset=42, commit_timestamp=NOW, topic_id=Uuid(bytes(15) + b"\x07"))
    path = segment(tmp_path, (COMMIT, value_bytes(value, 4)), (COMMIT, None))
    _, out, _ = tidelog("log", "dump", path, "--offsets-decoder", "--json")
    first, second = json.loads(out)["records"]
    assert (first["record_type"], first["value_version"]) == ("OffsetCommit", 4)
    assert first["key"] == {"group": "g", "topic": "orders", "partition": 3}
    assert (first["value"]["offset"], first["value"]["topic_id"]) == (42, "AAAAAAAAAAAAAAAAAAAABw")
    assert (second["value"], second["value_version"]) == (None, None)


def test_members_subscriptions_and_assignments_are_opened(tmp_path: Path, tidelog: Tidelog) -> None:
    assigned = ConsumerProtocolAssignmentTopicPartition(topic="orders", partitions=[0, 1])
    member = offsets.MemberMetadata(
        member_id="m-1",
        client_id="m",
        subscription=value_bytes(ConsumerProtocolSubscription(topics=["orders"]), 1),
        assignment=value_bytes(ConsumerProtocolAssignment(assigned_partitions=[assigned]), 1),
    )
    other = offsets.MemberMetadata(member_id="worker", subscription=b"\x00\x01\xff")
    value = offsets.GroupMetadataValue(
        protocol_type="consumer", generation=5, protocol="range", leader="m-1", members=[member, other]
    )
    key = key_bytes(offsets.GroupMetadataKey(group="g"))
    path = segment(tmp_path, (key, value_bytes(value, 3)))
    _, out, _ = tidelog("log", "dump", path, "--offsets-decoder")
    assert "GroupMetadata group=g → protocol_type=consumer generation=5" in out
    assert "assignment={assigned_partitions=[{topic=orders partitions=[0, 1]}]}" in out
    assert "subscription=AAH/" in out


def test_transactions_are_shown_with_the_name_of_their_state(tmp_path: Path, tidelog: Tidelog) -> None:
    value = TransactionLogValue(
        producer_id=7,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[2])],
    )
    key = key_bytes(TransactionLogKey(transactional_id="pay-1"))
    path = segment(tmp_path, (key, value_bytes(value, 1)))
    _, out, _ = tidelog("log", "dump", path, "--transaction-log-decoder")
    assert "TransactionLog transactional_id=pay-1 → producer_id=7" in out
    assert "transaction_status=Ongoing transaction_partitions=[{topic=orders partition_ids=[2]}]" in out


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (b"\x00\x63abc", "unknown type 99"),
        (b"\x00", "1 bytes"),
        (None, "without a key"),
        (b"\x00\x01\x00\x09g", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said_and_the_rest_is_shown(
    key: bytes | None, problem: str, tmp_path: Path, tidelog: Tidelog
) -> None:
    path = segment(tmp_path, (key, b"\xff"), (COMMIT, None))
    code, out, _ = tidelog("log", "dump", path, "--offsets-decoder")
    assert code == 0
    assert "unreadable: " in out
    assert problem in out
    assert "OffsetCommit group=g" in out
    _, out, _ = tidelog("log", "dump", path, "--offsets-decoder", "--json")
    assert problem in json.loads(out)["records"][0]["problem"]
