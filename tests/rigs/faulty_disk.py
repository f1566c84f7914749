"""A disk that fails when a test says so.

Hand it to ``Log.open`` in its ``LogContext``. It writes real files; what it adds is a budget of bytes after
which the disk is full (the last write before that falls short, as the kernel does it), calls that fail once,
and a count of syncs, which it leaves out to keep tests fast.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from tidelog.storage.disk import Disk

_Buffer = bytes | bytearray | memoryview


class FaultyDisk(Disk):
    """Satisfies :class:`tidelog.storage.disk.Disk`."""

    def __init__(self) -> None:
        self.free_bytes: int | None = None
        self.syncs = 0
        self.written_calls = 0
        self._failures: dict[str, int] = {}

    def fail_next(self, call: str, code: int = errno.EIO) -> None:
        """Let the next ``call`` (``"pwrite"``, ``"rename"`` …) fail with the error number ``code``."""
        self._failures[call] = code

    def _maybe_fail(self, call: str) -> None:
        code = self._failures.pop(call, None)
        if code is not None:
            raise OSError(code, os.strerror(code))

    def _take(self, wanted: int) -> int:
        if self.free_bytes is None:
            return wanted
        if self.free_bytes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(wanted, self.free_bytes)
        self.free_bytes -= taken
        return taken

    def pwrite(self, fd: int, data: _Buffer, position: int) -> int:  # type: ignore[override]
        self._maybe_fail("pwrite")
        self.written_calls += 1
        return os.pwrite(fd, memoryview(data)[: self._take(len(data))], position)

    def pwritev(self, fd: int, buffers: Sequence[_Buffer], position: int) -> int:  # type: ignore[override]
        self._maybe_fail("pwritev")
        self.written_calls += 1
        joined = b"".join(buffers)
        return os.pwrite(fd, joined[: self._take(len(joined))], position)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        self._maybe_fail("open")
        return os.open(path, flags, mode)

    def ftruncate(self, fd: int, length: int) -> None:
        self._maybe_fail("ftruncate")
        os.ftruncate(fd, length)

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self._maybe_fail("fsync")
        os.fstat(fd)
        self.syncs += 1

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        self._maybe_fail("rename")
        os.rename(source, target)  # noqa: PTH104 (the call that Disk makes)

    def unlink(self, path: Path) -> None:  # type: ignore[override]
        self._maybe_fail("unlink")
        os.unlink(path)  # noqa: PTH108 (the call that Disk makes)
