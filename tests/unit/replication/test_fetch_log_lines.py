"""A leader that is away is one line in the log of a follower, however often it is asked meanwhile."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.replica_set import ReplicaSet

from tidelog.ids import TopicPartition
from tidelog.replication.fetch_loop import FetchLoop
from tidelog.replication.leader_endpoint import Answers, OnAnswers, Positions

ATTEMPTS = 20


class Away:
    """A leader that refuses connections, then answers once, is away again, and then says no more."""

    def __init__(self) -> None:
        self.said_all = asyncio.Event()
        self._answers = [*[False] * ATTEMPTS, True, *[False] * ATTEMPTS]

    async def fetch(self, positions: Positions) -> Answers:
        await asyncio.sleep(0)
        if not self._answers:
            self.said_all.set()
            await asyncio.Event().wait()
        if not self._answers.pop(0):
            raise ConnectionRefusedError("refused")
        return {}

    def begin_fetch(self, positions: Positions, on_answers: OnAnswers) -> bool:
        return False

    async def log_bounds(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        raise AssertionError("nothing was out of range")

    async def close(self) -> None:
        """There is no connection."""


def test_each_absence_of_a_leader_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        replicas = ReplicaSet(tmp_path, 2, clock)
        replicas.elect(1, isr=(1, 2))
        leader = Away()
        loop = FetchLoop(1, leader, clock, lambda: 0, lambda error: None)
        loop.add(replicas[2])
        loop.start()
        try:
            async with asyncio.timeout(60):
                await leader.said_all.wait()
        finally:
            await loop.close()
            replicas.close()

    with caplog.at_level(logging.INFO, "tidelog.replication.fetch_loop"):
        asyncio.run(scenario())
    assert [each.getMessage() for each in caplog.records] == [
        "Fetching from broker 1 failed: refused",
        "Fetching from broker 1 works again",
        "Fetching from broker 1 failed: refused",
    ]
