"""The lock on a log directory: one broker, ours or Apache Kafka, at a time.

``.lock`` is an empty file that stays behind; what counts is the POSIX record lock on it, the kind that Java's
``FileChannel.lock`` takes, which the kernel drops with the process. Such a lock does not keep the same
process from taking it twice, and closing *any* descriptor of the file drops it, so the files held by this
process are remembered here and never opened again. Used by ``log_dir``.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from tidelog.errors import StorageError
from tidelog.storage.disk import REAL_DISK, Disk

LOCK_FILE: Final = ".lock"

_held_here: set[Path] = set()


class DirectoryLock:
    """A held lock; :meth:`release` gives it back."""

    def __init__(self, directory: Path, disk: Disk = REAL_DISK) -> None:
        """Take the lock; :class:`StorageError` if somebody has it, ``OSError`` if the disk fails."""
        self._key = directory.resolve() / LOCK_FILE
        if self._key in _held_here:
            raise _taken(directory)
        self._disk = disk
        self._fd: int | None = disk.open(self._key, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            disk.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _taken(directory) from error
            raise
        _held_here.add(self._key)

    def release(self) -> None:
        """Let others have the directory; a second call does nothing."""
        if self._fd is not None:
            _held_here.discard(self._key)
            self._disk.close(self._fd)
            self._fd = None


def _taken(directory: Path) -> StorageError:
    return StorageError(
        f"another broker is using the log directory {directory} (its {LOCK_FILE} file is locked): "
        "stop that broker, or give this one a directory of its own with log.dirs"
    )
