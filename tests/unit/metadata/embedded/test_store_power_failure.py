"""The embedded store after a power failure, at each sync and later: every acknowledged write is there."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
from pathlib import Path

import pytest
from tests.rigs.durable_disk import DurableDisk

from tidelog.metadata.embedded.embedded_store import SNAPSHOT_NAME, EmbeddedStore

JOURNAL_LIMIT_BYTES = 300


class Steps(DurableDisk):
    """Loses its power before and after each sync as well; ``found`` has what was acknowledged by then."""

    def __init__(self, root: Path, left: Path) -> None:
        super().__init__(root)
        self._left = left
        self.acknowledged = 0
        self.found: list[tuple[Path, int]] = []

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self.look()
        super().fsync(fd)
        self.look()

    def look(self) -> None:
        for chance in (None, random.Random(len(self.found))):
            target = self._left / str(len(self.found))
            self.found.append((self.lose_power(target, chance, ordered=False), self.acknowledged))


async def nodes(directory: Path) -> dict[str, bytes]:
    store = EmbeddedStore(directory)
    found = {name: (await store.get(f"/{name}"))[0] for name in await store.children("/")}
    await store.close()
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("disk", "left"):
        (tmp_path / name).mkdir()
    return tmp_path / "disk"


def test_every_acknowledged_write_is_there_whenever_the_power_fails(root: Path, tmp_path: Path) -> None:
    async def scenario(disk: Steps) -> None:
        store = EmbeddedStore(root, journal_limit_bytes=JOURNAL_LIMIT_BYTES, sync=disk.fsync)
        for number in range(20):
            await store.create(f"/n{number:02}", b"%d" % number * 10)
            disk.acknowledged = number + 1
            disk.look()
        await store.close()
        assert (root / SNAPSHOT_NAME).exists()
        for left, count in disk.found:
            found = await nodes(left)
            names = [f"n{number:02}" for number in range(count)]
            assert found.keys() - {f"n{count:02}"} == set(names), left
            assert all(found[name] == b"%d" % number * 10 for number, name in enumerate(names))

    with Steps(root, tmp_path / "left") as disk:
        asyncio.run(scenario(disk))


def test_a_journal_that_was_made_is_there(root: Path, tmp_path: Path) -> None:
    async def scenario(disk: DurableDisk) -> dict[str, bytes]:
        store = EmbeddedStore(root, sync=disk.fsync)
        await store.create("/a", b"1")
        left = disk.lose_power(tmp_path / "last")
        await store.close()
        return await nodes(left)

    with DurableDisk(root) as disk:
        assert asyncio.run(scenario(disk)) == {"a": b"1"}


def test_names_are_synced_with_their_directory_which_fdatasync_need_not_do() -> None:
    assert inspect.signature(EmbeddedStore).parameters["sync"].default is os.fsync
