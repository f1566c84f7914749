"""The audit log: what was changed through the console, by whom, whether it went well. One JSON object a line.

A line is written when a change is done or refused, and again is read from the end of the file for the page;
values of records and passwords are not in it. The part of a line that a crash or a full disk leaves is ended
before the next entry. What people name is cut, and only so many failed logins an hour are noted, so that
nobody pushes the entries of others out of the file or off the page. The file grows to ``_LARGEST_BYTES`` and
is then kept under another name (``audit.1.jsonl``), as are the ``_KEPT_FILES`` before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

LOGIN = "login"
"""The action that strangers are noted for."""
_FAILED_LOGINS = 100
_FAILED_LOGINS_MS = 3_600_000
"""So many are noted in so long; of the others their number."""
_LARGEST_BYTES = 32 * 1024 * 1024
_KEPT_FILES = 8
_READ_BYTES = 1024 * 1024
"""At a time, from the end of a file on."""
_LONGEST_TEXT = 300
_MOST_ITEMS = 40
_DEEPEST = 3


class AuditEntry(msgspec.Struct, frozen=True):
    """One change."""

    at_ms: int
    user: str
    address: str
    cluster: str
    action: str
    target: str
    outcome: str
    """``done``, or why not."""
    details: dict[str, object] = {}


class AuditLog:
    """Appends to one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._full_bytes = _LARGEST_BYTES
        self._failed_since_ms = 0
        self._failed = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open(path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"--data-dir: cannot write the audit log {path}: {reason}") from None

    def note(self, entry: AuditEntry) -> None:
        """Append an entry; one that cannot be written is at least in the console's log."""
        line = msgspec.json.encode(_bounded(entry)) + b"\n"
        try:
            self._append(line)
        except OSError as error:
            logger.error("cannot write the audit log %s (%s): %s", self._path, error, line.decode())
            return
        size_bytes = os.fstat(self._file).st_size
        if size_bytes <= self._full_bytes:
            return
        try:
            self._begin_anew()
        except OSError as error:
            self._full_bytes = size_bytes + _LARGEST_BYTES
            logger.error("cannot rotate the audit log %s, which keeps growing: %s", self._path, error)

    def note_failed_login(self, entry: AuditEntry) -> None:
        """Append that somebody whom nobody knows could not log in, unless there were many lately."""
        if not 0 <= entry.at_ms - self._failed_since_ms < _FAILED_LOGINS_MS:
            left_out = max(self._failed - _FAILED_LOGINS, 0)
            self._failed_since_ms, self._failed = entry.at_ms, 0
            if left_out:
                details = {**entry.details, "not_noted": left_out}
                entry = msgspec.structs.replace(entry, details=details)
        self._failed += 1
        if self._failed <= _FAILED_LOGINS:
            self.note(entry)

    def newest(self, limit: int, cluster: str | None = None) -> list[AuditEntry]:
        """The last entries, the newest first, of this file and of the one before; blocks.

        Of a cluster those about it, and those about none, however many others are between them.
        """
        with contextlib.ExitStack() as opened:
            files: list[BinaryIO] = []
            for path in (self._path, self._kept(1)):
                with contextlib.suppress(FileNotFoundError):
                    files.append(opened.enter_context(path.open("rb")))
            if len(files) == 2 and os.path.sameopenfile(files[0].fileno(), files[1].fileno()):
                del files[1]  # it was put away between the two
            entries = _entries_from_the_end(files)
            wanted = (each for each in entries if cluster is None or each.cluster in (cluster, ""))
            return list(islice(wanted, limit))

    def close(self) -> None:
        os.close(self._file)

    def _append(self, line: bytes) -> None:
        size_bytes = os.fstat(self._file).st_size
        if size_bytes and os.pread(self._file, 1, size_bytes - 1) != b"\n":
            line = b"\n" + line
        while line:
            # A disk that is nearly full takes a part, and refuses the rest.
            line = line[os.write(self._file, line) :]

    def _kept(self, number: int) -> Path:
        return self._path.with_suffix(f".{number}.jsonl")

    def _begin_anew(self) -> None:
        """Put the file among those that are kept; if that fails, lines go on into the one that is open."""
        fresh = self._path.with_suffix(".new")
        file = _open(fresh)
        try:
            if self._path.exists():  # else it was put there before, and the rest has failed
                for number in range(_KEPT_FILES - 1, 0, -1):
                    if self._kept(number).exists():
                        self._kept(number).replace(self._kept(number + 1))
                self._path.replace(self._kept(1))
            fresh.replace(self._path)
        except OSError:
            os.close(file)
            raise
        # Closed last: a number that is closed may be a browser's connection by the next line.
        file, self._file = self._file, file
        os.close(file)
        self._full_bytes = _LARGEST_BYTES


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)


def _entries_from_the_end(files: Iterable[BinaryIO]) -> Iterator[AuditEntry]:
    for file in files:
        for line in _lines_from_the_end(file):
            with contextlib.suppress(*DECODE_ERRORS):  # torn by a crash
                yield msgspec.json.decode(line, type=AuditEntry)


def _lines_from_the_end(file: BinaryIO) -> Iterator[bytes]:
    at = file.seek(0, os.SEEK_END)
    first = b""  # of what was read; it may begin further ahead
    while at:
        size = min(_READ_BYTES, at)
        at = file.seek(at - size)
        first, *lines = (file.read(size) + first).split(b"\n")
        yield from reversed(lines)
    yield first


def _bounded(entry: AuditEntry) -> AuditEntry:
    return AuditEntry(
        entry.at_ms,
        _cut(entry.user),
        _cut(entry.address),
        _cut(entry.cluster),
        entry.action,
        _cut(entry.target),
        _cut(entry.outcome),
        {name: _cut_all(value) for name, value in entry.details.items()},
    )


def _cut_all(value: object, depth: int = 0) -> object:
    match value:
        case str():
            return _cut(value)
        case int() if abs(value) > 1 << 63:
            return "a number of many digits"
        case dict() | list() if depth >= _DEEPEST:
            return "…"
        case dict():
            kept = {
                _cut(str(key)): _cut_all(each, depth + 1) for key, each in list(value.items())[:_MOST_ITEMS]
            }
            return kept if len(value) <= _MOST_ITEMS else {**kept, "…": f"{len(value)} in total"}
        case list():
            kept_ = [_cut_all(each, depth + 1) for each in value[:_MOST_ITEMS]]
            return kept_ if len(value) <= _MOST_ITEMS else [*kept_, f"… {len(value)} in total"]
    return value


def _cut(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
