"""Delayed deletion: in order, not before its time, and one failure does not stop the rest."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.storage.directories import delayed_deletion
from tidelog.storage.directories.delayed_deletion import DelayedDeletion


def fail(path: Path, error: OSError) -> None:
    raise AssertionError(f"{path}: {error}")


def test_things_fall_due_by_their_own_delay_in_order(tmp_path: Path) -> None:
    clock = ManualClock()
    waiting = DelayedDeletion(clock)
    slow, first, second = (tmp_path / name for name in ("slow", "first", "second"))
    waiting.add([slow], 100)
    waiting.add([first, second], 10)
    assert waiting.take_due() == []
    clock.advance(10)
    assert waiting.take_due() == [first, second]
    assert len(waiting) == 1
    clock.advance(90)
    assert waiting.take_due() == [slow]


def test_files_and_whole_directories_go_and_what_is_gone_already_is_no_error(tmp_path: Path) -> None:
    directory, file = tmp_path / "t-0.x-delete", tmp_path / "0.log.deleted"
    (directory / "below").mkdir(parents=True)
    (directory / "below" / "file").touch()
    file.touch()
    waiting = DelayedDeletion(ManualClock())
    waiting.add([directory, file, tmp_path / "never was"], 0)
    assert asyncio.run(waiting.remove_due(fail)) == 3
    assert not directory.exists()
    assert not file.exists()


def test_what_waits_in_a_directory_follows_its_renaming(tmp_path: Path) -> None:
    old, new = tmp_path / "t-0.x-future", tmp_path / "t-0"
    waiting = DelayedDeletion(ManualClock())
    waiting.add([old / "0.log.deleted", tmp_path / "u-0" / "0.log.deleted"], 0)
    waiting.follow(old, new)
    assert waiting.take_due() == [new / "0.log.deleted", tmp_path / "u-0" / "0.log.deleted"]


def test_a_failure_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    real_remove = delayed_deletion.remove

    def remove(path: Path) -> None:
        if path == bad:
            raise OSError(5, "Input/output error")
        real_remove(path)

    monkeypatch.setattr(delayed_deletion, "remove", remove)
    good.touch()
    told: list[tuple[Path, str | None]] = []
    waiting = DelayedDeletion(ManualClock())
    waiting.add([bad, good], 0)
    assert asyncio.run(waiting.remove_due(lambda path, error: told.append((path, error.strerror)))) == 2
    assert told == [(bad, "Input/output error")]
    assert not good.exists()


def test_running_sleeps_until_something_is_added_and_ends_when_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "file"
        file.touch()
        waiting = DelayedDeletion(ManualClock())
        running = asyncio.create_task(waiting.run(fail))
        await asyncio.sleep(0)
        waiting.add([file], 0)
        deadline = time.monotonic() + 20
        while file.exists():
            assert time.monotonic() < deadline, "waited 20 seconds in vain"
            await asyncio.sleep(0.001)
        waiting.stop()
        async with asyncio.timeout(20):
            await running

    asyncio.run(scenario())


def test_a_stop_in_the_middle_of_a_removal_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        waiting = DelayedDeletion(ManualClock())
        loop = asyncio.get_running_loop()

        def stop_while_removing(path: Path) -> None:
            loop.call_soon_threadsafe(waiting.stop)

        monkeypatch.setattr(delayed_deletion, "remove", stop_while_removing)
        waiting.add([tmp_path / "gone"], 0)
        async with asyncio.timeout(60):
            await waiting.run(fail)

    asyncio.run(scenario())
