"""The audit log as a file of JSON lines (``tidelog.audit.log.file``), written by a thread of its own.

A disk may take seconds over a line, and a full one takes none: the loop only puts entries into a buffer that
is bounded in number and bytes. What does not fit is counted, and the count is the next entry. While the disk
refuses to write, the thread tries again every second, from the byte at which it stopped; the part of a line
that a broker has left at its end takes nothing of the next one's. The file may be renamed or removed at any
time: a new one is made, and begins with a whole line.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from pathlib import Path

import msgspec

from tidelog.clock import Clock
from tidelog.printable import printable_json

logger = logging.getLogger(__name__)

_MAX_ENTRIES = 20_000
_MAX_BYTES = 8 * 1024 * 1024
_BATCH_ENTRIES = 200
_RETRY_S = 1.0
_LAST_WORDS_S = 3.0


class AuditFile:
    """Appends lines to a file, in the background."""

    def __init__(
        self, path: Path, clock: Clock, max_entries: int = _MAX_ENTRIES, max_bytes: int = _MAX_BYTES
    ) -> None:
        """Raises ``OSError`` if the file cannot be written."""
        self._path = path
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._fd = self._open()
        self._changed = threading.Condition()
        self._entries: deque[bytes] = deque()
        self._bytes = 0
        self._lost = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-file", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Have a line written, if there is room for it."""
        with self._changed:
            if len(self._entries) >= self._max_entries or self._bytes + len(line) > self._max_bytes:
                self._lost += 1
                return
            self._entries.append(line)
            self._bytes += len(line)
            self._changed.notify()

    def close(self) -> None:
        """Write what is left, unless the disk does not take it, and end."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(_LAST_WORDS_S)

    def _run(self) -> None:
        end_of_torn_line = b"\n" if _ends_within_a_line(self._path) else b""
        while batch := self._next():
            # Principals and resources have names that clients choose.
            shown = (printable_json(line.decode()).encode() for line in batch)
            if not self._written(end_of_torn_line + b"\n".join(shown) + b"\n"):
                left = len(batch) + len(self._entries) + self._lost
                logger.error("Up to %d entries of the audit log were not written to %s", left, self._path)
                break
            end_of_torn_line = b""
        os.close(self._fd)

    def _written(self, lines: bytes) -> bool:
        """Write them, however long the disk refuses; whether that was before the end."""
        done = 0
        failing = False
        while done < len(lines):
            try:
                if self._reopened_if_moved():
                    # From the line that it stopped in; what ends a torn one is not for a new file.
                    done = lines.rfind(b"\n", 0, max(done, 1)) + 1
                done += os.write(self._fd, memoryview(lines)[done:])
            except OSError as error:
                if not failing:
                    logger.error("The audit log %s cannot be written: %s", self._path, error.strerror)
                failing = True
                if self._closing.wait(_RETRY_S):
                    return False
        if failing:
            logger.info("The audit log %s is written again", self._path)
        return True

    def _next(self) -> list[bytes]:
        """The next lines, once there are some; none at the end."""
        with self._changed:
            while not self._entries and not self._lost and not self._closing.is_set():
                self._changed.wait()
            batch = [self._entries.popleft() for _ in range(min(_BATCH_ENTRIES, len(self._entries)))]
            self._bytes -= sum(map(len, batch))
            if self._lost and not self._entries:
                lost, self._lost = self._lost, 0
                batch.append(msgspec.json.encode({"timestampMs": self._clock.time_ms(), "lostEntries": lost}))
            return batch

    def _reopened_if_moved(self) -> bool:
        ours = os.fstat(self._fd)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            fd = self._open()
            os.close(self._fd)
            self._fd = fd
            return True
        return False

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


def _ends_within_a_line(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe or a device, which cannot be asked
            return False
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(size_bytes - 1, 0))
            return file.read(1) not in (b"\n", b"")
    except OSError:  # it may be that we may only write to it
        return False
