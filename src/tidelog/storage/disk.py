"""The file calls that a log makes, gathered so that tests can make any of them fail.

A log, its segments and its checkpoints take one :class:`Disk` when they are built and bind its functions
then: on the real disk a call is the ``os`` function itself and costs nothing extra. Tests hand in a
subclass that runs out of space, writes short or forgets what was not synced. Reads through memory maps do
not pass here; writes through them only touch pages that a ``pwrite`` has paid for (see ``mapped_index``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.errors import LogDirOfflineError


class Disk:
    """The machine's own file calls."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    ftruncate = staticmethod(os.ftruncate)
    truncate = staticmethod(os.truncate)
    fsync = staticmethod(os.fsync)
    rename = staticmethod(os.rename)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)

    def sync_path(self, path: Path) -> None:
        """Make a file's bytes, or a directory's names, outlive a power failure."""
        fd = self.open(path, os.O_RDONLY)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def write_atomically(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Replace a small file: readers and crashes see the old bytes or the new ones, never a mixture.

        Without ``sync`` that holds for a crash of the process; the loss of the machine may leave it empty.
        """
        temporary = path.with_name(path.name + ".tmp")
        fd = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self.write_all(fd, data, 0)
            if sync:
                self.fsync(fd)
        finally:
            self.close(fd)
        self.replace(temporary, path)
        if sync:
            self.sync_path(path.parent)

    def write_all(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write every byte of ``data`` at ``position``, however many calls the kernel wants for it."""
        view = memoryview(data)
        while view:
            written = self.pwrite(fd, view, position)
            position += written
            view = view[written:]


REAL_DISK: Final = Disk()


class LogFile:
    """An open file whose descriptor lives as long as anybody holds this object.

    A fetch answer may still be on its way out of a segment that retention has just deleted. It keeps the
    ``LogFile``, so the descriptor is neither closed under it nor handed out again for another file.
    """

    __slots__ = ("__weakref__", "_disk_close", "fd")

    def __init__(self, fd: int, disk: Disk) -> None:
        self.fd = fd
        self._disk_close = disk.close

    def fileno(self) -> int:
        return self.fd

    def __del__(self) -> None:
        self._disk_close(self.fd)


@contextmanager
def offline_on_error(directory: Path, doing: str) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into the log directory's going offline."""
    try:
        yield
    except OSError as error:
        raise log_dir_offline(directory, doing, error) from error


def log_dir_offline(directory: Path, doing: str, error: OSError) -> LogDirOfflineError:
    """The error that takes the log directory of the partition directory ``directory`` away.

    Unless the process may not open any more files: then :class:`OutOfFilesError`, and the directory stays.
    """
    if is_out_of_files(error):
        return OutOfFilesError(
            f"{doing} in {directory} failed ({error.strerror or error}): raise the limit of open files "
            "(ulimit -n)",
            str(directory.parent),
        )
    return LogDirOfflineError(
        f"{doing} in {directory} failed ({error.strerror or error}); the log directory {directory.parent} "
        "goes offline: repair the disk and restart the broker",
        str(directory.parent),
    )


class OutOfFilesError(LogDirOfflineError):
    """The process may not open any more files, which is no fault of the disk's.

    Clients are told what they are told of a log directory that has failed, and try again; ``log_dirs`` lets
    go of files instead of the directory.
    """


class StagedRecordsLostError(LogDirOfflineError):
    """Batches of several requests could not be written together, which is no fault of the disk's.

    An index of their segment is being rebuilt, or cannot be. Clients are told what they are told of a log
    directory that has failed, and try again; the directory stays.
    """


def is_out_of_files(error: BaseException) -> bool:
    """Whether something failed because the process, or the machine, has as many files open as it may."""
    if isinstance(error, OutOfFilesError):
        return True
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def leaves_directory(error: BaseException) -> bool:
    """Whether an error is no fault of the disk's, so that its log directory stays online and what failed can
    be tried again."""
    return is_out_of_files(error) or isinstance(error, StagedRecordsLostError)
