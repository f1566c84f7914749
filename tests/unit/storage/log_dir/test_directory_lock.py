"""The lock on a log directory holds against other processes and against ourselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.errors import StorageError
from tidelog.storage.log_dir.directory_lock import DirectoryLock

# Java's FileChannel.tryLock is fcntl(F_SETLK) over the whole file, which is what this does.
TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(3)
"""


def locked_for_others(directory: Path) -> bool:
    run = subprocess.run([sys.executable, "-c", TRY_TO_LOCK, str(directory / ".lock")], check=False)
    return run.returncode == 3


def test_another_process_cannot_lock_until_release(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    assert locked_for_others(tmp_path)
    lock.release()
    lock.release()
    assert not locked_for_others(tmp_path)


def test_the_same_process_cannot_lock_twice_and_trying_does_not_lose_the_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(StorageError, match="another broker is using"):
        DirectoryLock(tmp_path)
    assert locked_for_others(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_lock_that_another_process_holds_is_refused_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\n"
            "file = open(sys.argv[1], 'r+')\n"
            "fcntl.lockf(file, fcntl.LOCK_EX)\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n",
            str(tmp_path / ".lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StorageError, match=r"stop that broker, or give this one .*log\.dirs"):
            DirectoryLock(tmp_path)
        holder.stdin.close()
    DirectoryLock(tmp_path).release()
