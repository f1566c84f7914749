"""The audit log as a file: nothing that a disk does holds the loop up, and what is lost is counted."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.waiting import wait_until

from tidelog.broker.access import audit_file
from tidelog.broker.access.audit_file import AuditFile


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_lines_are_written_in_their_order_and_all_of_them_by_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("before\n")
    file = AuditFile(path, ManualClock())
    for number in range(1000):
        file.write(str(number).encode())
    file.close()
    assert lines(path) == ["before", *map(str, range(1000))]


def test_a_line_that_the_last_broker_did_not_end_takes_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('before\n{"timest')
    for number in (b"1", b"2"):
        file = AuditFile(path, ManualClock())
        file.write(number)
        file.close()
    assert lines(path) == ["before", '{"timest', "1", "2"]


def test_a_file_that_is_made_anew_does_not_end_the_line_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    path.write_text('before\n{"timest')
    looked = threading.Event()
    look = audit_file._ends_within_a_line

    def looking(path: Path) -> bool:
        found = look(path)
        looked.set()
        return found

    monkeypatch.setattr(audit_file, "_ends_within_a_line", looking)
    file = AuditFile(path, ManualClock())
    assert looked.wait(60)
    path.rename(kept)
    file.write(b"one")
    file.write(b"two")
    file.close()
    assert (lines(kept), lines(path)) == (["before", '{"timest'], ["one", "two"])


def test_a_file_that_was_renamed_or_removed_is_made_anew(tmp_path: Path) -> None:
    path, kept = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    file = AuditFile(path, ManualClock())
    file.write(b"one")
    wait_until(lambda: lines(path) == ["one"])
    path.rename(kept)
    file.write(b"two")
    wait_until(lambda: lines(path) == ["two"])
    path.unlink()
    file.write(b"three")
    file.close()
    assert (lines(kept), lines(path)) == (["one"], ["three"])


def test_an_entry_that_a_full_disk_has_cut_short_is_whole_in_the_file_that_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes room on a full disk puts such files away."""
    monkeypatch.setattr(audit_file, "_RETRY_S", 0.01)
    path, kept = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    room = [8]
    write = os.write

    def write_until_full(fd: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(fd, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr("tidelog.broker.access.audit_file.os.write", write_until_full)
    file = AuditFile(path, ManualClock())
    file.write(b"first")
    wait_until(lambda: lines(path) == ["first"])
    file.write(b"second")
    wait_until(lambda: lines(path) == ["first", "se"])
    path.rename(kept)
    room[0] = 1000
    wait_until(lambda: len(lines(path)) == 1)
    file.write(b"third")
    file.close()
    assert (lines(kept), lines(path)) == (["first", "se"], ["second", "third"])


@pytest.mark.parametrize(("entries", "size"), [(3, 1000), (1000, 30)], ids=["in number", "in bytes"])
def test_what_a_full_disk_leaves_behind_is_bounded_and_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    entries: int,
    size: int,
) -> None:
    monkeypatch.setattr(audit_file, "_RETRY_S", 0.01)
    path = tmp_path / "audit.jsonl"
    path.symlink_to("/dev/full")
    file = AuditFile(path, ManualClock(), entries, size)
    with caplog.at_level(logging.INFO):
        file.write(b"0123456789")
        wait_until(lambda: "cannot be written: No space left on device" in caplog.text)
        for _ in range(10):
            file.write(b"0123456789")
        path.unlink()
        wait_until(lambda: len(lines(path)) == 5)
    file.close()
    *written, lost = lines(path)
    assert written == ["0123456789"] * 4
    assert json.loads(lost)["lostEntries"] == 7
    assert "is written again" in caplog.text
    assert caplog.text.count("cannot be written") == 1


def test_a_disk_that_stays_full_does_not_keep_the_broker_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    path.symlink_to("/dev/full")
    file = AuditFile(path, ManualClock())
    file.write(b"entry")
    wait_until(lambda: "cannot be written" in caplog.text)
    file.write(b"another")
    file.close()
    assert "Up to 2 entries of the audit log were not written" in caplog.text


def test_a_file_that_cannot_be_made_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AuditFile(tmp_path / "no" / "audit.jsonl", ManualClock())


def test_it_is_not_left_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    AuditFile(tmp_path / "audit.jsonl", ManualClock()).close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_character_from_a_peer_changes_how_a_line_looks(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    entry = {"principal": "User:\u202egro\u200b\x7fünal"}
    audit = AuditFile(path, ManualClock())
    audit.write(json.dumps(entry, ensure_ascii=False).encode())
    audit.close()
    text = path.read_text()
    assert text[:-1].isprintable()
    assert json.loads(text) == entry
