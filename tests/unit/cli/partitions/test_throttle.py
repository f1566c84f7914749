"""`partitions reassign --throttle`: rates as people write them, and the replicas that a move throttles."""

from __future__ import annotations

import pytest

from tidelog.cli.failure import WrongUsage
from tidelog.cli.partitions.throttle import parse_rate
from tidelog.client.admin._replication_throttle import throttled_replicas
from tidelog.ids import TopicPartition


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1", 1),
        ("1000000", 1_000_000),
        ("50MB", 50_000_000),
        ("50 mb", 50_000_000),
        ("3k", 3000),
        ("2KiB", 2048),
        ("1GiB", 2**30),
    ],
)
def test_a_rate_may_have_a_unit(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "fast", "-1", "1.5MB", "5TB"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="bytes per second"):
        parse_rate(text)


def test_copies_come_from_all_present_replicas_and_go_to_new_ones() -> None:
    before: dict[TopicPartition, tuple[int, ...]] = {
        TopicPartition("orders", 0): (1, 2),
        TopicPartition("orders", 1): (2, 3),
        TopicPartition("payments", 0): (1, 2),
    }
    planned: dict[TopicPartition, tuple[int, ...]] = {
        TopicPartition("orders", 0): (2, 3),
        TopicPartition("orders", 1): (1, 4),
        # The order alone: nothing is copied.
        TopicPartition("payments", 0): (2, 1),
    }
    assert throttled_replicas(before, planned) == {
        "orders": (["0:1", "0:2", "1:2", "1:3"], ["0:3", "1:1", "1:4"])
    }
