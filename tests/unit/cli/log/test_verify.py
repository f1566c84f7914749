from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.ids import TopicPartition
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.checkpoints import RECOVERY_POINT_FILE, OffsetCheckpoint

Tidelog = Callable[..., tuple[int, str, str]]


def logs(partition_dir: Path) -> list[Path]:
    return sorted(partition_dir.glob("*.log"))


def report(tidelog: Tidelog, directory: Path) -> dict[str, object]:
    _, out, _ = tidelog("log", "verify", "--json", directory)
    [found] = json.loads(out)["partitions"]
    return found  # type: ignore[no-any-return]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def restart(partition_dir: Path, recovery_point: int = 0) -> Log:
    return Log.open(
        LogContext(partition_dir, LogConfig(), ManualClock()),
        clean_shutdown=False,
        recovery_point=recovery_point,
    )


def test_a_sound_directory_is_a_table_and_exit_code_0(partition_dir: Path, tidelog: Tidelog) -> None:
    code, out, err = tidelog("log", "verify", "--headings", partition_dir.parent)
    assert (code, err) == (0, "")
    header, row = (line.split("\t") for line in out.splitlines())
    found = dict(zip(header, row, strict=True))
    assert found["partition"] == "orders-0"
    assert found["segments"] == str(len(logs(partition_dir)))
    assert (found["batches"], found["records"], found["offsets"]) == ("43", "44", "0..44")
    assert found["state"] == "ok"


def test_a_single_partition_can_be_named(partition_dir: Path, tidelog: Tidelog) -> None:
    assert tidelog("log", "verify", partition_dir)[0] == 0
    assert report(tidelog, partition_dir)["sound"] is True


def test_nothing_is_changed(partition_dir: Path, tidelog: Tidelog) -> None:
    flip(logs(partition_dir)[0], 80)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition_dir.iterdir()}
    tidelog("log", "verify", partition_dir)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition_dir.iterdir()} == before


def test_a_torn_tail_says_what_a_restart_cuts_and_the_restart_cuts_just_that(
    partition_dir: Path, tidelog: Tidelog
) -> None:
    last = logs(partition_dir)[-1]
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(b"\0" * 30)
    code, out, err = tidelog("log", "verify", partition_dir.parent)
    assert code == 1
    assert "\tDAMAGED" in out
    assert (
        f"orders-0: a restart would truncate the log to offset 44 ({last.name} at byte {size}) "
        "and lose 30 bytes" in out
    )
    assert err == f"error: {partition_dir.parent} has 1 damaged partition\n"
    assert restart(partition_dir).log_end_offset == 44
    assert last.stat().st_size == size


@pytest.mark.parametrize("segment", [0, 1])
def test_rot_in_the_middle_loses_the_later_segments_and_the_restart_agrees(
    partition_dir: Path, tidelog: Tidelog, segment: int
) -> None:
    flip(logs(partition_dir)[segment], 200)
    found = report(tidelog, partition_dir)
    later = len(logs(partition_dir)) - segment - 1
    assert f"delete {later} later segment" in str(found["restart"])
    log = restart(partition_dir)
    assert f"truncate the log to offset {log.log_end_offset} " in str(found["restart"])
    assert len(logs(partition_dir)) == segment + 1


def test_rot_below_the_recovery_point_is_left_alone_by_a_restart(
    partition_dir: Path, tidelog: Tidelog
) -> None:
    flip(logs(partition_dir)[0], 80)
    checkpoint = OffsetCheckpoint(partition_dir.parent / RECOVERY_POINT_FILE)
    checkpoint.write({TopicPartition("orders", 0): 44})
    assert "a restart keeps it unchanged, below the recovery point 44" in str(
        report(tidelog, partition_dir)["restart"]
    )
    assert restart(partition_dir, recovery_point=44).log_end_offset == 44


def test_after_a_clean_shutdown_nothing_is_recovered(partition_dir: Path, tidelog: Tidelog) -> None:
    flip(logs(partition_dir)[-1], 80)
    (partition_dir.parent / ".kafka_cleanshutdown").touch()
    assert "after this clean shutdown" in str(report(tidelog, partition_dir)["restart"])


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
def test_a_broken_index_or_snapshot_is_found_and_costs_no_record(
    partition_dir: Path, tidelog: Tidelog, suffix: str
) -> None:
    path = sorted(partition_dir.glob(f"*.{suffix}"))[-1]
    path.write_bytes(path.read_bytes() + b"\1")
    code, out, _ = tidelog("log", "verify", partition_dir)
    assert code == 1
    assert f"orders-0: {path.name}" in out
    assert "no records are lost" in out
    assert report(tidelog, partition_dir)["damage"] == []


def test_a_missing_index_of_a_finished_segment_is_found(partition_dir: Path, tidelog: Tidelog) -> None:
    path = sorted(partition_dir.glob("*.timeindex"))[0]
    path.unlink()
    assert report(tidelog, partition_dir)["repairs"] == [f"{path.name}: missing"]


def test_an_index_without_a_segment_is_found(partition_dir: Path, tidelog: Tidelog) -> None:
    stray = partition_dir / "00000000000000009999.index"
    stray.touch()
    assert report(tidelog, partition_dir)["repairs"] == [f"{stray.name}: its segment is missing"]


def test_overlapping_segments_are_found(partition_dir: Path, tidelog: Tidelog) -> None:
    first, second = logs(partition_dir)[:2]
    shutil.copy(first, partition_dir / f"{int(second.stem) - 1:020d}.log")
    found = report(tidelog, partition_dir)
    assert any("the segment before it ends at offset" in text for text in found["damage"])  # type: ignore[attr-defined]


def test_a_broken_checkpoint_of_the_log_directory_is_found(partition_dir: Path, tidelog: Tidelog) -> None:
    (partition_dir.parent / RECOVERY_POINT_FILE).write_text("0\n5\n")
    code, out, err = tidelog("log", "verify", partition_dir.parent)
    assert code == 1
    assert RECOVERY_POINT_FILE in out
    assert "1 damaged file" in err


def test_a_directory_without_partitions_is_refused(tmp_path: Path, tidelog: Tidelog) -> None:
    code, _, err = tidelog("log", "verify", tmp_path)
    assert (code, "contains no partition" in err) == (1, True)
    code, _, err = tidelog("log", "verify", tmp_path / "none")
    assert (code, "is not a directory" in err) == (1, True)


def test_a_partition_that_waits_for_deletion_is_passed_over(partition_dir: Path, tidelog: Tidelog) -> None:
    flip(logs(partition_dir)[0], 80)
    waiting = partition_dir.with_name("orders-0.0123456789abcdef0123456789abcdef-delete")
    partition_dir.rename(waiting)
    (partition_dir.parent / "other-0").mkdir()
    assert tidelog("log", "verify", partition_dir.parent)[0] == 0
