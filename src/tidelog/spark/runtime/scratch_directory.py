"""Directories that are thrown away, by whoever comes next where their process could not.

    <parent>/<name>-<random>        what a process keeps for as long as it works
    <parent>/<name>-<random>.lock   locked by that process; the kernel lets go of it however the process ends

A directory whose lock nobody holds is left over, and goes. One without such a file is left alone: nobody
knows whose it is. Used by backfills (``alert_job``), whose state is phone numbers of months.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidelog.spark.runtime.private_directory import make_private

logger = logging.getLogger(__name__)

_LOCK = ".lock"


@contextmanager
def scratch_directory(parent: Path, name: str) -> Iterator[Path]:
    """A directory for as long as this is open; what others have left over of the same name goes."""
    remove_leftovers(parent, name)
    path, lock = _locked(parent, name)
    try:
        make_private(path)
        yield path
    finally:
        _remove(path)
        os.close(lock)


def remove_leftovers(parent: Path, name: str) -> None:
    """Remove the directories of processes that have ended without."""
    for lock_path in parent.glob(f"{name}-*{_LOCK}"):
        try:
            lock = os.open(lock_path, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock_path.with_suffix(""))
            finally:
                os.close(lock)
        except (BlockingIOError, FileNotFoundError):
            continue  # at work, or gone meanwhile
        except OSError as error:
            logger.warning("what %s stands for is left over and cannot be removed: %s", lock_path, error)


def _locked(parent: Path, name: str) -> tuple[Path, int]:
    """A path that nobody has used, and its lock."""
    while True:
        path = parent / f"{name}-{uuid.uuid4().hex}"
        lock = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _lock_of(path).exists():
            return path, lock
        # Somebody else had it between the two lines above, and took it for a leftover.
        os.close(lock)


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{_LOCK}")


def _remove(path: Path) -> None:
    """The lock last: what a process leaves that is killed here, the next one still finds."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
    _lock_of(path).unlink(missing_ok=True)
