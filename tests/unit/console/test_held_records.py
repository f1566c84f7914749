"""What the console holds of records is bounded by what they take in memory, decoded fields included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.console.records import search
from tidelog.console.records.decoded import DecodedField
from tidelog.console.records.raw import RawRecord
from tidelog.console.settings import ClusterSettings
from tidelog.console.watching.history import History
from tidelog.console.watching.watched_cluster import WatchedCluster
from tidelog_rewards.console import incidents
from tidelog_rewards.console.incidents import Incidents


def record(number: int, *, value: bytes = b"packed", json: bytes | None = None) -> RawRecord:
    decoded = None if json is None else DecodedField("protobuf", json)
    return RawRecord(0, number, number, b"k%d" % number, value, [], decoded_value=decoded)


def test_what_a_record_was_decoded_to_counts() -> None:
    plain, decoded = record(1), record(1, json=b"x" * 60_000)
    assert decoded.held_bytes == plain.held_bytes + 60_000
    assert decoded.size_bytes == plain.size_bytes


def test_headers_take_more_than_their_bytes() -> None:
    headers: list[tuple[str, bytes | None]] = [("", None)] * 10_000
    assert record(1)._replace(headers=headers).held_bytes > 1_000_000


def test_small_records_that_decode_to_much_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_HELD_BYTES", 500_000)
    held = search._Newest(100)
    held.take([record(number, json=b"x" * 60_000) for number in range(100)])
    assert [each.offset for each in held.in_order()] == [99, 98, 97, 96, 95, 94, 93, 92]
    assert held.is_cut


def test_of_large_incidents_those_that_changed_longest_ago_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "_MOST_BYTES", 10_000)
    settings = ClusterSettings("main", {"bootstrap.servers": "127.0.0.1:1"})
    cluster = WatchedCluster(settings, History(tmp_path / "history.db", 7), refresh_s=60.0)
    known = Incidents(cluster)
    for number in (*range(8), 4, 2):
        known._take(record(number, value=b"x" * 2000))
    assert list(known._found) == [b"k6", b"k7", b"k4", b"k2"]
    known._take(RawRecord(0, 9, 9, b"k4", None, []))
    assert list(known._found) == [b"k6", b"k7", b"k2"]
    assert known._bytes == sum(each.held_bytes for each in known._found.values())
