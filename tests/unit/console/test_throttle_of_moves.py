"""The throttle of moves: whoever takes it away waits for whoever is about to begin some."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from tidelog.console.settings import ClusterSettings
from tidelog.console.watching import watched_cluster
from tidelog.console.watching.history import History
from tidelog.console.watching.watched_cluster import WatchedCluster


class Moves:
    """An admin client of a cluster in which moves begin and end."""

    def __init__(self) -> None:
        self.asked = 0
        self.moving: dict[str, str] = {}

    async def list_partition_reassignments(self) -> dict[str, str]:
        self.asked += 1
        return self.moving


def test_a_throttle_that_is_being_set_is_not_taken_away_before_its_moves_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def removed(admin: Any) -> None:
        raise AssertionError("the throttle of moves that have begun was taken away")

    monkeypatch.setattr(watched_cluster, "remove_throttle", removed)
    settings = ClusterSettings("main", {"bootstrap.servers": "127.0.0.1:1"})

    async def run() -> None:
        cluster = WatchedCluster(settings, History(tmp_path / "history.db", 7), refresh_s=60.0)
        moves = Moves()
        cluster.admin = cast(Any, moves)
        async with cluster.throttling:
            cluster.unthrottle_when_moved = True
            looking = asyncio.create_task(cluster._unthrottle())
            for _ in range(5):
                await asyncio.sleep(0)
            assert moves.asked == 0
            moves.moving = {"orders-0": "moves"}
        await looking
        assert (moves.asked, cluster.unthrottle_when_moved) == (1, True)

    asyncio.run(run())
