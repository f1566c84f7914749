"""Indexes that are found wrong or missing when they are first used: they are rebuilt beside the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import CorruptRecordError, ErrorCode
from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Log
from tidelog.storage.segment import index_rebuild
from tidelog.storage.segment.index_rebuild import INLINE_BYTES, IndexesNotReady

OpenLog = Callable[..., Log]
NOW = 1_700_000_000_000
BATCHES = 40


@pytest.fixture
def directory(open_log: OpenLog, tmp_path: Path) -> Path:
    """A log whose first segment is larger than what is looked at on the loop, and a second one."""
    log = open_log()
    for number in range(BATCHES):
        log.append_as_leader(bytearray(batch(number)), 0)
    log.roll()
    log.append_as_leader(bytearray(encode_batch([Record(timestamp=NOW, value=b"v")])), 0)
    log.close()
    return tmp_path / "orders-0"


def batch(number: int) -> bytes:
    return encode_batch([Record(timestamp=NOW + number, value=b"v" * (INLINE_BYTES // 20))])


def spoil(directory: Path) -> bytes:
    """Let the first index end with an entry that points behind the log; gives what it was."""
    path = directory / "00000000000000000000.index"
    good = path.read_bytes()
    path.write_bytes(good[:-8] + b"\x7f\xff\xff\xff\x7f\xff\xff\xff")
    return good


def make_again(directory: Path) -> None:
    """As when a topic of the same name is made right after it was deleted."""
    directory.mkdir()


def first_offset(log: Log, offset: int) -> int:
    return next(iter_batches(log.read_bytes(offset, 1000)))[1].base_offset


def test_a_large_segment_is_read_in_a_thread_and_whoever_asks_is_told_to_ask_again(
    open_log: OpenLog, directory: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = spoil(directory)
    threads: list[int] = []
    real = index_rebuild.read_headers

    def read_headers(*args: object) -> index_rebuild.RebuiltIndexes:
        threads.append(threading.get_ident())
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("tidelog.storage.segment.segment.read_headers", read_headers)

    async def scenario() -> None:
        log = open_log()
        with pytest.raises(IndexesNotReady) as told:
            log.read(5, 1000)
        assert told.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(IndexesNotReady):
            log.segments.first.max_timestamp  # noqa: B018
        assert first_offset(log, BATCHES) == BATCHES, "other segments are read meanwhile"
        await told.value.ready
        assert [first_offset(log, offset) for offset in range(BATCHES)] == list(range(BATCHES))
        assert log.segments.first.max_timestamp.timestamp == NOW + BATCHES - 1

    asyncio.run(scenario())
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    assert (directory / "00000000000000000000.index").read_bytes() == good
    assert not list(directory.glob("*.rebuilt"))


@pytest.mark.parametrize("lost", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_loaded_on_the_loop_is_loaded_though_an_index_must_be_rebuilt(
    open_log: OpenLog, directory: Path, lost: str, clean: bool
) -> None:
    """Nobody is served before all logs are loaded: there is nothing to be kept from waiting."""
    if clean:
        # The end of the log is looked for in this segment.
        for path in directory.glob(f"{BATCHES:020}.*"):
            path.unlink()
    else:
        # Nothing else says which producers there were before the segment that is checked.
        for path in directory.glob("*.snapshot"):
            path.unlink()
    path = directory / f"{0:020}{lost}"
    good = path.read_bytes()
    path.write_bytes(good[:-8] + b"\x7f" * 8)

    async def scenario() -> None:
        log = open_log(clean=clean, recovery_point=BATCHES, log_start_offset=5)
        assert log.log_end_offset == BATCHES + (not clean)
        assert path.read_bytes() == good
        spoil(directory)
        with pytest.raises(IndexesNotReady) as told:
            log.read(7, 1000)
        await told.value.ready

    asyncio.run(scenario())


def test_so_is_one_where_a_crash_has_left_a_swap_with_such_an_index(
    open_log: OpenLog, directory: Path
) -> None:
    good = spoil(directory)
    for path in directory.glob(f"{0:020}.*"):
        path.rename(path.with_name(path.name + ".swap"))

    async def scenario() -> None:
        log = open_log()
        assert first_offset(log, 7) == 7
        assert log.log_end_offset == BATCHES + 1

    asyncio.run(scenario())
    assert (directory / "00000000000000000000.index").read_bytes() == good


def test_one_who_gives_up_waiting_for_indexes_leaves_the_others_waiting(
    open_log: OpenLog, directory: Path
) -> None:
    spoil(directory)

    async def scenario() -> None:
        log = open_log()
        with pytest.raises(IndexesNotReady) as told:
            log.read(5, 1000)
        gives_up, waits = (asyncio.ensure_future(told.value.wait()) for _ in range(2))
        await asyncio.sleep(0)
        gives_up.cancel()
        await waits
        assert gives_up.cancelled()
        assert first_offset(log, 5) == 5

    asyncio.run(scenario())


def test_an_index_that_was_deleted_under_the_broker_is_rebuilt(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    (directory / "00000000000000000000.timeindex").unlink()
    assert first_offset(log, 7) == 7
    assert log.segments.first.max_timestamp.timestamp == NOW + BATCHES - 1


def test_what_is_appended_while_indexes_are_rebuilt_is_indexed_too(
    open_log: OpenLog, directory: Path
) -> None:
    async def scenario() -> None:
        log = open_log()
        segment = log.segments.first
        log.truncate_to(BATCHES - 1)
        assert log.segments.active is segment
        log.append_as_leader(bytearray(batch(BATCHES - 1)), 0)
        with pytest.raises(IndexesNotReady) as told:
            segment._rebuild_indexes()
        for number in range(BATCHES, BATCHES + 4):
            log.append_as_leader(bytearray(batch(number)), 0)
        await told.value.ready
        log.update_high_watermark(log.log_end_offset)
        for number in range(BATCHES + 4, BATCHES + 8):
            log.append_as_leader(bytearray(batch(number)), 0)
        log.update_high_watermark(log.log_end_offset)
        segment.forget_positions()
        assert [first_offset(log, offset) for offset in range(BATCHES + 8)] == list(range(BATCHES + 8))
        assert segment.max_timestamp.timestamp == NOW + BATCHES + 7
        assert segment.offset_index.entries > BATCHES

    asyncio.run(scenario())


def test_a_segment_that_is_damaged_itself_is_read_once_and_then_called_damaged(
    open_log: OpenLog, directory: Path
) -> None:
    spoil(directory)
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[16] = 7
    path.write_bytes(data)

    async def scenario() -> None:
        log = open_log()
        with pytest.raises(IndexesNotReady) as told:
            log.read(5, 1000)
        await told.value.ready
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="no record batch"):
                log.read(5, 1000)

    asyncio.run(scenario())


@pytest.mark.parametrize("change", ["cut", "closed", "deleted"])
def test_indexes_of_a_segment_that_has_changed_meanwhile_are_thrown_away(
    open_log: OpenLog, directory: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    was_read, may_finish = threading.Event(), threading.Event()
    real = index_rebuild.read_headers

    def read_headers(*args: object) -> index_rebuild.RebuiltIndexes:
        rebuilt = real(*args)  # type: ignore[arg-type]
        was_read.set()
        assert may_finish.wait(20)
        return rebuilt

    monkeypatch.setattr("tidelog.storage.segment.segment.read_headers", read_headers)

    async def scenario() -> None:
        log = open_log()
        segment = log.segments.first
        assert segment.offset_index.entries
        with pytest.raises(IndexesNotReady) as told:
            segment._rebuild_indexes()
        assert was_read.wait(20)
        match change:
            case "cut":
                log.truncate_to(5)
                for number in range(5, 8):
                    log.append_as_leader(bytearray(batch(number + 1000)), 0)
            case "closed":
                log.files.close_handles()
            case "deleted":
                log.files.rename_for_delete()
                log.files.close_handles()
                make_again(directory)
        may_finish.set()
        await told.value.ready
        if change != "cut":
            assert not segment.files.is_open
        if change == "deleted":
            return
        end = log.log_end_offset
        log.update_high_watermark(end)
        segment.forget_positions()
        last = min(end, BATCHES) - 1
        assert segment.offset_index.last_offset <= last
        assert [first_offset(log, offset) for offset in range(end)] == list(range(end))
        assert segment.max_timestamp.timestamp == NOW + last + (1000 if change == "cut" else 0)

    asyncio.run(scenario())
    assert not list(directory.glob("*.rebuilt"))
