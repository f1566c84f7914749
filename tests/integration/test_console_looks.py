"""How often the console looks at a cluster, and what it shows without its history."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.rigs.console_thread import ConsoleThread, console_settings

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.console.watching import watched_cluster
from tidelog.console.watching.snapshot import Snapshot, take_snapshot
from tidelog.testing import broker

# A fiftieth of the time is for looks: after such a one, were it usual, the next would be a minute later.
COSTLY_S = 1.3


def test_the_first_look_may_be_costly_without_putting_off_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    async def costly_at_first(admin: AsyncAdmin) -> Snapshot:
        began_s = time.thread_time()
        while not looks and time.thread_time() < began_s + COSTLY_S:
            pass
        looks.append(began_s)
        return await take_snapshot(admin)

    monkeypatch.setattr(watched_cluster, "take_snapshot", costly_at_first)
    with (
        broker() as cluster,
        ConsoleThread(console_settings(tmp_path, cluster.bootstrap_servers)) as console,
        console.client() as api,
    ):
        api.wait_for_look()
        api.wait_for_look()
    assert len(looks) >= 2


def test_pages_are_there_without_the_history_and_the_overview_says_why(tmp_path: Path) -> None:
    with (
        broker(topics={"orders": 1}) as cluster,
        ConsoleThread(console_settings(tmp_path, cluster.bootstrap_servers)) as console,
        console.client() as api,
    ):
        console.break_history()
        api.wait_for_look()
        for page in ("rates", "events", "topics/orders/rates"):
            assert api.get(f"/clusters/main/{page}") == []
        assert [each["name"] for each in api.get("/clusters/main/topics")["topics"]] == ["orders"]
        overview = api.get("/clusters/main/overview")
        assert overview["problem"] is None
        assert any(str(tmp_path / "history.sqlite") in each for each in overview["problems"])
