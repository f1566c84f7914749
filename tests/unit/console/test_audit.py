"""The audit log: entries are short, whole, in order, and outlive a file that is full."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tidelog.console.people import audit as audit_module
from tidelog.console.people.audit import AuditEntry, AuditLog


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
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) < 50_000
    assert [each.at_ms for each in log.newest(10)] == [3, 2, 1]
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


def test_a_line_that_a_crash_has_torn_is_passed_over(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(entry(1))
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write('{"at_ms":2,"user":"José'.encode()[:-1] + b'","x":1}\n')  # within a character
    log.note(entry(3))
    assert log.newest(10) == [entry(3), entry(1)]
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
