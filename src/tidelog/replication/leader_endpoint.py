"""How a follower reaches the leader of its partitions: the seam between following and the network.

``broker/cluster`` has the one that talks to another broker; tests and the simulation connect partitions
directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from tidelog.ids import TopicPartition, Uuid


class FollowerPosition(NamedTuple):
    """What a follower asks for, and what it has."""

    topic_id: Uuid
    offset: int
    log_start_offset: int
    leader_epoch: int
    """The epoch in which the follower believes that the other broker leads."""
    last_fetched_epoch: int
    """The epoch of the follower's last batch, by which the leader sees whether their histories part
    (KIP-595)."""


class FetchedPartition(NamedTuple):
    """What a leader answers for one partition."""

    error_code: int
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """An epoch, and where it ends at the leader: the follower has something else there."""
    records: memoryview = memoryview(b"")


Positions = Mapping[TopicPartition, FollowerPosition]
Answers = dict[TopicPartition, FetchedPartition]
OnAnswers = Callable[[Answers | Exception], None]


class LeaderEndpoint(Protocol):
    """One other broker, as the leader of partitions."""

    async def fetch(self, positions: Positions) -> Answers:
        """Records from the positions on; waits a little where there are none. Raises ``OSError`` and its
        like."""

    def begin_fetch(self, positions: Positions, on_answers: OnAnswers) -> bool:
        """The same without waiting for anything, if that can be: ``on_answers`` is called once, with what
        came of it. False if it cannot be begun just now, or not at all."""

    async def log_bounds(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        """The start and the end of the leader's log; raises :class:`KafkaError`."""

    async def close(self) -> None:
        """Let go of the connection."""
