"""Topics with ``flush.messages``: a leader counts on what its followers have synced, not on what they were
sent."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk
from tests.rigs.replica_set import ReplicaSet
from tests.rigs.waiting import until

from tidelog.records.record import Record, encode_batch
from tidelog.replication.partition import ACKS_ALL
from tidelog.storage.disk import OutOfFilesError
from tidelog.storage.log import log_files
from tidelog.storage.log_config import LogConfig

SYNCED = LogConfig(flush_messages=1, min_insync_replicas=2)


def batch(value: bytes) -> memoryview:
    return memoryview(bytearray(encode_batch([Record(timestamp=1, value=value)])))


def test_a_follower_tells_only_of_what_it_has_synced(tmp_path: Path) -> None:
    async def test() -> None:
        replicas = ReplicaSet(tmp_path, 3, ManualClock(), SYNCED)
        replicas.elect(1, isr=(1, 2, 3))
        for value in (b"a", b"b", b"c"):
            replicas[1].append(batch(value), ACKS_ALL)
            for _ in range(4):
                await replicas.rounds(1)
                for broker in (2, 3):
                    told = replicas[1]._followers.get(broker)
                    assert told is not None
                    assert told.log_end_offset <= replicas[broker].log.files.recovery_point
        await until(lambda: replicas[1].log.high_watermark == 3)
        replicas.close()

    asyncio.run(test())


def test_what_a_crash_left_unsynced_is_synced_before_a_leader_counts_on_it(tmp_path: Path) -> None:
    async def test() -> None:
        replicas = ReplicaSet(tmp_path, 2, ManualClock(), LogConfig(min_insync_replicas=2))
        replicas.elect(1, isr=(1, 2))
        replicas[1].append(batch(b"a"), ACKS_ALL)
        await replicas.rounds(2)
        # From now on it is a topic that is synced, and both brokers have been killed.
        replicas._config = SYNCED
        for broker in (1, 2):
            replicas.restart(broker, clean=False)
            assert replicas[broker].log.files.recovery_point == 0
        replicas.elect(1, isr=(1, 2))
        assert replicas[1].log.high_watermark == 0
        await until(lambda: replicas[1].log.files.recovery_point == 1)
        await replicas.rounds(2)
        assert replicas[2].log.files.recovery_point == 1
        await until(lambda: replicas[1].log.high_watermark == 1)
        replicas.close()

    asyncio.run(test())


def test_a_follower_whose_sync_finds_no_file_to_open_syncs_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_SYNC_ATTEMPTS", 0)

    async def test() -> None:
        disk = FaultyDisk()
        replicas = ReplicaSet(tmp_path, 2, ManualClock(), SYNCED, disks={2: disk})
        replicas.elect(1, isr=(1, 2))
        replicas[1].append(batch(b"a"), ACKS_ALL)
        await replicas.rounds(1)
        disk.fail_next("fsync", errno.EMFILE)
        await replicas.rounds(1)
        assert [type(error) for error in replicas.lost] == [OutOfFilesError]
        assert replicas[2].needs_sync
        await replicas.rounds(3)
        await until(lambda: replicas[1].log.high_watermark == 1)
        replicas.close()

    asyncio.run(test())
