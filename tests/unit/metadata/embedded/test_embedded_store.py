"""The embedded store's files: crashes, torn tails, snapshots, damage, failing disks."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.errors import StorageError
from tidelog.metadata.embedded.embedded_store import JOURNAL_NAME, SNAPSHOT_NAME, EmbeddedStore
from tidelog.metadata.store import Create, Delete, NoNode, Op, Set, StoreClosed

Tree = dict[str, tuple[bytes, int]]


async def tree_of(store: EmbeddedStore) -> Tree:
    found: Tree = {}

    async def read(path: str) -> None:
        for name in await store.children(path):
            child = f"{path.rstrip('/')}/{name}"
            found[child] = await store.get(child)
            await read(child)

    await read("/")
    return found


def reopened(directory: Path) -> Tree:
    async def read() -> Tree:
        store = EmbeddedStore(directory)
        try:
            return await tree_of(store)
        finally:
            await store.close()

    return asyncio.run(read())


def with_store(
    directory: Path, scenario: Callable[[EmbeddedStore], Awaitable[object]], **options: Any
) -> None:
    async def main() -> None:
        store = EmbeddedStore(directory, **options)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


async def _some_writes(store: EmbeddedStore) -> list[Tree]:
    """A few writes of every kind; returns the tree after each, the empty one first."""
    states = [await tree_of(store)]
    writes: list[list[Op]] = [
        [Create("/a", b"one")],
        [Create("/a/b", b"x" * 40), Create("/a/c")],
        [Set("/a/b", b"two"), Set("/a", b"")],
        [Create("/a/n", b"", False, True)],
        [Delete("/a/c"), Create("/d", bytes(range(256)))],
        [Delete("/d")],
    ]
    for ops in writes:
        await store.multi(ops)
        states.append(await tree_of(store))
    return states


def test_a_journal_cut_at_any_byte_opens_as_some_acknowledged_state(tmp_path: Path) -> None:
    origin, states = tmp_path / "origin", list[Tree]()

    async def write(store: EmbeddedStore) -> None:
        states.extend(await _some_writes(store))

    with_store(origin, write)
    journal = (origin / JOURNAL_NAME).read_bytes()
    reached = []
    for length in range(len(journal) + 1):
        cut = tmp_path / "cut"
        cut.mkdir()
        (cut / JOURNAL_NAME).write_bytes(journal[:length])
        reached.append(states.index(reopened(cut)))
        assert (cut / JOURNAL_NAME).read_bytes()[8:] == journal[
            8 : max(8, (cut / JOURNAL_NAME).stat().st_size)
        ]
        shutil.rmtree(cut)
    assert reached == sorted(reached)
    assert reached[-1] == len(states) - 1
    assert set(reached) == set(range(len(states)))


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(garbage=st.binary(min_size=1, max_size=60), keep=st.integers(0, 6))
def test_garbage_after_the_last_record_is_cut_off(tmp_path: Path, garbage: bytes, keep: int) -> None:
    directory = tmp_path / "store"
    shutil.rmtree(directory, ignore_errors=True)
    states: list[Tree] = []

    async def write(store: EmbeddedStore) -> None:
        states.append(await tree_of(store))
        for index in range(keep):
            await store.create(f"/{index}", b"x" * index)
            states.append(await tree_of(store))

    with_store(directory, write)
    with (directory / JOURNAL_NAME).open("ab") as journal:
        journal.write(garbage)
    assert reopened(directory) == states[-1]
    assert reopened(directory) == states[-1]


def test_a_torn_tail_is_told_in_one_line_and_writing_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def first(store: EmbeddedStore) -> None:
        await store.create("/a")
        await store.create("/b")

    async def second(store: EmbeddedStore) -> None:
        assert await store.children("/") == ["a"]
        await store.create("/c")

    with_store(tmp_path, first)
    journal = tmp_path / JOURNAL_NAME
    whole = journal.stat().st_size
    os.truncate(journal, whole - 3)
    with caplog.at_level(logging.WARNING):
        with_store(tmp_path, second)
    [line] = caplog.messages
    assert str(journal) in line
    assert "unfinished write" in line
    assert set(reopened(tmp_path)) == {"/a", "/c"}


def test_damage_before_whole_records_is_refused_and_nothing_is_cut(tmp_path: Path) -> None:
    async def write(store: EmbeddedStore) -> None:
        await _some_writes(store)

    with_store(tmp_path, write)
    journal = tmp_path / JOURNAL_NAME
    content = bytearray(journal.read_bytes())
    content[20] ^= 1
    journal.write_bytes(content)
    with pytest.raises(StorageError, match="damaged at byte 8 and whole after it"):
        reopened(tmp_path)
    assert journal.read_bytes() == content


def test_a_damaged_length_field_is_damage_too(tmp_path: Path) -> None:
    async def write(store: EmbeddedStore) -> None:
        await _some_writes(store)

    with_store(tmp_path, write)
    journal = tmp_path / JOURNAL_NAME
    content = bytearray(journal.read_bytes())
    content[8] = 0x7F
    journal.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        reopened(tmp_path)


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(b"my shopping list")
    with pytest.raises(StorageError, match="not a metadata journal"):
        EmbeddedStore(tmp_path)
    assert (tmp_path / JOURNAL_NAME).read_bytes() == b"my shopping list"


def test_a_full_journal_becomes_a_snapshot(tmp_path: Path) -> None:
    states: list[Tree] = []

    async def write(store: EmbeddedStore) -> None:
        await store.create("/me", b"", ephemeral=True)
        await store.create("/q")
        for _ in range(30):
            await store.create("/q/n", b"x" * 50, sequential=True)
        assert await store.exists("/me")
        states.append(await tree_of(store))

    with_store(tmp_path, write, journal_limit_bytes=300)
    assert (tmp_path / SNAPSHOT_NAME).stat().st_size > 1500
    assert (tmp_path / JOURNAL_NAME).stat().st_size < 400
    states[0].pop("/me")
    assert reopened(tmp_path) == states[0]


def test_sequential_numbers_go_on_after_a_snapshot_and_after_ephemeral_siblings(tmp_path: Path) -> None:
    async def first(store: EmbeddedStore) -> None:
        await store.create("/q")
        await store.create("/q/e", b"", ephemeral=True, sequential=True)
        assert await store.create("/q/n", b"", sequential=True) == "/q/n0000000001"

    async def second(store: EmbeddedStore) -> None:
        assert await store.create("/q/n", b"", sequential=True) == "/q/n0000000002"

    with_store(tmp_path, first)
    with_store(tmp_path, second, journal_limit_bytes=1)
    with_store(tmp_path, lambda store: store.create("/q/n", b"", sequential=True))
    assert max(reopened(tmp_path)) == "/q/n0000000003"


def test_a_refused_multi_uses_no_sequential_number_up(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        with pytest.raises(NoNode):
            await store.multi([Create("/n", sequential=True), Delete("/nowhere")])
        assert await store.create("/n", sequential=True) == "/n0000000000"

    with_store(tmp_path, scenario)


def test_a_crash_between_snapshot_and_journal_leaves_the_same_tree(tmp_path: Path) -> None:
    """The journal still holds what the snapshot has: its records are passed over by their number."""
    journal_before = b""

    async def write(store: EmbeddedStore) -> None:
        nonlocal journal_before
        await _some_writes(store)
        journal_before = (tmp_path / JOURNAL_NAME).read_bytes()
        store._journal_limit_bytes = 1
        await store.create("/z")

    with_store(tmp_path, write)
    expected = reopened(tmp_path)
    (tmp_path / JOURNAL_NAME).write_bytes(journal_before)
    assert reopened(tmp_path) == expected


def test_a_half_written_snapshot_is_never_read(tmp_path: Path) -> None:
    with_store(tmp_path, lambda store: store.create("/a"))
    (tmp_path / (SNAPSHOT_NAME + ".tmp")).write_bytes(b"TIDESNP1half")
    assert set(reopened(tmp_path)) == {"/a"}


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    with_store(tmp_path, lambda store: store.create("/a"), journal_limit_bytes=1)
    snapshot = tmp_path / SNAPSHOT_NAME
    content = bytearray(snapshot.read_bytes())
    content[-1] ^= 1
    snapshot.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged: restore it"):
        reopened(tmp_path)


def test_a_journal_that_skips_transactions_is_refused(tmp_path: Path) -> None:
    async def write(store: EmbeddedStore) -> None:
        await store.create("/a")
        store._journal_limit_bytes = 1
        await store.create("/b")
        store._journal_limit_bytes = 1 << 20
        await store.create("/c")

    with_store(tmp_path, write)
    (tmp_path / SNAPSHOT_NAME).unlink()
    with pytest.raises(StorageError, match="goes from transaction 0 to 3"):
        reopened(tmp_path)


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        with pytest.raises(StorageError, match="in use by another broker"):
            EmbeddedStore(tmp_path)

    with_store(tmp_path, scenario)


def test_a_write_is_synced_before_it_is_acknowledged_and_a_multi_costs_one_sync(tmp_path: Path) -> None:
    synced: list[int] = []

    async def scenario(store: EmbeddedStore) -> None:
        synced.clear()
        await store.multi([Create(f"/{index}") for index in range(100)])
        assert synced == [(tmp_path / JOURNAL_NAME).stat().st_size]
        await store.create("/e", b"", ephemeral=True)
        assert len(synced) == 1

    with_store(tmp_path, scenario, sync=lambda fd: synced.append(os.fstat(fd).st_size))


def test_after_a_failed_sync_nothing_is_visible_and_writes_are_refused(tmp_path: Path) -> None:
    failing = False

    def sync(fd: int) -> None:
        if failing:
            raise OSError(errno.EIO, "Input/output error")

    async def scenario(store: EmbeddedStore) -> None:
        nonlocal failing
        await store.create("/a")
        failing = True
        with pytest.raises(StorageError, match=r"cannot be written \(Input/output error\)"):
            await store.create("/b")
        failing = False
        assert await store.children("/") == ["a"]
        with pytest.raises(StoreClosed, match="could not be synced"):
            await store.create("/c")

    with_store(tmp_path, scenario, sync=sync)


def test_a_full_disk_refuses_the_write_and_later_ones_work_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def half_then_full(fd: int, content: memoryview, position: int) -> int:
        if len(content) > 5:
            return real(fd, content[:5], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario(store: EmbeddedStore) -> None:
        await store.create("/a")
        size = (tmp_path / JOURNAL_NAME).stat().st_size
        monkeypatch.setattr(os, "pwrite", half_then_full)
        with pytest.raises(StorageError, match=r"cannot be written \(No space left on device\)"):
            await store.create("/b", b"y" * 8)
        assert (tmp_path / JOURNAL_NAME).stat().st_size == size
        monkeypatch.setattr(os, "pwrite", real)
        await store.create("/c")

    with_store(tmp_path, scenario)
    assert set(reopened(tmp_path)) == {"/a", "/c"}


def test_a_cancelled_writer_leaves_file_and_memory_agreeing(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        writer = asyncio.ensure_future(store.create("/a"))
        await asyncio.sleep(0)
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        await store.create("/b")
        assert await store.children("/") == ["a", "b"]

    with_store(tmp_path, scenario)
    assert set(reopened(tmp_path)) == {"/a", "/b"}


def test_a_closed_store_takes_no_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore(tmp_path)
        await store.create("/a")
        await store.close()
        await store.close()
        with pytest.raises(StoreClosed, match="it is closed"):
            await store.create("/b")

    asyncio.run(scenario())


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be opened"):
        EmbeddedStore(tmp_path / "file" / "store")


_WRITER = """
import asyncio, sys
from pathlib import Path
from tidelog.metadata.embedded.embedded_store import EmbeddedStore

async def main():
    store = EmbeddedStore(Path(sys.argv[1]), journal_limit_bytes=2000)
    while True:
        print(await store.create("/n", b"x" * 30, sequential=True), flush=True)

asyncio.run(main())
"""


def test_a_killed_writer_loses_nothing_that_it_was_told_is_written(tmp_path: Path) -> None:
    for acknowledged in (1, 57, 200):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        told = [writer.stdout.readline().strip() for _ in range(acknowledged)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read().split()
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        assert "" not in told
        found = reopened(tmp_path)
        assert set(told) <= set(found)
        assert sorted(found) == [f"/n{number:010d}" for number in range(len(found))]
