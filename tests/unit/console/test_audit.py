"""The audit log: entries are short, whole, in order, and outlive a file that is full."""

from __future__ import annotations

import errno
import json
import os
import resource
from pathlib import Path

import pytest
from msgspec.structs import replace

from tidelog.console.auth import audit as audit_module
from tidelog.console.auth.audit import AuditEntry, AuditLog


def entry(number: int, target: str = "", **details: object) -> AuditEntry:
    return AuditEntry(number, "alice", "127.0.0.1", "main", "delete topic", target, "done", details)


def test_an_entry_is_one_short_line_whatever_people_name(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1, "first"))
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    log.note(entry(2, "x\n" * 1_000_000, topic="y\r\n" * 1_000_000, many=list(range(100_000)), deep=deep))
    log.note(entry(3, names={f"{number}" * 1000: "z" * 10_000 for number in range(1000)}, huge=10**100))
    log.note(replace(entry(4), user="u" * 100_000, address="a" * 100_000, cluster="\1" * 100_000))
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) < 50_000
    assert [each.at_ms for each in log.newest(10)] == [4, 3, 2, 1]
    assert "2000000 characters" in json.loads(lines[1])["target"]
    log.close()


def test_lines_that_are_none_of_ours_are_passed_over(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1))
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"user": "\xff"}\n' + b"[" * 100_000 + b"\n")
    log.note(entry(2))
    assert [each.at_ms for each in log.newest(10)] == [2, 1]
    log.close()


def test_files_that_were_full_are_kept_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "_LARGEST_BYTES", 1000)
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(60):
        log.note(entry(number, "t" * 100))
    log.close()
    found = sorted(
        json.loads(line)["at_ms"]
        for path in tmp_path.glob("audit*.jsonl")
        for line in path.read_text().splitlines()
    )
    assert len(list(tmp_path.glob("audit.*.jsonl"))) == 8
    assert found == list(range(found[0], 60))
    assert len(found) >= 32


def test_entries_of_the_file_that_was_just_full_are_among_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_LARGEST_BYTES", 1000)
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(60):
        log.note(entry(number, "t" * 100))
        assert [each.at_ms for each in log.newest(3)] == list(range(number, max(number - 3, -1), -1))
    log.close()


def test_what_is_done_in_one_cluster_pushes_nothing_of_another_out_of_sight(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    login = AuditEntry(1, "alice", "127.0.0.1", "", "login", "", "done")
    for each in (login, entry(2), *(replace(entry(number), cluster="other") for number in range(3, 1000))):
        log.note(each)
    assert log.newest(10, "main") == [entry(2), login]
    assert [each.at_ms for each in log.newest(2, "other")] == [999, 998]
    log.close()


def test_what_is_told_has_no_holes_however_much_of_other_clusters_is_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_LARGEST_BYTES", 30_000)
    monkeypatch.setattr(audit_module, "_READ_BYTES", 1000)
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(150):
        log.note(entry(number, "t" * (number * 7 % 300)))
        if number % 30 == 0:
            log.note(replace(entry(number), cluster="quiet"))
    assert (tmp_path / "audit.1.jsonl").exists()
    assert not (tmp_path / "audit.2.jsonl").exists()
    assert [each.at_ms for each in log.newest(1000, "main")] == list(reversed(range(150)))
    assert [each.at_ms for each in log.newest(1000, "quiet")] == [120, 90, 60, 30, 0]
    log.close()


def test_a_file_that_is_put_away_while_it_is_read_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1))
    found: list[Path] = []
    really_open = Path.open

    def open_and_put_away(path: Path, mode: str) -> object:
        opened = really_open(path, mode)
        if not found:
            found.append(path)
            log._begin_anew()
        return opened

    monkeypatch.setattr(Path, "open", open_and_put_away)
    assert log.newest(10) == [entry(1)]
    assert found == [tmp_path / "audit.jsonl"]
    log.close()


def test_a_line_that_a_crash_has_torn_is_passed_over(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1))
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write('{"at_ms":2,"user":"José'.encode()[:-1] + b'","x":1}\n')  # within a character
    log.note(entry(3))
    assert log.newest(10) == [entry(3), entry(1)]
    log.close()


def test_an_entry_after_a_full_disk_has_a_line_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "audit.jsonl").stat().st_size + 20, hard))
    try:
        log.note(entry(2))  # of which twenty bytes are written
        log.note(entry(3))  # of which nothing is
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.note(entry(4))
    assert log.newest(10) == [entry(4), entry(1)]
    assert ['"at_ms":2' in each.getMessage() for each in caplog.records] == [True, False]
    log.close()


def test_an_entry_after_a_crash_has_a_line_of_its_own(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1))
    log.close()
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"at_ms":2,"user":"al')
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(3))
    assert log.newest(10) == [entry(3), entry(1)]
    log.close()


def test_an_entry_that_is_taken_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    really_write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: really_write(file, data[:7]))
    log.note(entry(1))
    log.note(entry(2))
    assert log.newest(10) == [entry(2), entry(1)]
    log.close()


def test_failed_logins_are_bounded_and_those_left_out_are_counted(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1))
    for _ in range(1000):
        log.note_failed_login(AuditEntry(2, "", "10.0.0.9", "", "login", "", "no such user", {"user": "x"}))
    found = log.newest(2000)
    assert len(found) == 101
    assert found[-1] == entry(1)
    log.note(entry(3))  # what people do is always there
    hour_later = AuditEntry(3_600_002, "", "10.0.0.9", "", "login", "", "no such user", {"user": "y"})
    log.note_failed_login(hour_later)
    log.note_failed_login(hour_later)
    last, told, done = log.newest(3)
    assert (told.details, last.details) == ({"user": "y", "not_noted": 900}, {"user": "y"})
    assert done == entry(3)
    log.close()


@pytest.mark.parametrize("step", ["open", "keep", "name"])
def test_a_full_file_that_cannot_be_put_away_takes_the_next_lines_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "audit.jsonl"
    refused = {"open": tmp_path / "audit.new", "keep": path, "name": tmp_path / "audit.new"}[step]
    really_open, really_replace = os.open, Path.replace

    def try_open(name: Path, *more: int) -> int:
        if step == "open" and name == refused:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really_open(name, *more)

    def try_replace(name: Path, target: Path) -> Path:
        if step != "open" and name == refused:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return really_replace(name, target)

    monkeypatch.setattr(audit_module, "_LARGEST_BYTES", 1000)
    log = AuditLog(path)
    with monkeypatch.context() as failing:
        failing.setattr(os, "open", try_open)
        failing.setattr(Path, "replace", try_replace)
        for number in range(8):
            log.note(entry(number, "t" * 100))
        # Whoever opens something now has no number that the log writes to.
        others = [really_open(tmp_path / f"other-{number}", os.O_RDWR | os.O_CREAT) for number in range(3)]
        log.note(entry(8, "t" * 100))
        assert log.newest(1) == [entry(8, "t" * 100)]
        assert [os.fstat(each).st_size for each in others] == [0, 0, 0]
    for number in range(9, 40):
        log.note(entry(number, "t" * 100))
    for each in others:
        os.close(each)
    log.close()
    kept = sorted(tmp_path.glob("audit.*.jsonl"), reverse=True)
    lines = [line for each in (*kept, path) for line in each.read_text().splitlines()]
    assert [json.loads(line)["at_ms"] for line in lines] == list(range(40))
    assert len(kept) >= 2
